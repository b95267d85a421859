"""The benchmark of kills: its studies are valid, and what differs from a run alone is seen."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.packed_kills import RATES, Harm, curves_of, differences, training_now, write_study
from sweep.core.study import Share
from sweep.core.system.seats import Seat, SeatState
from sweep.studyfile import loads
from tests.waiting import PATIENCE_S, wait_for


@pytest.mark.parametrize(
    ("share", "executor", "expected", "parallel"),
    [
        ("1", "local", None, 1),
        ("12", "local", Share(max=12, measured=False), 12),
        ("auto", "slurm", Share(), 16),
    ],
)
def test_its_studies(
    share: str, executor: str, expected: Share | None, parallel: int, tmp_path: Path
) -> None:
    """Each rate so many times, whatever the copy's number, which no training is told."""
    path = write_study(tmp_path, "shared", 3, share, {"epochs": 2, "cuda_graphs": True}, executor)
    study = loads(path.read_text(), str(path))
    assert (study.resources.share, study.max_parallel) == (expected, parallel)
    assert study.trials == 3 * len(RATES)
    assert "--cuda-graphs=true" in study.command and "{copy}" not in " ".join(study.command)


def test_differences(tmp_path: Path) -> None:
    """All numbers of all attempts count, but the seconds; a line that was cut off does not."""

    def report(step: int, value: float, seconds: float) -> str:
        metrics = {"val_accuracy": value, "epoch_s": seconds}
        return json.dumps({"step": step, "time": 1.0, "metrics": metrics}) + "\n"

    for attempt, text in ((1, report(1, 0.5, 3.0) + '{"step": 2, "met'), (2, report(2, 0.75, 9.0))):
        folder = tmp_path / "trials/00003/attempts" / str(attempt)
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(text)
    (tmp_path / "trials/00004/attempts/1").mkdir(parents=True)
    curves = curves_of(tmp_path)
    assert curves == {3: [{1: {"val_accuracy": 0.5}}, {2: {"val_accuracy": 0.75}}]}
    alone = {1: {"val_accuracy": 0.5}, 2: {"val_accuracy": 0.5}}
    assert differences(curves[3], alone) == [0.0, 0.25]
    assert differences(curves[3], {1: {"val_accuracy": 0.5}}) == [0.0, math.inf]


def test_what_trains_now(tmp_path: Path) -> None:
    """A training is killed once it has reported, and not before."""
    folder = tmp_path / "host-0"
    folder.mkdir()
    seat, idle = Seat(folder / "seat-0.json"), Seat(folder / "seat-1.json")
    idle.ask(SeatState(token="b", trial=2))
    seat.ask(SeatState(token="a", trial=1))
    seat.begin(4711)
    assert training_now(tmp_path) == []
    seat._written = 0.0
    seat.report([(1.0, 1.0)])
    assert [(found.trial, found.group) for found in training_now(tmp_path)] == [(1, 4711)]


def test_what_is_ended_between_trainings(tmp_path: Path) -> None:
    """A task when half of the trainings are; where none is there to end, it stays due."""
    harm = Harm(kills=50, tasks=1)
    assert not harm.is_due(50, tmp_path)
    words = [sys.executable, "-c", "input()", "sweep.task", str(tmp_path)]
    task = subprocess.Popen(words, stdin=subprocess.PIPE)
    try:
        assert not harm.is_due(24, tmp_path)
        wait_for(lambda: harm.is_due(25, tmp_path), "the task to be found")
        assert task.wait(PATIENCE_S) == -signal.SIGKILL
        assert harm.tasks_ended == 1 and not harm.is_due(50, tmp_path)
    finally:
        task.kill()
        task.communicate()
