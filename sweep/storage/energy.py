"""The energy of attempts, kept as an attribute of their trial, where Optuna's dashboard shows it.

The attribute holds, by the attempt's number, {"joules": …, "by": "nvml" or "slurm"}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweep.core.attributes import ENERGY
from sweep.storage.attempt_notes import write_sql
from sweep.storage.connection import Database

NVML = "nvml"  # the counters of its own GPUs
SLURM = "slurm"  # its task's part of what Slurm accounts for

_FIGURE = "jsonb_build_object('joules', %(joules)s::float8, 'by', %(by)s::text)"
_NOTE = write_sql(ENERGY, _FIGURE)
_NOTE_ENDED = write_sql(ENERGY, _FIGURE, ended=True)


@dataclass(frozen=True)
class Energy:
    """What an attempt used, in joules, and by which measurement."""

    joules: float
    by: str


def note(db: Database, token: str, joules: float) -> None:
    """Note what a live attempt's GPUs have used so far; nothing where it lives no more."""
    db.execute(_NOTE, {"token": token, "joules": joules, "by": NVML})


def note_of_tasks(db: Database, found: Mapping[str, float]) -> None:
    """Note the parts that ended attempts have in their tasks' energy, in joules by their token."""
    for token, joules in found.items():
        db.execute(_NOTE_ENDED, {"token": token, "joules": joules, "by": SLURM})


def read(
    db: Database, study_id: int, numbers: Sequence[int] | None = None
) -> dict[int, dict[int, Energy]]:
    """Return what is known, by trial id and attempt number.

    Args:
        numbers: Only of these trials; of all when None.
    """
    rows = db.execute(
        f"SELECT u.trial_id, u.value_json FROM trial_user_attributes u JOIN trials t "
        f"USING (trial_id) WHERE u.key = '{ENERGY}' AND t.study_id = %s "
        "AND (%s::int[] IS NULL OR t.number = ANY(%s))",
        (study_id, *[list(numbers) if numbers is not None else None] * 2),
    )
    return {int(trial_id): parse(text) for trial_id, text in rows}


def parse(text: str) -> dict[int, Energy]:
    """Return an attribute's content; a notebook may have put anything under our key."""
    try:
        return {
            int(number): Energy(float(entry["joules"]), str(entry["by"]))
            for number, entry in json.loads(text).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
