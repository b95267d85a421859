"""What one dead attempt means, and writing it down: the other half of ``reconcile``.

Apart from it, because most looks find nothing dead, and then nothing of this is imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from sweep.control.diagnosis import Case, decide, how_cancelled, is_whole_array, whose_cancel
from sweep.control.kept_checkpoints import remove_checkpoints
from sweep.control.next_step import find_next_step
from sweep.control.settle import drain, give_up, newest_of, settle, take_over
from sweep.core import outcomes, scheduler
from sweep.core.attributes import CANCEL
from sweep.core.errors import StaleAttempt, SweepError
from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.core.scheduler import TaskState
from sweep.core.system.crash import write_crash
from sweep.core.trial import Attempt, End, Reading, Report
from sweep.storage import budgets, cancelling, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.training import memory_messages, own_workdir
from sweep.training.attempt_files import folder_of, last_sign, odd_files, read_exit
from sweep.training.best_checkpoint import note_best
from sweep.training.command import launchers
from sweep.training.exit_reason import classify, last_lines
from sweep.training.journal import Journal
from sweep.training.printed_steps import first_printed


class Look:
    """One look at many attempts, with one answer of the scheduler's."""

    def __init__(
        self,
        ledger: Ledger,
        folder: StudyFolder,
        states: Mapping[scheduler.Task, TaskState],
        explains: bool,
        last_chance: bool,
    ) -> None:
        self.ledger = ledger
        self.folder = folder
        self.states = states
        self.explains = explains
        self.last_chance = last_chance
        self.unexplained = 0
        self.gone = 0
        self._cancels: dict[str, str | None] = {}
        self._now = ledger.db.retry(studies.read_clock)

    def judge(self, attempt: Attempt) -> End | None:
        """Say how an attempt ended; None where it lives, or nobody can tell yet."""
        task = None
        if attempt.job is not None:
            task = self.states.get((attempt.job, attempt.index or 0))
        terminated = attempt.outcome == outcomes.TERMINATED
        since = attempt.ended if terminated and attempt.ended else attempt.seen
        silent_s = float("inf") if self.last_chance else self._now - since.timestamp()
        ours = self._our_cancel(attempt.job)
        case = Case(
            task,
            read_exit(folder_of(self.folder, attempt)),
            os.getuid(),
            ours,
            silent_s,
            self.explains,
        )
        end = whose_cancel(case) if terminated else decide(case)
        if end is not None and end.outcome == outcomes.STOPPED and attempt.job is not None:
            whole = is_whole_array(attempt.job, self.states, os.getuid(), ours, time.time())
            if whole is None and not self.last_chance:
                end = None
            elif whole:
                how = how_whole(attempt.job, self.states)
                stop_for(self.ledger, attempt.job, how)
                end = End(outcomes.INTERRUPTED, f"its array {how}")
        runs = task is not None and task.state == scheduler.RUNNING
        if end is None and (terminated or not runs):
            self.unexplained += 1
            self.gone += not terminated and (task is None or task.state == scheduler.ENDED)
        return end

    def _our_cancel(self, job: str | None) -> str | None:
        if job is None:
            return None
        if job not in self._cancels:
            self._cancels[job] = read_cancel(self.ledger, job)
        return self._cancels[job]


def read_cancel(ledger: Ledger, job: str) -> str | None:
    """Return what sweep itself has cancelled of a job: "all", "waiting", or None."""
    note = ledger.db.retry(lambda db: studies.read_attribute(db, ledger.study_id, CANCEL + job))
    return note.get("what") if isinstance(note, dict) else None


def how_whole(job: str, states: Mapping[scheduler.Task, TaskState]) -> str:
    """Say how a whole array was cancelled."""
    return how_cancelled(state for (of, _), state in states.items() if of == job)


def stop_for(ledger: Ledger, job: str, how: str) -> None:
    """Stop the study because its user has cancelled a whole array; launch takes it up again.

    Args:
        how: The array was cancelled; see ``how_whole``.
    """

    def work(db: Database) -> None:
        studies.lock_study(db, ledger.study_id)
        if studies.read_state(db, ledger.study_id).word == studies.RUNNING:
            reason = f"its array {job} {how}"
            studies.write_state(db, ledger.study_id, studies.StudyState(studies.STOPPED, reason))

    ledger.db.retry(work)


def attribute(ledger: Ledger, folder: StudyFolder, attempt: Attempt, end: End) -> str:
    """Write who ended an attempt by SIGTERM; return its trial's state.

    The user's own scancel is final for its trial; else the trial goes on, unless it was
    interrupted twice without a checkpoint.
    """

    def work(db: Database) -> str:
        studies.lock_study(db, ledger.study_id)
        ended = end
        if cancelling.is_wanted(db, attempt.trial_id):
            ended = replace(end, outcome=outcomes.STOPPED, reason=cancelling.REASON)
        attempts = ledger.attempts(attempt.trial_id)
        attempts[-1] = replace(attempts[-1], outcome=ended.outcome, reason=ended.reason)
        why = None if ended.outcome == outcomes.STOPPED else give_up(attempts, ledger.study.retry)
        after = ledger.attribute(attempt, ended, why)
        cut = after == outcomes.RUNNING and budgets.cancel_if_ended(ledger)
        return outcomes.CANCELLED if cut else after

    state = ledger.db.retry(work)
    if state in outcomes.FINAL_STATES:
        ledger.db.retry(lambda _: remove_checkpoints(ledger, folder, attempt.trial))
    return state


def end_whatever_it_left(
    ledger: Ledger, folder: StudyFolder, attempt: Attempt, end: End
) -> str | None:
    """End a dead attempt as ``end_attempt`` does; where that fails, without what it left.

    One attempt that cannot be taken in must not keep the study from its end. The fault is noted on
    it, with a crash file.

    Returns:
        Its trial's state; None where it had ended by itself, or could not be ended at all.

    Raises:
        SweepError: The database does not answer, or refuses us.
    """
    try:
        return end_attempt(ledger, folder, attempt, end)
    except StaleAttempt:
        return None
    except SweepError:
        raise
    except Exception as error:
        fault = note_fault(ledger, folder, attempt, error)
    for blind in (end, End(outcomes.LOST, fault)):
        try:
            return ledger.db.retry(
                lambda _, blind=blind: settle(  # type: ignore[misc]
                    ledger, attempt.token, attempt.trial_id, blind, None
                )
            )
        except StaleAttempt:
            return None
        except SweepError:
            raise
        except Exception as error:
            note_fault(ledger, folder, attempt, error)
    return None


def note_fault(ledger: Ledger, folder: StudyFolder, attempt: Attempt, error: Exception) -> str:
    """Leave a crash file, and note on an attempt what could not be taken in of it; return that."""
    where = write_crash(
        folder.root.parent, error, ["trial", str(attempt.trial), "attempt", str(attempt.number)]
    )
    said = str(error).strip().partition("\n")[0]
    note = f"could not be taken in ({type(error).__name__}: {said}); details in {where}"
    ledger.db.retry(lambda _: ledger.add_notes(attempt.token, [note]))
    return note


def end_attempt(ledger: Ledger, folder: StudyFolder, attempt: Attempt, end: End) -> str:
    """Store what a dead attempt left in its folder, end it, and return its trial's state."""
    attempt_folder = folder_of(folder, attempt)
    if end.outcome == outcomes.ERROR:
        log = last_lines(attempt_folder, memory_messages.WINDOW)
        end = classify(end.exit_code, end.signal, "", log)
    odd = odd_files(attempt_folder)
    checkpoint = newest_of(attempt_folder, ledger.study.checkpoint_files)
    sign_s = last_sign(attempt_folder)
    _drain(ledger, folder, attempt, attempt_folder)
    if ledger.study.objective.pattern is None:  # of output nobody knows when it was printed
        reports = Journal(attempt_folder).rest()
        note_best(attempt_folder, ledger.study, reports, ledger.study.checkpoint_files)
    tries = 0

    def work(_: Database) -> str:
        nonlocal tries
        tries += 1
        written = ledger.state_after(attempt.token) if tries > 1 else None
        if written is not None:
            return written  # the answer to our own COMMIT was lost
        if attempt.number > 1:
            take_over(ledger, attempt.token, folder, attempt.trial)
        ledger.add_notes(attempt.token, odd)
        after = settle(ledger, attempt.token, attempt.trial_id, end, checkpoint)
        ledger.backdate(attempt.token, attempt.seen, sign_s)
        return after

    state = ledger.db.retry(work)
    own_workdir.tidy(attempt_folder)
    if state != outcomes.RUNNING:
        ledger.db.retry(lambda _: remove_checkpoints(ledger, folder, attempt.trial))
    return state


def _drain(
    ledger: Ledger, study_folder: StudyFolder, attempt: Attempt, folder: AttemptFolder
) -> None:
    """Store what nobody has stored yet of a dead attempt's reports, part by part."""
    db, study, first = ledger.db, ledger.study, 0
    if attempt.resumed_from:
        resume = Path(attempt.resumed_from)
        first = db.retry(lambda _: find_next_step(ledger, study_folder, attempt, resume, folder))
    journal = Journal(
        folder,
        study.objectives,
        partial(first_printed, study, folder, first),
        launchers.reader(study),
        attempt.journal,
    )

    def record(reports: Sequence[Report], reading: Reading) -> None:
        db.retry(lambda _: ledger.record(attempt.token, reports, reading), transaction=False)

    drain(journal, record)
