"""The benchmark of packing: its studies are valid, and its rows say what happened."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks.packing import (
    CASES,
    MOST,
    SYNTHETIC,
    TINY,
    Leg,
    Row,
    Watch,
    most_at_once,
    read_legs,
    summarise,
    table,
    write_study,
)
from sweep.core.study import Share
from sweep.studyfile import loads
from trainer.config import Options


@pytest.mark.parametrize("case", [*CASES.values(), SYNTHETIC, TINY])
def test_the_trainer_knows_what_is_fixed(case: dict[str, object]) -> None:
    """Each is one of its options."""
    assert set(case) <= {option.name for option in fields(Options)}


@pytest.mark.parametrize(
    ("leg", "share", "parallel"),
    [
        (Leg("auto", 96), Share(max=MOST), MOST),
        (Leg("8", 40), Share(max=8, measured=False), 8),
        (Leg("1", 8), None, 1),
    ],
)
def test_a_legs_study(leg: Leg, share: Share | None, parallel: int, tmp_path: Path) -> None:
    """It shares as the leg says, and as many run at once as may."""
    path = write_study(tmp_path, "leg", leg, CASES["mnist"], 1)
    study = loads(path.read_text(), str(path))
    assert study.resources.share == share
    assert (study.trials, study.max_parallel) == (leg.trials, parallel)
    path = write_study(tmp_path, "cpu", leg, TINY, 0)
    on_cpu = loads(path.read_text(), str(path))
    assert (on_cpu.resources.gpus, on_cpu.resources.share) == (0, None)


def test_rows() -> None:
    """Trials an hour by the complete ones, from the launch on; the best by hand is the measure."""
    when = "2026-11-30T00:00:{:02d}+00:00"
    began = 1796083200.0  # 2026-12-01: lives lie before it, which only moves them
    rows = [
        {"state": "complete", "started": when.format(a), "ended": when.format(b), "value": b / 60}
        for a, b in ((1, 11), (5, 15), (12, 20))
    ]
    rows.append({"state": "failed", "started": when.format(1), "ended": when.format(2)})
    watch = Watch({"CUDA_VISIBLE_DEVICES": ""})
    watch.close()
    row = summarise(Leg("auto", 4), rows, began - 86400.0, watch, "finished", False)
    assert (row.complete, row.other, row.wall_s, row.per_hour) == (3, {"failed": 1}, 20.0, 540.0)
    assert (row.at_once, row.reached_s, row.trial_s) == (2, 5.0, 10.0)
    assert (row.memory_gb, row.joules) == (None, None)
    alone = Row("1", 2, 2, {}, 40.0, 180.0, 19.0, 1, 1.0, 1.2, 0.2, 90.0, 0.9, "", True)
    lines = table([alone, row]).splitlines()
    assert lines[-1].startswith("| auto | 4 | 3 | 20.0 | 540 | 3.00 | 3.00 |")
    assert lines[-2].startswith("| 1 | 2 | 2 (stopped) | 40.0 | 180 | 1.00 | 1.00 |")
    assert len({line.count("|") for line in lines}) == 1


def test_overlaps() -> None:
    """One that ends as another begins does not overlap it."""
    assert most_at_once([]) == (0, None)
    assert most_at_once([(0.0, 1.0), (1.0, 2.0)]) == (1, 0.0)
    assert most_at_once([(0.0, 5.0), (1.0, 2.0), (1.5, 3.0)]) == (3, 1.5)


@pytest.mark.parametrize("text", ["", "auto", "x:3", "4:", "-1:2", "4:2,"])
def test_legs_that_are_none(text: str) -> None:
    """They are refused."""
    assert read_legs("auto:96,8:40") == [Leg("auto", 96), Leg("8", 40)]
    with pytest.raises(argparse.ArgumentTypeError):
        read_legs(text)
