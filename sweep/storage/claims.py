"""Claims: which process owns which trial. One statement, and no two get the same one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sweep.core.attributes import PARALLEL, STATE
from sweep.core.errors import NoRoom
from sweep.core.outcomes import CLAIMABLE, PAUSED
from sweep.core.trial import Claim, Place
from sweep.storage import locks, promotion, studies
from sweep.storage.attempts import (
    ALONE_SQL,
    BEGUN_ANEW_SQL,
    REPLICATED_SQL,
    USED_SQL,
    Attempts,
    stale,
)
from sweep.storage.connection import Database

DETAILS_SQL = f"""
  (SELECT json_agg(json_build_array(p.param_name, p.param_value, p.distribution_json)
    ORDER BY p.param_id)::text FROM trial_params p WHERE p.trial_id = a.trial_id),
  {USED_SQL}, {BEGUN_ANEW_SQL}, {REPLICATED_SQL}, {ALONE_SQL.format("a.trial_id")}
"""
# Interrupted trials come before those that wait, and the oldest comes first; one that was promoted
# by the caller comes alone. Last come those that are to have a GPU for themselves: others have to
# leave it for them. Most running trials have a live attempt, and an index holds just those:
# they are left out at once, before any trial's attempts are looked at one by one.
#
# A row that another claim has just let go is seen through this statement's older snapshot. Then the
# attempt's number is taken already, and nothing is inserted: the caller asks again. The same holds
# for the token, where an earlier try took place whose answer was lost.
#
# Where as many attempts live as max_parallel says, nothing is taken, and a row of nulls says so.
CLAIM_SQL = f"""
WITH runs AS (
  SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM study_system_attributes WHERE study_id = %(study)s
    AND key = %(state_key)s AND value_json::json ->> 'word' <> 'running')
), running AS MATERIALIZED (
  SELECT t.trial_id, t.trial_id NOT IN (SELECT l.trial_id FROM sweep_attempt l
    WHERE l.outcome IS NULL) AS is_unowned
  FROM trials t, runs WHERE t.study_id = %(study)s AND t.state = 'RUNNING'
), full_up AS MATERIALIZED (
  SELECT 1 FROM study_system_attributes, runs WHERE study_id = %(study)s
    AND key = %(parallel_key)s AND value_json::int
      <= (SELECT COUNT(*) FROM running WHERE NOT is_unowned) - %(gone)s::int
), unowned AS MATERIALIZED (
  SELECT trial_id FROM running WHERE is_unowned AND %(promoted)s::int IS NULL
    AND NOT EXISTS (SELECT 1 FROM full_up)
), interrupted AS MATERIALIZED (
  SELECT t.trial_id FROM trials t JOIN unowned USING (trial_id) WHERE t.state = 'RUNNING'
    AND (SELECT a.outcome FROM sweep_attempt a WHERE a.trial_id = t.trial_id
      ORDER BY a.number DESC LIMIT 1) = ANY(%(claimable)s::text[])
    AND NOT {ALONE_SQL.format("t.trial_id")}
  ORDER BY t.trial_id LIMIT 1 FOR UPDATE OF t SKIP LOCKED
), waiting AS MATERIALIZED (
  SELECT t.trial_id FROM trials t, runs WHERE t.study_id = %(study)s AND t.state = 'WAITING'
    AND %(waiting)s::bool AND NOT EXISTS (SELECT 1 FROM interrupted)
    AND NOT EXISTS (SELECT 1 FROM full_up)
  ORDER BY t.trial_id LIMIT 1 FOR UPDATE OF t SKIP LOCKED
), alone AS MATERIALIZED (
  SELECT t.trial_id FROM trials t JOIN unowned USING (trial_id) WHERE t.state = 'RUNNING'
    AND %(waiting)s::bool AND (SELECT a.outcome FROM sweep_attempt a WHERE a.trial_id = t.trial_id
      ORDER BY a.number DESC LIMIT 1) = ANY(%(claimable)s::text[])
    AND {ALONE_SQL.format("t.trial_id")}
    AND NOT EXISTS (SELECT 1 FROM interrupted) AND NOT EXISTS (SELECT 1 FROM waiting)
  ORDER BY t.trial_id LIMIT 1 FOR UPDATE OF t SKIP LOCKED
), promoted AS MATERIALIZED (
  SELECT trial_id FROM trials WHERE trial_id = %(promoted)s::int AND state = 'RUNNING'
    AND NOT EXISTS (SELECT 1 FROM full_up) FOR UPDATE
), chosen AS (
  SELECT trial_id FROM interrupted UNION ALL SELECT trial_id FROM waiting
  UNION ALL SELECT trial_id FROM promoted UNION ALL SELECT trial_id FROM alone
), attempt AS (
  INSERT INTO sweep_attempt (trial_id, number, token, job, array_index, slot, host, boot_id)
  SELECT c.trial_id, 1 + COALESCE((SELECT MAX(b.number) FROM sweep_attempt b
    WHERE b.trial_id = c.trial_id), 0), %(token)s::text, %(job)s::text,
    %(index)s::int, %(slot)s::int, %(host)s::text, %(boot)s::text
  FROM chosen c ON CONFLICT DO NOTHING RETURNING trial_id, number
), started AS (
  UPDATE trials t SET state = 'RUNNING', datetime_start = COALESCE(t.datetime_start,
    clock_timestamp() AT TIME ZONE 'UTC') FROM attempt a WHERE t.trial_id = a.trial_id
  RETURNING t.trial_id, t.number
)
SELECT c.trial_id, s.number, a.number, NULL::text, {DETAILS_SQL}
FROM chosen c LEFT JOIN attempt a USING (trial_id) LEFT JOIN started s USING (trial_id)
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM full_up
"""
LEFT_SQL = """
SELECT EXISTS (SELECT 1 FROM trials WHERE study_id = %(study)s AND state = 'WAITING')
  OR EXISTS (SELECT 1 FROM trials t WHERE t.study_id = %(study)s AND t.state = 'RUNNING'
    AND (SELECT a.outcome FROM sweep_attempt a WHERE a.trial_id = t.trial_id
      ORDER BY a.number DESC LIMIT 1) = ANY(%(claimable)s::text[]))
"""
# How many could be claimed, and how many more max_parallel lets run: NULL where it says nothing.
ROOM_SQL = """
WITH runs AS (
  SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM study_system_attributes WHERE study_id = %(study)s
    AND key = %(state_key)s AND value_json::json ->> 'word' <> 'running')
), running AS MATERIALIZED (
  SELECT t.trial_id, EXISTS (SELECT 1 FROM sweep_attempt l WHERE l.trial_id = t.trial_id
    AND l.outcome IS NULL) AS lives
  FROM trials t WHERE t.study_id = %(study)s AND t.state = 'RUNNING'
)
SELECT (SELECT COUNT(*) FROM trials t, runs WHERE t.study_id = %(study)s AND t.state = 'WAITING')
  + (SELECT COUNT(*) FROM running r, runs WHERE NOT r.lives AND (SELECT a.outcome
    FROM sweep_attempt a WHERE a.trial_id = r.trial_id ORDER BY a.number DESC LIMIT 1)
    = ANY(%(claimable)s::text[])),
  (SELECT value_json::int FROM study_system_attributes WHERE study_id = %(study)s
    AND key = %(parallel_key)s) - (SELECT COUNT(*) FROM running WHERE lives)
"""
# Two claims at once would each count without the other. A study without the attribute has no limit,
# and its claims do not wait for each other.
LOCK_SQL = (
    "SELECT pg_advisory_xact_lock({lock}, {study}) FROM study_system_attributes "
    f"WHERE study_id = {{study}} AND key = '{PARALLEL}'"
)
CLAIMED_SQL = f"""
SELECT a.trial_id, t.number, a.number, a.outcome, {DETAILS_SQL}
FROM sweep_attempt a JOIN trials t USING (trial_id) WHERE a.token = %s
"""


class Claims(Attempts):
    """Taking trials."""

    def claim(self, token: str, place: Place, gone: int = 0) -> Claim | None:
        """Own the next trial, or return None when there is none to pull.

        Interrupted trials come before those that wait, and the oldest comes first. One statement; a
        repeat with the same token gives the same trial. Where trials are promoted it is several:
        call it inside a transaction then.

        Args:
            gone: How many of the live attempts are known to have lost their tasks: they do not
                count towards max_parallel.

        Raises:
            NoRoom: As many attempts live as the study's max_parallel, and there are trials left.
            StaleAttempt: The token's attempt has ended already.
        """
        if promotion.promotes(self.study):
            return self._claim_promoting(token, place, gone)
        while True:
            rows = self._take(token, place, gone)
            if rows and rows[0][2] is not None:
                return self._claimed(token, rows[0])
            mine = self._claimed_before(token)
            if mine is not None or not rows or self._is_full(rows):
                return mine

    def room(self) -> int:
        """Return how many trials could be claimed now: those left, as far as max_parallel lets."""
        rows = self.db.execute(
            ROOM_SQL,
            {
                "study": self.study_id,
                "state_key": STATE,
                "parallel_key": PARALLEL,
                "claimable": self._claimable,
            },
        )
        waiting, most = rows[0]
        return int(waiting) if most is None else max(0, min(int(waiting), int(most)))

    def _is_full(self, rows: Sequence[Sequence[Any]]) -> bool:
        """Tell whether nothing was taken because of max_parallel, and nothing is left for later.

        Raises:
            NoRoom: Something is left.
        """
        if not rows or rows[0][0] is not None:
            return False
        values = {"study": self.study_id, "claimable": self._claimable}
        if self.db.execute(LEFT_SQL, values)[0][0]:
            raise NoRoom("As many trials run as max_parallel lets run.")
        return True

    def _claim_promoting(self, token: str, place: Place, gone: int) -> Claim | None:
        """Own an interrupted trial, else a paused one that may go on, else one that waits."""
        while True:
            # First: a promotion is noted on its trial, and must not be made for nothing.
            mine = self._claimed_before(token)
            if mine is not None:
                return mine
            rows = self._take(token, place, gone, waiting=False)
            if self._is_full(rows):
                return None
            runs = studies.read_state(self.db, self.study_id).word == studies.RUNNING
            if not rows and runs:
                found = promotion.promote(self.db, self.study_id, self.study)
                rows = self._take(token, place, gone, promoted=found)
                if self._is_full(rows):
                    return None
            if rows and rows[0][2] is not None:
                return self._claimed(token, rows[0])
            if not rows:
                return self._claimed_before(token)

    def _take(
        self,
        token: str,
        place: Place,
        gone: int,
        *,
        waiting: bool = True,
        promoted: int | None = None,
    ) -> list[tuple[Any, ...]]:
        return self.db.execute_prepared(
            CLAIM_SQL,
            {
                "study": self.study_id,
                "state_key": STATE,
                "parallel_key": PARALLEL,
                "gone": gone,
                "claimable": self._claimable,
                "token": token,
                "job": place.job,
                "index": place.index,
                "slot": place.slot,
                "host": place.host,
                "boot": place.boot_id,
                "waiting": waiting and promoted is None,
                "promoted": promoted,
            },
            before=LOCK_SQL.format(lock=locks.CLAIM, study=int(self.study_id)),
        )

    @property
    def _claimable(self) -> list[str]:
        """Outcomes after which a trial may be claimed without being promoted.

        Where trials do not pause (any more), a paused one goes on as any other.
        """
        return [*CLAIMABLE] if promotion.promotes(self.study) else [*CLAIMABLE, PAUSED]

    def _claimed_before(self, token: str) -> Claim | None:
        """Return the claim that an earlier try with this token made, whose answer was lost."""
        mine = self.db.execute(CLAIMED_SQL, (token,))
        if not mine:
            return None
        if mine[0][3] is not None:
            raise stale(token)
        return self._claimed(token, mine[0])

    def _claimed(self, token: str, row: Sequence[Any]) -> Claim:
        trial_id, number, attempt, _, stored, used_s, before, replicated, is_alone = row
        params = {
            name: stored_value(value, distribution)
            for name, value, distribution in json.loads(stored or "[]")
        }
        values = self.study.space.from_optuna(params)
        missing = [p for p in self.study.space if p.is_active(values) and p.name not in values]
        return Claim(
            trial_id=int(trial_id),
            number=int(number),
            attempt=int(attempt),
            token=token,
            params=params,
            sampled=not missing,
            used_s=float(used_s),
            first=int(before) + 1,
            replicate=int(replicated) + 1,
            is_alone=bool(is_alone),
        )


def read_params(db: Database, trial_ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the stored parameter values of trials, by id, without importing Optuna."""
    rows = db.execute(
        "SELECT trial_id, param_name, param_value, distribution_json FROM trial_params "
        "WHERE trial_id = ANY(%s::int[]) ORDER BY param_id",
        (list(trial_ids),),
    )
    found: dict[int, dict[str, Any]] = {}
    for trial_id, name, value, distribution in rows:
        found.setdefault(int(trial_id), {})[name] = stored_value(value, distribution)
    return found


def stored_value(value: float, distribution_json: str) -> Any:
    """Return the parameter value that Optuna's number and distribution stand for."""
    distribution = json.loads(distribution_json)
    kind = distribution["name"]
    if kind == "CategoricalDistribution":
        return distribution["attributes"]["choices"][int(value)]
    if kind in ("IntDistribution", "IntUniformDistribution", "IntLogUniformDistribution"):
        return int(value)
    return float(value)
