"""Who owns which trial: claims, attempts, what they report and how they end.

The fence: each attempt has a token, and every write of an attempt is one transaction that locks
its live row in ``sweep_attempt``; once the row has an outcome, the write is refused with
StaleAttempt. Row locks are taken in one order, the attempt's before the trial's, except by a claim,
which locks a trial that has no live attempt.

Everything here may be repeated after a lost connection: a claim is found again by its token,
reports are upserts by (attempt, name, step), and an end that was already written is recognised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sweep import trial as words
from sweep.errors import StaleAttempt
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.study import Study
from sweep.trial import Attempt, Claim, End

_MAX_STEP = 2**31 - 1  # Optuna keeps steps in 32 bits

# An attempt's end after which the trial may be claimed again. A failure of the user's code counts
# while the study is unproven, because launch gives such trials back once the code is corrected.
GIVEN_BACK = "given back"
PAUSED = "paused"
_CLAIMABLE = (*words.RESUMABLE, GIVEN_BACK, PAUSED)
USER_FAILURES = (words.ERROR, words.NO_METRIC, words.NOT_STARTED)


@dataclass(frozen=True)
class Report:
    """One journal line: (step, time, metrics)."""

    step: int
    time_s: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Place:
    """Where a process runs: its task, its host and the boot of that host."""

    job: str | None
    index: int | None
    host: str
    boot_id: str = ""
    slot: int | None = None


class Ledger:
    """The attempts of one study.

    Args:
        db: An open (or openable) database.
        study_id: Optuna's key of the study.
        study: Its specification.
    """

    def __init__(self, db: Database, study_id: int, study: Study) -> None:
        self.db = db
        self.study_id = study_id
        self.study = study

    # Claiming

    def claim(self, token: str, place: Place) -> Claim | None:
        """Own the next trial, or return None when there is none to pull.

        Interrupted trials come before those that wait, and the oldest comes first. Call it inside
        ``db.retry``: it is one transaction, and a repeat with the same token gives the same trial.

        Raises:
            StaleAttempt: The token's attempt has ended already.
        """
        db = self.db
        while True:
            if studies.read_state(db, self.study_id).word != studies.RUNNING:
                return self._claimed_before(token)
            found = self._lock_interrupted() or self._lock_waiting()
            if not found:
                return self._claimed_before(token)
            trial_id, number = found
            attempt = db.execute(
                "INSERT INTO sweep_attempt (trial_id, number, token, job, array_index, slot, host,"
                " boot_id) SELECT %s, 1 + COALESCE(MAX(number), 0), %s, %s, %s, %s, %s, %s "
                "FROM sweep_attempt WHERE trial_id = %s "
                # The lock is ours now, but the search saw an older snapshot: look again.
                "HAVING COUNT(*) = 0 OR (array_agg(outcome ORDER BY number DESC))[1] = ANY(%s) "
                # An earlier try of ours whose COMMIT was on its way when the connection broke.
                "ON CONFLICT (token) DO NOTHING RETURNING number",
                (trial_id, token, place.job, place.index, place.slot, place.host, place.boot_id,
                 trial_id, list(_CLAIMABLE)),
            )  # fmt: skip
            if not attempt:
                mine = self._claimed_before(token)
                if mine is not None:
                    return mine
                continue
            db.execute(
                "UPDATE trials SET state = 'RUNNING', datetime_start = COALESCE(datetime_start, "
                "clock_timestamp() AT TIME ZONE 'UTC') WHERE trial_id = %s",
                (trial_id,),
            )
            return self._claimed(trial_id, number, int(attempt[0][0]), token)

    def _claimed_before(self, token: str) -> Claim | None:
        """Return the claim that an earlier try with this token made, whose answer was lost."""
        mine = self.db.execute(
            "SELECT a.trial_id, t.number, a.number, a.outcome FROM sweep_attempt a "
            "JOIN trials t USING (trial_id) WHERE a.token = %s",
            (token,),
        )
        if not mine:
            return None
        if mine[0][3] is not None:
            raise stale(token)
        return self._claimed(int(mine[0][0]), int(mine[0][1]), int(mine[0][2]), token)

    def _lock_interrupted(self) -> tuple[int, int] | None:
        rows = self.db.execute(
            "SELECT t.trial_id, t.number FROM trials t WHERE t.study_id = %s "
            "AND t.state = 'RUNNING' AND (SELECT a.outcome FROM sweep_attempt a "
            "WHERE a.trial_id = t.trial_id ORDER BY a.number DESC LIMIT 1) = ANY(%s) "
            "ORDER BY t.trial_id LIMIT 1 FOR UPDATE SKIP LOCKED",
            (self.study_id, list(_CLAIMABLE)),
        )
        return (int(rows[0][0]), int(rows[0][1])) if rows else None

    def _lock_waiting(self) -> tuple[int, int] | None:
        rows = self.db.execute(
            "SELECT trial_id, number FROM trials WHERE study_id = %s AND state = 'WAITING' "
            "ORDER BY trial_id LIMIT 1 FOR UPDATE SKIP LOCKED",
            (self.study_id,),
        )
        return (int(rows[0][0]), int(rows[0][1])) if rows else None

    def _claimed(self, trial_id: int, number: int, attempt: int, token: str) -> Claim:
        params = read_params(self.db, [trial_id]).get(trial_id, {})
        used_s = 0.0
        if attempt > 1:
            used = self.db.execute(
                "SELECT COALESCE(SUM(EXTRACT(EPOCH FROM ended - claimed)), 0) FROM sweep_attempt "
                "WHERE trial_id = %s AND ended IS NOT NULL",
                (trial_id,),
            )
            used_s = float(used[0][0])
        values = self.study.space.from_optuna(params)
        missing = [p for p in self.study.space if p.is_active(values) and p.name not in values]
        return Claim(
            trial_id=trial_id,
            number=number,
            attempt=attempt,
            token=token,
            params=params,
            sampled=not missing,
            used_s=used_s,
        )

    # While it runs

    def started(self, token: str, process_group: int, resumed: tuple[str, str] | None) -> None:
        """Record the training's process group and the checkpoint that it goes on from.

        Raises:
            StaleAttempt: The attempt is over.
        """
        path, digest = resumed or (None, None)
        self._touch(
            token,
            "process_group = %s, resumed_from = %s, resumed_sha256 = %s",
            (process_group, path, digest),
        )

    def touch(self, token: str) -> studies.StudyState:
        """Say that the attempt lives, and return the study's state.

        Raises:
            StaleAttempt: The attempt is over.
        """
        self._touch(token)
        return studies.read_state(self.db, self.study_id)

    def _touch(self, token: str, more: str = "", values: Sequence[Any] = ()) -> None:
        more = f", {more}" if more else ""
        found = self.db.execute(
            f"UPDATE sweep_attempt SET seen = clock_timestamp(){more} "
            "WHERE token = %s AND outcome IS NULL RETURNING 1",
            (*values, token),
        )
        if not found:
            raise stale(token)

    def record(self, token: str, reports: Sequence[Report]) -> None:
        """Store reports of a live attempt; the objective goes to Optuna's table as well.

        The first step that an attempt reports cuts what earlier attempts put there from that step
        on. Call it inside ``db.retry``.

        Raises:
            StaleAttempt: The attempt is over; nothing was stored.
        """
        db = self.db
        live = db.execute(
            "SELECT trial_id, number, first_step FROM sweep_attempt "
            "WHERE token = %s AND outcome IS NULL FOR UPDATE",
            (token,),
        )
        if not live:
            raise stale(token)
        trial_id, attempt, first_step = live[0]
        if not reports:
            return
        if first_step is None:
            first_step = reports[0].step
            if attempt > 1:
                db.execute(
                    "DELETE FROM trial_intermediate_values WHERE trial_id = %s AND step >= %s",
                    (trial_id, first_step),
                )
        db.execute(
            "UPDATE sweep_attempt SET seen = clock_timestamp(), first_step = %s WHERE token = %s",
            (first_step, token),
        )
        latest = {(r.step, name): (v, r.time_s) for r in reports for name, v in r.metrics.items()}
        db.execute(
            "INSERT INTO sweep_metric (trial_id, attempt, name, step, value, logged) "
            "SELECT %s, %s, * FROM unnest(%s::text[], %s::bigint[], %s::float8[], %s::float8[]) "
            "ON CONFLICT (trial_id, attempt, name, step) DO UPDATE "
            "SET value = excluded.value, logged = excluded.logged",
            (
                trial_id,
                attempt,
                [name for _, name in latest],
                [step for step, _ in latest],
                [value for value, _ in latest.values()],
                [logged for _, logged in latest.values()],
            ),
        )
        if self.study.is_multi_objective:
            return  # Optuna has intermediate values for one objective only
        metric = self.study.objective.metric
        objective = {
            step: value
            for (step, name), (value, _) in latest.items()
            if name == metric and 0 <= step <= _MAX_STEP
        }
        if objective:
            kinds = [intermediate(value) for value in objective.values()]
            db.execute(
                "INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, "
                "intermediate_value_type) SELECT %s, u.step, u.value, "
                "u.kind::trialintermediatevaluetype FROM "
                "unnest(%s::int[], %s::float8[], %s::text[]) AS u(step, value, kind) "
                "ON CONFLICT (trial_id, step) DO UPDATE SET intermediate_value = "
                "excluded.intermediate_value, intermediate_value_type = "
                "excluded.intermediate_value_type",
                (trial_id, list(objective), [v for v, _ in kinds], [k for _, k in kinds]),
            )

    # Ending

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
        """End the attempt and its trial; call it inside ``db.retry``.

        Args:
            state: complete, pruned, failed or cancelled.
            values: Objective values; for a pruned trial its last, for others none.

        Raises:
            StaleAttempt: The attempt has ended otherwise.
        """
        trial_id = self._end(token, end, checkpoint)
        if trial_id is not None:
            self.close_trial(trial_id, end, state, values)

    def _end(
        self, token: str, end: End, checkpoint: tuple[str, str | None] | None
    ) -> int | None:
        path, digest = checkpoint or (None, None)
        ended = self.db.execute(
            "UPDATE sweep_attempt SET outcome = %s, reason = %s, exit_code = %s, signal = %s, "
            "checkpoint = %s, checkpoint_sha256 = %s, ended = clock_timestamp(), "
            "seen = clock_timestamp() WHERE token = %s AND outcome IS NULL RETURNING trial_id",
            (end.outcome, clean(end.reason), end.exit_code, end.signal, path, digest, token),
        )
        if ended:
            return int(ended[0][0])
        before = self.db.execute("SELECT outcome FROM sweep_attempt WHERE token = %s", (token,))
        if before and before[0][0] == end.outcome:
            return None  # our own write, whose answer was lost
        raise stale(token)

    def state_after(self, token: str) -> str | None:
        """Return the state of the trial of an attempt that has ended; None while it lives."""
        rows = self.db.execute(
            "SELECT a.outcome, t.state::text FROM sweep_attempt a JOIN trials t USING (trial_id) "
            "WHERE a.token = %s",
            (token,),
        )
        if not rows or rows[0][0] is None:
            return None
        outcome, state = rows[0]
        if state == "RUNNING":
            return words.FAILED if outcome in USER_FAILURES else words.RUNNING
        known = {"COMPLETE": words.COMPLETE, "PRUNED": words.PRUNED}
        return known.get(state, words.FAILED)

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

    def close_trial(
        self, trial_id: int, end: End, state: str, values: Sequence[float] = ()
    ) -> None:
        """Make a trial final; inside a transaction."""
        optuna_state = {words.COMPLETE: "COMPLETE", words.PRUNED: "PRUNED"}.get(state, "FAIL")
        db = self.db
        db.execute(
            "UPDATE trials SET state = %s, datetime_complete = "
            "clock_timestamp() AT TIME ZONE 'UTC' WHERE trial_id = %s",
            (optuna_state, trial_id),
        )
        for objective, value in enumerate(values):
            number, kind = intermediate(value)
            db.execute(
                "INSERT INTO trial_values (trial_id, objective, value, value_type) "
                "VALUES (%s, %s, %s, %s) ON CONFLICT (trial_id, objective) DO UPDATE "
                "SET value = excluded.value, value_type = excluded.value_type",
                (trial_id, objective, number, kind),
            )
        if state != words.COMPLETE:
            write_end(db, trial_id, state, end)

    # Failures of the user's own code

    def fail(
        self, token: str, end: End, checkpoint: tuple[str, str | None] | None = None
    ) -> studies.StudyState:
        """End an attempt whose command failed by itself; inside ``db.retry``.

        Once any trial has reported the objective, the trial is final: failed. Before that, it may
        be the command that is wrong: the trial stays open, and the study is held after
        min(K, 3) such failures (``retry.max_user_failures``); a failure beyond that gives its
        trial back.

        Returns:
            The study's state afterwards.
        """
        studies.lock_study(self.db, self.study_id)
        state = studies.read_state(self.db, self.study_id)
        if self.is_proven():
            self.finish(token, end, words.FAILED, checkpoint=checkpoint)
            return state
        if state.word == studies.HELD:
            self.leave(token, End(GIVEN_BACK, end.reason, end.exit_code, end.signal), checkpoint)
            return state
        self.leave(token, end, checkpoint)
        limit = self.study.retry.max_user_failures or min(self.study.parallel, 3)
        if self._count_failures() >= limit:
            state = studies.StudyState(studies.HELD, clean(end.reason))
            studies.write_state(self.db, self.study_id, state)
        return state

    def is_proven(self) -> bool:
        """Tell whether any trial of the study has reported an objective."""
        names = [objective.metric for objective in self.study.objectives]
        rows = self.db.execute(
            "SELECT EXISTS (SELECT 1 FROM trials t JOIN sweep_metric m USING (trial_id) "
            "WHERE t.study_id = %s AND m.name = ANY(%s))",
            (self.study_id, names),
        )
        return bool(rows[0][0])

    def _count_failures(self) -> int:
        """Return how often tasks have failed: what the slots of one do side by side counts once.

        They share a node, and a node where nothing works is no proof against the command.
        """
        rows = self.db.execute(
            "SELECT COALESCE(SUM(most), 0) FROM (SELECT MAX(failed) AS most FROM ("
            "SELECT job, array_index, slot, COUNT(*) AS failed FROM sweep_attempt a "
            "WHERE a.trial_id = ANY(%s::int[]) AND a.number = (SELECT MAX(number) FROM "
            "sweep_attempt b WHERE b.trial_id = a.trial_id) GROUP BY job, array_index, slot"
            ") AS by_slot GROUP BY job, array_index) AS by_task",
            (self.open_failures(),),
        )
        return int(rows[0][0])

    def open_failures(self) -> list[int]:
        """Return the ids of trials whose last attempt failed by itself and which stay open."""
        rows = self.db.execute(
            "SELECT t.trial_id FROM trials t WHERE t.study_id = %s AND t.state = 'RUNNING' "
            "AND (SELECT a.outcome FROM sweep_attempt a WHERE a.trial_id = t.trial_id "
            "ORDER BY a.number DESC LIMIT 1) = ANY(%s) ORDER BY t.trial_id",
            (self.study_id, list(USER_FAILURES)),
        )
        return [int(row[0]) for row in rows]

    def give_back_failures(self) -> int:
        """Let trials that failed before the study was proven be claimed again; return how many."""
        open_trials = self.open_failures()
        self.db.execute(
            "UPDATE sweep_attempt a SET outcome = %s WHERE a.trial_id = ANY(%s::int[]) AND "
            "a.number = (SELECT MAX(number) FROM sweep_attempt b WHERE b.trial_id = a.trial_id)",
            (GIVEN_BACK, open_trials),
        )
        return len(open_trials)

    def close_failures(self) -> int:
        """Make open failures final once the study is proven; inside ``db.retry``."""
        studies.lock_study(self.db, self.study_id)
        if not self.is_proven():
            return 0
        open_trials = self.open_failures()
        for trial_id in open_trials:
            last = self.attempts(trial_id)[-1]
            self.close_trial(
                trial_id, End(last.outcome or words.ERROR, last.reason), words.FAILED
            )
        return len(open_trials)

    # Reading

    def live_attempts(self, unseen_s: float = 0.0) -> list[Attempt]:
        """Return the live attempts that nobody has heard of for so many seconds."""
        return self._attempts(
            "a.outcome IS NULL AND a.seen <= clock_timestamp() - %s * interval '1 second'",
            (unseen_s,),
        )

    def terminated_attempts(self) -> list[Attempt]:
        """Return the last attempts of open trials that a SIGTERM ended whose sender is unknown."""
        return self._attempts(
            "t.state = 'RUNNING' AND a.outcome = %s AND a.number = (SELECT MAX(number) "
            "FROM sweep_attempt b WHERE b.trial_id = a.trial_id)",
            (words.TERMINATED,),
        )

    def attribute(self, attempt: Attempt, end: End, give_up: str | None = None) -> str:
        """Write who ended a terminated attempt; return its trial's state. Inside ``db.retry``.

        Args:
            end: INTERRUPTED (the trial may be claimed again) or STOPPED (it is final: cancelled).
            give_up: Why the trial is not tried again, or None.
        """
        changed = self.db.execute(
            "UPDATE sweep_attempt SET outcome = %s, reason = %s WHERE token = %s "
            "AND outcome = %s RETURNING trial_id",
            (end.outcome, clean(end.reason), attempt.token, words.TERMINATED),
        )
        if not changed:
            return words.RUNNING
        if end.outcome == words.STOPPED:
            self.close_trial(attempt.trial_id, end, words.CANCELLED)
            return words.CANCELLED
        if give_up:
            self.close_trial(attempt.trial_id, End(end.outcome, give_up), words.FAILED)
            return words.FAILED
        return words.RUNNING

    def latest_token(self, place: Place) -> str | None:
        """Return the token of the latest attempt that a task (and slot) has made, or None."""
        rows = self.db.execute(
            "SELECT a.token FROM sweep_attempt a JOIN trials t USING (trial_id) "
            "WHERE t.study_id = %s AND a.job = %s AND a.array_index IS NOT DISTINCT FROM %s "
            "AND a.slot IS NOT DISTINCT FROM %s ORDER BY a.attempt_id DESC LIMIT 1",
            (self.study_id, place.job, place.index, place.slot),
        )
        return str(rows[0][0]) if rows else None

    def attempts(self, trial_id: int) -> list[Attempt]:
        """Return a trial's attempts, oldest first."""
        return self._attempts("t.trial_id = %s", (trial_id,))

    def count_attempts(self) -> int:
        """Return how many attempts the study has had."""
        rows = self.db.execute(
            "SELECT COUNT(*) FROM sweep_attempt a JOIN trials t USING (trial_id) "
            "WHERE t.study_id = %s",
            (self.study_id,),
        )
        return int(rows[0][0])

    def all_attempts(self) -> list[Attempt]:
        """Return all attempts of the study, by trial and number."""
        return self._attempts("TRUE", ())

    def _attempts(self, condition: str, values: Sequence[Any]) -> list[Attempt]:
        rows = self.db.execute(
            "SELECT a.trial_id, t.number, a.number, a.token, a.job, a.array_index, a.host, "
            "a.process_group, a.claimed, a.seen, a.ended, a.first_step, a.outcome, a.reason, "
            "a.exit_code, a.checkpoint, a.resumed_from, a.slot FROM sweep_attempt a JOIN trials t "
            f"USING (trial_id) WHERE t.study_id = %s AND {condition} "
            "ORDER BY t.number, a.number",
            (self.study_id, *values),
        )
        return [Attempt(*row) for row in rows]

    def lineage(self, trial_id: int, name: str) -> list[tuple[int, float]]:
        """Return one metric's (step, value) pairs that count, ascending in step.

        An attempt's steps count up to the first step that a later attempt reported.
        """
        rows = self.db.execute(
            "SELECT m.step, m.value FROM sweep_metric m JOIN "
            "(SELECT trial_id, number, MIN(first_step) OVER (PARTITION BY trial_id ORDER BY number "
            "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS cut FROM sweep_attempt "
            "WHERE trial_id = %s) c ON c.trial_id = m.trial_id AND c.number = m.attempt "
            "WHERE m.trial_id = %s AND m.name = %s AND (c.cut IS NULL OR m.step < c.cut) "
            "ORDER BY m.step, m.attempt",
            (trial_id, trial_id, name),
        )
        return sorted({int(step): float(value) for step, value in rows}.items())

    def reported_names(self, trial_id: int) -> list[str]:
        """Return the names of the metrics that a trial has reported."""
        rows = self.db.execute(
            "SELECT DISTINCT name FROM sweep_metric WHERE trial_id = %s ORDER BY name", (trial_id,)
        )
        return [str(row[0]) for row in rows]

    def checkpoint_hashes(self, trial_id: int) -> dict[str, str]:
        """Return the recorded hashes of a trial's checkpoints, by path."""
        rows = self.db.execute(
            "SELECT checkpoint, checkpoint_sha256 FROM sweep_attempt "
            "WHERE trial_id = %s AND checkpoint_sha256 IS NOT NULL",
            (trial_id,),
        )
        return {str(path): str(found) for path, found in rows}

    def next_step(self, trial_id: int, attempt: int) -> int:
        """Return the step after the last that earlier attempts stored, 0 where there is none."""
        rows = self.db.execute(
            "SELECT COALESCE(MAX(step) + 1, 0) FROM sweep_metric "
            "WHERE trial_id = %s AND attempt < %s",
            (trial_id, attempt),
        )
        return int(rows[0][0])

    def count_states(self) -> dict[str, int]:
        """Return how many trials Optuna has in each of its states."""
        rows = self.db.execute(
            "SELECT state::text, COUNT(*) FROM trials WHERE study_id = %s GROUP BY state",
            (self.study_id,),
        )
        return {state: int(count) for state, count in rows}

    def unfinished(self) -> int:
        """Return how many trials are not final."""
        counts = self.count_states()
        return counts.get("WAITING", 0) + counts.get("RUNNING", 0)

    def best_numbers(self, limit: int) -> list[int]:
        """Return the numbers of the best complete trials, best first (one objective)."""
        order = "DESC" if self.study.objective.direction == "maximize" else "ASC"
        rows = self.db.execute(
            "SELECT t.number FROM trials t JOIN trial_values v USING (trial_id) "
            "WHERE t.study_id = %s AND t.state = 'COMPLETE' AND v.objective = 0 "
            f"ORDER BY v.value {order}, t.number LIMIT %s",
            (self.study_id, limit),
        )
        return [int(row[0]) for row in rows]


def stale(token: str) -> StaleAttempt:
    return StaleAttempt(
        f"The attempt {token[:8]}… no longer owns its trial; nothing was written.",
        "Another attempt has taken over, or the study was changed; this one ends.",
    )


def write_end(db: Database, trial_id: int, state: str, end: End) -> None:
    """Note on the trial why it ended, where Optuna's dashboard and notebooks show it too."""
    note = {"state": state, "outcome": end.outcome, "reason": clean(end.reason)}
    db.execute(
        "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (%s, %s, %s) "
        "ON CONFLICT (trial_id, key) DO UPDATE SET value_json = excluded.value_json",
        (trial_id, "sweep:end", json.dumps(note)),
    )


def clean(text: str) -> str:
    """Return text that PostgreSQL can hold: it has no NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def intermediate(value: float) -> tuple[float | None, str]:
    """Return a value as Optuna's tables hold it: (number or None, kind)."""
    if value != value:
        return None, "NAN"
    if value in (float("inf"), float("-inf")):
        return None, "INF_POS" if value > 0 else "INF_NEG"
    return value, "FINITE"


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
