"""What a status asks every second: why trials failed, how long they take, what is complete.

One statement each, whose answer does not grow with the number of trials where that can be helped.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sweep.core.attributes import END, RETRIED
from sweep.core.outcomes import USER_FAILURES
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.records import utc
from sweep.storage.tables import read_notes


@dataclass(frozen=True)
class Failure:
    """A kind of failure.

    Attributes:
        reason: In words.
        count: Trials that failed so.
        trial, attempt: The newest of them and its last attempt (0 where it never started).
    """

    reason: str
    count: int
    trial: int
    attempt: int


def read_failures(db: Database, study_id: int) -> list[Failure]:
    """Return why trials failed, the most frequent reason first, by one statement.

    Cancelled trials are none; those that failed before the study was proven are.
    """
    rows = db.execute(
        "SELECT f.reason, COUNT(*), MAX(f.number), (array_agg(f.attempt ORDER BY f.number DESC))[1]"
        " FROM (SELECT t.number, COALESCE(a.number, 0) AS attempt, CASE WHEN t.state = 'FAIL' "
        "THEN COALESCE(u.value_json::json ->> 'reason', a.reason, '') ELSE a.reason END AS reason "
        "FROM trials t LEFT JOIN LATERAL (SELECT b.number, b.outcome, b.reason FROM sweep_attempt b"
        " WHERE b.trial_id = t.trial_id ORDER BY b.number DESC LIMIT 1) a ON TRUE "
        f"LEFT JOIN trial_user_attributes u ON u.trial_id = t.trial_id AND u.key = '{END}' "
        "WHERE t.study_id = %(study)s AND ((t.state = 'FAIL' AND "
        "COALESCE(u.value_json::json ->> 'state', '') <> 'cancelled') OR (t.state = 'RUNNING' AND "
        "a.outcome = ANY(%(user)s)))) f GROUP BY f.reason ORDER BY 2 DESC, 3 DESC",
        {"study": study_id, "user": list(USER_FAILURES)},
    )
    return [Failure(str(reason), int(n), int(trial), int(a)) for reason, n, trial, a in rows]


def noted(ledger: Ledger) -> list[str]:
    """Return the first of what could not be read or stored of a study's trials, in a sentence.

    One statement; empty where there is nothing.
    """
    if not ledger.tables.keep_readings:
        return []
    rows = ledger.db.execute(
        "SELECT COUNT(*) OVER (), t.number, (array_agg(a.notes ORDER BY a.number))[1] "
        "FROM trials t JOIN sweep_attempt a USING (trial_id) WHERE t.study_id = %s "
        "AND a.notes IS NOT NULL GROUP BY t.number ORDER BY t.number LIMIT 1",
        (ledger.study_id,),
    )
    if not rows:
        return []
    others, trial, notes = int(rows[0][0]) - 1, rows[0][1], read_notes(rows[0][2])
    more = f" ({others} more {'trials have' if others > 1 else 'trial has'} such notes)"
    return [f"trial {trial}: {notes[0]}{more if others else ''}"]


def retried(ledger: Ledger) -> list[int]:
    """Return the numbers of the trials that a launch has given back, by one statement."""
    rows = ledger.db.execute(
        "SELECT t.number FROM trials t JOIN trial_user_attributes u USING (trial_id) "
        "WHERE t.study_id = %s AND u.key = %s ORDER BY t.number",
        (ledger.study_id, RETRIED),
    )
    return [int(row[0]) for row in rows]


@dataclass(frozen=True)
class Times:
    """When a study began and how long its trials take, by the database's clock.

    Attributes:
        now: The database's clock, UTC.
        started: First claim, or None before it.
        ended: Last end of a trial, or None before it.
        mean_s: Mean seconds of training of a complete or pruned trial, or None before the first.
        running_s: For each running trial the seconds that it has trained so far.
    """

    now: datetime
    started: datetime | None = None
    ended: datetime | None = None
    mean_s: float | None = None
    running_s: tuple[float, ...] = ()


def read_times(db: Database, study_id: int) -> Times:
    """Return when the study began and how long its trials take, by one statement."""
    rows = db.execute(
        "WITH spent AS (SELECT t.trial_id, t.state::text AS state, MIN(a.claimed) AS started, "
        "BOOL_OR(a.outcome IS NULL) AS live, SUM(EXTRACT(EPOCH FROM COALESCE(a.ended, "
        "CASE WHEN t.state = 'RUNNING' THEN clock_timestamp() ELSE a.seen END) - a.claimed)) "
        "AS used_s FROM trials t JOIN sweep_attempt a USING (trial_id) WHERE t.study_id = %s "
        "GROUP BY t.trial_id, t.state) "
        "SELECT clock_timestamp(), MIN(started), (SELECT MAX(datetime_complete) FROM trials "
        "WHERE study_id = %s), AVG(used_s) FILTER (WHERE state IN ('COMPLETE', 'PRUNED')), "
        "array_agg(used_s::float8) FILTER (WHERE state = 'RUNNING' AND live) FROM spent",
        (study_id, study_id),
    )
    now, started, ended, mean_s, running_s = rows[0]
    return Times(
        now=now,
        started=started,
        ended=utc(ended),
        mean_s=float(mean_s) if mean_s is not None else None,
        running_s=tuple(running_s or ()),
    )


def read_complete_values(db: Database, study_id: int) -> list[tuple[int, tuple[float, ...]]]:
    """Return (number, values) of the complete trials, by number, by one statement."""
    rows = db.execute(
        "SELECT t.number, array_agg(v.value ORDER BY v.objective) FROM trials t "
        "JOIN trial_values v USING (trial_id) WHERE t.study_id = %s AND t.state = 'COMPLETE' "
        "GROUP BY t.number HAVING bool_and(v.value_type = 'FINITE') ORDER BY t.number",
        (study_id,),
    )
    return [(int(number), tuple(map(float, values))) for number, values in rows]
