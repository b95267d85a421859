"""Look after attempts that nobody has heard of: a pure decision, then its application.

Every launch, pull and status comes here; the finaliser is only the safety net. An attempt is dead
when the scheduler (or this machine's operating system) says so, never because it is silent, and
never because the scheduler could not be asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sweep.control import job_owners
from sweep.control.dead_attempt import (
    Look,
    attribute,
    end_whatever_it_left,
    how_whole,
    note_fault,
    read_cancel,
    stop_for,
)
from sweep.control.diagnosis import Case, decide, is_whole_array, requeued
from sweep.core import outcomes
from sweep.core.errors import CouldNotAsk, SchedulerError, SweepError
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Scheduler, Task, TaskState
from sweep.core.system import processes
from sweep.core.trial import Attempt, End
from sweep.storage import budgets, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.training.attempt_files import folder_of, read_exit

UNSEEN_S = 120.0  # silence after which the scheduler is asked
EVERY_S = 60.0  # between two looks, by whomever
EXPLAIN_S = 90.0  # a finaliser waits so long for the scheduler to say why its tasks ended
LOOK_AGAIN_S = 2.0

Settled = tuple[int, int, End, str]


@dataclass(frozen=True)
class Reconciled:
    """What one look found.

    Attributes:
        settled: (trial, attempt, end, the trial's state afterwards) of attempts that were dead.
        waiting: Live attempts that are left alone.
        asked: Whether the scheduler answered.
        unexplained: Attempts whose task is gone or leaving, and nobody can say yet why.
        gone: Live ones among them whose task is gone.
    """

    settled: Sequence[Settled] = ()
    waiting: int = 0
    asked: bool = True
    unexplained: int = 0
    gone: int = 0


@dataclass(frozen=True)
class Seen:
    """Attempts that may be dead, and what the scheduler said of tasks when it was asked after that.

    Attributes:
        live: Attempts that have not ended, as far as the database knew.
        terminated: Those that a signal ended; whose wish it was may be known by now.
        states: The tasks' states; None where the scheduler did not answer.
        unasked: Jobs of an earlier scheduler of the study that does not answer from here.
    """

    live: Sequence[Attempt]
    terminated: Sequence[Attempt]
    states: Mapping[Task, TaskState] | None
    unasked: Collection[str] = ()


def see(
    ledger: Ledger, schedule: Scheduler, *, unseen_s: float = 0.0, also: Collection[str] = ()
) -> Seen:
    """Read the attempts that have been silent for so long, and ask the scheduler about their tasks.

    Args:
        also: Further jobs to ask about, in the same question.
    """
    db = ledger.db
    # In this order: an attempt that began after the question would be one of a task that waits.
    live = db.retry(lambda _: ledger.live_attempts(unseen_s))
    terminated = db.retry(lambda _: ledger.terminated_attempts())
    tasks = {(a.job, a.index or 0) for a in (*live, *terminated) if a.job}
    jobs = {job for job, _ in tasks} | set(also)
    if not live and not terminated and not jobs:
        return Seen(live, terminated, {})
    try:
        return Seen(live, terminated, *job_owners.poll(ledger, schedule, jobs, tasks))
    except CouldNotAsk:
        return Seen(live, terminated, None)


def reconcile(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler,
    *,
    unseen_s: float = UNSEEN_S,
    every_s: float = EVERY_S,
    host: str | None = None,
    last_chance: bool = False,
    seen: Seen | None = None,
) -> Reconciled | None:
    """End the attempts that are dead, so that their trials go on.

    Args:
        unseen_s: Look only at attempts that have been silent for so long.
        every_s: Do nothing when somebody looked less than so many seconds ago; 0 looks for sure.
        host: Name of this machine, whose processes can be ended.
        last_chance: Nobody looks again: what nothing explains is a fault of the infrastructure.
        seen: What was seen just before; by default it is looked now.

    Returns:
        What was found; None when somebody else looks right now or looked just before.
    """
    db = ledger.db
    if not ledger.db.retry(lambda db: studies.take_turn(db, ledger.study_id, every_s)):
        return None
    if seen is None:
        seen = see(ledger, schedule, unseen_s=unseen_s)
    found = _settle_dead(ledger, folder, schedule, seen, host, last_chance)
    if ledger.study.may_end_early:
        # A budget may have been used up by those that died.
        db.retry(lambda _: budgets.look(ledger))
    return found


def _settle_dead(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler,
    seen: Seen,
    host: str | None,
    last_chance: bool,
) -> Reconciled:
    live = seen.live
    if not live and not seen.terminated:
        return Reconciled()
    if seen.states is None:
        return Reconciled(waiting=len(live), asked=False)
    owners = job_owners.by_owner(ledger, schedule, {a.job for a in live if a.job})
    late = any(owner.explains_late for owner, its in owners if its or owner is schedule)
    look = Look(ledger, folder, seen.states, late, last_chance)
    settled = []
    for attempt in live:
        if attempt.job in seen.unasked:
            continue
        end = _judge(look, attempt)
        if end is None:
            continue
        if attempt.host == (host or os.uname().nodename) and not processes.end_attempt_group(
            attempt.group, attempt.token
        ):
            continue  # it sits in the kernel: dead only when it is gone
        state = end_whatever_it_left(ledger, folder, attempt, end)
        if state is not None:
            settled.append((attempt.trial, attempt.number, end, state))
    waiting = len(live) - len(settled)
    for attempt in seen.terminated:
        end = None if attempt.job in seen.unasked else _judge(look, attempt)
        if end is not None:
            state = attribute(ledger, folder, attempt, end)
            settled.append((attempt.trial, attempt.number, end, state))
    return Reconciled(settled, waiting, unexplained=look.unexplained, gone=look.gone)


def _judge(look: Look, attempt: Attempt) -> End | None:
    """Say how an attempt ended; a fault of ours in that is noted on it, and the others go on."""
    try:
        return look.judge(attempt)
    except SweepError:
        raise
    except Exception as error:
        note_fault(look.ledger, look.folder, attempt, error)
        return None


def settle_wave(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler,
    token: str,
    explain_s: float = EXPLAIN_S,
) -> None:
    """Settle what a wave that has ended left: the finaliser's look, after which nobody looks.

    It waits until the scheduler can say why each of the tasks ended. Where the user has cancelled
    the whole array, also before any of its tasks began, the study is stopped.
    """
    give_up_at = time.monotonic() + explain_s
    while True:
        late = time.monotonic() >= give_up_at
        found = reconcile(ledger, folder, schedule, unseen_s=0.0, every_s=0.0, last_chance=late)
        explained = found is None or (found.asked and not found.unexplained)
        job, cancelled, how = _is_wave_cancelled(ledger, schedule, token, late)
        if late or (explained and cancelled is not None):
            break
        time.sleep(LOOK_AGAIN_S)
    if job and cancelled:
        stop_for(ledger, job, how)


def _is_wave_cancelled(
    ledger: Ledger, schedule: Scheduler, token: str, late: bool
) -> tuple[str | None, bool | None, str]:
    """Return a wave's job, whether the user has cancelled it all (None while none can tell), and
    how."""
    waves = ledger.db.retry(lambda db: studies.read_waves(db, ledger.study_id))
    job = next((wave.job for wave in waves if wave.token == token), None)
    if job is None:
        return None, False, ""
    try:
        states = schedule.poll([job])
    except (CouldNotAsk, SchedulerError):
        return job, False if late else None, ""  # nobody knows of a cancel: the study goes on
    ours = read_cancel(ledger, job)
    whole = is_whole_array(job, states, os.getuid(), ours, None if late else time.time())
    return job, whole, how_whole(job, states)


def end_predecessors(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler | None,
    job: str,
    index: int,
    host: str,
    *,
    slot: int | None = None,
    end: End | None = None,
) -> list[Settled]:
    """End what an earlier run of this very task left: it was requeued, this is its next run.

    Where that run still lives (on a node that is cut off), its writes are refused from here on.

    Args:
        slot: Only what this one of the task's slots left; None for all of them.
        end: How that run ended, where it is known; else the scheduler is asked.
    """

    def read(_: Database) -> list[Attempt]:
        return [*ledger.live_attempts(), *ledger.terminated_attempts()]

    found = [
        attempt
        for attempt in ledger.db.retry(read, transaction=False)
        if (attempt.job, attempt.index) == (job, index) and slot in (None, attempt.slot)
    ]
    if not found:
        return []
    settled: list[Settled] = []
    for attempt in found:
        if end is None:
            end = requeued(_word_before(schedule, job, index))
        if attempt.outcome == outcomes.TERMINATED:
            left = End(outcomes.INTERRUPTED, end.reason, end.exit_code, end.signal)
            state = attribute(ledger, folder, attempt, left)
            settled.append((attempt.trial, attempt.number, left, state))
            continue
        if attempt.host == host:
            processes.end_attempt_group(attempt.group, attempt.token)
        note = read_exit(folder_of(folder, attempt))
        mine = (decide(Case(None, note)) if note else None) or end
        after = end_whatever_it_left(ledger, folder, attempt, mine)
        if after is not None:
            settled.append((attempt.trial, attempt.number, mine, after))
    return settled


def _word_before(schedule: Scheduler | None, job: str, index: int) -> str:
    """Return the scheduler's word on the earlier run of a task; "" where there is none."""
    if schedule is None:
        return ""
    try:
        task = schedule.poll([job]).get((job, index))
    except (CouldNotAsk, SchedulerError):
        return ""
    return task.before if task is not None else ""
