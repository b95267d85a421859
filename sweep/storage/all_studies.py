"""All studies of a database in a few statements: what ``sweep list`` shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sweep.core import outcomes
from sweep.core.attributes import FOLDER, HOST, IDENTITY, SPEC, STATE, WAVE
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.records import count_all, utc

ACTIVE_SQL = """
SELECT t.study_id, COUNT(*) FILTER (WHERE a.outcome IS NULL), MAX(a.seen)
FROM sweep_attempt a JOIN trials t USING (trial_id) GROUP BY t.study_id
"""
TIMES_SQL = """
SELECT study_id, MIN(datetime_start), MAX(datetime_complete),
  COUNT(*) FILTER (WHERE state IN ('WAITING', 'RUNNING')) FROM trials GROUP BY study_id
"""


@dataclass(frozen=True)
class StudyRow:
    """One study of a database.

    Attributes:
        trials: N as its file says it; None where sweep has not made it.
        state: As its row says whether trials are to be pulled; None where sweep has not made it.
        live: Attempts that run, as far as the database knows.
        has_array: Whether an array of it was submitted whose end nobody has noted.
        unfinished: Trials that are not final.
        launched: When it was first submitted; None where it was not.
        active: When something last happened to it, as far as that is known.
        folder, host, identity: Where it was launched, and what its folder carries.
    """

    name: str
    study_id: int
    counts: Mapping[str, int] = field(default_factory=dict)
    trials: int | None = None
    state: studies.StudyState | None = None
    live: int = 0
    has_array: bool = False
    unfinished: int = 0
    launched: float | None = None
    active: datetime | None = None
    folder: str | None = None
    host: str | None = None
    identity: str | None = None


def read_all(db: Database) -> list[StudyRow]:
    """Return all studies of the database by name, in a handful of statements."""
    named = db.execute("SELECT study_id, study_name FROM studies ORDER BY study_name")
    attributes: dict[int, dict[str, Any]] = {}
    for study_id, key, value in db.execute(
        "SELECT study_id, key, value_json FROM study_system_attributes WHERE key = ANY(%s) "
        "OR starts_with(key, %s)",
        ([SPEC, STATE, FOLDER, HOST, IDENTITY], WAVE),
    ):
        attributes.setdefault(study_id, {})[key] = json.loads(value)
    counts = count_all(db)
    active = {study_id: (live, seen) for study_id, live, seen in db.execute(ACTIVE_SQL)}
    times = {row[0]: row[1:] for row in db.execute(TIMES_SQL)}
    return [
        _row(
            name,
            study_id,
            attributes.get(study_id, {}),
            counts.get(study_id, dict.fromkeys(outcomes.STATES, 0)),
            active.get(study_id, (0, None)),
            times.get(study_id, (None, None, 0)),
        )
        for study_id, name in named
    ]


def _row(
    name: str,
    study_id: int,
    known: Mapping[str, Any],
    counts: Mapping[str, int],
    active: tuple[int, datetime | None],
    times: tuple[datetime | None, datetime | None, int],
) -> StudyRow:
    live, seen = active
    started, ended, unfinished = times
    waves = [value for key, value in known.items() if key.startswith(WAVE)]
    submitted = [wave["submitted"] for wave in waves]
    moments = [when for when in (seen, utc(ended), utc(started)) if when is not None]
    spec = known.get(SPEC)
    return StudyRow(
        name=name,
        study_id=study_id,
        counts=counts,
        trials=spec.get("trials") if spec else None,
        state=studies.as_state(known.get(STATE)) if spec else None,
        live=live,
        has_array=any(not wave.get("over") for wave in waves),
        unfinished=unfinished,
        launched=min(submitted, default=None),
        active=max(moments, default=None),
        folder=known.get(FOLDER),
        host=known.get(HOST),
        identity=known.get(IDENTITY),
    )
