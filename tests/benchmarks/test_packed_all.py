"""The benchmark that goes on: what is left of its plan, and its medians."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import packed_all
from benchmarks.packed_all import KILLS, PLAN, Leg, Step, asked, left_of, medians, table
from benchmarks.packing import LR, write_study
from sweep.core.study import Share
from sweep.studyfile import loads


def row(per_hour: float, complete: int = 16, joules: float | None = None) -> dict[str, Any]:
    told = {"per_hour": per_hour, "trial_s": 10.0, "at_once": 1, "memory_gb": None, "busy": None}
    return {**told, "joules": joules, "trials": 16, "complete": complete, "again": 0}


def results(**more: Any) -> dict[str, Any]:
    return {"rows": {}, "kills": {}, "failed": {}, **more}


def test_what_is_left() -> None:
    """MNIST alone and by measurement three times; what was measured is not measured again, and what
    has failed twice is left out."""
    names = [step.name for step in PLAN]
    assert names.count("MNIST, alone") == names.count("MNIST, auto") == 3
    assert left_of(PLAN, results()) == list(PLAN)
    kills = PLAN[1].name
    some = results(rows={names[0]: [1], "memory, alone": [1]}, kills={kills: {}})
    left = left_of(PLAN, some)
    assert len(left) == len(PLAN) - 3 and left[0] == PLAN[2]
    assert len(left_of(PLAN, results(failed={kills: ["once"]}))) == len(PLAN)
    assert len(left_of(PLAN, results(failed={kills: ["once", "twice"]}))) == len(PLAN) - 1
    done = {name: [1, 2, 3] for name in names}
    assert left_of(PLAN, results(rows=done)) == []


def test_what_is_asked() -> None:
    """Each line of it has a step of the plan, says what it came to, and whether that holds."""
    assert [(value, holds) for _, value, holds in asked(results())] == [(None, None)] * 8
    rows = {step.name: [row(100.0, joules=50.0)] for step in PLAN if step.case != KILLS}
    rows["MNIST, auto"] = [row(460.0, joules=10.0)]
    rows["MNIST, 12 by hand"] = [row(500.0)]
    rows["memory, alone"] = [row(100.0, 15)]
    kind = {"trials": 4, "equal": 4}
    sound = {"kills": 50, "complete": 8, "trials": 8, "survivors": kind, "resumed": kind}
    odd = {**sound, "resumed": {"trials": 4, "equal": 3}}
    kills = {"kills under MPS": sound, "kills on Slurm": odd}
    told = {words: (value, holds) for words, value, holds in asked(results(rows=rows, kills=kills))}
    assert list(told.values()) == [
        (4.6, False),
        (0.92, True),
        (1.0, True),
        (0.2, None),
        (0, True),
        (1, False),
        (50, True),
        (50, False),
    ]


def test_a_step_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told and the next ones go on; results are there after each step."""
    path = tmp_path / "all.json"

    def measure(step: Step, folder: Path, given: Any, limit_s: float, found: Any) -> None:
        if step.case == KILLS:
            raise SystemExit("no database")
        found["rows"].setdefault(step.name, []).append(row(100.0))

    monkeypatch.setattr(packed_all, "_measure", measure)
    monkeypatch.setattr("shutil.which", lambda *_: None)
    words = ["--results", str(path), "--tiny"]
    assert packed_all.main([*words, "--minutes", "9"]) == 1
    found = json.loads(path.read_text())
    assert found["failed"] == {"kills under MPS": ["SystemExit: no database"]}
    assert set(found["rows"]) == {
        step.name for step in PLAN if step.executor == "local" and step.case != KILLS
    }
    assert packed_all.main([*words, "--minutes", "0"]) == 1  # nothing is begun
    assert json.loads(path.read_text())["failed"] == found["failed"]


def test_medians_and_rows() -> None:
    """Against the same study alone; trials that are missing are counted."""
    rows = {
        "MNIST, alone": [row(100.0), row(300.0), row(200.0)],
        "MNIST, auto": [row(1000.0, 14, 5.0), row(1400.0, joules=7.0)],
    }
    told = medians(rows)
    assert (told["MNIST, alone"]["per_hour"], told["MNIST, alone"]["joules"]) == (200.0, None)
    assert (told["MNIST, auto"]["missing"], told["MNIST, auto"]["joules"]) == (2, 6.0)
    lines = table(told).splitlines()
    assert lines[2].startswith("| MNIST, alone | 3 | 200 | 1.00 |")
    assert lines[3] == "| MNIST, auto | 2 | 1,200 | 6.00 | 10.0 | 1.0 |  |  | 6.0 | 2 | 0 |"
    assert {line.count("|") for line in lines} == {12}


@pytest.mark.parametrize("mps", ["auto", "on", "off"])
def test_mps_is_asked_for(mps: str, tmp_path: Path) -> None:
    for share, wanted in (("auto", Share(16, mps=mps)), ("8", Share(8, mps=mps, measured=False))):
        path = write_study(tmp_path, "leg", Leg(share, 4), {"epochs": 1}, 1, LR, "local", mps)
        assert loads(path.read_text(), str(path)).resources.share == wanted
