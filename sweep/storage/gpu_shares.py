"""What attempts that share GPUs have used of them, in GPU-seconds, kept as an attribute of their
trial, by the attempt's number. Of one that has whole GPUs nothing is kept: its length says it.
"""

from __future__ import annotations

import json

from sweep.core.attributes import GPU_SECONDS
from sweep.storage.connection import Database

_NOTE = f"""
WITH attempt AS (SELECT trial_id, number FROM sweep_attempt WHERE token = %(token)s
  AND outcome IS NULL FOR SHARE)
INSERT INTO trial_system_attributes AS s (trial_id, key, value_json)
SELECT trial_id, '{GPU_SECONDS}', jsonb_build_object(number::text, %(gpu_s)s::float8)::text
FROM attempt
ON CONFLICT (trial_id, key) DO UPDATE
SET value_json = (s.value_json::jsonb || excluded.value_json::jsonb)::text
"""
# The GPU-seconds of an attempt ``a``, for each of its GPUs; NULL where it shares none.
GPU_SECONDS_SQL = f"""(SELECT (s.value_json::jsonb ->> a.number::text)::float8
  FROM trial_system_attributes s WHERE s.trial_id = a.trial_id AND s.key = '{GPU_SECONDS}')"""


def note(db: Database, token: str, gpu_s: float) -> None:
    """Note what a live attempt has used of its GPU so far, in GPU-seconds."""
    db.execute(_NOTE, {"token": token, "gpu_s": gpu_s})


def read(db: Database, study_id: int) -> dict[int, dict[int, float]]:
    """Return what is known, by trial id and attempt number."""
    rows = db.execute(
        "SELECT s.trial_id, s.value_json FROM trial_system_attributes s JOIN trials t "
        "USING (trial_id) WHERE s.key = %s AND t.study_id = %s",
        (GPU_SECONDS, study_id),
    )
    return {
        int(trial_id): {int(number): float(gpu_s) for number, gpu_s in json.loads(text).items()}
        for trial_id, text in rows
    }
