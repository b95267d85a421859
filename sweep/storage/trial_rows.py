"""How Optuna's tables hold a trial: values, times and rows, there and back.

No Optuna import at the top: a bulk insert needs only the first half.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

from sweep.storage.connection import Database

FINISHED = ("COMPLETE", "PRUNED", "FAIL")

# One row a trial, its child rows as one JSON text: one statement is one snapshot, one round trip.
# Distributions, which are the same in thousands of rows, come as a hash (see ``_distribution``).
DETAILS_SQL = """
SELECT t.trial_id, t.number, t.state::text, t.datetime_start, t.datetime_complete, json_build_array(
  (SELECT json_agg(json_build_array(p.param_name, p.param_value,
          hashtextextended(p.distribution_json, 0)::text) ORDER BY p.param_id)
     FROM trial_params p WHERE p.trial_id = t.trial_id),
  (SELECT json_agg(json_build_array(v.value, v.value_type) ORDER BY v.objective)
     FROM trial_values v WHERE v.trial_id = t.trial_id),
  (SELECT json_object_agg(i.step, COALESCE(to_json(i.intermediate_value),
          to_json(i.intermediate_value_type)) ORDER BY i.trial_intermediate_value_id)
     FROM trial_intermediate_values i WHERE i.trial_id = t.trial_id
       AND (%(steps)s OR t.state <> 'COMPLETE')),
  (SELECT json_agg(json_build_array(u.key, u.value_json) ORDER BY u.trial_user_attribute_id)
     FROM trial_user_attributes u WHERE u.trial_id = t.trial_id),
  (SELECT json_agg(json_build_array(s.key, s.value_json)
          ORDER BY s.trial_system_attribute_id)
     FROM trial_system_attributes s WHERE s.trial_id = t.trial_id))::text
FROM trials t WHERE t.trial_id = ANY(%(ids)s) ORDER BY t.number
"""

DISTRIBUTIONS_SQL = """
SELECT hashtextextended(distribution_json, 0)::text, distribution_json FROM trial_params
WHERE trial_id = %s
"""
_distributions: dict[str, Any] = {}  # by the hash of their text


def stored_number(value: float) -> tuple[float | None, str]:
    """Return a number as Optuna's tables hold it: a finite one, or its kind alone."""
    value = float(value)
    if math.isnan(value):
        return None, "NAN"
    if math.isinf(value):
        return None, "INF_POS" if value > 0 else "INF_NEG"
    return value, "FINITE"


def read_number(value: float | None, kind: str) -> float:
    """Return the number that ``stored_number`` stored."""
    if kind == "FINITE":
        assert value is not None
        return float(value)
    return {"NAN": math.nan, "INF_POS": math.inf, "INF_NEG": -math.inf}[kind]


def stored_time(value: datetime | None) -> datetime | None:
    """Return a local time as Optuna's tables hold it: UTC, without a zone."""
    if value is None:
        return None
    return value.astimezone(timezone.utc).replace(tzinfo=None)


def read_time(value: datetime | None) -> datetime | None:
    """Return a stored time as Optuna shows it: local, without a zone."""
    if value is None:
        return None
    return value + _local_offset(value.replace(second=0, microsecond=0))


@cache
def _local_offset(minute: datetime) -> timedelta:
    """Return what local time is ahead of UTC at some minute: asking for it takes longer than all
    else in reading a time."""
    return minute.replace(tzinfo=timezone.utc).astimezone().utcoffset() or timedelta()


@cache
def read_distribution(text: str) -> Any:
    """Return the distribution of a JSON text; equal texts share one (nobody changes it)."""
    from optuna.distributions import json_to_distribution

    return json_to_distribution(text)


def write_attribute(
    db: Database, kind: str, trial_ids: Sequence[int], key: str, value: Any
) -> None:
    """Set an attribute of trials. Args: kind: "user" or "system"."""
    db.execute(
        f"INSERT INTO trial_{kind}_attributes (trial_id, key, value_json) "
        "SELECT u, %s, %s FROM unnest(%s::int[]) AS u ON CONFLICT (trial_id, key) DO UPDATE "
        "SET value_json = excluded.value_json",
        (key, json.dumps(value), list(trial_ids)),
    )


def read_attribute(db: Database, kind: str, trial_id: int, key: str) -> Any:
    """Return an attribute of a trial, or None."""
    rows = db.execute(
        f"SELECT value_json FROM trial_{kind}_attributes WHERE trial_id = %s AND key = %s",
        (trial_id, key),
    )
    return json.loads(rows[0][0]) if rows else None


def read_values(db: Database, trial_id: int) -> list[float]:
    """Return a trial's objective values; none where it has not ended with any."""
    rows = db.execute(
        "SELECT value, value_type::text FROM trial_values WHERE trial_id = %s ORDER BY objective",
        (trial_id,),
    )
    return [read_number(value, kind) for value, kind in rows]


def read_trials(database: Database, trial_ids: Sequence[int], *, steps: bool = True) -> list[Any]:
    """Return FrozenTrials by their ids, in the order of their numbers; unknown ids are left out.

    Args:
        steps: False for complete trials without what they reported.
    """
    if not trial_ids:
        return []
    rows = database.execute(DETAILS_SQL, {"ids": list(trial_ids), "steps": steps})
    return _frozen_trials(database, rows)


def _distribution(database: Database, digest: str, trial_id: int) -> Any:
    """Return the distribution with a hash, whose text a trial's row has."""
    if digest not in _distributions:
        for found, text in database.execute(DISTRIBUTIONS_SQL, (trial_id,)):
            _distributions[found] = read_distribution(text)
    return _distributions[digest]


def _frozen_trials(database: Database, rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the FrozenTrials of rows of ``DETAILS_SQL``."""
    from optuna.trial import FrozenTrial, TrialState

    states = {state.name: state for state in TrialState}
    found = []
    everything = json.loads(f"[{','.join(row[5] for row in rows)}]")  # at once: a quarter quicker
    for row, (params, values, steps, user, system) in zip(rows, everything, strict=True):
        trial_id, number, state, start, complete, _ = row
        distributions, external = {}, {}
        for name, value, digest in params or ():
            distribution = distributions[name] = _distribution(database, digest, trial_id)
            external[name] = distribution.to_external_repr(float(value))  # JSON has 1 for 1.0
        trial = FrozenTrial(
            number=number,
            state=states[state],
            value=None,
            values=[read_number(value, kind) for value, kind in values or ()] or None,
            datetime_start=read_time(start),
            datetime_complete=read_time(complete),
            params=external,
            distributions=distributions,
            user_attrs={key: json.loads(value) for key, value in user or ()},
            system_attrs={key: json.loads(value) for key, value in system or ()},
            intermediate_values={
                int(step): read_number(None, value) if isinstance(value, str) else float(value)
                for step, value in (steps or {}).items()
            },
            trial_id=trial_id,
        )
        found.append(trial)
    return found
