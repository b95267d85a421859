"""What a silent worker's attempt has come to: a table of literal cases."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.control.diagnosis import Case, decide
from sweep.core.scheduler import ENDED, ORPHANED, PENDING, RUNNING, TaskState


def note(code: int | None = 0, signal: int | None = None, told: str = "") -> dict[str, Any]:
    return {"exit_code": code, "signal": signal, "told": told, "time": 1.0}


def ended(word: str, reason: str = "", code: int | None = None) -> TaskState:
    return TaskState(ENDED, word, reason, code)


# the task as the scheduler has it, the worker's note -> outcome and reason, or None
CASES = [
    (TaskState(RUNNING, "RUNNING"), None, None),
    (TaskState(RUNNING, "COMPLETING"), None, None),
    (TaskState(RUNNING, ORPHANED), None, None),
    (TaskState(RUNNING, "RUNNING"), note(), None),
    (TaskState(RUNNING, "RUNNING"), note(1), None),
    (None, None, ("lost", "its task is gone, and nothing says why")),
    (TaskState(PENDING, "PENDING"), None, ("interrupted", "its task was put back into the queue")),
    (TaskState(PENDING, "REQUEUED"), None, ("interrupted", "its task was put back into the queue")),
    (ended("TIMEOUT"), None, ("timeout", "its task reached its time limit")),
    (
        ended("TIMEOUT", "reached its time limit of 5 s"),
        None,
        ("timeout", "reached its time limit of 5 s"),
    ),
    (ended("DEADLINE"), None, ("timeout", "its job reached its deadline")),
    (ended("PREEMPTED"), None, ("interrupted", "its task was preempted")),
    (ended("REQUEUED"), None, ("interrupted", "its task was requeued")),
    (ended("SUSPENDED"), None, ("interrupted", "its task was suspended")),
    (ended("NODE_FAIL"), None, ("node failed", "its node failed")),
    (ended("BOOT_FAIL"), None, ("node failed", "its node did not boot")),
    (ended("OUT_OF_MEMORY"), None, ("out of memory", "its task ran out of memory")),
    (ended("CANCELLED"), None, ("interrupted", "its task was cancelled")),
    (ended("FAILED"), None, ("lost", "its task ended (FAILED) without a word on the trial")),
    (
        ended("FAILED", "ended by signal 9 (SIGKILL)", 137),
        None,
        ("lost", "ended by signal 9 (SIGKILL)"),
    ),
    (
        ended("COMPLETED", code=0),
        None,
        ("lost", "its task ended (COMPLETED) without a word on the trial"),
    ),
    (ended("REVOKED"), None, ("interrupted", "its task was started on another cluster")),
    # The training had ended before its worker died: that counts, whatever became of the task.
    (None, note(), ("finished", "")),
    (ended("FAILED"), note(), ("finished", "")),
    (ended("TIMEOUT"), note(), ("finished", "")),
    (ended("NODE_FAIL"), note(0, None, "pruned"), ("finished", "pruned")),
    (ended("CANCELLED"), note(0, None, "checkpoint"), ("interrupted", "asked to leave")),
    (None, note(None, 9, "checkpoint"), ("interrupted", "asked to leave")),
    (None, note(3), ("error", "exit code 3, and no output")),
    (
        None,
        note(None, 9),
        ("killed", "killed by SIGKILL; by the system when memory ran out, or by hand"),
    ),
    (None, note(None, 15, "stalled"), ("stalled", "no report and no output for too long")),
    (None, note(None, 15, "too long"), ("finished", "too long")),
    (None, note(None, 15, "halted"), ("halted", "the study was stopped")),
    (TaskState(PENDING, "PENDING"), note(), ("finished", "")),
    # A note that somebody else has written.
    (None, {}, ("lost", "nobody noted how it ended")),
    (None, {"exit_code": "x", "signal": [], "told": None}, ("lost", "nobody noted how it ended")),
]


@pytest.mark.parametrize(("task", "exit_note", "expected"), CASES)
def test_decide(
    task: TaskState | None, exit_note: dict[str, Any] | None, expected: tuple[str, str] | None
) -> None:
    """What runs is left alone; what the worker noted counts before what the scheduler says."""
    end = decide(Case(task, exit_note))
    assert (end and (end.outcome, end.reason)) == expected
