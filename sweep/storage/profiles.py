"""What holds attempts back, of a study with ``profile: true``: kept as an attribute of their trial,
by the attempt's number.

Of each there is the judgement (``cause``, ``evidence``, ``remedy``), what was ``seen``, the
``host`` and ``notes`` on what could not be seen; its course lies in the attempt's folder alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sweep.core.attributes import PROFILE
from sweep.storage.attempt_notes import write_sql
from sweep.storage.connection import Database

_NOTE = write_sql(PROFILE, "%(profile)s::jsonb")


def note(db: Database, token: str, profile: Mapping[str, Any]) -> None:
    """Note the profile of a live attempt; nothing where it lives no more."""
    db.execute(_NOTE, {"token": token, "profile": json.dumps(profile)})


def read(db: Database, study_id: int) -> dict[int, dict[int, Mapping[str, Any]]]:
    """Return what is known, by trial and attempt number."""
    rows = db.execute(
        "SELECT t.number, u.value_json FROM trial_user_attributes u JOIN trials t USING (trial_id) "
        f"WHERE u.key = '{PROFILE}' AND t.study_id = %s ORDER BY t.number",
        (study_id,),
    )
    return {int(number): found for number, text in rows if (found := parse(text))}


def parse(text: str) -> dict[int, Mapping[str, Any]]:
    """Return an attribute's content; a notebook may have put anything under our key."""
    try:
        return {
            int(number): one
            for number, one in json.loads(text).items()
            if isinstance(one["cause"], str)
            and isinstance(one["seen"], dict)
            and isinstance(one["evidence"], list)
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
