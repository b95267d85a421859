"""The ``sweep_rerun`` table: re-runs of trials, which never become trials of the study."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sweep.core.errors import StaleAttempt
from sweep.core.trial import End
from sweep.storage.connection import Database

SAME_SEED = "rerun"
OTHER_SEED = "seed"
CONFIRM = "confirm"  # a seed that no trial has, the same for all trials that are compared


@dataclass(frozen=True)
class Rerun:
    """One re-run.

    Attributes:
        k: Its number in the study, from 1; its folder is ``reruns/<k>``.
        kind: "rerun" (the trial's own seed), "seed" (another one) or "confirm".
        outcome: None while it is requested or runs.
        result: {"values": […], "steps": n, "provenance": {…}, …} once it has ended; until then
            {"executor": its scheduler's name}, or {} of an earlier version.
    """

    k: int
    trial: int
    trial_id: int
    kind: str
    seed: int
    token: str | None
    job: str | None
    host: str | None
    process_group: int | None
    requested: datetime
    claimed: datetime | None
    outcome: str | None
    reason: str
    exit_code: int | None
    result: Mapping[str, Any]

    @property
    def executor(self) -> str:
        """The scheduler that has its job, while it has not ended; "" where none was noted."""
        return str(self.result.get("executor", ""))


_COLUMNS = (
    "r.k, t.number, r.trial_id, r.kind, r.seed, r.token, r.job, r.host, r.process_group, "
    "r.requested, r.claimed, r.outcome, r.reason, r.exit_code, r.result"
)


def insert(db: Database, study_id: int, trial_id: int, kind: str, seed: int) -> int:
    """Request a re-run and return its number; inside a transaction."""
    db.execute("SELECT 1 FROM studies WHERE study_id = %s FOR UPDATE", (study_id,))
    rows = db.execute(
        "INSERT INTO sweep_rerun (study_id, k, trial_id, kind, seed) SELECT %s, "
        "1 + COALESCE(MAX(k), 0), %s, %s, %s FROM sweep_rerun WHERE study_id = %s RETURNING k",
        (study_id, trial_id, kind, seed, study_id),
    )
    return int(rows[0][0])


def insert_all(db: Database, study_id: int, plan: Sequence[tuple[int, str, int]]) -> list[int]:
    """Request re-runs of (trial id, kind, seed), inside a transaction; return their numbers.

    The study's row is held to its end, so they follow one another.
    """
    return [insert(db, study_id, *each) for each in plan]


def remove(db: Database, study_id: int, k: int) -> None:
    db.execute("DELETE FROM sweep_rerun WHERE study_id = %s AND k = %s", (study_id, k))


def set_job(db: Database, study_id: int, k: int, job: str, executor: str) -> None:
    """Note under which job of which scheduler a re-run was submitted."""
    noted = json.dumps({"executor": executor})
    db.execute(
        "UPDATE sweep_rerun SET job = %s, result = CASE WHEN outcome IS NULL THEN %s::jsonb "
        "ELSE result END WHERE study_id = %s AND k = %s",
        (job, noted, study_id, k),
    )


def claim(db: Database, study_id: int, k: int, token: str, host: str) -> Rerun | None:
    """Own a re-run; None when somebody else does or it has ended. A repeat gives the same."""
    db.execute(
        "UPDATE sweep_rerun SET token = %s, host = %s, claimed = clock_timestamp(), "
        "seen = clock_timestamp() WHERE study_id = %s AND k = %s AND outcome IS NULL "
        "AND token IS NULL",
        (token, host, study_id, k),
    )
    found = read(db, study_id, k)
    return found if found is not None and found.token == token else None


def touch(db: Database, token: str, process_group: int) -> None:
    """Say that a re-run lives. Raises: StaleAttempt: it is over."""
    rows = db.execute(
        "UPDATE sweep_rerun SET seen = clock_timestamp(), process_group = %s "
        "WHERE token = %s AND outcome IS NULL RETURNING 1",
        (process_group, token),
    )
    if not rows:
        raise StaleAttempt("The re-run was ended by somebody else.")


def end(db: Database, study_id: int, k: int, ended: End, result: Mapping[str, Any]) -> None:
    """Write how a re-run ended, once."""
    db.execute(
        "UPDATE sweep_rerun SET outcome = %s, reason = %s, exit_code = %s, result = %s::jsonb, "
        "ended = clock_timestamp() WHERE study_id = %s AND k = %s AND outcome IS NULL",
        (ended.outcome, ended.reason, ended.exit_code, json.dumps(result), study_id, k),
    )


def mark_shown(db: Database, study_id: int, k: int) -> None:
    """Note that a re-run's verdict was told."""
    db.execute(
        "UPDATE sweep_rerun SET result = result || '{\"shown\": true}'::jsonb "
        "WHERE study_id = %s AND k = %s",
        (study_id, k),
    )


def read(db: Database, study_id: int, k: int) -> Rerun | None:
    """Return one re-run, or None."""
    found = [rerun for rerun in read_all(db, study_id) if rerun.k == k]
    return found[0] if found else None


def read_all(db: Database, study_id: int, trial: int | None = None) -> list[Rerun]:
    """Return the study's re-runs by number, or those of one trial."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM sweep_rerun r JOIN trials t USING (trial_id) "
        "WHERE r.study_id = %s ORDER BY r.k",
        (study_id,),
    )
    found = [Rerun(*row) for row in rows]
    return [rerun for rerun in found if trial in (None, rerun.trial)]
