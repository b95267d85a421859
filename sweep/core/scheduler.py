"""The interface between sweep and what runs its tasks, and what travels over it.

A task is one element of an array; it is named by the array's job id and its index.
"""

from __future__ import annotations

import enum
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from sweep.core.errors import SchedulerError
from sweep.core.paths import StudyFolder
from sweep.core.site_view import SiteView
from sweep.core.study import Share, Study

PENDING = "pending"
RUNNING = "running"
ENDED = "ended"
JOB_VARIABLE = "SWEEP_JOB"
INDEX_VARIABLE = "SWEEP_ARRAY_INDEX"
EXECUTOR_VARIABLE = "SWEEP_EXECUTOR"  # whose task it is; the study may have moved since
END_VARIABLE = "SWEEP_END_TIME"  # epoch seconds of the element's end by its time limit
GRACE_TIME_VARIABLE = "SWEEP_GRACE_TIME"  # seconds that a preemption leaves
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
        share: How its elements share GPUs; None where each has its own.
        fetches, builds: Whether its data are to be fetched first, and its image built, by jobs that
            must have ended well.
        cards: Where what is known of shared GPUs lies; cpus: CPU cores for the trials of one, or
            None; packed_as: a name of what they run: what is learnt of its trials holds for it.
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
    share: Share | None = None
    cards: str = ""
    cpus: int | None = None
    packed_as: str = ""
    fetches: bool = False
    builds: bool = False


@dataclass(frozen=True)
class TaskState:
    """What the scheduler says about one task.

    Attributes:
        state: PENDING, RUNNING or ENDED.
        word: The scheduler's own word for it (COMPLETED, TIMEOUT, …).
        reason: Why it is pending or how it ended, in words; may be empty.
        exit_code: Of an ended task, where known.
        cancelled_by: uid of who cancelled it, where known.
        presumed: Nobody can say who cancelled it; it is taken for the study's user.
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
    presumed: bool = False


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
        finaliser_waits: Why the last wave's finaliser will never start; empty where it may.
        service_waits: Why the database's job waits, in plain words; empty where it does not.
        held: What is held since a node could not start it: array elements and these jobs.
        fetches, builds: What the jobs that fetch the data and build the image do, in words; empty
            where there is none.
    """

    finalisers: Sequence[str] = ()
    finaliser_waits: str = ""
    service_waits: str = ""
    fetches: str = ""
    builds: str = ""
    held: Sequence[str] = ()


@dataclass(frozen=True)
class TaskEnergy:
    """What one run of a task used, in joules; its times are epoch seconds."""

    job: str
    index: int
    started_s: float
    ended_s: float
    joules: float


# How tasks are started and what they read and write: script, study.json, rows, journal. Raised
# where tasks of the version before would not get on with what this one writes.
TASK_FORMAT = 8


@dataclass(frozen=True)
class Wave:
    """One submission, written before it is made and completed after.

    Attributes:
        token: Name token of the job.
        job: Its id, or None while it is not known whether the scheduler took it.
        size: Elements; throttle: how many of them run at once.
        executor: Name of the scheduler that has it.
        attempts: Attempts that the study had when it was submitted.
        over: Whether it has ended.
        slots: Trials that each element serves side by side.
        format: The TASK_FORMAT of the version that submitted it; 0 where it had none yet.
        resources: What each of its trials has, as ``Resources.of_memory`` says; None where the
            version that submitted it did not note it.
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
    format: int = 0
    resources: str | None = None


Task = tuple[str, int]  # job id, index


class Scheduler(ABC):
    """What sweep asks of whatever runs its tasks; what is not abstract has a plain default.

    A scheduler is a subclass in a folder of ``sweep.schedulers``, registered in ``core.executors``.
    Nothing outside that folder asks which one it is: it asks what it can do. A question may raise
    CouldNotAsk when there was no answer.

    Attributes:
        name: The word that ``executor`` takes.
        place: What messages call it.
        shares_this_machine: Its tasks are processes of the machine where sweep is called.
        spans_nodes: A task may get several nodes, and srun to start processes on them.
        serves_slots: A task may serve several trials side by side, each in a step of its own.
        runs_setup: The lines of ``slurm.setup`` run before each task.
        records_environment: What it is submitted with can be read later: secrets travel by file.
        is_cheap_to_ask: A question costs nothing; else it is asked now and then.
        explains_late: Why a task is gone may be known only some time after it.
        may_requeue: A task may be put back into the queue, and run again while its first run lives.
        others_end_tasks: A task's SIGTERM may be another's wish than sweep's: the user's, the
            site's, a time limit's.
        finalises_by_job: What runs ``after`` an array is a job of its own, which may be lost.
        sends_mail: It can tell its user by mail that a job has ended.
        settle_s: How long the name token of a lost submission is looked for.
    """

    name: ClassVar[str]
    place: ClassVar[str]
    shares_this_machine: ClassVar[bool] = False
    spans_nodes: ClassVar[bool] = False
    serves_slots: ClassVar[bool] = False
    runs_setup: ClassVar[bool] = False
    records_environment: ClassVar[bool] = False
    is_cheap_to_ask: ClassVar[bool] = False
    explains_late: ClassVar[bool] = False
    may_requeue: ClassVar[bool] = False
    others_end_tasks: ClassVar[bool] = False
    finalises_by_job: ClassVar[bool] = False
    sends_mail: ClassVar[bool] = False
    settle_s: ClassVar[float] = 0.0

    # Of the kind: asked before there is a study's own.

    @classmethod
    @abstractmethod
    def of(cls, folder: StudyFolder, study: Study, environ: Mapping[str, str]) -> Scheduler:
        """Return the scheduler of a study."""

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Tell whether ``executor: auto`` may mean it where sweep is called."""
        return False

    @classmethod
    def most_parallel(cls, study: Study, environ: Mapping[str, str]) -> int | None:
        """Return how many trials of a study run at once where it does not say; None: all."""
        return None

    @classmethod
    def keeps_database_in_job(cls, study: Study) -> bool:
        """Tell whether a job serves the embedded database of a study."""
        return False

    @classmethod
    def task_of(cls, environ: Mapping[str, str]) -> tuple[str | None, int | None]:
        """Return job id and index of the task in whose environment this process runs."""
        index = environ.get(INDEX_VARIABLE)
        return environ.get(JOB_VARIABLE) or None, int(index) if index else None

    @classmethod
    def node_of(cls, environ: Mapping[str, str]) -> str:
        """Return the scheduler's name of the node on which this process runs."""
        return os.uname().nodename

    @classmethod
    def hosts_of(cls, environ: Mapping[str, str]) -> Sequence[str]:
        """Return the nodes of this process's task, that of its first rank first; () for one."""
        return ()

    @classmethod
    def job_of(cls, environ: Mapping[str, str]) -> tuple[str, str]:
        """Return id and node of the job that this process runs in, as ``job_fate`` takes them."""
        return "", ""

    @classmethod
    def end_time_of(cls, environ: Mapping[str, str]) -> float | None:
        """Return when this process's task reaches its limit, in epoch seconds, where known."""
        given = environ.get(END_VARIABLE)
        return float(given) if given else None

    @classmethod
    def has(cls, wave: Wave) -> bool:
        """Tell whether it was this scheduler that a wave was submitted to."""
        return wave.executor == cls.name

    @classmethod
    def is_named(cls, executor: str) -> bool:
        """Tell whether a note names this scheduler, or none: those of earlier versions do not."""
        return executor in ("", cls.name)

    @classmethod
    def runs(cls, study: Study) -> bool:
        """Tell whether it is this scheduler under which a study is launched now."""
        return study.executor == cls.name

    def site_view(self) -> SiteView:
        """Return what is free where the study runs, and who waits there; nothing where it cannot
        tell.

        Raises:
            CouldNotAsk: The scheduler does not answer.
            SchedulerError: It refuses the question.
        """
        return SiteView(self.place, ())

    # Arrays

    @abstractmethod
    def limits(self) -> Limits:
        """Return the most that it accepts."""

    @abstractmethod
    def submit(self, job: ArrayJob) -> str:
        """Submit an array and return its job id.

        Raises:
            OverLimit: Fewer elements, or later, may pass; nothing was submitted.
            SchedulerError: It was refused; nothing was submitted.
            SubmitUnclear: Nobody can say whether it was; settle it with ``find``.
        """

    @abstractmethod
    def find(self, token: str) -> list[str]:
        """Return the ids of jobs with this name token, ended ones too while they are known."""

    @abstractmethod
    def poll(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        """Return the state of every task of these jobs that the scheduler knows.

        A task that is missing from the answer is gone.
        """

    def queued(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        """Return of the same what the queue alone knows: which tasks wait and run is in it, how the
        others have ended may not be."""
        return self.poll(jobs)

    def explain(
        self, jobs: Sequence[str], states: Mapping[Task, TaskState]
    ) -> dict[Task, TaskState]:
        """Return what ``queued`` has answered with all that is known of what has ended."""
        return dict(states)

    @abstractmethod
    def cancel(
        self, job: str, indices: Sequence[int] | None = None, *, pending_only: bool = False
    ) -> None:
        """Cancel an array, some of its elements, or what of it has not started."""

    @abstractmethod
    def set_throttle(self, job: str, throttle: int) -> None:
        """Change how many elements of a live array run at once."""

    def has_wound_up(self, jobs: Sequence[str]) -> bool:
        """Tell whether nothing of these jobs, whose tasks have ended, is at work any more."""
        return True

    def hurry(self, job: str) -> None:
        """Have the tasks that run look now what their study wants of them (SIGUSR2).

        They do so by themselves every few seconds.
        """
        return

    # Without an array

    def interactive(self, token: str, *, is_terminal: bool) -> Sequence[str]:
        """Return what stands before a command that runs once where a trial would, with what that
        would have, while the caller waits; () where it is here.

        Args:
            token: Its name.
            is_terminal: Whether it gets the caller's terminal.

        Raises:
            InputError: An option that sweep owns, or a malformed request.
        """
        return ()

    # Before an array

    def check_options(self) -> None:
        """Refuse what the scheduler would misread, before anything is made or asked.

        Raises:
            InputError: An option that sweep owns, or a malformed request.
        """
        return

    def check_site(self, *, embedded: bool) -> None:
        """Refuse what cannot run here, before anything is made.

        Args:
            embedded: The database is to be a job here too.
        """
        return

    def show(self, job: ArrayJob) -> tuple[str, list[list[str]]]:
        """Return the script and the command lines of a submission, without making it."""
        return "", []

    def prepare(self) -> None:
        """Start what the tasks of an array will need that is submitted soon; ``close`` ends it."""
        return

    def close(self) -> None:
        """End what ``prepare`` has started and no array has used."""
        return

    # Beside an array

    def nodes_may_submit(self) -> bool:
        """Tell whether tasks may submit the next wave."""
        return True

    def beside(self, tokens: Sequence[str]) -> Beside:
        """Return what stands beside the waves of these name tokens: one question."""
        return Beside()

    def release(self, tasks: Sequence[str]) -> None:
        """Let tasks go that are held since a node could not start them."""
        raise SchedulerError(f"{self.place} holds no tasks.")

    def submit_finaliser(self, job: ArrayJob, job_id: str | None, number: int = 0) -> str:
        """Submit a wave's finaliser, the ``number``-th again; behind the array, if it lives."""
        raise SchedulerError(f"{self.place} runs no finaliser as a job.")

    def ensure_service(self, cwd: Path) -> str | None:
        """Submit the job that serves the embedded database where none is; return its id."""
        return None

    def service_jobs(self, *, running: bool = False) -> list[str]:
        """Return the ids of the jobs that serve the embedded database, or will."""
        return []

    def job_fate(self, job: str, node: str) -> JobFate:
        """Return what became of a job of ours, an array's element or not, that ran on a node."""
        return JobFate.UNPROVED  # another's: ours are seen by their processes

    def energy(self, jobs: Sequence[str]) -> list[TaskEnergy]:
        """Return what the ended tasks of these jobs used, where that is measured."""
        return []

    def exclude(self, job: str, node: str) -> None:
        """Keep the waiting elements of an array from a node."""
        raise SchedulerError(f"{self.place} cannot exclude a node.")

    # From within a task

    def quick(self) -> Scheduler:
        """Return the same with little patience for an answer: what asks it keeps a GPU waiting."""
        return self

    def time_left_s(self, job: str, index: int | None) -> float | None:
        """Return the seconds until a running task's limit; None where there is none."""
        return None

    def slot_argv(
        self, environ: Mapping[str, str], count: int, task: tuple[str | None, int | None]
    ) -> list[str]:
        """Return what starts a command as one of so many equal slots of a task."""
        raise SchedulerError(f"{self.place} serves no slots.")

    def seat_argv(self, environ: Mapping[str, str], gpus: int) -> list[str]:
        """Return what starts a command as one of several that share all GPUs of a task, so many."""
        raise SchedulerError(f"{self.place} serves no slots.")

    def slot_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for ``slot_argv``, from the task's."""
        return dict(environ)

    def requeue(self, environ: Mapping[str, str]) -> None:
        """Put the job of this process back into the queue: its time is over."""
        return

    def commands_from_task(self, environ: Mapping[str, str]) -> dict[str, Any] | None:
        """Return what of the scheduler's commands works from this task; None if it has none."""
        return None

    def warn_task(self, environ: Mapping[str, str]) -> bool:
        """Have this task sent the signal that comes before its limit; False if sweep sends it."""
        return False
