"""A study with literal trials in a real database, for tests that read it back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from sweep.core.space import Parameter, Space, to_optuna
from sweep.core.study import Objective, Study
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.trial_rows import stored_number

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)

HOSTILE_SPACE = Space(
    (
        Parameter("lr", "float", low=1e-5, high=1.0, log=True),
        Parameter("layers", "int", low=1, high=9),
        Parameter("optimizer", "categorical", choices=("sgd", "adamw")),
        Parameter("momentum", "float", low=0.0, high=0.99, when={"optimizer": ("sgd",)}),
        Parameter("model.hidden", "categorical", choices=([512, 256], [1024, 512], [])),
        Parameter("clip", "categorical", choices=(None, 0.5, "auto", True)),
        Parameter("amp", "categorical", choices=(True, False)),
        Parameter("size", "categorical", choices=(32, 64)),
        Parameter("tag", "categorical", choices=("", "null", "1", 'a,b\n"c"|d & 50% $x_{1}~^\\')),
    )
)


def make_study(space: Space = HOSTILE_SPACE, **changes: Any) -> Study:
    """Return a study with one objective to maximise."""
    given: dict[str, Any] = {
        "name": "digits",
        "command": ("python", "train.py"),
        "objectives": (Objective("acc", "maximize"),),
        "space": space,
        "trials": 6,
        "max_parallel": 2,
    }
    return Study(**(given | changes))


@dataclass(frozen=True)
class Tried:
    """One attempt: its outcome (None while it lives), and what it reported."""

    outcome: str | None = "finished"
    reason: str = ""
    took_s: float = 60.0
    reports: Sequence[tuple[int, str, float]] = ()
    checkpoint: str | None = None


@dataclass(frozen=True)
class Row:
    """One trial as Optuna's tables and ours hold it."""

    state: str = "COMPLETE"
    values: Sequence[float] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    attempts: Sequence[Tried] = (Tried(),)
    end: Mapping[str, Any] | None = None
    broken: Sequence[float] | None = None  # by how much each constraint is


def fill(url: str, study: Study, rows: Sequence[Row]) -> Ledger:
    """Write a study and its trials, the first attempts at noon, and return its ledger."""
    db = Database(url)
    with db.transaction():
        study_id = studies.insert_study(db, study)
        for number, row in enumerate(rows):
            _insert(db, study_id, study, number, row)
    return Ledger(db, study_id, study)


def _insert(db: Database, study_id: int, study: Study, number: int, row: Row) -> None:
    over = row.state not in ("WAITING", "RUNNING")
    spent = timedelta(seconds=sum(attempt.took_s for attempt in row.attempts))
    trial_id = db.execute(
        "INSERT INTO trials (number, study_id, state, datetime_start, datetime_complete) "
        "VALUES (%s, %s, %s, %s, %s) RETURNING trial_id",
        (
            number,
            study_id,
            row.state,
            None if row.state == "WAITING" else NOON.replace(tzinfo=None),
            (NOON + spent).replace(tzinfo=None) if over else None,
        ),
    )[0][0]
    for objective, value in enumerate(row.values):
        db.execute(
            "INSERT INTO trial_values (trial_id, objective, value, value_type) "
            "VALUES (%s, %s, %s, %s)",
            (trial_id, objective, *stored_number(value)),
        )
    from optuna.distributions import distribution_to_json

    for name, value in row.params.items():
        distribution = study.space.get(name).distribution()
        db.execute(
            "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) "
            "VALUES (%s, %s, %s, %s)",
            (
                trial_id,
                name,
                distribution.to_internal_repr(to_optuna(value)),
                distribution_to_json(distribution),
            ),
        )
    if row.end is not None:
        db.execute(
            "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (%s, %s, %s)",
            (trial_id, "sweep:end", json.dumps(row.end)),
        )
    if row.broken is not None:
        db.execute(
            "INSERT INTO trial_system_attributes (trial_id, key, value_json) "
            "VALUES (%s, 'constraints', %s)",
            (trial_id, json.dumps(row.broken)),
        )
    claimed = NOON
    for index, attempt in enumerate(row.attempts, 1):
        ended = claimed + timedelta(seconds=attempt.took_s)
        db.execute(
            "INSERT INTO sweep_attempt (trial_id, number, token, job, array_index, host, claimed, "
            "seen, ended, outcome, reason, first_step, checkpoint) "
            "VALUES (%s, %s, %s, 'j1', %s, 'node1', %s, %s, %s, %s, %s, %s, %s)",
            (
                trial_id,
                index,
                f"{trial_id}-{index}",
                number,
                claimed,
                ended,
                ended if attempt.outcome else None,
                attempt.outcome,
                attempt.reason,
                attempt.reports[0][0] if attempt.reports else None,
                attempt.checkpoint,
            ),
        )
        for step, name, value in attempt.reports:
            db.execute(
                "INSERT INTO sweep_metric (trial_id, attempt, name, step, value, logged) "
                "VALUES (%s, %s, %s, %s, %s, 0)",
                (trial_id, index, name, step, value),
            )
        claimed = ended
