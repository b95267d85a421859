"""What trains now, and how the best value has come down: a statement or two each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweep.storage.attempts import REPLICATED_SQL, USED_SQL, VIOLATION_SQL
from sweep.storage.ledger import Ledger
from sweep.storage.series import Summary, read_summaries

LENGTHS_OF = 50  # trials: those that were complete last tell how long one is


@dataclass(frozen=True)
class RunningTrial:
    """One live attempt, by the database's clock.

    Attributes:
        job, index: Name its task.
        trained_s: Seconds since it was claimed; used_s: what earlier attempts trained.
        unseen_s: Seconds since its task was heard of.
        is_started: Whether its training has been started.
        first_step, first_s, last_step, last_s: Its first and last report of the objective, with
            when they were logged (the training machine's clock, seconds since 1970); None before.
        silent_s: Seconds since the last of them, which another machine's clock may shift.
        summary: The objective's values of the trial so far, or None before the first.
        replicate: Which of the trial's trainings it is, from 1.
    """

    trial: int
    attempt: int
    host: str
    job: str | None
    index: int | None
    trained_s: float
    used_s: float
    unseen_s: float
    is_started: bool
    first_step: int | None
    first_s: float | None
    last_step: int | None
    last_s: float | None
    silent_s: float | None
    summary: Summary | None
    replicate: int = 1


def read_running(ledger: Ledger) -> list[RunningTrial]:
    """Return the live attempts of a study, by trial."""
    name = ledger.study.objective.metric
    end = (
        "LEFT JOIN LATERAL (SELECT m.step, m.logged FROM sweep_metric m WHERE m.trial_id = "
        "a.trial_id AND m.attempt = a.number AND m.name = %(name)s ORDER BY m.step {} LIMIT 1) {} "
        "ON TRUE "
    )
    rows = ledger.db.execute(
        "SELECT t.number, a.number, a.host, a.job, a.array_index, "
        f"EXTRACT(EPOCH FROM n.now - a.claimed)::float8, {USED_SQL}, "
        "EXTRACT(EPOCH FROM n.now - a.seen)::float8, a.process_group IS NOT NULL, "
        "f.step, f.logged, l.step, l.logged, EXTRACT(EPOCH FROM n.now)::float8 - l.logged, "
        f"{REPLICATED_SQL} + 1 "
        "FROM (SELECT clock_timestamp() AS now) n, trials t JOIN sweep_attempt a USING (trial_id) "
        f"{end.format('', 'f')}{end.format('DESC', 'l')}"
        "WHERE t.study_id = %(study)s AND a.outcome IS NULL ORDER BY t.number",
        {"study": ledger.study_id, "name": name},
    )
    numbers = [row[0] for row in rows]
    found = (
        read_summaries(ledger.db, ledger.study_id, numbers=numbers, names=[name]) if rows else {}
    )
    return [RunningTrial(*(*row[:-1], found.get(row[0], {}).get(name), row[-1])) for row in rows]


def read_lengths(ledger: Ledger) -> tuple[int, int] | None:
    """Return the least and the greatest last step among the trials that were complete last.

    None where none of them has reported.
    """
    rows = ledger.db.execute(
        "SELECT MIN(l.step), MAX(l.step) FROM (SELECT trial_id FROM trials WHERE study_id = %s "
        "AND state = 'COMPLETE' ORDER BY datetime_complete DESC NULLS LAST LIMIT %s) t "
        "CROSS JOIN LATERAL (SELECT m.step FROM sweep_metric m JOIN sweep_attempt a ON "
        "a.trial_id = m.trial_id AND a.number = m.attempt WHERE m.trial_id = t.trial_id "
        "AND m.name = %s ORDER BY m.attempt DESC, m.step DESC LIMIT 1) l",
        (ledger.study_id, LENGTHS_OF, ledger.study.objective.metric),
    )
    least, greatest = rows[0]
    return None if least is None else (int(least), int(greatest))


def read_best_so_far(ledger: Ledger, points: int) -> Sequence[float]:
    """Return the best feasible value after each share of the complete trials, oldest first.

    Args:
        points: How many values at most; the last one is the best of all.
    """
    best = "MAX" if ledger.study.objective.direction == "maximize" else "MIN"
    keeps = f"AND {VIOLATION_SQL} = 0 " if ledger.study.constraints else ""
    rows = ledger.db.execute(
        f"SELECT best FROM (SELECT {best}(v.value) OVER o AS best, ROW_NUMBER() OVER o AS i, "
        "COUNT(*) OVER () AS n FROM trials t JOIN trial_values v USING (trial_id) "
        "WHERE t.study_id = %(study)s AND t.state = 'COMPLETE' AND v.objective = 0 "
        f"AND v.value_type = 'FINITE' {keeps}"
        "WINDOW o AS (ORDER BY t.datetime_complete, t.number "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)) w "
        "WHERE i * %(points)s / n <> (i - 1) * %(points)s / n ORDER BY i",
        {"study": ledger.study_id, "points": points},
    )
    return [float(row[0]) for row in rows]
