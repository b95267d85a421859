"""Trials of a study with the same stored parameters."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.storage.connection import Database


def signature(trial: str) -> str:
    """Return SQL for a trial's values as text that is equal where they are: PostgreSQL writes a
    float exactly.

    Args:
        trial: SQL for its id.
    """
    return f"""(SELECT string_agg(p.param_name || '=' || p.param_value::text, E'\\n'
  ORDER BY p.param_name) FROM trial_params p WHERE p.trial_id = {trial})"""


_SIGNATURE = signature("t.trial_id")


def runs_elsewhere(db: Database, study_id: int, trial_id: int, params: Mapping[str, float]) -> bool:
    """Tell whether another trial that runs has exactly these (internal) values."""
    rows = db.execute(
        "SELECT 1 FROM trials t WHERE t.study_id = %s AND t.state = 'RUNNING' AND t.trial_id <> %s "
        f"AND {_SIGNATURE} = (SELECT string_agg(name || '=' || value::text, E'\\n' ORDER BY name) "
        "FROM unnest(%s::text[], %s::float8[]) AS u(name, value)) LIMIT 1",
        (study_id, trial_id, list(params), [float(value) for value in params.values()]),
    )
    return bool(rows)


def first_complete(db: Database, study_id: int, trial_id: int) -> tuple[int, int] | None:
    """Return (id, number) of the first complete trial with the parameters of this, or None."""
    rows = db.execute(
        "SELECT t.trial_id, t.number FROM trials t WHERE t.study_id = %(study)s "
        f"AND t.state = 'COMPLETE' AND t.trial_id <> %(trial)s AND {_SIGNATURE} = "
        f"(SELECT {_SIGNATURE} FROM trials t WHERE t.trial_id = %(trial)s) "
        "ORDER BY t.number LIMIT 1",
        {"study": study_id, "trial": trial_id},
    )
    return (int(rows[0][0]), int(rows[0][1])) if rows else None
