"""What trials reported, step by step: whole series, or only each one's last, least and greatest.

Only the lineage: of each metric an attempt's steps count up to the first step at which a later
attempt reported that metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from sweep.storage.connection import Database

# The metrics ``m`` of the chosen trials' lineage. Every later attempt's first step of a metric cuts
# it, whichever of them began lowest. It is looked for where there are several attempts: few trials.
LINEAGE_SQL = """
sweep_metric m JOIN (SELECT t.trial_id, t.number AS trial FROM trials t
  WHERE t.study_id = %(study)s
    AND (%(numbers)s::int[] IS NULL OR t.number = ANY(%(numbers)s))) c
  ON c.trial_id = m.trial_id
LEFT JOIN (SELECT a.trial_id, a.number, f.name, MIN(f.first) AS cut FROM sweep_attempt a JOIN (
    SELECT b.trial_id, b.number, l.name, MIN(l.step) AS first FROM sweep_attempt b
    JOIN trials s USING (trial_id)
    JOIN sweep_metric l ON l.trial_id = b.trial_id AND l.attempt = b.number
    WHERE s.study_id = %(study)s AND b.number > 1 AND b.first_step IS NOT NULL
      AND (%(numbers)s::int[] IS NULL OR s.number = ANY(%(numbers)s))
    GROUP BY b.trial_id, b.number, l.name) f
  ON f.trial_id = a.trial_id AND f.number > a.number GROUP BY a.trial_id, a.number, f.name) k
  ON k.trial_id = m.trial_id AND k.number = m.attempt AND k.name = m.name
WHERE (k.cut IS NULL OR m.step < k.cut)
  AND (%(names)s::text[] IS NULL OR m.name = ANY(%(names)s))
"""


@dataclass(frozen=True)
class Series:
    """One metric of one trial; the four lists are equally long, ascending in step.

    Attributes:
        attempts: Which attempt reported each step.
        logged: When, in seconds of the training machine's clock since 1970.
    """

    trial: int
    metric: str
    attempts: Sequence[int]
    steps: Sequence[int]
    values: Sequence[float]
    logged: Sequence[float]


@dataclass(frozen=True)
class Summary:
    """One metric of one trial in short; least and greatest of the finite values, None without."""

    last: float
    least: float | None
    greatest: float | None


def _chosen(
    study_id: int, numbers: Sequence[int] | None, names: Sequence[str] | None
) -> dict[str, Any]:
    return {
        "study": study_id,
        "numbers": None if numbers is None else list(numbers),
        "names": None if names is None else list(names),
    }


def read_series(
    db: Database,
    study_id: int,
    *,
    numbers: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> list[Series]:
    """Return every series of a study by trial and metric, in one statement.

    Args:
        numbers: Of these trials only; of all when None.
        names: Of these metrics only; of all when None.

    Raises:
        DatabaseUnavailable: The database does not answer at present.
    """
    order = "ORDER BY m.step, m.attempt"
    rows = db.execute(
        f"SELECT c.trial, m.name, array_agg(m.attempt {order}), array_agg(m.step {order}), "
        f"array_agg(m.value {order}), array_agg(m.logged {order}) FROM {LINEAGE_SQL} "
        "GROUP BY c.trial, m.name ORDER BY c.trial, m.name",
        _chosen(study_id, numbers, names),
    )
    return [_series(*row) for row in rows]


def _series(
    trial: int,
    name: str,
    attempts: list[int],
    steps: list[int],
    values: list[float],
    logged: list[float],
) -> Series:
    if len(set(steps)) < len(steps):  # reported in no order: the latest attempt's word counts
        kept = {step: place for place, step in enumerate(steps)}.values()
        attempts, steps = [attempts[place] for place in kept], [steps[place] for place in kept]
        values, logged = [values[place] for place in kept], [logged[place] for place in kept]
    return Series(trial, name, attempts, steps, values, logged)


def read_summaries(
    db: Database,
    study_id: int,
    *,
    numbers: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> dict[int, dict[str, Summary]]:
    """Return each trial's metrics in short, by trial number and metric, in one statement.

    Raises:
        DatabaseUnavailable: The database does not answer at present.
    """
    finite = "FILTER (WHERE m.value > '-Infinity' AND m.value < 'Infinity')"
    rows = db.execute(
        # The greatest of these arrays is the last step's: no sorting, so a fifth of the time.
        "SELECT c.trial, m.name, (MAX(ARRAY[m.step::float8, m.attempt::float8, m.value]))[3], "
        f"MIN(m.value) {finite}, MAX(m.value) {finite} FROM {LINEAGE_SQL} "
        "GROUP BY c.trial, m.name ORDER BY m.name",
        _chosen(study_id, numbers, names),
    )
    found: dict[int, dict[str, Summary]] = {}
    for trial, name, last, least, greatest in rows:
        found.setdefault(trial, {})[name] = Summary(last, least, greatest)
    return found


def read_names(db: Database, study_id: int) -> list[str]:
    """Return the names of all metrics that a study's trials reported."""
    rows = db.execute(
        f"SELECT DISTINCT m.name FROM {LINEAGE_SQL} ORDER BY m.name", _chosen(study_id, None, None)
    )
    return [str(row[0]) for row in rows]


def summarised(metrics: Mapping[str, Sequence[tuple[int, float]]]) -> dict[str, Summary]:
    """Return the same of a record's metrics, which have been read."""
    found = {}
    for name, series in metrics.items():
        finite = [value for _, value in series if math.isfinite(value)]
        least, greatest = (min(finite), max(finite)) if finite else (None, None)
        found[name] = Summary(max(series)[1], least, greatest)
    return found


def as_rows(found: Sequence[Series]) -> list[dict[str, Any]]:
    """Return one row a reported value: trial, attempt, step, metric, value, logged (ISO, UTC)."""
    return [
        {
            "trial": s.trial,
            "attempt": attempt,
            "step": step,
            "metric": s.metric,
            "value": value,
            "logged": datetime.fromtimestamp(when, timezone.utc).isoformat(),
        }
        for s in found
        for attempt, step, value, when in zip(s.attempts, s.steps, s.values, s.logged, strict=True)
    ]
