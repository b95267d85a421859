"""The protocol between sweep and what runs its tasks: submit, find, poll, cancel, limits.

``slurm`` talks to a cluster, ``local`` does the same with processes of this machine. A task is one
element of an array; it is named by the array's job id and its index.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

PENDING = "pending"
RUNNING = "running"
ENDED = "ended"
# The word for a running task whose array is dead: nothing starts the others, nor the finaliser.
ORPHANED = "ORPHANED"


class JobFate(enum.Enum):
    """What became of a job whose processes cannot be seen from here."""

    LIVES = "lives"  # it is in the queue
    ENDED = "ended"  # it has left the queue, and its node is well: no process of it is left
    UNPROVED = "unproved"  # it has left the queue, and its node cannot vouch for its end


@dataclass(frozen=True)
class ArrayJob:
    """One array to submit.

    Attributes:
        token: Name token: the job's name, unique to this submission, by which it is found again.
        size: Number of elements; indices run from 0 to size - 1.
        throttle: Elements that run at once, at most (the K of ``%K``).
        argv: What each element runs; it learns its place from its environment.
        cwd: Folder in which the elements start.
        log_pattern: Path of an element's log, with ``{job}`` and ``{index}``.
        time_limit_s: Limit of one element, or None.
        grace_s: An element gets a signal (USR1) so many seconds before its limit.
        env: Variables added to the elements' environment.
        after: Argv of what runs once when all elements have ended (the finaliser), or empty.
        gpus: GPUs per element.
        behind: Job that must have ended before an element starts (a chain of waves), or None.
        slots: Trials that an element serves side by side: it gets so many times ``gpus`` and all
            else that a trial needs.
        exclude: Nodes to stay away from; a scheduler of one machine has no use for them.
    """

    token: str
    size: int
    throttle: int
    argv: Sequence[str]
    cwd: Path
    log_pattern: str
    time_limit_s: int | None = None
    grace_s: int = 60
    env: Mapping[str, str] = field(default_factory=dict)
    after: Sequence[str] = ()
    gpus: int = 0
    behind: str | None = None
    slots: int = 1
    exclude: Sequence[str] = ()


@dataclass(frozen=True)
class TaskState:
    """What the scheduler says about one task.

    Attributes:
        state: PENDING, RUNNING or ENDED.
        word: The scheduler's own word for it (COMPLETED, TIMEOUT, …).
        reason: Why it is pending or how it ended, in words; may be empty.
        exit_code: Of an ended task, where known.
        cancelled_by: uid of who cancelled it, where known.
        signal: What ended an ended task, where that is known.
        started: Whether an ended task ever ran.
        ended_s: When it ended, where known; epoch seconds of the scheduler's clock.
        before: How its last earlier run ended, of a task that was put back into the queue.
        nodes: Where an ended task ran, as the scheduler prints it.
    """

    state: str
    word: str = ""
    reason: str = ""
    exit_code: int | None = None
    cancelled_by: int | None = None
    signal: int | None = None
    started: bool = True
    ended_s: float | None = None
    before: str = ""
    nodes: str = ""


@dataclass(frozen=True)
class Limits:
    """The most that the scheduler accepts; None where there is no limit.

    Attributes:
        array_size: Elements in one array.
        submitted: Elements that a user may have queued or running.
        time_s: Longest time limit of a task.
        running: Jobs and elements of a user that run at once.
    """

    array_size: int | None = None
    submitted: int | None = None
    time_s: int | None = None
    running: int | None = None


@dataclass(frozen=True)
class Beside:
    """The small jobs beside a study's arrays, on a cluster.

    Attributes:
        finalisers: Ids of the last wave's finalisers that are queued or run.
        service_waits: Why the database's job waits, in plain words; empty where it does not.
        held: What is held since a node could not start it: array elements and these jobs.
    """

    finalisers: Sequence[str] = ()
    service_waits: str = ""
    held: Sequence[str] = ()


@dataclass(frozen=True)
class TaskEnergy:
    """What one run of a task used, in joules; its times are epoch seconds."""

    job: str
    index: int
    started_s: float
    ended_s: float
    joules: float


Task = tuple[str, int]  # job id, index


class Scheduler(Protocol):
    """What launch, worker, reconcile and status ask of a scheduler.

    Every method may raise CouldNotAsk when there was no answer.
    """

    name: str

    def limits(self) -> Limits: ...

    def submit(self, job: ArrayJob) -> str:
        """Submit an array and return its job id.

        Raises:
            OverLimit: Fewer elements, or later, may pass; nothing was submitted.
            SchedulerError: It was refused; nothing was submitted.
            SubmitUnclear: Nobody can say whether it was; settle it with ``find``.
        """
        ...

    def find(self, token: str) -> list[str]:
        """Return the ids of jobs with this name token, ended ones too while they are known."""
        ...

    def poll(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        """Return the state of every task of these jobs that the scheduler knows.

        A task that is missing from the answer is gone.
        """
        ...

    def cancel(
        self, job: str, indices: Sequence[int] | None = None, *, pending_only: bool = False
    ) -> None:
        """Cancel an array, some of its elements, or what of it has not started."""
        ...

    def set_throttle(self, job: str, throttle: int) -> None:
        """Change how many elements of a live array run at once."""
        ...

    def job_fate(self, job: str, node: str) -> JobFate:
        """Return what became of a job of ours, an array's element or not, that ran on a node."""
        ...


JOB_VARIABLE = "SWEEP_JOB"
INDEX_VARIABLE = "SWEEP_ARRAY_INDEX"
END_VARIABLE = "SWEEP_END_TIME"  # epoch seconds of the element's end by its time limit


@dataclass(frozen=True)
class Wave:
    """One submission, written before it is made and completed after.

    Attributes:
        token: Name token of the job.
        job: Its id, or None while it is not known whether the scheduler took it.
        size: Elements; throttle: how many of them run at once.
        executor: "local" or "slurm".
        attempts: Attempts that the study had when it was submitted.
        over: Whether it has ended.
        slots: Trials that each element serves side by side.
    """

    token: str
    size: int
    throttle: int
    executor: str
    submitted: float
    attempts: int = 0
    job: str | None = None
    over: bool = False
    slots: int = 1
