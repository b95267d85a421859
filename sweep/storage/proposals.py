"""Parameters that are prepared for trials which still wait, so that no slot waits for a sampler.

A prepared proposal is an attribute of the study, by its trial's number: rows of the trials would
hide them from a claim at that moment. It carries how many trials had ended in the history that it
was made from. A task that has claimed a trial for which there is none may note that it wants it.
One process at a time prepares them, by a lease: it ends where it is not renewed, and sooner where
the session is gone by which it was. Where the sampler takes seconds to bring in, a second one has
it ready, by a lease of its own, and takes over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.core.attributes import PREPARED, PROPOSED, PROPOSER, STAND_BY, WANTED
from sweep.storage import locks
from sweep.storage.connection import Database
from sweep.storage.same_params import signature

LEASE_S = 6.0  # after which a proposer that was not seen has no say any more
START_S = 12.0  # it is still to be started
BEGIN_S = 30.0  # it is new: its sampler is brought in first, torch perhaps
HANGS_S = 5.0  # of silence after which nobody waits for one whose lease lasts longer
MISSED_S = 2.0  # after which it is asked whether its session is still there

Stored = Mapping[str, tuple[float, str]]  # by name: Optuna's number, the distribution as text


@dataclass(frozen=True)
class Waiting:
    """A trial that waits for parameters: one that is wanted, or is to be claimed, in that order.

    Attributes:
        prepared: Its parameters, None where there are none yet; else made from so many results:
        results: The trials that had ended then.
        is_wanted: It was claimed, and its slot waits.
    """

    trial_id: int
    number: int
    prepared: Stored | None
    results: int
    is_wanted: bool = False


@dataclass(frozen=True)
class Waits:
    """How long tasks waited for the parameters of their trials.

    Attributes:
        prepared: Trials whose parameters were prepared before they were claimed.
        made: Those that their own task proposed.
        longest_s: The longest time from a claim to its parameters; of trials after the first that
            a task has proposed itself, which brings in the sampler, where there are others.
        late: How many waited longer than LATE_S.
    """

    prepared: int = 0
    made: int = 0
    longest_s: float = 0.0
    late: int = 0


LATE_S = 0.3

_NOW = "EXTRACT(EPOCH FROM clock_timestamp())"
_SESSIONS = """SELECT pid || ' ' || EXTRACT(EPOCH FROM backend_start) AS name
  FROM pg_stat_get_activity({pid})"""

# Trials that were claimed, and whose tasks wait for parameters.
_WANTED = f"""SELECT t.trial_id, t.number FROM study_system_attributes w JOIN trials t
  ON t.study_id = w.study_id AND w.key = '{WANTED}' || t.number
WHERE w.study_id = %(study)s AND w.key LIKE '{WANTED}%%' AND t.state = 'RUNNING'
  AND NOT EXISTS (SELECT 1 FROM trial_params p WHERE p.trial_id = t.trial_id)"""

# Its session is the one that renews it; None where the process is still to be started.
_LEASE = f"""
INSERT INTO study_system_attributes AS s (study_id, key, value_json)
SELECT %(study)s, %(key)s, json_build_object('token', %(token)s::text,
  'seen', {_NOW} + %(ahead)s::float8, 'at', {_NOW},
  'session', CASE WHEN NOT %(starts)s::bool
    THEN ({_SESSIONS.format(pid="pg_backend_pid()")}) END)::text
WHERE EXISTS (SELECT 1 FROM trials WHERE study_id = %(study)s AND state = 'WAITING')
  OR EXISTS ({_WANTED})
ON CONFLICT (study_id, key) DO UPDATE SET value_json = excluded.value_json
WHERE s.value_json::json ->> 'token' = %(token)s
  OR (s.value_json::json ->> 'seen')::float8 < {_NOW} - {LEASE_S}
  OR (s.value_json::json ->> 'at')::float8 < {_NOW} - {MISSED_S}
    AND s.value_json::json ->> 'session' IS NOT NULL
    AND s.value_json::json ->> 'session' NOT IN (SELECT name FROM ({
    _SESSIONS.format(pid="split_part(s.value_json::json ->> 'session', ' ', 1)::int")
}) a)
RETURNING 1
"""

_RESULTS = """(SELECT COUNT(*) FROM trials WHERE study_id = %(study)s
  AND state IN ('COMPLETE', 'PRUNED', 'FAIL'))"""

_LOOK = f"""
SELECT {_RESULTS}, t.trial_id, t.number, t.is_wanted, a.value_json FROM (
  SELECT w.*, true AS is_wanted FROM ({_WANTED}) w
  UNION ALL (SELECT trial_id, number, false FROM trials
    WHERE study_id = %(study)s AND state = 'WAITING' ORDER BY trial_id LIMIT %(count)s)) t
LEFT JOIN study_system_attributes a
  ON a.study_id = %(study)s AND a.key = '{PREPARED}' || t.number
WHERE (SELECT COUNT(*) FROM trial_params p WHERE p.trial_id = t.trial_id) = 0
ORDER BY t.is_wanted DESC, t.trial_id
"""

# What was prepared for a trial that has its parameters, or has ended, and was not taken.
_DROP = f"""
DELETE FROM study_system_attributes a USING trials t WHERE a.study_id = %(study)s
  AND (a.key LIKE '{PREPARED}%%' OR a.key LIKE '{WANTED}%%') AND t.study_id = %(study)s
  AND a.key IN ('{PREPARED}' || t.number, '{WANTED}' || t.number) AND t.state <> 'WAITING'
  AND (t.state <> 'RUNNING' OR EXISTS (SELECT 1 FROM trial_params p WHERE p.trial_id = t.trial_id))
"""

_WANT = f"""
INSERT INTO study_system_attributes (study_id, key, value_json)
SELECT t.study_id, '{WANTED}' || t.number, 'true'
FROM sweep_attempt a JOIN trials t USING (trial_id)
WHERE a.token = %(token)s AND a.outcome IS NULL
  AND NOT EXISTS (SELECT 1 FROM trial_params p WHERE p.trial_id = t.trial_id)
ON CONFLICT (study_id, key) DO UPDATE SET value_json = excluded.value_json
RETURNING 1
"""

_PROGRESS = f"""
SELECT EXISTS (SELECT 1 FROM sweep_attempt a JOIN trials t USING (trial_id)
  JOIN study_system_attributes s ON s.study_id = t.study_id AND s.key = '{PREPARED}' || t.number
  WHERE a.token = %(token)s),
(SELECT COALESCE(bool_or(hangs) AND NOT bool_or(lasts AND NOT hangs AND key = '{PROPOSER}'), false)
  FROM (SELECT key, lasts, lasts AND v ->> 'session' IS NOT NULL
      AND (v ->> 'at')::float8 < {_NOW} - {HANGS_S} AS hangs
    FROM (SELECT key, v, (v ->> 'seen')::float8 >= {_NOW} - {LEASE_S} AS lasts
      FROM (SELECT key, value_json::jsonb AS v FROM study_system_attributes
        WHERE study_id = %(study)s AND key IN ('{PROPOSER}', '{STAND_BY}')) a) b) c)
"""

_TYPICAL = """
SELECT percentile_cont(0.5) WITHIN GROUP (
  ORDER BY EXTRACT(EPOCH FROM datetime_complete - datetime_start)::float8)
FROM trials WHERE study_id = %s AND state = 'COMPLETE'
"""

_STORE = """
INSERT INTO study_system_attributes (study_id, key, value_json) VALUES (%s, %s, %s)
ON CONFLICT (study_id, key) DO UPDATE SET value_json = excluded.value_json
"""

# Taken only where the attempt lives, the history has not gone too far since, nor been taken back,
# and no other trial runs the same, or has finished it where that is to be drawn again. Nobody
# stores another proposal meanwhile.
_TAKE = f"""
WITH attempt AS (
  SELECT a.trial_id, t.number, a.claimed FROM sweep_attempt a JOIN trials t USING (trial_id)
  WHERE a.token = %(token)s AND a.outcome IS NULL FOR SHARE OF a
), gone AS (
  DELETE FROM study_system_attributes s USING attempt WHERE s.study_id = %(study)s
    AND s.key = '{PREPARED}' || attempt.number RETURNING s.value_json::jsonb AS found
), fresh AS (
  SELECT a.trial_id, a.claimed, found, {_RESULTS} - (found ->> 'results')::int AS behind
  FROM gone, attempt a
), taken AS (
  SELECT * FROM fresh WHERE behind BETWEEN 0 AND %(most)s AND NOT EXISTS (
    SELECT 1 FROM trials t WHERE t.study_id = %(study)s
      AND (t.state = 'RUNNING' OR (%(anew)s::bool AND t.state <> 'WAITING'))
      AND t.trial_id <> fresh.trial_id AND {signature("t.trial_id")} = (SELECT string_agg(
        (p ->> 0) || '=' || ((p ->> 1)::float8)::text, E'\\n' ORDER BY p ->> 0)
        FROM jsonb_array_elements(found -> 'params') p))
), unwanted AS (
  DELETE FROM study_system_attributes s USING attempt a, taken k WHERE s.study_id = %(study)s
    AND s.key = '{WANTED}' || a.number
), stored AS (
  INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json)
  SELECT k.trial_id, p.v ->> 0, (p.v ->> 1)::float8, p.v ->> 2 FROM taken k,
    jsonb_array_elements(k.found -> 'params') WITH ORDINALITY AS p(v, place) ORDER BY place
  ON CONFLICT (trial_id, param_name) DO NOTHING
), kept AS (
  INSERT INTO trial_system_attributes (trial_id, key, value_json)
  SELECT k.trial_id, n.key, n.value FROM taken k, jsonb_each_text(k.found -> 'notes') n
  ON CONFLICT (trial_id, key) DO UPDATE SET value_json = excluded.value_json
), noted AS (
  INSERT INTO trial_system_attributes (trial_id, key, value_json)
  SELECT trial_id, '{PROPOSED}', jsonb_build_object('prepared', true, 'behind', behind,
    'sampler', found -> 'sampler',
    'wait_s', EXTRACT(EPOCH FROM clock_timestamp() - claimed))::text FROM taken
  ON CONFLICT (trial_id, key) DO NOTHING
)
SELECT (found -> 'params')::text FROM taken
"""

_NOTE = f"""
WITH unwanted AS (
  DELETE FROM study_system_attributes s USING sweep_attempt a JOIN trials t USING (trial_id)
  WHERE a.token = %(token)s AND s.study_id = t.study_id AND s.key = '{WANTED}' || t.number
)
INSERT INTO trial_system_attributes (trial_id, key, value_json)
SELECT trial_id, '{PROPOSED}', jsonb_build_object('prepared', false,
  'is_first', %(is_first)s::bool, 'wait_s', EXTRACT(EPOCH FROM clock_timestamp() - claimed))::text
FROM sweep_attempt WHERE token = %(token)s AND outcome IS NULL
ON CONFLICT (trial_id, key) DO NOTHING
"""

_NOTED = f"""
SELECT t.number, s.value_json FROM trial_system_attributes s JOIN trials t USING (trial_id)
WHERE t.study_id = %s AND s.key = '{PROPOSED}' ORDER BY t.number
"""

_WAITS = f"""
WITH seen AS (SELECT s.value_json::jsonb AS v FROM trial_system_attributes s JOIN trials t
  USING (trial_id) WHERE t.study_id = %s AND s.key = '{PROPOSED}')
SELECT COUNT(*) FILTER (WHERE v @> '{{"prepared": true}}'),
  COUNT(*) FILTER (WHERE v @> '{{"prepared": false}}'),
  MAX((v ->> 'wait_s')::float8) FILTER (WHERE NOT v @> '{{"is_first": true}}'),
  COUNT(*) FILTER (WHERE NOT v @> '{{"is_first": true}}' AND (v ->> 'wait_s')::float8 > {LATE_S})
FROM seen
"""


def lease(
    db: Database,
    study_id: int,
    token: str,
    *,
    begins: bool = False,
    starts: bool = False,
    stands_by: bool = False,
) -> bool:
    """Tell whether the process with this token prepares a study's proposals from now on.

    It does while it asks at least every LEASE_S, and while trials wait for theirs. Where it has not
    asked for MISSED_S, and the session by which it did is gone, it does no more.

    Args:
        begins: It is new, and asks again within BEGIN_S.
        starts: It is still to be started, and asks within START_S: this session is not its own.
        stands_by: It is to be the one that takes over instead.
    """
    within_s = BEGIN_S if begins else START_S if starts else LEASE_S
    key = STAND_BY if stands_by else PROPOSER
    values = {"study": study_id, "key": key, "token": token, "ahead": within_s - LEASE_S}
    values["starts"] = starts
    return bool(db.execute(_LEASE, values))


def end_lease(db: Database, study_id: int, token: str, *, stands_by: bool = False) -> None:
    """Let another process prepare them, or stand by, at once."""
    db.execute(
        "DELETE FROM study_system_attributes WHERE study_id = %s AND key = %s "
        "AND value_json::json ->> 'token' = %s",
        (study_id, STAND_BY if stands_by else PROPOSER, token),
    )


def look(db: Database, study_id: int, count: int) -> tuple[int, list[Waiting]]:
    """Return how many trials have ended, and which lack parameters: those that are wanted, and
    the next ones.

    What was prepared for trials that have parameters or have ended is dropped.

    Args:
        count: How many of the waiting trials are looked at.
    """
    db.execute(_DROP, {"study": study_id})
    rows = db.execute(_LOOK, {"study": study_id, "count": count})
    found = []
    for _, trial_id, number, is_wanted, text in rows:
        known = json.loads(text) if text else None
        prepared = known and {name: (value, kind) for name, value, kind in known["params"]}
        found.append(
            Waiting(
                int(trial_id),
                int(number),
                prepared,
                known["results"] if known else 0,
                bool(is_wanted),
            )
        )
    return (int(rows[0][0]) if rows else 0), found


def store(
    db: Database,
    study_id: int,
    number: int,
    params: Stored,
    results: int,
    sampler: str,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Keep a waiting trial's parameters for its claim; an earlier proposal is replaced.

    Args:
        results: How many trials had ended in the history that they were made from.
        sampler: Which proposed them.
        notes: System attributes that the trial is given with them.
    """
    texts = {name: json.dumps(value) for name, value in (notes or {}).items()}
    rows = [[name, value, kind] for name, (value, kind) in params.items()]
    kept = json.dumps({"params": rows, "results": results, "sampler": sampler, "notes": texts})
    db.execute(_STORE, (study_id, f"{PREPARED}{number}", kept))


def want(db: Database, token: str) -> bool:
    """Note that an attempt waits for its trial's parameters; return False where the trial has them,
    or the attempt has ended."""
    return bool(db.execute(_WANT, {"token": token}))


def progress(db: Database, study_id: int, token: str) -> tuple[bool, bool]:
    """Return whether there are parameters for an attempt's trial (``take`` says if they serve), and
    whether the process that prepares hangs, or where there is none the one that is to."""
    is_there, hangs = db.execute(_PROGRESS, {"study": study_id, "token": token})[0]
    return bool(is_there), bool(hangs)


def typical_s(db: Database, study_id: int) -> float | None:
    """Return how long the study's complete trials took, in seconds, the median; None: there are
    none."""
    found = db.execute(_TYPICAL, (study_id,))[0][0]
    return None if found is None else float(found)


def take(
    db: Database, study_id: int, token: str, most_behind: int, *, resamples: bool = False
) -> list[tuple[str, float, str]] | None:
    """Give a claimed trial what was prepared for it, in one exchange.

    Args:
        token: Of its attempt.
        most_behind: What is made from a history that lacks more results than this is dropped.
        resamples: So is what another trial has finished.

    Returns:
        (name, Optuna's number, the distribution as text) of each parameter; None where nothing
        was prepared that still serves.
    """
    values = {"study": study_id, "token": token, "most": most_behind, "anew": resamples}
    alone = f"SELECT pg_advisory_xact_lock({locks.PROPOSE}, {int(study_id)})"
    rows = db.execute_prepared(_TAKE, values, before=alone)
    if not rows:
        return None
    return [(name, float(value), kind) for name, value, kind in json.loads(rows[0][0])]


def note_made(db: Database, token: str, *, is_first: bool) -> None:
    """Note that a task has proposed its trial's parameters itself, and how long that took.

    Args:
        is_first: It was the task's first, which brings in the sampler.
    """
    db.execute(_NOTE, {"token": token, "is_first": is_first})


def read_waits(db: Database, study_id: int) -> Waits:
    """Return how long a study's tasks have waited for parameters, by one statement."""
    prepared, made, longest_s, late = db.execute(_WAITS, (study_id,))[0]
    return Waits(int(prepared), int(made), float(longest_s or 0.0), int(late))


def read_noted(db: Database, study_id: int) -> dict[int, dict[str, Any]]:
    """Return what is known of each trial's proposal, by its number.

    Keys: ``prepared`` (before it was claimed), ``wait_s`` (from the claim to its parameters); of
    a prepared one ``behind`` (results that it lacked when it was taken) and ``sampler``; of one
    that its task proposed ``is_first`` (of that task).
    """
    return {int(number): json.loads(text) for number, text in db.execute(_NOTED, (study_id,))}
