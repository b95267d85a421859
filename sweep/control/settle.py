"""What the end of an attempt means for its trial, and writing it down.

The worker comes here when its training's process has ended, and ``reconcile`` when it finds an
attempt whose worker is gone: the same journal, the same rules, the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sweep.control import replicating
from sweep.control.resuming import may_step_back
from sweep.core import outcomes, pareto
from sweep.core.errors import closest
from sweep.core.outcomes import HALTED, NEVER_REPORTED, PAUSED, REPLICATED, USER_FAILURES
from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.core.study import Retry, Study
from sweep.core.trial import Attempt, End, Reading, Report, mean_bounded, mean_values, since_retry
from sweep.storage import adoption, cancelling, replicates, studies
from sweep.storage.budgets import cut_by
from sweep.storage.closing import close_trials, prune_trials
from sweep.storage.ledger import Ledger
from sweep.training.attempt_files import folder_of
from sweep.training.checkpoints import saves
from sweep.training.digests import digest
from sweep.training.journal import MOST_REPORTS, Journal
from sweep.training.printed_metric import why_missed

# At the same size memory runs out again, unless something else took it: one more try tells. What
# others on its GPU took does not count (CROWDED).
_TRIES_OF_MEMORY = 2
# Ends that tell of the configuration: while no trial has reported anything they count like failures
# of the user's own code, or a space of which nothing fits would use up all its trials.
_OF_CONFIGURATION = (outcomes.OUT_OF_MEMORY, outcomes.KILLED, outcomes.STALLED, outcomes.TIMEOUT)
MOST_NODES = 3  # that may fail under a trial: after that it is the trial that ends them


def give_up(attempts: Sequence[Attempt], retry: Retry) -> str | None:
    """Return why a trial is not tried again, or None when it is.

    Args:
        attempts: All its attempts, oldest first, the last one just ended.
    """
    attempts = since_retry(attempts)
    last = attempts[-1]
    faults = [attempt for attempt in attempts if attempt.outcome in outcomes.FAULTS]
    short = [attempt for attempt in attempts if attempt.outcome == outcomes.OUT_OF_MEMORY]
    if last.outcome == outcomes.OUT_OF_MEMORY and len(short) >= _TRIES_OF_MEMORY:
        return f"{len(short)} attempts ended so, the last: {last.reason or last.outcome}"
    if last.outcome in outcomes.FAULTS and len(faults) >= retry.max_attempts:
        return f"{len(faults)} attempts ended in a fault, the last: {last.reason or last.outcome}"
    if last.outcome == outcomes.TIMEOUT and _barren_limits(attempts) >= 2:
        return (
            "its time limit came twice without a new checkpoint; it needs a longer "
            "resources.time, or checkpoints"
        )
    nodes = sorted({a.host for a in attempts if a.outcome == outcomes.NODE_FAILED})
    if last.outcome == outcomes.NODE_FAILED and len(nodes) >= MOST_NODES:
        return f"{len(nodes)} nodes failed under it: {', '.join(nodes)}"
    return None


def _barren_limits(attempts: Sequence[Attempt]) -> int:
    """Return how often the time limit ended a trial since its newest checkpoint.

    Whatever else ended it meanwhile (preemption, a stop of ours, a fault) neither counts nor
    begins anew; what a launch has given back to be tried again does begin anew.
    """
    count = 0
    for attempt in reversed(attempts):
        if brought_checkpoint(attempt) or attempt.outcome == outcomes.GIVEN_BACK:
            break
        count += attempt.outcome == outcomes.TIMEOUT
    return count


def brought_checkpoint(attempt: Attempt) -> bool:
    """Tell whether the attempt left a checkpoint of its own."""
    return attempt.checkpoint is not None and attempt.checkpoint != attempt.resumed_from


def settle(
    ledger: Ledger, token: str, trial_id: int, end: End, checkpoint: tuple[str, str | None] | None
) -> str:
    """Write an attempt's end and what follows for its trial; inside ``db.retry``.

    Returns:
        The trial's state afterwards: complete, pruned, failed, cancelled, or running when it is to
        go on.

    Raises:
        StaleAttempt: The attempt has ended otherwise.
    """
    if checkpoint is not None:
        checkpoint = ledger.own_checkpoint(token, checkpoint)
    if end.outcome == outcomes.ERROR and may_step_back(ledger.attempts(trial_id)):
        end = replace(end, outcome=outcomes.RESUME_FAILED)
    if end.outcome in USER_FAILURES:
        ledger.fail(token, end, checkpoint)
        return outcomes.FAILED
    if end.outcome == outcomes.FINISHED:
        return _finish(ledger, token, trial_id, end, checkpoint)
    if end.outcome == outcomes.STOPPED:
        ledger.finish(token, end, outcomes.CANCELLED, checkpoint=checkpoint)
        return outcomes.CANCELLED
    if end.outcome == outcomes.TERMINATED:
        ledger.leave(token, end, checkpoint)  # what follows depends on who sent the signal
        return outcomes.RUNNING
    # Whoever ends the study has either seen this attempt's end, or we see his.
    studies.lock_study(ledger.db, ledger.study_id)
    if cancelling.is_wanted(ledger.db, trial_id):
        cancelled = replace(end, outcome=outcomes.STOPPED, reason=cancelling.REASON)
        ledger.finish(token, cancelled, outcomes.CANCELLED, checkpoint=checkpoint)
        return outcomes.CANCELLED
    state = studies.read_state(ledger.db, ledger.study_id)
    if state.word == studies.ENDED:
        _cut(ledger, token, trial_id, end, checkpoint, state.reason)
        return outcomes.CANCELLED if end.outcome != PAUSED else outcomes.PRUNED
    if end.outcome in (outcomes.INTERRUPTED, outcomes.TIMEOUT) and state.word == studies.STOPPED:
        # A user may stop and go on as often as he likes: no interruption without a checkpoint.
        end = replace(end, outcome=HALTED, reason="the study was stopped")
    attempts = ledger.attempts(trial_id)
    path = checkpoint[0] if checkpoint else None
    attempts[-1] = replace(attempts[-1], outcome=end.outcome, reason=end.reason, checkpoint=path)
    why = give_up(attempts, ledger.study.retry)
    if why:
        end = replace(end, reason=why)
        if end.outcome in _OF_CONFIGURATION and not ledger.is_proven():
            ledger.fail(token, replace(end, outcome=outcomes.EXHAUSTED), checkpoint)
        else:
            ledger.finish(token, end, outcomes.FAILED, checkpoint=checkpoint)
        return outcomes.FAILED
    ledger.leave(token, end, checkpoint)
    return outcomes.RUNNING


def _cut(
    ledger: Ledger,
    token: str,
    trial_id: int,
    end: End,
    checkpoint: tuple[str, str | None] | None,
    reason: str,
) -> None:
    """End an attempt that left while the study had ended: nobody takes its trial up again."""
    if end.outcome == HALTED:
        end = replace(end, reason=reason)
    ledger.leave(token, end, checkpoint)
    if end.outcome == PAUSED:
        prune_trials(ledger, [trial_id], cut_by(reason))
    else:
        close_trials(ledger.db, [trial_id], outcomes.CANCELLED, cut_by(reason))


def _finish(
    ledger: Ledger, token: str, trial_id: int, end: End, checkpoint: tuple[str, str | None] | None
) -> str:
    study = ledger.study
    found = [ledger.summary(trial_id, o.metric, o.at, o.direction) for o in study.objectives]
    values = [value for value in found if value is not None]
    if len(values) < len(found):
        missing = [o for o, v in zip(study.objectives, found, strict=True) if v is None]
        outcome = outcomes.NO_METRIC
        if end.reason == outcomes.TOO_LONG:
            outcome = outcomes.TOO_LONG
            reason = "used up its trial_time without reporting the objective"
        else:
            metric, notes = missing[0].metric, ledger.attempts(trial_id)[-1].notes
            reason = f"{NEVER_REPORTED} {expected(metric, study, notes)}"
            reported = ledger.reported_names(trial_id)
            if reported or not missing[0].pattern:
                reason += others_text(metric, reported)
        ledger.fail(token, End(outcome, reason, end.exit_code, end.signal), checkpoint)
        return outcomes.FAILED
    broken = _violations(ledger, trial_id)
    if isinstance(broken, str) and end.reason not in ("pruned", outcomes.TOO_LONG):
        reason = f"{NEVER_REPORTED} {expected(broken, study)}, a constraint"
        reason += others_text(broken, ledger.reported_names(trial_id))
        ledger.fail(token, End(outcomes.NO_METRIC, reason, end.exit_code, end.signal), checkpoint)
        return outcomes.FAILED
    if not isinstance(broken, str):
        ledger.note_violations(trial_id, broken)
    if not all(math.isfinite(value) for value in values):
        shown = ", ".join(str(value) for value in values)
        reason = f"the objective is not a finite number ({shown})"
        end = End(outcomes.DIVERGED, reason, end.exit_code)
        ledger.finish(token, end, outcomes.FAILED, checkpoint=checkpoint)
        state = outcomes.FAILED
    else:
        cut_short = end.reason in ("pruned", outcomes.TOO_LONG)
        state = outcomes.PRUNED if cut_short else outcomes.COMPLETE
        if study.is_replicated and not cut_short:
            return _finish_replicate(ledger, token, trial_id, end, values, checkpoint)
        ledger.finish(token, end, state, values, checkpoint)
    if ledger.open_failures():
        ledger.close_failures()
    return state


def _finish_replicate(
    ledger: Ledger,
    token: str,
    trial_id: int,
    end: End,
    values: Sequence[float],
    checkpoint: tuple[str, str | None] | None,
) -> str:
    """End one of a trial's trainings, which ended well; the trial itself where it was the last."""
    # Whoever ends the study or cancels the trial has either seen this end, or we see his wish.
    studies.lock_study(ledger.db, ledger.study_id)
    found = replicating.after(ledger, ledger.attempts(trial_id), values)
    replicates.write(ledger.db, trial_id, found)
    if ledger.open_failures():
        ledger.close_failures()
    state = studies.read_state(ledger.db, ledger.study_id)
    is_cancelled = cancelling.is_wanted(ledger.db, trial_id)
    has_ended = state.word == studies.ENDED
    has_enough = len(found) >= ledger.study.replicates.min
    needs_more = replicating.needs_more(ledger, trial_id, found)
    if needs_more and (is_cancelled or not (has_ended and has_enough)):
        number, most = len(found), ledger.study.replicates.max
        shown = ", ".join(f"{value:.6g}" for value in values)
        reason = f"replicate {number} of {most}: {shown}"
        ledger.leave(token, replace(end, outcome=REPLICATED, reason=reason), checkpoint)
        if not (is_cancelled or has_ended):
            replicates.begin_next(ledger.db, trial_id)
            return outcomes.RUNNING
        cancelled = End(outcomes.STOPPED, cancelling.REASON)
        why = cancelled if is_cancelled else cut_by(state.reason)
        close_trials(ledger.db, [trial_id], outcomes.CANCELLED, why)
        return outcomes.CANCELLED
    constraints = ledger.study.constraints
    if constraints:
        means = mean_bounded(constraints, found)
        ledger.note_violations(trial_id, pareto.violations(constraints, means))
    ledger.finish(token, end, outcomes.COMPLETE, mean_values(found), checkpoint)
    return outcomes.COMPLETE


def _violations(ledger: Ledger, trial_id: int) -> list[float] | str:
    """Return by how much each constraint is broken, or the metric that was not reported."""
    last: dict[str, float] = {}
    for constraint in ledger.study.constraints:
        value = ledger.summary(trial_id, constraint.metric, "last", "minimize")
        if value is None:
            return constraint.metric
        last[constraint.metric] = value
    return pareto.violations(ledger.study.constraints, last)


def expected(metric: str, study: Study, notes: Sequence[str] = ()) -> str:
    """Return what training should have done to report a metric.

    Args:
        notes: On the attempt: which lines of its output came near.
    """
    for objective in study.objectives:
        if objective.metric == metric and objective.pattern:
            why = why_missed(metric, objective.pattern, notes)
            missed = f"{metric}: no line of its output matches {objective.pattern!r}"
            return f"{missed}; {why}" if why else missed
    return f"{metric}: Reporter().log(step=…, {metric}=…), or a line in $SWEEP_METRICS"


def others_text(metric: str, reported: Sequence[str]) -> str:
    """Return what was reported instead of a metric, with the name that looks most like it."""
    if not reported:
        return " (nothing was reported)"
    near = closest(metric, reported)
    return f" (reported: {', '.join(reported)}" + (f"; did you mean {near}?)" if near else ")")


def newest_of(folder: AttemptFolder, pattern: str | None = None) -> tuple[str, str | None] | None:
    """Return the newest checkpoint that an attempt left, with its hash; None where it left none.

    Args:
        pattern: The study's ``checkpoint_files``.
    """
    for save in saves(folder, pattern):
        try:
            return str(save.path), digest(save.files)
        except OSError:
            continue
    return None


def drain(
    journal: Journal,
    record: Callable[[Sequence[Report], Reading], object],
    unsent: Sequence[Report] = (),
) -> int:
    """Store what the journal of a training that has ended still holds; return how many reports.

    In parts, each with up to where it reaches: whoever is killed here leaves the rest to others.

    Args:
        record: Stores some thousand reports, or just what was odd, where nothing is left; for good
            when it returns.
        unsent: Reports that were read before.
    """
    count, part, noted = 0, list(unsent), tuple[str, ...]()
    while True:
        part += journal.read(MOST_REPORTS - len(part), final=True)
        reading = journal.reading()
        if not part and reading.notes == noted:
            return count
        record(part, reading)
        if not part:
            return count
        count, part, noted = count + len(part), [], reading.notes


def take_over(ledger: Ledger, token: str, folder: StudyFolder, number: int) -> None:
    """Store what earlier attempts of a trial reported before this one went on; inside ``db.retry``.

    Nearly always nothing: it was stored when they ended. See ``storage.adoption``.

    Raises:
        StaleAttempt: The attempt is over.
    """
    missing = adoption.missing_before(ledger, token)
    earlier = {a.number: a for a in ledger.attempts_at(number)} if missing else {}
    for attempt, (last, cut) in missing.items():
        # From where it was stored on: mostly there is nothing.
        journal = Journal(folder_of(folder, earlier[attempt]), position=earlier[attempt].journal)
        while part := journal.read(final=True):
            reports = [r for r in part if r.step < cut and (last is None or r.step > last)]
            if reports:
                adoption.adopt(ledger, token, {attempt: reports})
