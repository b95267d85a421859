"""The study's own rows: its existence, its specification, its state and its waves.

All of it lies in Optuna's ``studies`` and ``study_system_attributes``; keys of ours begin with
``sweep:``. Functions take a Database and may be used inside a transaction of the caller's.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, fields
from typing import Any

from sweep.core.attributes import (
    CANCEL,
    IDENTITY,
    METRIC_NAMES,
    PARALLEL,
    RECONCILED,
    SPEC,
    STATE,
    WARM_START,
    WAVE,
)
from sweep.core.scheduler import Wave
from sweep.core.study import Study
from sweep.storage import locks
from sweep.storage.connection import Database

# What a recorded cancel of ours was meant for.
WAITING_ONES = "waiting"
ALL = "all"

RUNNING = "running"
HELD = "held"
STOPPED = "stopped"
DRAINING = "draining"
ENDED = "ended"


@dataclass(frozen=True)
class StudyState:
    """Whether trials are to be pulled.

    Attributes:
        word: running, held (the user's code fails), stopped (running trials leave too),
            draining (running trials may end) or ended (a budget is used up or a goal is reached).
        reason: Why, in a sentence.
        leave: Where the study has ended, whether running trials leave as well.
        by: Where it has ended, the key of the study file that ended it.
        since: When it was launched last; epoch seconds of the launch's clock.
    """

    word: str = RUNNING
    reason: str = ""
    leave: bool = False
    by: str = ""
    since: float = 0.0

    @property
    def wants_leaving(self) -> bool:
        """Whether running trials are to leave with a checkpoint."""
        return self.word == STOPPED or (self.word == ENDED and self.leave)


def find_study(db: Database, name: str) -> int | None:
    """Return the id of a study by name, or None."""
    rows = db.execute("SELECT study_id FROM studies WHERE study_name = %s", (name,))
    return int(rows[0][0]) if rows else None


def insert_study(db: Database, study: Study) -> int:
    """Make the study's row, directions and specification; call it inside a transaction."""
    study_id = int(
        db.execute(
            "INSERT INTO studies (study_name) VALUES (%s) RETURNING study_id", (study.name,)
        )[0][0]
    )
    for index, direction in enumerate(study.directions):
        db.execute(
            "INSERT INTO study_directions (direction, study_id, objective) VALUES (%s, %s, %s)",
            (direction.upper(), study_id, index),
        )
    write_metric_names(db, study, study_id)
    write_specification(db, study_id, study)
    write_state(db, study_id, StudyState())
    write_attribute(db, study_id, IDENTITY, os.urandom(16).hex())
    return study_id


def is_measured(db: Database, study_id: int) -> bool:
    """Tell whether a trial of a study has told a value of the objective."""
    rows = db.execute(
        "SELECT EXISTS (SELECT 1 FROM trials t JOIN trial_intermediate_values USING (trial_id) "
        "WHERE t.study_id = %s) OR EXISTS (SELECT 1 FROM trials t JOIN trial_values USING "
        "(trial_id) WHERE t.study_id = %s)",
        (study_id, study_id),
    )
    return bool(rows[0][0])


def is_judged(db: Database, study_id: int) -> bool:
    """Tell whether a trial of a study, or one that it has learnt from, may have been held against
    the constraints."""
    rows = db.execute(
        "SELECT EXISTS (SELECT 1 FROM trials WHERE study_id = %s AND state IN ('COMPLETE', "
        "'PRUNED')) OR EXISTS (SELECT 1 FROM study_system_attributes WHERE study_id = %s "
        "AND key = %s)",
        (study_id, study_id, WARM_START),
    )
    return bool(rows[0][0])


def write_metric_names(db: Database, study: Study, study_id: int) -> None:
    """Write what the objectives are called, which Optuna's dashboard shows."""
    write_attribute(db, study_id, METRIC_NAMES, [o.metric for o in study.objectives])


def lock_study(db: Database, study_id: int) -> None:
    """Hold the study's row until the transaction ends."""
    db.execute("SELECT 1 FROM studies WHERE study_id = %s FOR UPDATE", (study_id,))


def list_names(db: Database) -> list[str]:
    """Return the names of all studies, in their order."""
    return [str(row[0]) for row in db.execute("SELECT study_name FROM studies ORDER BY 1")]


def delete_study(db: Database, study_id: int) -> bool:
    """Remove a study with all that it has; inside a transaction. Return whether it was there.

    Our own tables follow by their foreign keys.
    """
    found = db.execute("SELECT 1 FROM studies WHERE study_id = %s FOR UPDATE", (study_id,))
    for table in (
        "trial_user_attributes",
        "trial_system_attributes",
        "trial_params",
        "trial_values",
        "trial_intermediate_values",
        "trial_heartbeats",
    ):
        db.execute(
            f"DELETE FROM {table} c USING trials t "
            "WHERE c.trial_id = t.trial_id AND t.study_id = %s",
            (study_id,),
        )
    for table in (
        "trials",
        "study_directions",
        "study_user_attributes",
        "study_system_attributes",
        "studies",
    ):
        db.execute(f"DELETE FROM {table} WHERE study_id = %s", (study_id,))
    return bool(found)


def write_attribute(db: Database, study_id: int, key: str, value: Any) -> None:
    """Set one of the study's system attributes."""
    db.execute(
        "INSERT INTO study_system_attributes (study_id, key, value_json) VALUES (%s, %s, %s) "
        "ON CONFLICT (study_id, key) DO UPDATE SET value_json = excluded.value_json",
        (study_id, key, json.dumps(value)),
    )


def read_attribute(db: Database, study_id: int, key: str) -> Any:
    """Return one of the study's system attributes, or None."""
    rows = db.execute(
        "SELECT value_json FROM study_system_attributes WHERE study_id = %s AND key = %s",
        (study_id, key),
    )
    return json.loads(rows[0][0]) if rows else None


def write_attribute_once(db: Database, study_id: int, key: str, value: Any) -> Any:
    """Set one of the study's system attributes unless it is there; return what it is."""
    db.execute(
        "INSERT INTO study_system_attributes (study_id, key, value_json) VALUES (%s, %s, %s) "
        "ON CONFLICT (study_id, key) DO NOTHING",
        (study_id, key, json.dumps(value)),
    )
    return read_attribute(db, study_id, key)


def note_cancel(db: Database, study_id: int, job: str, what: str) -> None:
    """Note, before it is done, that sweep itself cancels ALL of a job or its WAITING_ONES.

    The latter leaves a note of the former: what runs may yet be ended by it.
    """
    db.execute(
        "INSERT INTO study_system_attributes (study_id, key, value_json) VALUES (%s, %s, %s) "
        "ON CONFLICT (study_id, key) DO UPDATE SET value_json = excluded.value_json "
        "WHERE %s = %s OR study_system_attributes.value_json::json->>'what' <> %s",
        (study_id, CANCEL + job, json.dumps({"time": time.time(), "what": what}), what, ALL, ALL),
    )


def read_attributes(db: Database, study_id: int, prefix: str) -> dict[str, Any]:
    """Return the study's system attributes whose keys begin so, by the rest of the key."""
    rows = db.execute(
        "SELECT key, value_json FROM study_system_attributes "
        "WHERE study_id = %s AND starts_with(key, %s) ORDER BY key",
        (study_id, prefix),
    )
    return {key[len(prefix) :]: json.loads(value) for key, value in rows}


def remove_attribute(db: Database, study_id: int, key: str) -> None:
    db.execute(
        "DELETE FROM study_system_attributes WHERE study_id = %s AND key = %s", (study_id, key)
    )


def write_specification(db: Database, study_id: int, study: Study) -> None:
    write_attribute(db, study_id, SPEC, json.loads(study.to_json()))
    if study.max_parallel is None:
        remove_attribute(db, study_id, PARALLEL)
    else:
        write_attribute(db, study_id, PARALLEL, study.max_parallel)


def read_specification(db: Database, study_id: int) -> Study | None:
    """Return the study as launch wrote it, or None where something else made it."""
    found = read_attribute(db, study_id, SPEC)
    return Study.from_json(json.dumps(found)) if found is not None else None


def write_state(db: Database, study_id: int, state: StudyState) -> None:
    # What says nothing is left out: tasks of an older version know fewer fields, and no others.
    needed = {
        field.name: getattr(state, field.name)
        for field in fields(state)
        if field.name in ("word", "reason") or getattr(state, field.name) != field.default
    }
    write_attribute(db, study_id, STATE, needed)


def hold(db: Database, study_id: int, reason: str) -> None:
    """Hold a study that runs: what is wrong is wrong for every task; inside ``db.retry``."""
    lock_study(db, study_id)
    state = read_state(db, study_id)
    if state.word == RUNNING:
        write_state(db, study_id, StudyState(HELD, reason, since=state.since))


def read_state(db: Database, study_id: int) -> StudyState:
    return as_state(read_attribute(db, study_id, STATE))


def as_state(found: dict[str, Any] | None) -> StudyState:
    """Return the state that the attribute's value stands for; None stands for running."""
    return StudyState(**_known(StudyState, found)) if found else StudyState()


def write_wave(db: Database, study_id: int, wave: Wave) -> None:
    write_attribute(db, study_id, WAVE + wave.token, vars(wave))


def read_waves(db: Database, study_id: int, *, live_only: bool = False) -> list[Wave]:
    """Return the study's waves, oldest first."""
    found = read_attributes(db, study_id, WAVE).values()
    waves = sorted((Wave(**_known(Wave, each)) for each in found), key=lambda wave: wave.submitted)
    return [wave for wave in waves if not (live_only and wave.over)]


def _known(kind: type[Wave] | type[StudyState], row: dict[str, Any]) -> dict[str, Any]:
    """Return what of a row this version knows: a later one may have written more."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in row.items() if name in names}


def read_clock(db: Database) -> float:
    """Return the database's clock, in seconds since the epoch."""
    return float(db.execute("SELECT EXTRACT(EPOCH FROM clock_timestamp())")[0][0])


def take_turn(db: Database, study_id: int, every_s: float) -> bool:
    """Tell whether it is this process's turn to look after a study; inside a transaction.

    Args:
        every_s: Seconds between two looks, by whomever; 0 for one that must look, because nobody
            may come for what it leaves.
    """
    if not every_s:
        locks.hold(db, locks.LOOK, study_id)
    elif not locks.try_hold(db, locks.LOOK, study_id):
        return False
    now = read_clock(db)
    last = read_attribute(db, study_id, RECONCILED) or 0.0
    if every_s and now - last < every_s:
        return False
    write_attribute(db, study_id, RECONCILED, now)
    return True
