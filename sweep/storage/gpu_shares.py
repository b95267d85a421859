"""What attempts that share GPUs have used of them, in GPU-seconds, kept as an attribute of their
trial, by the attempt's number. Of one that has whole GPUs nothing is kept: its length says it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sweep.core.attributes import GPU_SECONDS
from sweep.storage.attempt_notes import write_sql
from sweep.storage.connection import Database

_NOTE = write_sql(GPU_SECONDS, "%(gpu_s)s::float8")
# What an attempt ``a`` has used of a GPU; NULL where it shares none.
GPU_SECONDS_SQL = f"""(SELECT CASE
    WHEN jsonb_typeof(u.value_json::jsonb -> a.number::text) = 'number'
    THEN (u.value_json::jsonb ->> a.number::text)::float8 END
  FROM trial_user_attributes u WHERE u.trial_id = a.trial_id AND u.key = '{GPU_SECONDS}')"""

LENGTHS_OF = 50  # trials that ended last: those tell how long one is


@dataclass(frozen=True)
class EndedTrial:
    """A trial that has ended.

    Attributes:
        took_s: How long it trained, all attempts together.
        at_once: How many trained at once on its GPU meanwhile, on average.
    """

    took_s: float
    at_once: float


def read_lengths(db: Database, study_id: int) -> list[EndedTrial]:
    """Return the trials that were complete or pruned last, as far as they have trained."""
    rows = db.execute(
        "SELECT SUM(took_s), SUM(COALESCE(gpu_s, took_s)) FROM (SELECT t.trial_id, "
        "EXTRACT(EPOCH FROM COALESCE(a.ended, a.seen) - a.claimed)::float8 AS took_s, "
        f"{GPU_SECONDS_SQL} AS gpu_s FROM (SELECT trial_id FROM trials WHERE study_id = %s "
        "AND state IN ('COMPLETE', 'PRUNED') ORDER BY datetime_complete DESC NULLS LAST LIMIT %s) "
        "t JOIN sweep_attempt a USING (trial_id)) a GROUP BY trial_id",
        (study_id, LENGTHS_OF),
    )
    return [
        EndedTrial(float(took_s), max(1.0, took_s / gpu_s) if gpu_s and gpu_s > 0.0 else 1.0)
        for took_s, gpu_s in rows
        if took_s and took_s > 0.0
    ]


def note(db: Database, token: str, gpu_s: float) -> None:
    """Note what a live attempt has used of its GPU so far, in GPU-seconds."""
    db.execute(_NOTE, {"token": token, "gpu_s": gpu_s})


def parse(text: str) -> dict[int, float]:
    """Return an attribute's content; a notebook may have put anything under our key."""
    try:
        return {int(number): float(gpu_s) for number, gpu_s in json.loads(text).items()}
    except (AttributeError, TypeError, ValueError):
        return {}
