"""What an earlier attempt reported after it had lost its trial, taken over by the one that goes on.

Where a task runs twice, the first run may train on for some seconds: its worker's writes are
refused, while its training reports to a file and saves checkpoints. An attempt that goes on from
such a checkpoint begins behind steps that nobody has stored; without them its series had a hole.
They are stored under the token of the attempt that owns the trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.core.outcomes import REPLICATED, RETRIED
from sweep.core.trial import Report, replicate_of
from sweep.storage import pruner_unit
from sweep.storage.attempts import stale
from sweep.storage.ledger import Ledger
from sweep.storage.trial_rows import stored_number


def missing_before(ledger: Ledger, token: str) -> dict[int, tuple[int | None, int]]:
    """Return which steps of earlier attempts the lineage may lack: each one's last stored step
    (None without one), and the step at which a later attempt has cut it; inside ``db.retry``.

    Empty until the attempt has reported.

    Raises:
        StaleAttempt: The attempt is over.
    """
    live = ledger.db.execute(
        "SELECT trial_id, number FROM sweep_attempt WHERE token = %s AND outcome IS NULL FOR SHARE",
        (token,),
    )
    if not live:
        raise stale(token)
    trial_id, number = live[0]
    rows = ledger.db.execute(
        "SELECT a.number, (SELECT MAX(m.step) FROM sweep_metric m WHERE m.trial_id = a.trial_id "
        "AND m.attempt = a.number), (SELECT MIN(b.first_step) FROM sweep_attempt b "
        "WHERE b.trial_id = a.trial_id AND b.number > a.number AND b.number <= %s) "
        "FROM sweep_attempt a WHERE a.trial_id = %s AND a.number < %s AND a.number > (SELECT "
        "COALESCE(MAX(r.number), 0) FROM sweep_attempt r WHERE r.trial_id = %s "
        "AND r.outcome = ANY(%s))",
        (number, trial_id, number, trial_id, [RETRIED, REPLICATED]),
    )
    return {earlier: (last, cut) for earlier, last, cut in rows if cut is not None}


def adopt(ledger: Ledger, token: str, found: Mapping[int, Sequence[Report]]) -> None:
    """Store reports of earlier attempts that are not there yet; inside ``db.retry``.

    Args:
        found: Reports by attempt, each below the step at which a later attempt cut it.

    Raises:
        StaleAttempt: The attempt is over; nothing was stored.
    """
    db = ledger.db
    live = db.execute(
        "SELECT trial_id FROM sweep_attempt WHERE token = %s AND outcome IS NULL FOR SHARE",
        (token,),
    )
    if not live:
        raise stale(token)
    trial_id = live[0][0]
    rows = [
        (attempt, name, report.step, value, report.time_s)
        for attempt, reports in found.items()
        for report in reports
        for name, value in report.metrics.items()
    ]
    db.execute(
        "INSERT INTO sweep_metric (trial_id, attempt, name, step, value, logged) SELECT %s, * "
        "FROM unnest(%s::int[], %s::text[], %s::bigint[], %s::float8[], %s::float8[]) "
        "ON CONFLICT (trial_id, attempt, name, step) DO NOTHING",
        (trial_id, *([row[column] for row in rows] for column in range(5))),
    )
    unit = ledger.study.pruner.options.get("resource", pruner_unit.STEPS)
    if ledger.study.is_multi_objective or unit != pruner_unit.STEPS:
        return  # what was used when each was reported is not known here
    if replicate_of(ledger.attempts(trial_id)) > 1:
        return  # pruners see the first replicate's
    metric = ledger.study.objective.metric
    objective = {  # of several attempts the latest counts
        step: stored_number(value)
        for _, name, step, value, _ in sorted(rows, key=lambda row: row[0])
        if name == metric and 0 <= step <= ledger.tables.longest_step
    }
    db.execute(
        "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, "
        "intermediate_value_type) SELECT %s, u.step, u.value, "
        "u.kind::trialintermediatevaluetype FROM "
        "unnest(%s::bigint[], %s::float8[], %s::text[]) AS u(step, value, kind) "
        "ON CONFLICT (trial_id, step) DO NOTHING",
        (
            trial_id,
            list(objective),
            [v for v, _ in objective.values()],
            [k for _, k in objective.values()],
        ),
    )
