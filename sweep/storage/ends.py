"""How attempts end, and what that makes of their trials.

Row locks are taken in one order, the attempt's before the trial's. An end that was already written
is recognised: everything here may be repeated after a lost connection.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sweep.core import outcomes
from sweep.core.attributes import CONSTRAINTS, END
from sweep.core.outcomes import GIVEN_BACK, USER_FAILURES
from sweep.core.trial import Attempt, End
from sweep.storage import studies
from sweep.storage.attempts import Attempts, clean, stale
from sweep.storage.prepared import numbers
from sweep.storage.trial_rows import stored_number, write_attribute

# Failures before anything was reported that hold a study of which no configuration may fit; half a
# space that does not fit gives so many in a row once in 32 studies.
TOO_MUCH_LIMIT = 5
ATTEMPT_SQL = """
WITH attempt AS (
  UPDATE sweep_attempt SET outcome = %(outcome)s, reason = %(reason)s, exit_code = %(exit_code)s,
    signal = %(signal)s, checkpoint = %(checkpoint)s, checkpoint_sha256 = %(digest)s,
    ended = clock_timestamp(), seen = clock_timestamp()
  WHERE token = %(token)s AND outcome IS NULL RETURNING trial_id
)
"""
TRIAL_SQL = f"""
, trial AS (
  UPDATE trials t SET state = %(state)s::trialstate,
    datetime_complete = clock_timestamp() AT TIME ZONE 'UTC'
  FROM attempt a WHERE t.trial_id = a.trial_id RETURNING t.trial_id
), stored AS (
  INSERT INTO trial_values (trial_id, objective, value, value_type)
  SELECT trial_id, place - 1, value, kind::trialvaluetype
  FROM trial, unnest(%(values)s::float8[], %(kinds)s::text[])
    WITH ORDINALITY AS v(value, kind, place)
  ON CONFLICT (trial_id, objective) DO UPDATE
  SET value = excluded.value, value_type = excluded.value_type
), note AS (
  INSERT INTO trial_user_attributes (trial_id, key, value_json)
  SELECT trial_id, '{END}', %(note)s::text FROM trial WHERE %(note)s::text IS NOT NULL
  ON CONFLICT (trial_id, key) DO UPDATE SET value_json = excluded.value_json
)
"""


class Endings(Attempts):
    """The ends of attempts."""

    def leave(self, token: str, end: End, checkpoint: tuple[str, str | None] | None) -> None:
        """End the attempt and leave its trial to be claimed again (or given up by others).

        Raises:
            StaleAttempt: The attempt has ended otherwise.
        """
        self._end(token, end, checkpoint)

    def finish(
        self,
        token: str,
        end: End,
        state: str,
        values: Sequence[float] = (),
        checkpoint: tuple[str, str | None] | None = None,
    ) -> None:
        """End the attempt and its trial; one statement.

        Args:
            state: complete, pruned, failed or cancelled.
            values: Objective values; for a pruned trial its last, for others none.

        Raises:
            StaleAttempt: The attempt has ended otherwise.
        """
        self._end(token, end, checkpoint, TRIAL_SQL, _trial_params(end, state, values))

    def _end(
        self,
        token: str,
        end: End,
        checkpoint: tuple[str, str | None] | None,
        more_sql: str = "",
        more: dict[str, Any] | None = None,
    ) -> None:
        path, digest = checkpoint or (None, None)
        ended = self.db.execute_prepared(
            f"{ATTEMPT_SQL}{more_sql} SELECT trial_id FROM attempt",
            {
                "token": token,
                "outcome": end.outcome,
                "reason": self.clean(end.reason),
                "exit_code": end.exit_code,
                "signal": end.signal,
                "checkpoint": self.clean(path) if path else None,
                "digest": digest,
                **(more or {}),
            },
        )
        if ended:
            return
        before = self.db.execute("SELECT outcome FROM sweep_attempt WHERE token = %s", (token,))
        if before and before[0][0] == end.outcome:
            return  # our own write, whose answer was lost
        raise stale(token)

    def backdate(self, token: str, seen: datetime, sign_s: float) -> None:
        """Have a dead attempt end at its last sign of life, not when somebody found it.

        Its time counts towards ``trial_time``, and is shown.

        Args:
            seen: When it was last heard of.
            sign_s: Last change of its files, epoch seconds.
        """
        self.db.execute(
            "UPDATE sweep_attempt SET ended = LEAST(ended, GREATEST(claimed, %s, "
            "to_timestamp(%s))), seen = %s WHERE token = %s AND ended IS NOT NULL",
            (seen, sign_s, seen, token),
        )

    def note_violations(self, trial_id: int, found: Sequence[float]) -> None:
        """Note by how much a trial breaks each constraint, where Optuna's samplers look for it."""
        if found:
            write_attribute(self.db, "system", [trial_id], CONSTRAINTS, list(found))

    def close_trial(
        self, trial_id: int, end: End, state: str, values: Sequence[float] = ()
    ) -> None:
        """Make a trial final whose attempts have ended; one statement."""
        self.db.execute(
            f"WITH attempt AS (SELECT %(trial)s::int AS trial_id) {TRIAL_SQL} SELECT 1",
            {"trial": trial_id, **_trial_params(end, state, values)},
        )

    # Failures of the user's own code

    def fail(
        self, token: str, end: End, checkpoint: tuple[str, str | None] | None = None
    ) -> studies.StudyState:
        """End an attempt whose command failed by itself; inside ``db.retry``.

        Once any trial has reported the objective (and what else the study asks for, where that is
        what this one lacks), the trial is final: failed. Before that, it may be the command that is
        wrong: the trial stays open, and the study is held after
        min(K, 3) such failures (``retry.max_user_failures``); a failure beyond that gives its
        trial back. Where configurations ask for too much memory or time, others may fit: it is
        held after ``TOO_MUCH_LIMIT`` failures of any kind.

        Returns:
            The study's state afterwards.
        """
        studies.lock_study(self.db, self.study_id)
        state = studies.read_state(self.db, self.study_id)
        if self.is_proven(end.outcome) or state.word == studies.ENDED:
            self.finish(token, end, outcomes.FAILED, checkpoint=checkpoint)
            return state
        if state.word == studies.HELD:
            self.leave(token, End(GIVEN_BACK, end.reason, end.exit_code, end.signal), checkpoint)
            return state
        self.leave(token, end, checkpoint)
        if self._should_hold():
            state = studies.StudyState(studies.HELD, self.clean(end.reason), since=state.since)
            studies.write_state(self.db, self.study_id, state)
        return state

    def _should_hold(self) -> bool:
        """Tell whether enough has failed by itself to stop trying."""
        limit = self.study.retry.max_user_failures or min(self.study.parallel, 3)
        wrong = [word for word in outcomes.USER_FAILURES if word not in outcomes.TOO_MUCH]
        if self._count_failures(wrong) >= limit:
            return True
        any_kind = self.study.retry.max_user_failures or min(self.study.trials, TOO_MUCH_LIMIT)
        return self._count_failures(outcomes.USER_FAILURES) >= any_kind

    def _count_failures(self, words: Sequence[str]) -> int:
        """Return how often tasks have failed: what the slots of one do side by side counts once.

        They share a node, and a node where nothing works is no proof against the command.
        """
        rows = self.db.execute(
            "SELECT COALESCE(SUM(most), 0) FROM (SELECT MAX(failed) AS most FROM ("
            "SELECT job, array_index, slot, COUNT(*) AS failed FROM sweep_attempt a "
            "WHERE a.trial_id = ANY(%s::int[]) AND a.number = (SELECT MAX(number) FROM "
            "sweep_attempt b WHERE b.trial_id = a.trial_id) AND a.outcome = ANY(%s) "
            "GROUP BY job, array_index, slot) AS by_slot GROUP BY job, array_index) AS by_task",
            (self.open_failures(), list(words)),
        )
        return int(rows[0][0])

    def give_back_failures(self) -> int:
        """Let trials that failed before the study was proven be claimed again; return how many."""
        return self._give_back("TRUE", ())

    def give_back_failures_at(self, node: str, job: str) -> int:
        """The same for those that a node has failed at once, in one array."""
        return self._give_back(
            "a.host = %s AND a.job = %s AND a.first_step IS NULL AND a.outcome = ANY(%s)",
            (node, job, list(USER_FAILURES)),
        )

    def _give_back(self, condition: str, values: Sequence[Any]) -> int:
        rows = self.db.execute(
            f"UPDATE sweep_attempt a SET outcome = %s WHERE a.trial_id = ANY(%s::int[]) AND "
            f"{condition} AND a.number = "
            "(SELECT MAX(number) FROM sweep_attempt b WHERE b.trial_id = a.trial_id) "
            "RETURNING a.trial_id",
            (GIVEN_BACK, self.open_failures(), *values),
        )
        return len(rows)

    def close_failures(self) -> int:
        """Make open failures final once the study is proven; inside ``db.retry``."""
        studies.lock_study(self.db, self.study_id)
        if not self.is_proven():
            return 0
        open_trials = self.open_failures()
        for trial_id in open_trials:
            last = self.attempts(trial_id)[-1]
            self.close_trial(
                trial_id, End(last.outcome or outcomes.ERROR, last.reason), outcomes.FAILED
            )
        return len(open_trials)

    def attribute(self, attempt: Attempt, end: End, give_up: str | None = None) -> str:
        """Write who ended a terminated attempt; return its trial's state. Inside ``db.retry``.

        Args:
            end: INTERRUPTED (the trial may be claimed again) or STOPPED (it is final: cancelled).
            give_up: Why the trial is not tried again, or None.
        """
        changed = self.db.execute(
            "UPDATE sweep_attempt SET outcome = %s, reason = %s WHERE token = %s "
            "AND outcome = %s RETURNING trial_id",
            (end.outcome, self.clean(end.reason), attempt.token, outcomes.TERMINATED),
        )
        if not changed:
            return outcomes.RUNNING
        if end.outcome == outcomes.STOPPED:
            self.close_trial(attempt.trial_id, end, outcomes.CANCELLED)
            return outcomes.CANCELLED
        if give_up:
            self.close_trial(attempt.trial_id, End(end.outcome, give_up), outcomes.FAILED)
            return outcomes.FAILED
        return outcomes.RUNNING


def _trial_params(end: End, state: str, values: Sequence[float]) -> dict[str, Any]:
    """Return the parameters of TRIAL_SQL.

    Why a trial ended is noted on it where Optuna's dashboard and notebooks show it too.
    """
    stored = [stored_number(value) for value in values]
    note = {"state": state, "outcome": end.outcome, "reason": clean(end.reason)}
    return {
        "state": {outcomes.COMPLETE: "COMPLETE", outcomes.PRUNED: "PRUNED"}.get(state, "FAIL"),
        "values": numbers([value for value, _ in stored]),
        "kinds": [kind for _, kind in stored],
        "note": None if state == outcomes.COMPLETE else json.dumps(note),
    }
