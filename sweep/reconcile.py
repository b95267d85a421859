"""Look after attempts that nobody has heard of: a pure decision, then its application.

Every launch, pull and status comes here; the finaliser is only the safety net. An attempt is dead
when the scheduler (or this machine's operating system) says so, never because it is silent, and
never because the scheduler could not be asked.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sweep import process, scheduler
from sweep import trial as words
from sweep.diagnosis import Case, decide, is_whole_array, requeued, whose_cancel
from sweep.ending import (
    classify,
    drain,
    give_up,
    last_lines,
    newest_of,
    remove_checkpoints,
    settle,
    take_over,
)
from sweep.errors import CouldNotAsk, SchedulerError, StaleAttempt
from sweep.journal import last_sign, read_exit
from sweep.paths import StudyFolder
from sweep.scheduler import Scheduler, TaskState
from sweep.storage import budgets, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.trial import Attempt, End

UNSEEN_S = 120.0  # silence after which the scheduler is asked
EVERY_S = 60.0  # between two looks, by whomever
PATIENCE_S = 60.0
EXPLAIN_S = 90.0  # a finaliser waits so long for the scheduler to say why its tasks ended
LOOK_AGAIN_S = 2.0

Settled = tuple[int, int, End, str]


@dataclass(frozen=True)
class Found:
    """What one look found.

    Attributes:
        settled: (trial, attempt, end, the trial's state afterwards) of attempts that were dead.
        waiting: Live attempts that are left alone.
        asked: Whether the scheduler answered.
        unexplained: Attempts whose task is gone or leaving, and nobody can say yet why.
    """

    settled: Sequence[Settled] = ()
    waiting: int = 0
    asked: bool = True
    unexplained: int = 0


def reconcile(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler,
    *,
    unseen_s: float = UNSEEN_S,
    every_s: float = EVERY_S,
    patience_s: float = PATIENCE_S,
    host: str | None = None,
    last_chance: bool = False,
) -> Found | None:
    """End the attempts that are dead, so that their trials go on.

    Args:
        unseen_s: Look only at attempts that have been silent for so long.
        every_s: Do nothing when somebody looked less than so many seconds ago; 0 looks for sure.
        host: Name of this machine, whose processes can be ended.
        last_chance: Nobody looks again: what nothing explains is a fault of the infrastructure.

    Returns:
        What was found; None when somebody else looks right now or looked just before.
    """
    db = ledger.db
    if not ledger.db.retry(
        lambda db: studies.take_turn(db, ledger.study_id, every_s), patience_s=patience_s
    ):
        return None
    found = _settle_dead(ledger, folder, schedule, unseen_s, patience_s, host, last_chance)
    # A budget may have been used up by those that died.
    db.retry(lambda _: budgets.look(ledger), patience_s=patience_s)
    return found


def _settle_dead(
    ledger: Ledger, folder: StudyFolder, schedule: Scheduler, unseen_s: float, patience_s: float,
    host: str | None, last_chance: bool,
) -> Found:  # fmt: skip
    db = ledger.db
    live = db.retry(lambda _: ledger.live_attempts(unseen_s), patience_s=patience_s)
    terminated = db.retry(lambda _: ledger.terminated_attempts(), patience_s=patience_s)
    if not live and not terminated:
        return Found()
    jobs = sorted({attempt.job for attempt in (*live, *terminated) if attempt.job})
    try:
        states = schedule.poll(jobs)
    except CouldNotAsk:
        return Found(waiting=len(live), asked=False)
    look = _Look(ledger, folder, states, schedule.name != "local", last_chance, patience_s)
    settled = []
    for attempt in live:
        end = look.judge(attempt)
        if end is None:
            continue
        if attempt.host == (host or socket.gethostname()) and not process.end_attempt_group(
            attempt.group, attempt.token
        ):
            continue  # it sits in the kernel: dead only when it is gone
        try:
            state = end_attempt(ledger, folder, attempt, end, patience_s)
        except StaleAttempt:
            continue  # it ended by itself meanwhile
        settled.append((attempt.trial, attempt.number, end, state))
    waiting = len(live) - len(settled)
    for attempt in terminated:
        end = look.judge(attempt)
        if end is not None:
            state = attribute(ledger, folder, attempt, end, patience_s)
            settled.append((attempt.trial, attempt.number, end, state))
    return Found(settled, waiting, unexplained=look.unexplained)


class _Look:
    """One look at many attempts, with one answer of the scheduler's."""

    def __init__(
        self,
        ledger: Ledger,
        folder: StudyFolder,
        states: Mapping[scheduler.Task, TaskState],
        explains: bool,
        last_chance: bool,
        patience_s: float,
    ) -> None:
        self.ledger = ledger
        self.folder = folder
        self.states = states
        self.explains = explains
        self.last_chance = last_chance
        self.patience_s = patience_s
        self.unexplained = 0
        self._cancels: dict[str, str | None] = {}
        self._now: float = ledger.db.retry(
            lambda db: float(db.execute("SELECT EXTRACT(EPOCH FROM clock_timestamp())")[0][0]),
            patience_s=patience_s,
        )

    def judge(self, attempt: Attempt) -> End | None:
        """Say how an attempt ended; None where it lives, or nobody can tell yet."""
        task = None
        if attempt.job is not None:
            task = self.states.get((attempt.job, attempt.index or 0))
        terminated = attempt.outcome == words.TERMINATED
        since = attempt.ended if terminated and attempt.ended else attempt.seen
        silent_s = float("inf") if self.last_chance else self._now - since.timestamp()
        ours = self._our_cancel(attempt.job)
        case = Case(
            task,
            read_exit(self.folder.attempt(attempt.trial, attempt.number)),
            os.getuid(),
            ours,
            silent_s,
            self.explains,
        )
        end = whose_cancel(case) if terminated else decide(case)
        if end is not None and end.outcome == words.STOPPED and attempt.job is not None:
            whole = is_whole_array(
                attempt.job, self.states, os.getuid(), ours, time.time()
            )
            if whole is None and not self.last_chance:
                end = None
            elif whole:
                stop_for(self.ledger, attempt.job, self.patience_s)
                end = End(words.INTERRUPTED, "its array was cancelled by hand (scancel)")
        runs = task is not None and task.state == scheduler.RUNNING
        if end is None and (terminated or not runs):
            self.unexplained += 1
        return end

    def _our_cancel(self, job: str | None) -> str | None:
        if job is None:
            return None
        if job not in self._cancels:
            self._cancels[job] = read_cancel(self.ledger, job, self.patience_s)
        return self._cancels[job]


def read_cancel(ledger: Ledger, job: str, patience_s: float) -> str | None:
    """Return what sweep itself has cancelled of a job: "all", "waiting", or None."""
    note = ledger.db.retry(
        lambda db: studies.read_attribute(db, ledger.study_id, studies.CANCEL + job),
        patience_s=patience_s,
    )
    return note.get("what") if isinstance(note, dict) else None


def stop_for(ledger: Ledger, job: str, patience_s: float) -> None:
    """Stop the study because its user has cancelled a whole array; launch takes it up again."""

    def work(db: Database) -> None:
        studies.lock_study(db, ledger.study_id)
        if studies.read_state(db, ledger.study_id).word == studies.RUNNING:
            reason = f"its array {job} was cancelled by hand (scancel)"
            studies.write_state(
                db, ledger.study_id, studies.StudyState(studies.STOPPED, reason)
            )

    ledger.db.retry(work, patience_s=patience_s)


def settle_wave(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler,
    token: str,
    patience_s: float,
    explain_s: float = EXPLAIN_S,
) -> None:
    """Settle what a wave that has ended left: the finaliser's look, after which nobody looks.

    It waits until the scheduler can say why each of the tasks ended. Where the user has cancelled
    the whole array, also before any of its tasks began, the study is stopped.
    """
    give_up_at = time.monotonic() + explain_s
    while True:
        late = time.monotonic() >= give_up_at
        found = reconcile(
            ledger, folder, schedule, unseen_s=0.0, every_s=0.0, patience_s=patience_s,
            last_chance=late,
        )  # fmt: skip
        explained = found is None or (found.asked and not found.unexplained)
        job, cancelled = _is_wave_cancelled(ledger, schedule, token, late, patience_s)
        if late or (explained and cancelled is not None):
            break
        time.sleep(LOOK_AGAIN_S)
    if job and cancelled:
        stop_for(ledger, job, patience_s)


def _is_wave_cancelled(
    ledger: Ledger, schedule: Scheduler, token: str, late: bool, patience_s: float
) -> tuple[str | None, bool | None]:
    """Return a wave's job, and whether the user has cancelled it all; None while none can tell."""
    waves = ledger.db.retry(
        lambda db: studies.read_waves(db, ledger.study_id), patience_s=patience_s
    )
    job = next((wave.job for wave in waves if wave.token == token), None)
    if job is None:
        return None, False
    try:
        states = schedule.poll([job])
    except (CouldNotAsk, SchedulerError):
        return job, False if late else None  # nobody knows of a cancel: the study goes on
    ours = read_cancel(ledger, job, patience_s)
    return job, is_whole_array(job, states, os.getuid(), ours, None if late else time.time())


def succeed(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler | None,
    job: str,
    index: int,
    host: str,
    patience_s: float,
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
    db = ledger.db
    found = db.retry(lambda _: ledger.live_attempts(), patience_s=patience_s)
    found += db.retry(lambda _: ledger.terminated_attempts(), patience_s=patience_s)
    settled: list[Settled] = []
    for attempt in found:
        if (attempt.job, attempt.index) != (job, index) or slot not in (None, attempt.slot):
            continue
        if end is None:
            end = requeued(_word_before(schedule, job, index))
        if attempt.outcome == words.TERMINATED:
            left = replace(end, outcome=words.INTERRUPTED)
            state = attribute(ledger, folder, attempt, left, patience_s)
            settled.append((attempt.trial, attempt.number, left, state))
            continue
        if attempt.host == host:
            process.end_attempt_group(attempt.group, attempt.token)
        note = read_exit(folder.attempt(attempt.trial, attempt.number))
        mine = (decide(Case(None, note)) if note else None) or end
        try:
            state = end_attempt(ledger, folder, attempt, mine, patience_s)
        except StaleAttempt:
            continue
        settled.append((attempt.trial, attempt.number, mine, state))
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


def attribute(
    ledger: Ledger, folder: StudyFolder, attempt: Attempt, end: End, patience_s: float
) -> str:
    """Write who ended an attempt by SIGTERM; return its trial's state.

    The user's own scancel is final for its trial; else the trial goes on, unless it was
    interrupted twice without a checkpoint.
    """

    def work(_: Database) -> str:
        attempts = ledger.attempts(attempt.trial_id)
        attempts[-1] = replace(attempts[-1], outcome=end.outcome, reason=end.reason)
        why = None if end.outcome == words.STOPPED else give_up(attempts, ledger.study.retry)
        after = ledger.attribute(attempt, end, why)
        cut = after == words.RUNNING and budgets.cancel_if_ended(ledger)
        return words.CANCELLED if cut else after

    state = ledger.db.retry(work, patience_s=patience_s)
    if state in words.FINAL_STATES:
        ledger.db.retry(
            lambda _: remove_checkpoints(ledger, folder, attempt.trial), patience_s=patience_s
        )
    return state


def end_attempt(
    ledger: Ledger, folder: StudyFolder, attempt: Attempt, end: End, patience_s: float
) -> str:
    """Store what a dead attempt left in its folder, end it, and return its trial's state."""
    attempt_folder = folder.attempt(attempt.trial, attempt.number)
    if end.outcome == words.ERROR and end.exit_code:
        end = classify(end.exit_code, end.signal, "", last_lines(attempt_folder))
    checkpoint = newest_of(attempt_folder)
    sign_s = last_sign(attempt_folder)
    tries = 0

    def work(_: Database) -> str:
        nonlocal tries
        tries += 1
        written = ledger.state_after(attempt.token) if tries > 1 else None
        if written is not None:
            return written  # the answer to our own COMMIT was lost
        first = 0
        if attempt.resumed_from:
            first = ledger.next_step(attempt.trial_id, attempt.number)
        drain(ledger, attempt.token, attempt_folder, first)
        if attempt.number > 1:
            take_over(ledger, attempt.token, folder, attempt.trial)
        after = settle(ledger, attempt.token, attempt.trial_id, end, checkpoint)
        ledger.backdate(attempt.token, attempt.seen, sign_s)
        return after

    state = ledger.db.retry(work, patience_s=patience_s)
    if state != words.RUNNING:
        ledger.db.retry(
            lambda _: remove_checkpoints(ledger, folder, attempt.trial), patience_s=patience_s
        )
    return state
