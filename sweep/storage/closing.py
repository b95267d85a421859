"""Making many trials final by a handful of statements, whose attempts have ended already."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.core import outcomes
from sweep.core.attributes import END
from sweep.core.outcomes import PAUSED
from sweep.core.trial import End
from sweep.storage import bulk, promotion, studies, trial_rows
from sweep.storage.attempts import clean
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.series import read_summaries

UNTOLD = "asked for outside of sweep, and not told when all other trials had ended"


def close_trials(db: Database, trial_ids: Sequence[int], state: str, end: End) -> None:
    """Make trials final, all for the same reason; inside a transaction.

    Args:
        state: pruned, failed or cancelled.
    """
    if not trial_ids:
        return
    db.execute(
        "UPDATE trials SET state = %s, datetime_complete = clock_timestamp() AT TIME ZONE 'UTC' "
        "WHERE trial_id = ANY(%s::int[])",
        ("PRUNED" if state == outcomes.PRUNED else "FAIL", list(trial_ids)),
    )
    note = {"state": state, "outcome": end.outcome, "reason": clean(end.reason)}
    trial_rows.write_attribute(db, "user", trial_ids, END, note)


def prune_trials(ledger: Ledger, trial_ids: Sequence[int], end: End) -> None:
    """Make trials final as pruned, each with the value that it has reached; in a transaction."""
    if not trial_ids:
        return
    db, objective = ledger.db, ledger.study.objective
    rows = db.execute(
        "SELECT number, trial_id FROM trials WHERE trial_id = ANY(%s::int[])", (list(trial_ids),)
    )
    ids = {int(number): int(trial_id) for number, trial_id in rows}
    found = read_summaries(db, ledger.study_id, numbers=list(ids))
    best = "greatest" if objective.direction == "maximize" else "least"
    values = []
    for number, summaries in found.items():
        summary = summaries.get(objective.metric)
        if summary is None:
            continue
        value = summary.last if objective.at == "last" else getattr(summary, best)
        values.append((ids[number], summary.last if value is None else value))
    bulk.insert_first_values(db, values)
    close_trials(db, trial_ids, outcomes.PRUNED, end)


def close_paused(ledger: Ledger) -> int:
    """Prune what waits at a rung once nothing can promote it; inside ``db.retry``.

    Safe to call at any time. Return how many were pruned.
    """
    if not promotion.promotes(ledger.study):
        return 0
    db, study_id = ledger.db, ledger.study_id
    studies.lock_study(db, study_id)
    if studies.read_state(db, study_id).word not in (studies.RUNNING, studies.DRAINING):
        return 0
    found = promotion.unpromoted(db, study_id, ledger.study)
    prune_trials(ledger, found, End(PAUSED, "not promoted from its rung"))
    return len(found)


def close_untold(ledger: Ledger) -> int:
    """Cancel what a notebook asked for and never told, once all else is final; in ``db.retry``.

    Only trials of the study's own N: those that a notebook has added are its own affair. Safe to
    call at any time. Return how many were cancelled.
    """
    db, study_id = ledger.db, ledger.study_id
    studies.lock_study(db, study_id)
    if ledger.unfinished():
        return 0
    rows = db.execute(
        "SELECT t.trial_id FROM trials t WHERE t.study_id = %s AND t.state = 'RUNNING' "
        "AND t.number < %s AND NOT EXISTS (SELECT 1 FROM sweep_attempt a "
        "WHERE a.trial_id = t.trial_id) ORDER BY t.trial_id FOR UPDATE",
        (study_id, ledger.study.trials),
    )
    found = [int(row[0]) for row in rows]
    close_trials(db, found, outcomes.CANCELLED, End(outcomes.CANCELLED, UNTOLD))
    return len(found)
