"""Trials with the same configuration: found, noted, and where the study says so, not run again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sweep.core import outcomes, pareto
from sweep.core.study import Study
from sweep.core.trial import Claim, End
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.trial_rows import read_number

NOTE = "sweep:duplicate_of"  # user attribute of a trial: the number of its twin
LOCK = 0x5EEB0005  # first half of our advisory locks; the second is the study's id

# A trial's values as text that is equal where they are; PostgreSQL writes a float exactly.
_SIGNATURE = """(SELECT string_agg(p.param_name || '=' || p.param_value::text, E'\\n'
  ORDER BY p.param_name) FROM trial_params p WHERE p.trial_id = t.trial_id)"""


def is_taken(db: Database, study_id: int, trial_id: int, params: Mapping[str, float]) -> bool:
    """Tell whether another trial that runs has exactly these (internal) values."""
    rows = db.execute(
        "SELECT 1 FROM trials t WHERE t.study_id = %s AND t.state = 'RUNNING' AND t.trial_id <> %s "
        f"AND {_SIGNATURE} = (SELECT string_agg(name || '=' || value::text, E'\\n' ORDER BY name) "
        "FROM unnest(%s::text[], %s::float8[]) AS u(name, value)) LIMIT 1",
        (study_id, trial_id, list(params), [float(value) for value in params.values()]),
    )
    return bool(rows)


@contextmanager
def one_at_a_time(db: Database, study_id: int) -> Iterator[None]:
    """Keep a study's proposals apart while one looks whether it is taken, and is stored."""
    db.execute("SELECT pg_advisory_lock(%s, %s)", (LOCK, study_id))
    try:
        yield
    finally:
        db.execute("SELECT pg_advisory_unlock(%s, %s)", (LOCK, study_id))


@dataclass(frozen=True)
class Twin:
    """A trial that is complete and has the same configuration."""

    trial_id: int
    number: int


def may_have_twins(study: Study) -> bool:
    """Tell whether looking for twins is worth a query: a float without steps hardly has any."""
    if not study.space:
        return False  # there all trials are the same, as the user wants it
    return study.duplicates != "keep" or all(p.count() is not None for p in study.space)


def find(db: Database, study_id: int, trial_id: int) -> Twin | None:
    """Return the first complete trial with the same stored configuration, or None."""
    rows = db.execute(
        "SELECT t.trial_id, t.number FROM trials t WHERE t.study_id = %(study)s "
        f"AND t.state = 'COMPLETE' AND t.trial_id <> %(trial)s AND {_SIGNATURE} = "
        f"(SELECT {_SIGNATURE} FROM trials t WHERE t.trial_id = %(trial)s) "
        "ORDER BY t.number LIMIT 1",
        {"study": study_id, "trial": trial_id},
    )
    return Twin(int(rows[0][0]), int(rows[0][1])) if rows else None


def notice(ledger: Ledger, claim: Claim) -> bool:
    """Note that a trial which is about to run has a twin; inside ``db.retry``.

    Returns whether the study reuses the twin's result: the trial is complete then.
    """
    if claim.attempt > 1 or not may_have_twins(ledger.study):
        return False
    db = ledger.db
    twin = find(db, ledger.study_id, claim.trial_id)
    if twin is None:
        return False
    db.execute(
        "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (%s, %s, %s) "
        "ON CONFLICT (trial_id, key) DO UPDATE SET value_json = excluded.value_json",
        (claim.trial_id, NOTE, json.dumps(twin.number)),
    )
    if ledger.study.duplicates != "reuse":
        return False
    values = [
        read_number(value, kind)
        for value, kind in db.execute(
            "SELECT value, value_type::text FROM trial_values WHERE trial_id = %s "
            "ORDER BY objective",
            (twin.trial_id,),
        )
    ]
    broken = db.execute(
        "SELECT value_json FROM trial_system_attributes WHERE trial_id = %s AND key = %s",
        (twin.trial_id, pareto.KEY),
    )
    if broken:
        ledger.note_violations(claim.trial_id, json.loads(broken[0][0]))
    reason = f"the same configuration as trial {twin.number}, whose result it has"
    ledger.finish(claim.token, End(outcomes.FINISHED, reason), outcomes.COMPLETE, values)
    return True
