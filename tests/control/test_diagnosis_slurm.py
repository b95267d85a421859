"""What became of an attempt: every word of Slurm's, and what it means for the trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.control.diagnosis import Case, decide, is_whole_array, requeued, whose_cancel
from sweep.core import outcomes
from sweep.core.outcomes import HALTED
from sweep.core.scheduler import ENDED, PENDING, RUNNING, TaskState
from sweep.core.system.memory import count_job_kills, count_kills
from sweep.core.trial import End

ME, SITE = 1000, 42
LONG = 901.0  # more than fifteen minutes


def ended(word: str, **more: object) -> TaskState:
    return TaskState(ENDED, word, **more)  # type: ignore[arg-type]


def note(code: int | None, signal: int | None = None, told: str = "") -> dict[str, object]:
    return {"exit_code": code, "signal": signal, "told": told}


GONE = End(outcomes.LOST, "its task is gone, and nothing says why")
BY_HAND = End(outcomes.STOPPED, "its task was cancelled by hand (scancel)")
MINE = ended("CANCELLED", cancelled_by=ME)

# What Slurm says, what the worker noted, what we cancelled, silence in seconds: how it ended.
SILENT = [
    # It lives, or nobody can say.
    (TaskState(RUNNING, "RUNNING"), None, None, LONG, None),
    (TaskState(RUNNING, "COMPLETING"), note(0), None, LONG, None),
    (TaskState(RUNNING, "SUSPENDED"), None, None, LONG, None),
    (None, None, None, 130.0, None),
    (ended("CANCELLED"), None, None, 130.0, None),
    # Gone without a word for a quarter of an hour: a fault of the infrastructure.
    (None, None, None, LONG, GONE),
    (ended("CANCELLED"), None, None, LONG, End(outcomes.INTERRUPTED, "its task was cancelled")),
    # Slurm says why.
    (ended("TIMEOUT"), None, None, 0, End(outcomes.TIMEOUT, "its task reached its time limit")),
    (ended("DEADLINE"), None, None, 0, End(outcomes.TIMEOUT, "its job reached its deadline")),
    (ended("PREEMPTED"), None, None, 0, End(outcomes.INTERRUPTED, "its task was preempted")),
    (ended("NODE_FAIL"), None, None, 0, End(outcomes.NODE_FAILED, "its node failed")),
    (ended("BOOT_FAIL"), None, None, 0, End(outcomes.NODE_FAILED, "its node did not boot")),
    (
        ended("LAUNCH_FAILED"),
        None,
        None,
        0,
        End(outcomes.NODE_FAILED, "its node could not start it"),
    ),
    (
        ended("OUT_OF_MEMORY"),
        None,
        None,
        0,
        End(outcomes.OUT_OF_MEMORY, "its task ran out of memory"),
    ),
    (
        ended("FAILED", signal=9, exit_code=0),
        None,
        None,
        0,
        End(outcomes.KILLED, "its task was killed by signal 9", 0, 9),
    ),
    (
        ended("FAILED", signal=53, exit_code=0),
        None,
        None,
        0,
        End(outcomes.LOST, "its task could not write its log", 0),
    ),
    (
        ended("FAILED", exit_code=70),
        None,
        None,
        0,
        End(outcomes.LOST, "its task ended (exit code 70) without a word on the trial", 70),
    ),
    (
        ended("COMPLETED", exit_code=0),
        None,
        None,
        0,
        End(outcomes.LOST, "its task ended (COMPLETED) without a word on the trial", 0),
    ),
    # Back in the queue, and why.
    (
        TaskState(PENDING, "PENDING"),
        None,
        None,
        0,
        End(outcomes.INTERRUPTED, "its task was put back into the queue"),
    ),
    (
        TaskState(PENDING, "PENDING", before="NODE_FAIL"),
        None,
        None,
        0,
        End(outcomes.NODE_FAILED, "its node failed"),
    ),
    (
        TaskState(PENDING, "PENDING", before="PREEMPTED"),
        None,
        None,
        0,
        End(outcomes.INTERRUPTED, "its task was preempted"),
    ),
    (
        TaskState(PENDING, "PENDING", before="REQUEUED"),
        None,
        None,
        0,
        End(outcomes.INTERRUPTED, "its task was requeued"),
    ),
    # Whose cancel was it?
    (MINE, None, None, 0, BY_HAND),
    (MINE, None, "waiting", 0, BY_HAND),
    (MINE, None, "all", 0, End(outcomes.INTERRUPTED, "its task was cancelled by sweep")),
    # Requeued, and then among those that had not started when nothing was left to pull.
    (
        ended("CANCELLED", cancelled_by=ME, started=False),
        None,
        "waiting",
        0,
        End(outcomes.INTERRUPTED, "its task was put back into the queue"),
    ),
    (ended("CANCELLED", cancelled_by=ME, started=False), None, None, 0, BY_HAND),
    (
        ended("CANCELLED", cancelled_by=SITE),
        None,
        None,
        0,
        End(outcomes.INTERRUPTED, "its task was cancelled by another user (uid 42)"),
    ),
    # Training had ended: how, its worker had noted.
    (None, note(0), None, 0, End(outcomes.FINISHED, "", 0)),
    (ended("NODE_FAIL"), note(0), None, 0, End(outcomes.FINISHED, "", 0)),
    (ended("FAILED"), note(1), None, 0, End(outcomes.ERROR, "exit code 1, and no output", 1)),
    (
        ended("TIMEOUT"),
        note(0, told="checkpoint"),
        None,
        0,
        End(outcomes.INTERRUPTED, "asked to leave", 0),
    ),
    (ended("TIMEOUT"), note(0, told="pruned"), None, 0, End(outcomes.FINISHED, "pruned", 0)),
    (MINE, note(0, told=HALTED), "all", 0, End(HALTED, "the study was stopped", 0)),
    # It was asked to leave, did, and its worker could not say so: the user's wish all the same.
    (MINE, note(0, told="checkpoint"), None, 0, BY_HAND),
    (MINE, note(0), None, 0, End(outcomes.FINISHED, "", 0)),
]


@pytest.mark.parametrize(("task", "left", "ours", "silent_s", "end"), SILENT)
def test_silent_attempt(
    task: TaskState | None,
    left: dict[str, object] | None,
    ours: str | None,
    silent_s: float,
    end: End | None,
) -> None:
    """An attempt whose worker is silent is judged by all that is known."""
    assert decide(Case(task, left, ME, ours, silent_s, explains=True)) == end


def test_nothing_explains_on_this_machine() -> None:
    """Where no accounting will ever say more, what is gone is lost at once."""
    assert decide(Case(None, None, ME)) == GONE


SIGTERM = "asked to leave by SIGTERM"
TERMINATED = [
    (TaskState(RUNNING, "COMPLETING"), None, 30.0, None),
    (TaskState(RUNNING, "RUNNING"), None, LONG, End(outcomes.INTERRUPTED, SIGTERM)),
    (None, None, 5.0, None),
    (None, None, 16.0, End(outcomes.INTERRUPTED, SIGTERM)),
    (ended("CANCELLED"), None, 5.0, None),
    (ended("CANCELLED"), None, LONG, End(outcomes.INTERRUPTED, "its task was cancelled")),
    (MINE, None, 5.0, BY_HAND),
    (MINE, "waiting", 5.0, BY_HAND),
    (MINE, "all", 5.0, End(outcomes.INTERRUPTED, "its task was cancelled by sweep")),
    (
        ended("CANCELLED", cancelled_by=SITE),
        None,
        5.0,
        End(outcomes.INTERRUPTED, "its task was cancelled by another user (uid 42)"),
    ),
    (ended("TIMEOUT"), None, 5.0, End(outcomes.TIMEOUT, "its task reached its time limit")),
    (ended("PREEMPTED"), None, 5.0, End(outcomes.INTERRUPTED, "its task was preempted")),
    (
        ended("COMPLETED"),
        None,
        5.0,
        End(outcomes.INTERRUPTED, "asked to leave by SIGTERM (COMPLETED)"),
    ),
    (
        TaskState(PENDING, "PENDING", before="PREEMPTED"),
        None,
        5.0,
        End(outcomes.INTERRUPTED, "its task was preempted"),
    ),
]


@pytest.mark.parametrize(("task", "ours", "age_s", "end"), TERMINATED)
def test_whose_cancel(
    task: TaskState | None, ours: str | None, age_s: float, end: End | None
) -> None:
    """A SIGTERM is the user's wish only where Slurm says that the user cancelled the task."""
    assert whose_cancel(Case(task, None, ME, ours, age_s, explains=True)) == end


def test_requeued_without_accounting() -> None:
    """Where accounting is silent the earlier run of a task was interrupted, no more is known."""
    assert requeued("") == End(outcomes.INTERRUPTED, "its task was put back into the queue")


DONE = ended("COMPLETED", ended_s=100.0)
AT_200 = ended("CANCELLED", cancelled_by=ME, ended_s=200.0)
AT_205 = ended("CANCELLED", cancelled_by=ME, ended_s=205.0)
NEVER = ended("CANCELLED", cancelled_by=ME, ended_s=200.0, started=False)
ARRAYS = [
    ("all that was left", [DONE, AT_200, AT_205, NEVER], None, True),
    ("nothing had begun", [NEVER, NEVER], None, True),
    ("an array of one", [AT_200], None, True),
    ("one of several", [DONE, AT_200, DONE], None, False),
    ("two, and others went on", [AT_200, AT_205, ended("COMPLETED", ended_s=900.0)], None, False),
    (
        "two, at different times",
        [AT_200, ended("CANCELLED", cancelled_by=ME, ended_s=900.0)],
        None,
        False,
    ),
    ("others still wait", [AT_200, TaskState(PENDING, "PENDING"), AT_205], None, False),
    ("others still run", [AT_200, TaskState(RUNNING, "RUNNING"), AT_205], None, False),
    ("the last are being ended", [NEVER, TaskState(RUNNING, "COMPLETING")], None, None),
    ("those that waited were ours", [DONE, AT_200, NEVER, NEVER], "waiting", False),
    ("all were ours", [AT_200, AT_205, NEVER], "all", False),
    ("by the site", [ended("CANCELLED", cancelled_by=SITE)] * 3, None, False),
    ("times unknown", [ended("CANCELLED", cancelled_by=ME)] * 2, None, True),
]


@pytest.mark.parametrize(
    ("states", "ours", "whole"), [row[1:] for row in ARRAYS], ids=[row[0] for row in ARRAYS]
)
def test_whole_array(states: list[TaskState], ours: str | None, whole: bool | None) -> None:
    """A scancel was meant for the array where it hit all that was left of it, at once."""
    tasks = {("7", index): state for index, state in enumerate(states)}
    others = {("8", 0): TaskState(RUNNING, "RUNNING")}
    assert is_whole_array("7", tasks | others, ME, ours) is whole


@pytest.mark.parametrize(
    ("cgroup", "file", "text", "kills"),
    [
        (
            "4:memory:/slurm/uid_7/job_1/step_batch\n",
            "memory/slurm/uid_7/job_1/step_batch/memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
            3,
        ),
        (
            "0::/system.slice/job_1\n",
            "system.slice/job_1/memory.events",
            "low 0\nmax 12\noom 2\noom_kill 2\n",
            2,
        ),
        ("0::/system.slice/job_1\n", "elsewhere", "oom_kill 2\n", None),
        ("3:cpu,cpuacct:/a\n", "a/memory.events", "oom_kill 2\n", None),
    ],
)
def test_kills_are_counted(
    tmp_path: Path, cgroup: str, file: str, text: str, kills: int | None
) -> None:
    """The kernel's count of kills for memory is read from either version of cgroups."""
    (tmp_path / "cgroup").write_text(cgroup)
    path = tmp_path / "fs" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert count_kills(tmp_path / "cgroup", tmp_path / "fs") == kills


@pytest.mark.parametrize(
    ("cgroup", "kills"),
    [
        ("0::/system.slice/slurmstepd.scope/job_17/step_batch/user/task_0\n", 3),
        ("0::/system.slice/slurmstepd.scope/job_18/step_batch/user/task_0\n", None),
        ("4:memory:/slurm_n1/uid_0/job_17/step_0/task_0\n", None),
    ],
)
def test_kills_in_all_steps_of_a_job(tmp_path: Path, cgroup: str, kills: int | None) -> None:
    """Version 2 counts in a group what happened in those within it; version 1 does not."""
    (tmp_path / "cgroup").write_text(cgroup)
    for job in ("job_17", "job_18/step_batch"):
        path = tmp_path / "fs/system.slice/slurmstepd.scope" / job
        path.mkdir(parents=True)
        (path / "memory.events").write_text("oom 9\noom_kill 3\noom_group_kill 0\n")
    assert count_job_kills("17" if kills else "18", tmp_path / "cgroup", tmp_path / "fs") == kills
