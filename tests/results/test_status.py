"""The status of studies in a real database."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from sweep.core import outcomes
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import TaskState
from sweep.core.study import Objective
from sweep.results import status
from sweep.results.status import snapshot
from sweep.storage import status_rows, studies
from sweep.storage.status_rows import Failure
from tests.postgres_fixture import database_url, postgres_server, shared_database  # noqa: F401
from tests.study_rows import NOON, Row, Tried, fill, make_study

COMPLETE = Row(values=[0.5], params={"lr": 0.25})
WAITING = Row("WAITING", attempts=())
RUNNING = Row("RUNNING", attempts=(Tried(None),))
PENDING_TASK = TaskState("pending", "PENDING", "Resources")
RUNNING_TASK = TaskState("running", "RUNNING")
ENDED_TASK = TaskState("ended", "COMPLETED")


def broken(reason: str) -> Row:
    return Row("RUNNING", attempts=(Tried("error", reason),))


STATES: list[tuple[list[Row], studies.StudyState | None, list[TaskState] | None, str, str]] = [
    ([COMPLETE, COMPLETE], None, [ENDED_TASK], "finished", ""),
    ([COMPLETE, COMPLETE], studies.StudyState("stopped", "by sweep stop"), [], "finished", ""),
    ([COMPLETE, RUNNING], None, [RUNNING_TASK], "running", ""),
    ([COMPLETE, RUNNING], None, None, "running", ""),
    ([COMPLETE, WAITING], None, [RUNNING_TASK], "running", ""),
    ([COMPLETE, WAITING], None, [PENDING_TASK], "queued", "the scheduler says: Resources"),
    (
        [COMPLETE, WAITING],
        None,
        [ENDED_TASK],
        "idle",
        "1 trial is left and no task is there to run them",
    ),
    (
        [COMPLETE, Row("RUNNING", attempts=(Tried("lost"),))],
        None,
        [],
        "idle",
        "1 trial is left and no task is there to run them",
    ),
    (
        [broken("exit code 1"), WAITING],
        studies.StudyState("held", "exit code 1"),
        [],
        "held",
        "exit code 1",
    ),
    ([broken("exit code 1")], None, [], "idle", "1 trial is left and no task is there to run them"),
    ([WAITING], studies.StudyState("stopped", "by sweep stop"), [], "stopped", "by sweep stop"),
    ([RUNNING], studies.StudyState("draining"), [RUNNING_TASK], "draining", ""),
]


@pytest.mark.parametrize(("rows", "wanted", "tasks", "state", "reason"), STATES)
def test_state(database_url, tmp_path, rows, wanted, tasks, state, reason):  # noqa: F811
    """The state follows what is left, what the study's row says, and what the scheduler says."""
    ledger = fill(database_url, make_study(trials=len(rows)), rows)
    if wanted:
        studies.write_state(ledger.db, ledger.study_id, wanted)
    polled = None if tasks is None else {("j1", i): task for i, task in enumerate(tasks)}
    status = snapshot(ledger, StudyFolder(tmp_path), polled)
    assert (status.state, status.reason) == (state, reason)


def test_json_is_the_contract(database_url, tmp_path):  # noqa: F811
    """The keys and values that scripts rely on."""
    rows = [
        Row(values=[0.5], params={"lr": 0.25}),
        Row(values=[0.75], params={"lr": 0.125, "model.hidden": [512, 256], "clip": None}),
        Row("PRUNED", [0.9], end={"state": "pruned", "reason": "pruned"}),
        Row("FAIL", end={"state": "failed", "outcome": "error", "reason": "exit code 1"}),
        WAITING,
        Row("FAIL", attempts=(), end={"state": "cancelled", "outcome": "cancelled"}),
    ]
    ledger = fill(database_url, make_study(), rows)
    log = StudyFolder(tmp_path).attempt(3, 1).log
    log.parent.mkdir(parents=True)
    log.write_text("boom\n")
    tasks = {("j1", 0): ENDED_TASK, ("j1", 1): PENDING_TASK, ("j1", 2): RUNNING_TASK}
    status = snapshot(ledger, StudyFolder(tmp_path), tasks, notes=["a note"])
    found: dict[str, Any] = json.loads(status.to_json())
    changing = ("elapsed_s", "left_s", "expected_end", "trials_per_hour")
    moving = {key: found.pop(key) for key in changing}
    assert found == {
        "name": "digits",
        "state": "running",
        "reason": "",
        "counts": {
            "waiting": 1,
            "running": 0,
            "complete": 2,
            "pruned": 1,
            "failed": 1,
            "cancelled": 1,
        },
        "best": {
            "trial": 1,
            "value": 0.75,
            "params": {"lr": 0.125, "model.hidden": [512, 256], "clip": None},
        },
        "front": [],
        "tasks": {"pending": 1, "running": 1},
        "trials": 6,
        "max_parallel": 2,
        "slots": 1,
        "spare_tasks": 1,
        "gpus": [],
        "proposals": {"prepared": 0, "made": 0, "late": 0, "longest_wait_s": 0.0},
        "running": [],
        "best_so_far": [0.5, 0.75],
        "started": "2026-03-01T12:00:00+00:00",
        "failures": [{"reason": "exit code 1", "count": 1, "trial": 3, "log": str(log)}],
        "notes": ["a note"],
    }
    assert moving["left_s"] == 60.0
    assert moving["trials_per_hour"] == pytest.approx(4 * 3600 / moving["elapsed_s"])
    assert status.failures[0].tail == ("boom",)
    assert (status.done, status.is_over) == (5, False)


def test_a_finished_study_took_its_time(database_url, tmp_path):  # noqa: F811
    """Elapsed runs from the first claim to the last end, and nothing is left."""
    long = Row(values=[0.1], attempts=(Tried("lost", took_s=100.0), Tried(took_s=140.0)))
    ledger = fill(database_url, make_study(trials=2), [COMPLETE, long])
    status = snapshot(ledger, StudyFolder(tmp_path), {})
    assert (status.elapsed_s, status.left_s, status.expected_end) == (240.0, None, None)
    assert (status.trials_per_hour, status.is_over) == (30.0, True)
    assert status_rows.read_times(ledger.db, ledger.study_id).mean_s == 150.0


def test_nothing_has_started(database_url, tmp_path):  # noqa: F811
    """Before the first claim there is no best, no time, no failure."""
    ledger = fill(database_url, make_study(trials=2), [WAITING, WAITING])
    found = snapshot(ledger, StudyFolder(tmp_path), {("j", 0): PENDING_TASK}).to_dict()
    shown = {key: found[key] for key in ("best", "started", "elapsed_s", "left_s", "failures")}
    assert shown == {
        "best": None,
        "started": None,
        "elapsed_s": None,
        "left_s": None,
        "failures": [],
    }


def test_running_trials_have_trained_until_now(database_url):  # noqa: F811
    """A live attempt's time runs by the database's clock; an interrupted one's stands still."""
    rows = [RUNNING, Row("RUNNING", attempts=(Tried("lost", took_s=10.0),))]
    ledger = fill(database_url, make_study(), rows)
    times = status_rows.read_times(ledger.db, ledger.study_id)
    assert times.running_s == pytest.approx([(times.now - NOON).total_seconds()], abs=5)
    assert (times.started, times.ended, times.mean_s) == (NOON, None, None)


def test_failures_are_counted_by_reason(database_url, tmp_path):  # noqa: F811
    """Final and open failures count, cancelled trials do not; the newest of a kind is named."""
    note = {"state": "failed", "outcome": "error"}
    rows = [
        Row("FAIL", end={**note, "reason": "exit code 1: lr 0.3"}),
        Row(
            "FAIL",
            attempts=(Tried("error"), Tried("error")),
            end={**note, "reason": "exit code 1: lr 0.3"},
        ),
        Row("FAIL", end={**note, "reason": "exit code 1: lr 0.7"}),
        broken("exit code 2: lr 0.7"),
        Row("FAIL", attempts=()),
        Row("FAIL", end={"state": "cancelled", "reason": "by hand"}),
        COMPLETE,
    ]
    ledger = fill(database_url, make_study(), rows)
    assert status_rows.read_failures(ledger.db, ledger.study_id) == [
        Failure("exit code 1: lr 0.3", 2, 1, 2),
        Failure("", 1, 4, 0),
        Failure("exit code 2: lr 0.7", 1, 3, 1),
        Failure("exit code 1: lr 0.7", 1, 2, 1),
    ]
    status = snapshot(ledger, StudyFolder(tmp_path), {})
    kinds = [(kind.reason, kind.count, kind.trial) for kind in status.failures]
    assert kinds == [("exit code 1: lr 0.3", 3, 1), ("", 1, 4), ("exit code 2: lr 0.7", 1, 3)]


def test_several_objectives_have_a_front(database_url, tmp_path):  # noqa: F811
    """With several objectives there is no best; the trials that none beats are listed."""
    study = make_study(
        objectives=(Objective("acc", "maximize"), Objective("ms", "minimize")), trials=4
    )
    rows = [Row(values=v) for v in ([0.9, 5.0], [0.8, 6.0], [0.7, 1.0], [float("inf"), 0.0])]
    status = snapshot(fill(database_url, study, rows), StudyFolder(tmp_path), {})
    assert (status.best, status.front_size) == (None, 2)
    assert status.to_dict()["front"] == [
        {"trial": 0, "values": {"acc": 0.9, "ms": 5.0}, "params": {}},
        {"trial": 2, "values": {"acc": 0.7, "ms": 1.0}, "params": {}},
    ]


def test_best_follows_the_direction(database_url, tmp_path):  # noqa: F811
    """A minimised study's best is its smallest value."""
    study = make_study(objectives=(Objective("loss", "minimize"),), trials=3)
    ledger = fill(database_url, study, [Row(values=[v]) for v in (0.5, 0.25, 0.75)])
    status = snapshot(ledger, StudyFolder(tmp_path), {})
    assert status.best == {"trial": 1, "value": 0.25, "params": {}}
    assert status.started == NOON
    assert status.elapsed_s == timedelta(seconds=60).total_seconds()


def test_a_study_whose_tasks_are_all_gone_does_not_run() -> None:
    """Where nobody has looked after it, as the page does not: only once the scheduler has said that
    no task is left, and nobody is there who would go on."""
    counts = dict.fromkeys(outcomes.STATES, 0) | {outcomes.RUNNING: 2, outcomes.WAITING: 3}
    wanted, none = studies.StudyState(), {"pending": 0, "running": 0}

    def found(tasks: dict[str, int] | None, coming: str = "", *, gone: bool = True) -> str:
        return status.decide(wanted, counts, 5, tasks, coming=coming, gone=gone)[0]

    assert found(none) == status.IDLE
    assert (
        "2 trials run by the database alone" in status.decide(wanted, counts, 5, none, gone=True)[1]
    )
    for tasks in (None, {"pending": 1, "running": 0}, {"pending": 0, "running": 1}):
        assert found(tasks) == studies.RUNNING
    assert found(none, "its finaliser is at work") == studies.RUNNING
    assert found(none, gone=False) == studies.RUNNING
