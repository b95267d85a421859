"""What is said of trials that train now: how far, until when, what they wait for."""

from __future__ import annotations

import dataclasses
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from sweep.core.paths import StudyFolder
from sweep.core.scheduler import TaskState
from sweep.core.study import Objective, Resources
from sweep.results import plain_lines, terminal
from sweep.results.running import RunningLine, lines_of
from sweep.results.running_table import RunningTable, bars
from sweep.results.running_text import ends
from sweep.results.status import snapshot
from sweep.storage import running_rows
from sweep.storage.ledger import Ledger
from sweep.storage.running_rows import RunningTrial
from sweep.storage.series import Summary
from tests.postgres_fixture import database_url, postgres_server, shared_database  # noqa: F401
from tests.results.test_terminal import counts, make_status
from tests.study_rows import NOON, Row, Tried, fill, make_study

LOSS = (Objective("loss", "minimize"),)


def row(**changes: Any) -> RunningTrial:
    """Return a first attempt that reports a step each 10 s and has come to step 12."""
    given: dict[str, Any] = {
        "trial": 3,
        "attempt": 1,
        "host": "node1.cluster.example",
        "job": "77",
        "index": 4,
        "trained_s": 125.0,
        "used_s": 0.0,
        "unseen_s": 2.0,
        "is_started": True,
        "first_step": 2,
        "first_s": 1000.0,
        "last_step": 12,
        "last_s": 1100.0,
        "silent_s": 5.0,
        "summary": Summary(0.5, 0.25, 2.0),
    }
    return RunningTrial(**(given | changes))


def line_of(tmp_path, of=None, lengths=(20, 20), mean_s=300.0, **changes: Any) -> RunningLine:
    study = make_study(objectives=LOSS)
    (line,) = lines_of([of or row(**changes)], study, lengths, mean_s, StudyFolder(tmp_path))
    return line


@pytest.mark.parametrize(
    ("lengths", "mean_s", "changes", "share", "left_s"),
    [
        ((20, 20), 300.0, {}, 0.6, 75.0),  # 8 steps of 10 s, 5 s of which have gone
        ((19, 20), 300.0, {}, 0.6, 75.0),  # nearly alike
        ((10, 20), 300.0, {}, None, 175.0),  # of unlike lengths: by the mean time
        (None, 300.0, {}, None, 175.0),
        (None, None, {}, None, None),  # nothing was complete yet
        ((20, 20), 300.0, {"last_step": 30}, None, None),  # longer than the others: nobody knows
        ((20, 20), 300.0, {"last_step": 20}, 1.0, 0.0),
        ((20, 20), 300.0, {"first_step": 12}, 0.6, 175.0),  # one report has no pace
        ((20, 20), 300.0, {"used_s": 100.0, "attempt": 2}, 0.6, 75.0),
        ((20, 20), 300.0, {"last_step": None, "first_step": None, "used_s": 100.0}, None, 75.0),
        ((0, 0), 300.0, {}, None, 175.0),  # who reports once at step 0 tells no length
    ],
)
def test_how_far_and_until_when(tmp_path, lengths, mean_s, changes, share, left_s):
    """By its own pace to the step at which others ended, else by how long they took."""
    line = line_of(tmp_path, lengths=lengths, mean_s=mean_s, **changes)
    assert (line.share, line.left_s) == (share, left_s)


def test_until_when_beside_others(tmp_path):
    """Until it has a pace of its own, by how long a trial takes on its GPU now."""
    rows = [row(trial=1, first_step=12), row(trial=2, first_step=12), row(trial=3)]
    study, usual_s = make_study(objectives=LOSS), {1: 400.0, 3: 400.0}
    folder = StudyFolder(tmp_path)
    lines = lines_of(rows, study, (20, 20), 300.0, folder, None, usual_s)
    assert [line.left_s for line in lines] == [275.0, 175.0, 75.0]


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({}, ""),
        ({"unseen_s": 300.0}, "its task has not been heard of for 5 min"),
        ({"is_started": False, "last_step": None}, "its training is about to start"),
        ({"last_step": None}, "no report yet"),
        ({"last_step": None, "attempt": 2}, "no report yet of this attempt"),
        ({"silent_s": 59.0}, ""),
        ({"silent_s": 90.0}, "no report for 90 s"),
        ({"silent_s": 90.0, "last_s": 1200.0}, ""),  # 20 s a step: within its pace
        ({"silent_s": 4000.0}, "no report for 2 min"),  # another clock; it has trained 125 s
        ({"silent_s": -4000.0}, ""),
    ],
)
def test_what_it_waits_for(tmp_path, changes, waits):
    """In words, where something is odd."""
    assert line_of(tmp_path, **changes).waits == waits


def test_values_and_order(tmp_path):
    """The best is the objective's; who waits for something comes first."""
    rows = [row(trial=1), row(trial=2, unseen_s=400.0), row(trial=4)]
    study = make_study(objectives=LOSS)
    lines = lines_of(rows, study, None, None, StudyFolder(tmp_path))
    assert [line.trial for line in lines] == [2, 1, 4]
    assert (lines[0].last, lines[0].best) == (0.5, 0.25)
    study = make_study(objectives=(Objective("loss", "maximize"),))
    assert lines_of(rows, study, None, None, StudyFolder(tmp_path))[0].best == 2.0


@pytest.mark.parametrize(
    ("record", "gpu"),
    [
        ({"environment": {"cuda_visible_devices": "0,3"}}, "0,3"),
        ({"environment": {}}, ""),
        ({"environment": ["odd"]}, ""),
        (None, ""),
    ],
)
def test_which_gpu(tmp_path, record, gpu):
    """From what the attempt's own record says; a study without GPUs is not asked."""
    path = StudyFolder(tmp_path).attempt(3, 1).provenance
    path.parent.mkdir(parents=True)
    if record is not None:
        path.write_text(json.dumps(record))
    study = make_study(objectives=LOSS, resources=Resources(gpus=2))
    (line,) = lines_of([row()], study, None, None, StudyFolder(tmp_path))
    assert line.gpu == gpu
    assert line_of(tmp_path).gpu == ""


def write_report(ledger: Ledger, trial: int, attempt: int, step: int, value: float) -> None:
    ledger.db.execute(
        "INSERT INTO sweep_metric SELECT trial_id, %s, 'loss', %s, %s, "
        "EXTRACT(EPOCH FROM clock_timestamp()) - 700 FROM trials WHERE number = %s",
        (attempt, step, value, trial),
    )


def test_what_the_database_knows(database_url, tmp_path):  # noqa: F811
    """Live attempts with their steps; the lineage's values; lengths; the best's way."""
    done = [
        Row(values=[value], params={}, attempts=(Tried(took_s=60.0 * n),))
        for n, value in enumerate((0.5, 0.75, 0.25, 0.375), 1)
    ]
    two = Row("RUNNING", attempts=(Tried("lost", took_s=100.0), Tried(None)))
    rows = [*done, two, Row("RUNNING", attempts=(Tried("lost"),)), Row("WAITING", attempts=())]
    ledger = fill(database_url, make_study(objectives=LOSS, trials=7), rows)
    for trial in range(4):
        write_report(ledger, trial, 1, 9, 0.5)
    for attempt, step, value in ((1, 0, 3.0), (1, 1, 0.125), (2, 1, 2.0), (2, 2, 1.0)):
        write_report(ledger, 4, attempt, step, value)
    ledger.db.execute(
        "UPDATE sweep_attempt SET first_step = 1 WHERE number = 2; UPDATE sweep_attempt "
        "SET seen = clock_timestamp(), process_group = 7 WHERE outcome IS NULL"
    )
    (found,) = running_rows.read_running(ledger)
    assert (found.trial, found.attempt, found.job, found.index) == (4, 2, "j1", 4)
    assert (found.first_step, found.last_step, found.used_s) == (1, 2, 100.0)
    assert found.summary == Summary(1.0, 1.0, 3.0)  # the second attempt repeated step 1
    assert found.is_started and found.replicate == 1
    assert 0 <= found.unseen_s < 700 <= (found.silent_s or 0)
    assert running_rows.read_lengths(ledger) == (9, 9)
    assert running_rows.read_best_so_far(ledger, 40) == [0.5, 0.5, 0.25, 0.25]
    assert running_rows.read_best_so_far(ledger, 2) == [0.5, 0.25]
    assert running_rows.read_best_so_far(ledger, 3) == [0.5, 0.25, 0.25]
    tasks = {("j1", 4): TaskState("running"), ("j1", 5): TaskState("running")}
    status = snapshot(ledger, StudyFolder(tmp_path), tasks)
    assert status.spare_tasks == 1
    told = status.to_dict()["running"][0]
    assert (told["trial"], told["step"], told["last"], told["best"]) == (4, 2, 1.0, 1.0)


def shown(lines: list[RunningLine], width: int, **options: Any) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(RunningTable(lines, NOON, **options))
    return [text.rstrip() for text in out.getvalue().splitlines()]


def test_the_table_fits(tmp_path):
    """What is needed least goes first, and no line is wider than the place."""
    long = dataclasses.replace(
        line_of(tmp_path, attempt=12), node="gpu-a100-0123.cluster", gpu="0,1"
    )
    assert shown([long], 100)[0].split() == [
        *("trial", "attempt", "where", "step", "last", "best", "time", "ends")
    ]
    for width in (20, 30, 40, 50, 60, 80, 200):
        lines = shown([long] * 3, width)
        assert max(map(len, lines)) <= width
        assert lines[1].split()[:1] == ["3"]
    assert shown([long], 50)[0].split() == ["trial", "attempt", "step", "last", "time", "ends"]


def test_a_further_training_is_no_further_attempt(tmp_path):
    """Of a trial with several it is said which one trains; attempts where they are more."""
    third = line_of(tmp_path, attempt=3, replicate=3)
    assert shown([third], 100)[0].split()[:3] == ["trial", "training", "where"]
    again = line_of(tmp_path, attempt=4, replicate=3)
    assert shown([third, again], 100)[0].split()[:3] == ["trial", "training", "attempt"]
    said = "\n".join(plain_lines.status_lines(make_status(running=[third, again])))
    assert "running: trial 3, on node1, training 3, step" in said
    assert "running: trial 3, on node1, training 3, attempt 4, step" in said
    assert third.to_dict(NOON)["replicate"] == 3


def test_the_table_says_what_it_leaves_out(tmp_path):
    """Only so many, and how to see the others; what somebody waits for stands below."""
    lines = [dataclasses.replace(line_of(tmp_path), trial=n, waits="") for n in range(20)]
    lines[0] = dataclasses.replace(lines[0], waits="no report yet")
    found = shown(lines, 80)
    assert found[-2:] == ["trial 0: no report yet", "and 12 more: sweep status --all"]
    assert len(shown(lines, 80, shown=None)) == 22


def test_when_it_ends(tmp_path, monkeypatch):
    """What comes soon by how soon, what comes later by the clock."""
    soon = line_of(tmp_path)
    assert ends(soon, NOON) == "in 75 s"
    later = dataclasses.replace(soon, left_s=7200.0)
    assert ends(later, NOON) == f"at {(NOON + timedelta(hours=2)).astimezone():%H:%M}"
    assert ends(dataclasses.replace(soon, left_s=None), NOON) == ""


def test_bars():
    """The least is the lowest bar, the greatest the highest; equal ones are low."""
    assert bars([0.0, 0.5, 1.0]) == "▁▅█"
    assert bars([2.0, 2.0]) == "▁▁"
    assert bars([-1e308, 1e308]) == "▁▁"


def test_panel_and_plain_lines(tmp_path):
    """The panel has a row for what runs; a pipe gets a line each, without frames."""
    line = line_of(tmp_path, attempt=2)
    status = make_status(
        now=NOON, running=[line], spare_tasks=1, best_so_far=[3.0, 2.0, 1.0], metric="loss"
    )
    out = io.StringIO()
    Console(file=out, width=100).print(terminal.status_panel(status))
    text = out.getvalue()
    assert "█▅▁ best so far" in text
    assert "2 running, 1 of them without a trial, 1 pending" in text
    assert "trial  attempt  where" in text
    lines = list(plain_lines.status_lines(status))
    assert lines[0] == "digits: running"
    assert lines[1].startswith("trials: 4 of 10 trials have ended (3 complete")
    assert (
        "running: trial 3, on node1, attempt 2, step 12 (60 %), loss 0.5, best 0.25, for 2:05, "
        "ends in 75 s" in lines
    )
    assert not any(set("│╭╰█") & set(text) for text in lines)


def test_an_ascii_terminal_has_no_bars():
    """What it cannot draw is left out."""

    class Ascii(io.StringIO):
        encoding = "ascii"  # type: ignore[assignment]

    out = Ascii()
    status = make_status(best_so_far=[3.0, 2.0], counts=counts(complete=10))
    Console(file=out, width=60).print(terminal.status_panel(status))
    assert out.getvalue().isascii()
    assert "best so far" not in out.getvalue()
