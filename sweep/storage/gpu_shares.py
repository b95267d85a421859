"""What attempts that share GPUs have used of them, in GPU-seconds, kept as an attribute of their
trial, by the attempt's number. Of one that has whole GPUs nothing is kept: its length says it.
"""

from __future__ import annotations

import json

from sweep.core.attributes import GPU_SECONDS
from sweep.storage.attempt_notes import write_sql
from sweep.storage.connection import Database

_NOTE = write_sql(GPU_SECONDS, "%(gpu_s)s::float8")
# What an attempt ``a`` has used of a GPU; NULL where it shares none.
GPU_SECONDS_SQL = f"""(SELECT CASE
    WHEN jsonb_typeof(u.value_json::jsonb -> a.number::text) = 'number'
    THEN (u.value_json::jsonb ->> a.number::text)::float8 END
  FROM trial_user_attributes u WHERE u.trial_id = a.trial_id AND u.key = '{GPU_SECONDS}')"""


def note(db: Database, token: str, gpu_s: float) -> None:
    """Note what a live attempt has used of its GPU so far, in GPU-seconds."""
    db.execute(_NOTE, {"token": token, "gpu_s": gpu_s})


def parse(text: str) -> dict[int, float]:
    """Return an attribute's content; a notebook may have put anything under our key."""
    try:
        return {int(number): float(gpu_s) for number, gpu_s in json.loads(text).items()}
    except (AttributeError, TypeError, ValueError):
        return {}
