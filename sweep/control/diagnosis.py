"""What became of an attempt whose worker is silent: a pure decision from what is known.

Known are the scheduler's word on the attempt's task, the worker's note on how training ended, what
sweep itself has cancelled, and how long nobody has heard of it. None is the answer where it is to
be left alone: it runs, or nobody can say yet. That the scheduler could not be asked never comes
here, for it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sweep.core import outcomes, scheduler
from sweep.core.scheduler import TaskState
from sweep.core.trial import End
from sweep.storage import studies
from sweep.training.exit_reason import classify

UNEXPLAINED_S = 900.0  # after which an unexplained end is the infrastructure's fault
ACCOUNTING_LAG_S = 15.0  # sacct lags up to about 5 s behind
# Elements of one scancel end within Slurm's KillWait (30 s by default) of each other.
UNDER_WAY_S = 15.0  # after the first element's end, before an scancel counts as carried out
ONE_CANCEL_S = 60.0

# What the scheduler's last word on a task means for the attempt that it ran.
ENDS = {
    "TIMEOUT": (outcomes.TIMEOUT, "its task reached its time limit"),
    "DEADLINE": (outcomes.TIMEOUT, "its job reached its deadline"),
    "PREEMPTED": (outcomes.INTERRUPTED, "its task was preempted"),
    "REQUEUED": (outcomes.INTERRUPTED, "its task was requeued"),
    "SUSPENDED": (outcomes.INTERRUPTED, "its task was suspended"),
    "NODE_FAIL": (outcomes.NODE_FAILED, "its node failed"),
    "BOOT_FAIL": (outcomes.NODE_FAILED, "its node did not boot"),
    "LAUNCH_FAILED": (outcomes.NODE_FAILED, "its node could not start it"),
    "RECONFIG_FAIL": (outcomes.NODE_FAILED, "its node could not be made ready"),
    "REVOKED": (outcomes.INTERRUPTED, "its task was started on another cluster"),
    "OUT_OF_MEMORY": (outcomes.OUT_OF_MEMORY, "its task ran out of memory"),
}
_BY_HAND = "was cancelled by hand (scancel)"
_BY_WHOM = "was cancelled (scancel; by whom is not known, since the cluster keeps no accounts)"
# Slurm's own exit signal where the log could not be made (slurm.h).
_SIG_NO_LOG = 53


@dataclass(frozen=True)
class Case:
    """All that is known of one attempt.

    Attributes:
        task: What the scheduler says of its task; None when an answer did not list it (it is gone).
        exit_note: What the worker noted when the training had ended, if it came so far.
        uid: The study's user.
        ours: What sweep cancelled of its job ("all", "waiting"), or None.
        silent_s: Seconds since anybody heard of it.
        explains: Whether the scheduler may still say why a task is gone (accounting lags behind).
    """

    task: TaskState | None
    exit_note: Mapping[str, object] | None = None
    uid: int = 0
    ours: str | None = None
    silent_s: float = 0.0
    explains: bool = False


def decide(case: Case) -> End | None:
    """Say how an attempt ended whose worker is silent, or None when it is to be left alone."""
    task = case.task
    if task is not None and task.state == scheduler.RUNNING:
        return None
    by_hand = _by_hand(case)
    if case.exit_note is not None:
        end = read_note(case.exit_note)
        return by_hand if by_hand and end.outcome == outcomes.INTERRUPTED else end
    if task is None:
        if case.explains and case.silent_s < UNEXPLAINED_S:
            return None
        return End(outcomes.LOST, "its task is gone, and nothing says why")
    if task.state == scheduler.PENDING:
        return requeued(task.before)
    if task.word == "CANCELLED":
        if task.cancelled_by is None and case.explains and case.silent_s < UNEXPLAINED_S:
            return None
        return by_hand or End(outcomes.INTERRUPTED, _cancelled(case), task.exit_code)
    return _ended(task)


def whose_cancel(case: Case) -> End | None:
    """Say what a SIGTERM meant whose sender was not known; None while nobody can tell.

    Returns:
        STOPPED (the user's wish, final), or INTERRUPTED or TIMEOUT (the trial goes on).
    """
    task, late = case.task, case.silent_s >= UNEXPLAINED_S
    if task is None:
        if case.silent_s < ACCOUNTING_LAG_S:
            return None
        return End(outcomes.INTERRUPTED, "asked to leave by SIGTERM")
    if task.state == scheduler.RUNNING:
        # COMPLETING is listed so as well; accounting will know.
        return End(outcomes.INTERRUPTED, "asked to leave by SIGTERM") if late else None
    if task.state == scheduler.PENDING:
        return requeued(task.before)
    if task.word == "CANCELLED":
        if task.cancelled_by is None and case.ours != studies.ALL and not late:
            return None
        return _by_hand(case) or End(outcomes.INTERRUPTED, _cancelled(case))
    outcome, reason = ENDS.get(task.word, ("", f"asked to leave by SIGTERM ({task.word})"))
    return End(outcome if outcome == outcomes.TIMEOUT else outcomes.INTERRUPTED, reason)


def requeued(before: str) -> End:
    """Return the end of a task's earlier run, by the scheduler's word on it ("" when unknown)."""
    outcome, reason = ENDS.get(
        before, (outcomes.INTERRUPTED, "its task was put back into the queue")
    )
    return End(outcome, reason)


def read_note(note: Mapping[str, object]) -> End:
    """Return how training ended, by the note that its worker left."""
    code, signal = note.get("exit_code"), note.get("signal")
    return classify(
        code if isinstance(code, int) else None,
        signal if isinstance(signal, int) else None,
        str(note.get("told") or ""),
    )


def is_whole_array(
    job: str,
    states: Mapping[scheduler.Task, TaskState],
    uid: int,
    ours: str | None,
    now_s: float | None = None,
) -> bool | None:
    """Tell whether a user's scancel was meant for the array and not for some of its elements.

    It was when it hit all that was left: nothing of the array is alive, more than one element was
    cancelled, and none of the others ended after that. Those that had not started do not count
    where sweep cancelled them itself.

    Args:
        now_s: The time, in seconds of the wall clock, to tell a cancel that is still under way.

    Returns:
        None while nobody can tell: the last elements are being ended.
    """
    mine = [state for (of, _), state in states.items() if of == job]
    alive = [state for state in mine if state.state != scheduler.ENDED]
    if alive:
        # An scancel reaches the elements one after another: some may still be listed as running.
        recent = now_s is not None and any(
            state.word == "CANCELLED"
            and state.cancelled_by == uid
            and state.ended_s is not None
            and now_s - state.ended_s < UNDER_WAY_S
            for state in mine
        )
        return None if recent or all(state.word == "COMPLETING" for state in alive) else False
    if ours == studies.ALL:
        return False
    if now_s is not None and any(s.word == "CANCELLED" and s.cancelled_by is None for s in mine):
        return None  # accounting lags behind the queue: it says soon who it was
    cancelled = [
        state
        for state in mine
        if state.word == "CANCELLED"
        and state.cancelled_by == uid
        and (state.started or ours != studies.WAITING_ONES)
    ]
    if not cancelled or (len(mine) > 1 and len(cancelled) == 1):
        return False
    times = [state.ended_s for state in cancelled if state.ended_s is not None]
    if not times:
        return True
    first, last = min(times), max(times)
    others = [state.ended_s for state in mine if state not in cancelled and state.ended_s]
    return last - first <= ONE_CANCEL_S and not any(end > first + ONE_CANCEL_S for end in others)


def _by_hand(case: Case) -> End | None:
    """Return the user's own scancel as an end, where it was that."""
    task = case.task
    if task is None or task.word != "CANCELLED" or case.ours == studies.ALL:
        return None
    if task.cancelled_by is None or task.cancelled_by != case.uid or _was_cleared(case, task):
        return None
    return End(outcomes.STOPPED, f"its task {how_cancelled([task])}")


def how_cancelled(states: Iterable[TaskState]) -> str:
    """Say how tasks were cancelled that are taken for cancelled by the study's user."""
    return _BY_WHOM if any(state.presumed for state in states) else _BY_HAND


def _was_cleared(case: Case, task: TaskState) -> bool:
    """Tell whether sweep cancelled a task that was back in the queue, when nothing was to pull."""
    return case.ours == studies.WAITING_ONES and not task.started


def _cancelled(case: Case) -> str:
    task = case.task
    if task is not None and _was_cleared(case, task):
        return "its task was put back into the queue"
    if case.ours == studies.ALL:
        return "its task was cancelled by sweep"
    if task is not None and task.cancelled_by is not None:
        return f"its task was cancelled by another user (uid {task.cancelled_by})"
    return "its task was cancelled"


def _ended(task: TaskState) -> End:
    outcome, reason = ENDS.get(task.word, (outcomes.LOST, ""))
    if outcome != outcomes.LOST:
        return End(outcome, task.reason or reason, task.exit_code)
    if task.signal == _SIG_NO_LOG:
        return End(outcomes.LOST, "its task could not write its log", task.exit_code)
    if task.signal:
        reason = f"its task was killed by signal {task.signal}"
        return End(outcomes.KILLED, reason, task.exit_code, task.signal)
    how = f"exit code {task.exit_code}" if task.exit_code else task.word
    reason = task.reason or f"its task ended ({how}) without a word on the trial"
    return End(outcomes.LOST, reason, task.exit_code)
