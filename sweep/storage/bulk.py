"""Writing many trials into Optuna's tables with a handful of statements. Imports no Optuna."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweep.core.attributes import FIXED_PARAMS
from sweep.storage.connection import Database
from sweep.storage.prepared import numbers
from sweep.storage.trial_rows import stored_number

PARAMS_SQL = """
INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json)
SELECT p.trial_id, n.name, p.value, n.json
FROM unnest(%s::int[], %s::float8[], %s::int[]) WITH ORDINALITY AS p(trial_id, value, which, place)
JOIN unnest(%s::text[], %s::text[]) WITH ORDINALITY AS n(name, json, which) ON n.which = p.which
ORDER BY p.place
"""
ATTRIBUTES_SQL = """
INSERT INTO trial_{kind}_attributes (trial_id, key, value_json)
SELECT * FROM unnest(%s::int[], %s::text[], %s::text[])
"""
VALUES_SQL = """
INSERT INTO trial_values (trial_id, objective, value, value_type)
SELECT trial_id, objective, value, kind::trialvaluetype
FROM unnest(%s::int[], %s::int[], %s::float8[], %s::text[]) AS v(trial_id, objective, value, kind)
"""
STEPS_SQL = """
INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type)
SELECT trial_id, step, value, kind::trialintermediatevaluetype
FROM unnest(%s::int[], %s::bigint[], %s::float8[], %s::text[]) AS v(trial_id, step, value, kind)
"""


def insert_waiting_trials(
    db: Database, study_id: int, trials: Sequence[Mapping[str, Any]]
) -> list[int]:
    """Add waiting trials, numbered on from those that the study has; return their trial ids.

    Runs in the caller's transaction and holds the study's row from here to its end, as Optuna does:
    readers that follow the history by id must not miss a row that commits late.

    Args:
        trials: One mapping a trial, with any of ``params`` (name → (Optuna's internal value, the
            distribution as JSON text)), ``fixed_params`` (name → stored value; what a sampler must
            take, as ``Study.enqueue_trial`` writes it), ``user_attrs`` and ``system_attrs``.

    Raises:
        KeyError: There is no such study.
        DatabaseUnavailable: The database does not answer.
    """
    count = lock_study(db, study_id)
    rows = db.execute(
        "INSERT INTO trials (number, study_id, state) SELECT number, %s, 'WAITING' "
        "FROM generate_series(%s::int, %s::int) AS number ORDER BY number "
        "RETURNING number, trial_id",
        (study_id, count, count + len(trials) - 1),
    )
    trial_ids = [trial_id for _, trial_id in sorted(rows)]
    insert_params(db, zip(trial_ids, (trial.get("params", {}) for trial in trials), strict=True))
    user = (trial.get("user_attrs", {}) for trial in trials)
    insert_attributes(db, "user", zip(trial_ids, user, strict=True))
    system = (_system_attributes(trial) for trial in trials)
    insert_attributes(db, "system", zip(trial_ids, system, strict=True))
    return trial_ids


def lock_study(db: Database, study_id: int) -> int:
    """Hold the study's row until the transaction's end, and return how many trials it has.

    Raises:
        KeyError: There is no such study.
    """
    if not db.execute("SELECT 1 FROM studies WHERE study_id = %s FOR UPDATE", (study_id,)):
        raise KeyError(f"no study with id {study_id}")
    return int(db.execute("SELECT count(*) FROM trials WHERE study_id = %s", (study_id,))[0][0])


def insert_params(
    db: Database, trials: Iterable[tuple[int, Mapping[str, tuple[float, str]]]]
) -> None:
    """Store parameters of trials; each distinct name and distribution travels once."""
    which: dict[tuple[str, str], int] = {}
    rows = [
        (trial_id, float(value), which.setdefault((name, text), len(which) + 1))
        for trial_id, params in trials
        for name, (value, text) in params.items()
    ]
    if rows:
        columns = [numbers(column) for column in _columns(rows)]
        db.execute(PARAMS_SQL, (*columns, *_columns(list(which))))


def insert_attributes(
    db: Database, kind: str, trials: Iterable[tuple[int, Mapping[str, Any]]]
) -> None:
    """Store attributes of trials. Args: kind: "user" or "system"."""
    rows = [
        (trial_id, key, json.dumps(value))
        for trial_id, attributes in trials
        for key, value in attributes.items()
    ]
    if rows:
        db.execute(ATTRIBUTES_SQL.format(kind=kind), _columns(rows))


def insert_values(db: Database, trial_id: int, values: Sequence[float]) -> None:
    """Store a trial's objective values."""
    rows = [(trial_id, place, *stored_number(value)) for place, value in enumerate(values)]
    if rows:
        db.execute(VALUES_SQL, _columns(rows))


def insert_first_values(db: Database, values: Sequence[tuple[int, float]]) -> None:
    """Store the first objective's value of many trials, (trial id, value) each."""
    if values:
        rows = [(trial_id, 0, *stored_number(value)) for trial_id, value in values]
        db.execute(VALUES_SQL, _columns(rows))


def insert_steps(db: Database, trial_id: int, steps: Mapping[int, float]) -> None:
    """Store a trial's intermediate values."""
    rows = [(trial_id, int(step), *stored_number(value)) for step, value in steps.items()]
    if rows:
        db.execute(STEPS_SQL, _columns(rows))


def _system_attributes(trial: Mapping[str, Any]) -> dict[str, Any]:
    fixed = trial.get("fixed_params")
    attributes = dict(trial.get("system_attrs", {}))
    return attributes | {FIXED_PARAMS: dict(fixed)} if fixed else attributes


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
