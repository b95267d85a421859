"""What is told of GPUs that trials share: now, and in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep.core.packing.card import ShareLimits
from sweep.core.paths import StudyFolder
from sweep.core.system.seats import CardNotice
from sweep.results.page import charts_profile
from sweep.results.shared_gpus import Shared, read_gpus, read_shared, usual_lengths
from sweep.storage.gpu_shares import EndedTrial
from tests.core.packed_card import Training, by_points, simulate

ABOUT = {
    "gpu": "0",
    "host": "n1",
    "level": 4,
    "why": "memory",
    "text": "a trial needs up to 9 GB",
    "trials": [3, 5],
}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"mps": "on"}, "(memory: a trial needs up to 9 GB); MPS is on"),
        ({"mps_why": "no program"}, "9 GB); MPS is off: no program"),
        ({}, "9 GB); MPS is off"),
    ],
)
def test_a_line(tmp_path: Path, more: dict[str, str], line: str) -> None:
    """With whether MPS serves them, and why not; what an earlier version wrote says neither."""
    folder = StudyFolder(tmp_path)
    card = folder.cards / "n1-0" / "card.json"
    card.parent.mkdir(parents=True)
    card.write_text(CardNotice(about=ABOUT | more).to_json())
    (found,) = read_gpus(folder, [3])
    assert found.line().startswith("0 on n1: 2 trials of 4 (") and found.line().endswith(line)
    assert found.to_dict()["mps"] == more.get("mps", "off")
    assert read_gpus(folder, [4]) == []


def test_how_long_a_trial_takes_beside_others(tmp_path: Path) -> None:
    """What ended alone took 10 s, what ended beside three others 20 s: beside one other 15 s."""
    folder = StudyFolder(tmp_path)
    measured = {"1": 1.0, "2": 1.5, "4": 2.0}
    for gpu, trials, slower in (("0", [3, 5], measured), ("1", [7], {}), ("2", [8, 9], "odd")):
        card = folder.cards / f"n1-{gpu}" / "card.json"
        card.parent.mkdir(parents=True)
        about = ABOUT | {"gpu": gpu, "trials": trials, "slowdowns": slower}
        card.write_text(CardNotice(about=about).to_json())
    gpus = read_gpus(folder, [3, 5, 7, 8, 9])
    assert [gpu.gpu for gpu in gpus] == ["0", "1"]  # what nobody can read says nothing
    first = gpus[0]
    assert [first.slowdown(n) for n in (1.0, 1.9, 2.4, 3.4, 16.0)] == [1.0, 1.5, 1.5, 1.5, 2.0]
    ended = [EndedTrial(10.0, 1.0), EndedTrial(20.0, 3.8)]
    assert first.usual_s(ended) == pytest.approx(15.0)
    # On the second nothing was measured: they count as they are.
    assert usual_lengths(gpus, ended) == pytest.approx({3: 15.0, 5: 15.0, 7: 15.0})
    assert usual_lengths(gpus, ended[:1]) == pytest.approx({3: 15.0, 5: 15.0, 7: 10.0})
    assert usual_lengths(gpus, []) == {}


def test_the_report(tmp_path: Path) -> None:
    """Against one alone, as far as it was measured; the course of memory and work; a line that was
    cut off, and what is no file of ours, does not count."""
    folder = StudyFolder(tmp_path)
    assert read_shared(folder) == Shared([], {})
    folder.cards.mkdir(parents=True)
    trainings = [Training(f"t{number}", work_s=60.0) for number in range(16)]
    limits = ShareLimits(4)
    done = simulate(trainings, by_points({1: 1.0, 2: 2.0, 4: 4.0}), limits)
    measured = done.state.to_remember()
    levels = {
        "H200, mps on, command c": {**measured, "decided": 4},
        "A100, mps off, command c": {"decided": 1},
        "T4, mps off, command c": {"decided": None},
        "odd": 7,
    }
    (folder.cards / "levels.json").write_text(json.dumps(levels))
    look = {"gpu": "0", "host": "n1", "busy": 0.5, "memory_bytes": 20, "total_bytes": 80}
    looks = [{"at_s": 100.0, **look}, {"at_s": 110.5, **look, "busy": None, "total_bytes": None}]
    text = "".join(json.dumps(one) + "\n" for one in looks)
    (folder.cards / "n1-0.course.jsonl").write_text(text + '{"at_s": 120')
    (folder.cards / "n1-1.course.jsonl").write_text("[]\n")
    found = read_shared(folder)
    first, second = found.gains
    assert first.startswith("H200, mps on: 4 trials at once, ")
    assert first.endswith(" times as many trials a GPU-hour as one alone")
    assert second == "A100, mps off: 1 trial at once"
    assert found.courses == {
        "GPU 0 on n1": {"s": [0.0, 10.5], "gpu_busy": [0.5, None], "gpu_memory": [0.25, None]}
    }
    later = {"at_s": 120.5, **look, "busy": 1.0}
    (folder.cards / "n1-7_0-0.course.jsonl").write_text(json.dumps(later) + "\n")
    assert read_shared(folder).courses["GPU 0 on n1"]["s"] == [0.0, 10.5, 20.5]  # one after another
    (chart,) = charts_profile.course("a GPU", found.courses["GPU 0 on n1"], "shared")
    assert (chart.key, chart.title) == ("shared-devices", "GPUs over time")
    assert len(chart.spec["data"]["values"]) == 2
