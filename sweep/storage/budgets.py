"""When a study ends before its last trial: budgets of time and GPUs, a target, patience.

Whoever finishes a trial looks, and so does each task while its training runs, and everybody who
looks after the study. What ends it is written once, with what it was; waiting trials are cancelled
in the same transaction, so that N holds. Those that run leave at the next look of their tasks, with
a checkpoint, or may go on to their end: see ``Reached.leave``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sweep.core import outcomes
from sweep.core.attributes import END
from sweep.core.outcomes import CLAIMABLE, PAUSED
from sweep.core.study import Study
from sweep.core.times import exact_span
from sweep.core.trial import End, better
from sweep.storage import retries, studies
from sweep.storage.attempts import VIOLATION_SQL
from sweep.storage.closing import close_trials, prune_trials
from sweep.storage.gpu_shares import GPU_SECONDS_SQL
from sweep.storage.ledger import Ledger

# What the note on a trial's end calls it when the end of its study has cancelled it: launch takes
# such ones up again where the limit was raised.
CUT = "study ended"


@dataclass(frozen=True)
class Spent:
    """What a study has used and reached.

    Attributes:
        time_s: Seconds in which at least one trial ran.
        trial_s: Seconds of all its trials together; on a GPU that trials share, their parts of it.
        best: The best complete (and feasible) trial's objective, or None.
        best_trial: Its number, or None.
        since_best: Complete and pruned trials that have ended since.
    """

    time_s: float = 0.0
    trial_s: float = 0.0
    best: float | None = None
    best_trial: int | None = None
    since_best: int = 0


@dataclass(frozen=True)
class Reached:
    """Why a study ends.

    Attributes:
        reason: In a sentence.
        leave: Whether running trials leave at once, with a checkpoint. They do where a budget is
            used up or the target is reached; else they end by themselves, as most of their work
            is done and one may be the best.
        by: The key of the study file that ends it.
    """

    reason: str
    leave: bool
    by: str


def judge(study: Study, spent: Spent) -> Reached | None:
    """Return why the study ends, or None while it goes on."""
    if study.time_s is not None and spent.time_s >= study.time_s:
        return Reached(f"its time is used up: {exact_span(study.time_s)}", True, "time")
    used = study.resources.gpu_hours(spent.trial_s)
    if study.gpu_hours is not None and used and used >= study.gpu_hours:
        return Reached(f"its GPU-hours are used up: {study.gpu_hours:g}", True, "gpu_hours")
    if spent.best is None:
        return None
    metric, direction = study.objective.metric, study.objective.direction
    if study.target is not None and not better(study.target, spent.best, direction):
        found = f"trial {spent.best_trial} has {metric} {spent.best:.6g}"
        return Reached(f"its target {study.target:g} is reached: {found}", True, "target")
    if study.patience is not None and spent.since_best >= study.patience:
        found = f"trial {spent.best_trial} ({metric} {spent.best:.6g})"
        return Reached(
            f"its patience is used up: {spent.since_best} trials were no better than {found}",
            leave=False,
            by="patience",
        )
    return None


SPENT_SQL = f"""
SELECT COALESCE(SUM(GREATEST(EXTRACT(EPOCH FROM till - GREATEST(claimed, before)), 0)), 0),
       COALESCE(SUM(COALESCE(gpu_s, EXTRACT(EPOCH FROM till - claimed))), 0)
FROM (SELECT claimed, till, gpu_s, MAX(till) OVER (ORDER BY claimed, till
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM (SELECT a.claimed, COALESCE(a.ended, a.seen) AS till, {GPU_SECONDS_SQL} AS gpu_s
            FROM sweep_attempt a JOIN trials t USING (trial_id) WHERE t.study_id = %s) s) u
"""


def read_spent(ledger: Ledger) -> Spent:
    """Return what the study has used and reached, as far as one of its limits asks for it.

    An attempt that lives counts up to its last sign of life, at most some seconds ago.
    """
    db, study = ledger.db, ledger.study
    time_s = trial_s = 0.0
    if study.time_s is not None or study.gpu_hours is not None:
        time_s, trial_s = map(float, db.execute(SPENT_SQL, (ledger.study_id,))[0])
    if study.target is None and study.patience is None:
        return Spent(time_s, trial_s)
    best = _first_best(ledger)
    if best is None:
        return Spent(time_s, trial_s)
    number, value, ended = best
    since = 0
    if study.patience is not None:
        since = int(
            db.execute(
                "SELECT COUNT(*) FROM trials WHERE study_id = %s AND state IN ('COMPLETE', "
                "'PRUNED') AND datetime_complete > %s",
                (ledger.study_id, ended),
            )[0][0]
        )
    return Spent(time_s, trial_s, value, number, since)


def _first_best(ledger: Ledger) -> tuple[int, float, datetime] | None:
    """Return number, value and end of the best complete trial; of equals, the first to end."""
    order = "DESC" if ledger.study.objective.direction == "maximize" else "ASC"
    feasible = f"AND {VIOLATION_SQL} = 0 " if ledger.study.constraints else ""
    rows = ledger.db.execute(
        "SELECT t.number, v.value, t.datetime_complete FROM trials t JOIN trial_values v "
        "USING (trial_id) WHERE t.study_id = %s AND t.state = 'COMPLETE' AND v.objective = 0 "
        f"AND v.value_type = 'FINITE' {feasible}ORDER BY v.value {order}, "
        "t.datetime_complete, t.number LIMIT 1",
        (ledger.study_id,),
    )
    return (int(rows[0][0]), float(rows[0][1]), rows[0][2]) if rows else None


def look(ledger: Ledger) -> bool:
    """End the study if one of its limits is reached; inside ``db.retry``. Return whether it ends.

    The first to find it writes the reason.
    """
    if not ledger.study.may_end_early:
        return False
    reached = judge(ledger.study, read_spent(ledger))
    return reached is not None and end(ledger, reached)


def end(ledger: Ledger, reached: Reached) -> bool:
    """End a study that runs; inside ``db.retry``. Return whether it was running."""
    db, study_id = ledger.db, ledger.study_id
    studies.lock_study(db, study_id)
    if studies.read_state(db, study_id).word not in (studies.RUNNING, studies.DRAINING):
        return False
    state = studies.StudyState(studies.ENDED, reached.reason, reached.leave, reached.by)
    studies.write_state(db, study_id, state)
    cancel_rest(ledger, reached.reason)
    return True


def still_holds(ledger: Ledger, state: studies.StudyState) -> bool:
    """Tell whether what has ended a study would end it again, its file being what it is now."""
    if state.by == "terminator":
        return ledger.study.terminator.type != "none"
    return judge(ledger.study, read_spent(ledger)) is not None


def cut_by(reason: str) -> End:
    """Return the end of a trial that the end of its study has cancelled."""
    return End(CUT, f"the study ended: {reason}")


def cancel_rest(ledger: Ledger, reason: str) -> int:
    """Make every trial final that nobody runs; inside a transaction. Return how many.

    Waiting and interrupted ones are cancelled, those that wait at a rung are pruned, and failures
    that stayed open until the study was proven have failed.
    """
    db, study_id = ledger.db, ledger.study_id
    waiting = db.execute(
        "SELECT trial_id FROM trials WHERE study_id = %s AND state = 'WAITING' "
        "ORDER BY trial_id FOR UPDATE",
        (study_id,),
    )
    cut = cut_by(reason)
    close_trials(db, [int(row[0]) for row in waiting], outcomes.CANCELLED, cut)
    # Locked first and judged after: a claim may have come in between.
    idle = (
        "(SELECT a.outcome FROM sweep_attempt a WHERE a.trial_id = t.trial_id "
        "ORDER BY a.number DESC LIMIT 1)"
    )
    db.execute(
        "SELECT 1 FROM trials t WHERE t.study_id = %s AND t.state = 'RUNNING' "
        f"AND {idle} IS NOT NULL ORDER BY t.trial_id FOR UPDATE",
        (study_id,),
    )
    rows = db.execute(
        f"SELECT t.trial_id, {idle} FROM trials t WHERE t.study_id = %s AND t.state = 'RUNNING' "
        f"AND {idle} = ANY(%s)",
        (study_id, [*CLAIMABLE, PAUSED]),
    )
    close_trials(db, [int(t) for t, outcome in rows if outcome != PAUSED], outcomes.CANCELLED, cut)
    prune_trials(ledger, [int(t) for t, outcome in rows if outcome == PAUSED], cut)
    failed = ledger.open_failures()
    for trial_id in failed:
        last = ledger.attempts(trial_id)[-1]
        ledger.close_trial(
            trial_id, End(last.outcome or outcomes.ERROR, last.reason), outcomes.FAILED
        )
    return len(waiting) + len(rows) + len(failed)


def reopen(ledger: Ledger) -> int:
    """Let trials that an end had cancelled be claimed again; inside a transaction.

    For a launch that has raised or removed the limit. Those that had begun go on from their
    checkpoints. Return how many.
    """
    rows = ledger.db.execute(
        "UPDATE trials t SET state = CASE WHEN EXISTS (SELECT 1 FROM sweep_attempt a WHERE "
        "a.trial_id = t.trial_id) THEN 'RUNNING' ELSE 'WAITING' END::trialstate, "
        "datetime_complete = NULL FROM trial_user_attributes u WHERE t.study_id = %s "
        "AND t.state = 'FAIL' AND u.trial_id = t.trial_id AND u.key = %s "
        "AND u.value_json::json ->> 'outcome' = %s RETURNING t.trial_id",
        (ledger.study_id, END, CUT),
    )
    reopened = [int(row[0]) for row in rows]
    if reopened:
        retries.count_retry(ledger.db, ledger.study_id)
    ledger.db.execute(
        "DELETE FROM trial_user_attributes WHERE trial_id = ANY(%s::int[]) AND key = %s",
        (reopened, END),
    )
    return len(reopened)


def take_up(ledger: Ledger) -> tuple[str, int]:
    """Let a study go on whose end no longer holds; inside ``db.retry``.

    Returns:
        Why it stays ended ("" where it does not), and how many of its trials are taken up again.
    """
    db, study_id = ledger.db, ledger.study_id
    studies.lock_study(db, study_id)
    state = studies.read_state(db, study_id)
    if state.word != studies.ENDED:
        return "", 0
    if still_holds(ledger, state):
        cancel_rest(ledger, state.reason)  # trials that a launch has added
        return state.reason, 0
    return "", reopen(ledger)


def cancel_if_ended(ledger: Ledger) -> bool:
    """Cancel what nobody runs if the study has ended; inside a transaction. Return whether."""
    studies.lock_study(ledger.db, ledger.study_id)
    state = studies.read_state(ledger.db, ledger.study_id)
    if state.word == studies.ENDED:
        cancel_rest(ledger, state.reason)
    return state.word == studies.ENDED
