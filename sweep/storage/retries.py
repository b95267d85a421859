"""Giving final trials back, by a launch's ``--retry``: what was learnt from them is taken back.

A trial keeps its number, its configuration and its attempts. Its result, the note on its end, what
marks it for samplers (constraints) and, unless it goes on from a checkpoint, what it reported go:
the journals in its attempts' folders keep that. What it had come to is noted on it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timezone

from sweep.core import outcomes
from sweep.core.attributes import (
    CONSTRAINTS,
    DUPLICATE_OF,
    END,
    LEAVE,
    PROMOTED,
    REPLICATES,
    RETRIED,
    RETRIES,
    RUNG,
)
from sweep.core.times import iso_utc
from sweep.core.trial import TrialRecord
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.records import read_retries

LAST_SQL = """(SELECT MAX(b.number) FROM sweep_attempt b WHERE b.trial_id = a.trial_id)"""


def give_back(
    ledger: Ledger, records: Sequence[TrialRecord], resuming: Collection[int] = ()
) -> list[int]:
    """Let trials that have ended be claimed again; inside ``db.retry``. Return their numbers.

    One that meanwhile is not as it was read, by another launch or a notebook, is left alone.

    Args:
        records: The trials, as they were read.
        resuming: Numbers of those that go on from their checkpoint.
    """
    db, study_id = ledger.db, ledger.study_id
    studies.lock_study(db, study_id)
    ids = [record.trial_id for record in records]
    db.execute(
        "SELECT 1 FROM trials WHERE trial_id = ANY(%s::int[]) ORDER BY trial_id FOR UPDATE", (ids,)
    )
    rows = db.execute(
        "SELECT t.trial_id, (SELECT COUNT(*) FROM sweep_attempt a WHERE a.trial_id = t.trial_id) "
        "FROM trials t WHERE t.trial_id = ANY(%s::int[]) AND (t.state NOT IN ('WAITING', "
        "'RUNNING') OR (t.state = 'RUNNING' AND (SELECT a.outcome FROM sweep_attempt a "
        "WHERE a.trial_id = t.trial_id ORDER BY a.number DESC LIMIT 1) = ANY(%s)))",
        (ids, list(outcomes.USER_FAILURES)),
    )
    tried = {int(trial_id): int(count) for trial_id, count in rows}
    chosen = [r for r in records if tried.get(r.trial_id) == len(r.attempts)]
    known = _counts(db, ids)  # done before, where the answer to our own COMMIT was lost
    done = [r for r in records if known.get(r.trial_id, 0) > len(r.retries)]
    for goes_on in (False, True):
        found = [r.trial_id for r in chosen if (r.number in resuming) == goes_on]
        if found:
            _reset(db, found, goes_on)
    if chosen:
        _note(db, chosen, resuming)
        count_retry(db, study_id)
    return sorted(record.number for record in (*chosen, *done))


def _counts(db: Database, trial_ids: Sequence[int]) -> dict[int, int]:
    rows = db.execute(
        "SELECT trial_id, value_json FROM trial_user_attributes "
        "WHERE trial_id = ANY(%s::int[]) AND key = %s",
        (list(trial_ids), RETRIED),
    )
    return {int(trial_id): len(read_retries(text)) for trial_id, text in rows}


def _reset(db: Database, trial_ids: Sequence[int], goes_on: bool) -> None:
    ids = list(trial_ids)
    word = outcomes.RETRIED_RESUMING if goes_on else outcomes.RETRIED
    db.execute(
        f"UPDATE sweep_attempt a SET outcome = %s WHERE a.trial_id = ANY(%s::int[]) "
        f"AND a.number = {LAST_SQL}",
        (word, ids),
    )
    db.execute(
        "UPDATE trials t SET datetime_complete = NULL, state = CASE WHEN EXISTS (SELECT 1 FROM "
        "sweep_attempt a WHERE a.trial_id = t.trial_id) THEN 'RUNNING' ELSE 'WAITING' "
        "END::trialstate WHERE t.trial_id = ANY(%s::int[])",
        (ids,),
    )
    db.execute("DELETE FROM trial_values WHERE trial_id = ANY(%s::int[])", (ids,))
    db.execute(
        "DELETE FROM trial_user_attributes WHERE trial_id = ANY(%s::int[]) AND key = ANY(%s)",
        (ids, [END, DUPLICATE_OF]),
    )
    db.execute(
        "DELETE FROM trial_system_attributes WHERE trial_id = ANY(%s::int[]) AND key = ANY(%s)",
        (ids, [CONSTRAINTS, LEAVE]),
    )
    if goes_on:
        return
    db.execute(
        "DELETE FROM trial_system_attributes WHERE trial_id = ANY(%s::int[]) "
        "AND (key = %s OR starts_with(key, %s))",
        (ids, PROMOTED, RUNG),
    )
    db.execute(
        "DELETE FROM trial_user_attributes WHERE trial_id = ANY(%s::int[]) AND key = %s",
        (ids, REPLICATES),
    )
    db.execute(
        "UPDATE sweep_attempt SET outcome = %s WHERE trial_id = ANY(%s::int[]) AND outcome = %s",
        (outcomes.FINISHED, ids, outcomes.REPLICATED),
    )
    for table in ("trial_intermediate_values", "sweep_metric"):
        db.execute(f"DELETE FROM {table} WHERE trial_id = ANY(%s::int[])", (ids,))


def _note(db: Database, records: Sequence[TrialRecord], resuming: Collection[int]) -> None:
    at = iso_utc(datetime.now(timezone.utc))
    notes = []
    for record in records:
        now = {
            "attempt": record.attempts[-1].number if record.attempts else 0,
            "at": at,
            "state": record.state,
            "reason": record.reason,
            "values": list(record.values),
            "resuming": record.number in resuming,
        }
        notes.append(json.dumps([*(vars(before) for before in record.retries), now]))
    db.execute(
        "INSERT INTO trial_user_attributes (trial_id, key, value_json) SELECT u.id, %s, u.text "
        "FROM unnest(%s::int[], %s::text[]) AS u(id, text) ON CONFLICT (trial_id, key) "
        "DO UPDATE SET value_json = excluded.value_json",
        (RETRIED, [record.trial_id for record in records], notes),
    )


def count_retry(db: Database, study_id: int) -> None:
    """Note that trials that were final run again: whoever keeps the history reads it anew."""
    before = studies.read_attribute(db, study_id, RETRIES)
    studies.write_attribute(db, study_id, RETRIES, int(before or 0) + 1)
