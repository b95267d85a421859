"""The attempts of a study as rows: what is in them, and everything that only reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sweep.core import outcomes
from sweep.core.attributes import CONSTRAINTS, DUPLICATE_OF, END
from sweep.core.errors import StaleAttempt
from sweep.core.masking import mask
from sweep.core.outcomes import BEGUN_ANEW, CROWDED, FAULTED, GIVEN_BACK, REPLICATED, USER_FAILURES
from sweep.core.study import Study
from sweep.core.trial import Attempt, Place
from sweep.storage.connection import Database
from sweep.storage.tables import READING_COLUMNS, Tables, read_notes, read_tables

# By how much a trial ``t`` breaks its study's constraints; 0 where nothing is noted.
VIOLATION_SQL = f"""COALESCE((SELECT SUM(GREATEST(c::float8, 0)) FROM trial_system_attributes s,
  json_array_elements_text(s.value_json::json) c
  WHERE s.trial_id = t.trial_id AND s.key = '{CONSTRAINTS}'), 0)"""
# The number of the attempt after which those of an attempt ``a``'s trial count: its last before a
# retry or before this replicate, or 0.
BEGUN_ANEW_SQL = f"""(SELECT COALESCE(MAX(y.number), 0) FROM sweep_attempt y
  WHERE y.trial_id = a.trial_id AND y.outcome IN ({", ".join(f"'{w}'" for w in BEGUN_ANEW)}))"""
# How many replicates of that trial have ended.
REPLICATED_SQL = f"""(SELECT COUNT(*) FROM sweep_attempt r
  WHERE r.trial_id = a.trial_id AND r.outcome = '{REPLICATED}')"""
# Whether the trial ``{}`` is to have its GPU for itself: it has run out of memory beside others,
# or faulted there, or another has.
ALONE_SQL = f"""EXISTS (SELECT 1 FROM sweep_attempt x
  WHERE x.trial_id = {{}} AND x.outcome IN ('{CROWDED}', '{FAULTED}'))"""
# For how many seconds the ended attempts of the trial of an attempt ``a`` ran.
USED_SQL = f"""(SELECT COALESCE(SUM(EXTRACT(EPOCH FROM e.ended - e.claimed)), 0)::float8
  FROM sweep_attempt e WHERE e.trial_id = a.trial_id AND e.ended IS NOT NULL
  AND e.number > {BEGUN_ANEW_SQL})"""
# The complete trial ``s`` whose result a trial ``t`` has that did not train itself (``duplicates:
# reuse``).
REUSED_SQL = f"""SELECT s.number, s.trial_id FROM trial_user_attributes u JOIN trials s
  ON s.study_id = t.study_id AND s.number::text = u.value_json AND s.state = 'COMPLETE'
  WHERE u.trial_id = t.trial_id AND u.key = '{DUPLICATE_OF}'
  AND NOT EXISTS (SELECT 1 FROM sweep_metric m WHERE m.trial_id = t.trial_id)"""

# What counts of one metric of a trial, as ``m``: an attempt's steps up to the first step at which a
# later attempt reported this metric.
_LINEAGE = """sweep_metric m JOIN (SELECT number, MIN(first) OVER (
    ORDER BY number ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS cut
    FROM (SELECT a.number, (SELECT MIN(f.step) FROM sweep_metric f WHERE f.trial_id = a.trial_id
      AND f.attempt = a.number AND f.name = %(name)s) AS first
      FROM sweep_attempt a WHERE a.trial_id = %(trial)s) b) c ON c.number = m.attempt
  WHERE m.trial_id = %(trial)s AND m.name = %(name)s AND (c.cut IS NULL OR m.step < c.cut)"""


class Attempts:
    """The attempts of one study, read.

    Args:
        db: An open (or openable) database.
        study_id: Optuna's key of the study.
        study: Its specification.
    """

    def __init__(self, db: Database, study_id: int, study: Study) -> None:
        self.db = db
        self.study_id = study_id
        self.study = study
        self._tables: Tables | None = None

    def clean(self, text: str) -> str:
        """Return text that this database can hold, without what is secret in it."""
        return clean(mask(text), self.db.encoding)

    def add_notes(self, token: str, notes: Sequence[str]) -> None:
        """Note on an attempt, live or not, what could not be read or stored; once each."""
        if not notes or not self.tables.keep_readings:
            return
        rows = self.db.execute("SELECT notes FROM sweep_attempt WHERE token = %s", (token,))
        if rows:
            found = dict.fromkeys([*read_notes(rows[0][0]), *map(self.clean, notes)])
            self.db.execute(
                "UPDATE sweep_attempt SET notes = %s WHERE token = %s",
                (json.dumps(list(found)), token),
            )

    @property
    def tables(self) -> Tables:
        """What this database's tables can hold; asked once."""
        if self._tables is None:
            self._tables = read_tables(self.db)
        return self._tables

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
            return outcomes.FAILED if outcome in USER_FAILURES else outcomes.RUNNING
        known = {"COMPLETE": outcomes.COMPLETE, "PRUNED": outcomes.PRUNED}
        return known.get(state, outcomes.FAILED)

    def is_proven(self, outcome: str | None = None) -> bool:
        """Tell whether any trial of the study has reported an objective.

        Where attempts ended well without all that is asked for (an objective of several, the metric
        of a constraint), each of those metrics must have been reported by some trial: its name may
        be wrong.

        Args:
            outcome: Of an attempt that is about to end.
        """
        names = [objective.metric for objective in self.study.objectives]
        rows = self.db.execute(
            "SELECT EXISTS (SELECT 1 FROM trials t JOIN sweep_metric m USING (trial_id) "
            "WHERE t.study_id = %(study)s AND m.name = ANY(%(names)s)) OR EXISTS (SELECT 1 "
            "FROM trials t JOIN sweep_attempt a USING (trial_id) WHERE t.study_id = %(study)s "
            "AND a.outcome = %(replicated)s)",
            {"study": self.study_id, "names": names, "replicated": REPLICATED},
        )
        return bool(rows[0][0]) and not self._lacks_a_metric(outcome)

    def _lacks_a_metric(self, outcome: str | None) -> bool:
        constrained = [constraint.metric for constraint in self.study.constraints]
        names = [*(objective.metric for objective in self.study.objectives), *constrained]
        if len(names) == 1:
            return False
        rows = self.db.execute(
            "SELECT (%(outcome)s::text = %(lacking)s OR EXISTS (SELECT 1 FROM trials t "
            "JOIN sweep_attempt a USING (trial_id) WHERE t.study_id = %(study)s AND "
            "a.outcome = %(lacking)s)) AND NOT EXISTS (SELECT 1 FROM trials t JOIN sweep_attempt a "
            "USING (trial_id) WHERE t.study_id = %(study)s AND a.outcome = %(replicated)s) AND "
            "EXISTS (SELECT 1 FROM unnest(%(names)s::text[]) AS asked (name) WHERE NOT EXISTS ("
            "SELECT 1 FROM trials t JOIN sweep_metric m USING (trial_id) "
            "WHERE t.study_id = %(study)s AND m.name = asked.name))",
            {
                "study": self.study_id,
                "names": names,
                "outcome": outcome,
                "lacking": outcomes.NO_METRIC,
                "replicated": REPLICATED,
            },
        )
        return bool(rows[0][0])

    def open_failures(self) -> list[int]:
        """Return the ids of trials whose last attempt failed by itself and which stay open."""
        rows = self.db.execute(
            "SELECT t.trial_id FROM trials t WHERE t.study_id = %s AND t.state = 'RUNNING' "
            "AND (SELECT a.outcome FROM sweep_attempt a WHERE a.trial_id = t.trial_id "
            "ORDER BY a.number DESC LIMIT 1) = ANY(%s) ORDER BY t.trial_id",
            (self.study_id, list(USER_FAILURES)),
        )
        return [int(row[0]) for row in rows]

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
            (outcomes.TERMINATED,),
        )

    def find_trial(self, number: int) -> tuple[int, str] | None:
        """Return the id and Optuna's state of a trial by its number, or None."""
        rows = self.db.execute(
            "SELECT trial_id, state::text FROM trials WHERE study_id = %s AND number = %s",
            (self.study_id, number),
        )
        return (int(rows[0][0]), str(rows[0][1])) if rows else None

    def seen_at(self, node: str, job: str, quick_s: float) -> tuple[int, bool, bool, bool]:
        """Return what the trainings of the study have met on one node, and on the others.

        Args:
            job: Whose failures count.
            quick_s: A failure is quick if it comes sooner, and before any report.

        Returns:
            Quick failures here; whether one here has reported, one elsewhere has, and one
            elsewhere runs.
        """
        rows = self.db.execute(
            "SELECT COUNT(*) FILTER (WHERE a.host = %(node)s AND a.outcome = ANY(%(failures)s) "
            "AND a.job = %(job)s AND a.first_step IS NULL "
            "AND a.ended - a.claimed < %(quick_s)s * interval '1 second'), "
            "COALESCE(bool_or(a.host = %(node)s AND a.first_step IS NOT NULL), FALSE), "
            "COALESCE(bool_or(a.host <> %(node)s AND a.first_step IS NOT NULL), FALSE), "
            "COALESCE(bool_or(a.host <> %(node)s AND a.outcome IS NULL), FALSE) "
            "FROM sweep_attempt a JOIN trials t USING (trial_id) WHERE t.study_id = %(study)s",
            {
                "node": node,
                "job": job,
                "quick_s": quick_s,
                "failures": [*USER_FAILURES, GIVEN_BACK],
                "study": self.study_id,
            },
        )
        quick, here, elsewhere, live = rows[0]
        return int(quick), bool(here), bool(elsewhere), bool(live)

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

    def attempts_at(self, number: int) -> list[Attempt]:
        """Return the attempts of the trial with this number, oldest first."""
        return self._attempts("t.number = %s", (number,))

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
            f"a.exit_code, a.checkpoint, a.resumed_from, a.slot, {READING_COLUMNS} "
            "FROM sweep_attempt a JOIN trials t "
            f"USING (trial_id) WHERE t.study_id = %s AND {condition} "
            "ORDER BY t.number, a.number",
            (self.study_id, *values),
        )
        return [
            replace(Attempt(*row), journal=journal or "", notes=read_notes(notes))
            for *row, journal, notes in rows
        ]

    def lineage(self, trial_id: int, name: str) -> list[tuple[int, float]]:
        """Return one metric's (step, value) pairs that count, ascending in step.

        An attempt's steps count up to the first step at which a later one reported the metric.
        """
        rows = self.db.execute(
            f"SELECT m.step, m.value FROM {_LINEAGE} ORDER BY m.step, m.attempt",
            {"trial": trial_id, "name": name},
        )
        return sorted({int(step): float(value) for step, value in rows}.items())

    def summary(self, trial_id: int, name: str, at: str, direction: str) -> float | None:
        """Return what ``summarise`` gives for a metric's lineage, however long that is."""
        best = "MAX" if direction == "maximize" else "MIN"
        rows = self.db.execute(
            "WITH line AS MATERIALIZED (SELECT DISTINCT ON (m.step) m.step, m.value "
            f"FROM {_LINEAGE} ORDER BY m.step DESC, m.attempt DESC) "
            "SELECT (SELECT value FROM line ORDER BY step DESC LIMIT 1), "
            f"(SELECT {best}(value) FROM line WHERE value NOT IN ('NaN', 'Infinity', '-Infinity'))",
            {"trial": trial_id, "name": name},
        )
        last, found = rows[0]
        chosen = last if at == "last" or found is None else found
        return None if chosen is None else float(chosen)

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

    def own_checkpoint(
        self, token: str, checkpoint: tuple[str, str | None]
    ) -> tuple[str, str | None]:
        """Return what an attempt left; where that is a copy of what it began with, that itself."""
        rows = self.db.execute(
            "SELECT resumed_from FROM sweep_attempt WHERE token = %s AND resumed_sha256 = %s",
            (token, checkpoint[1]),
        )
        return (str(rows[0][0]), checkpoint[1]) if rows else checkpoint

    def failed_resumes(self, trial_id: int) -> frozenset[str]:
        """Return the hashes of a trial's checkpoints from which an attempt could not go on."""
        rows = self.db.execute(
            "SELECT resumed_sha256 FROM sweep_attempt "
            "WHERE trial_id = %s AND outcome = %s AND resumed_sha256 IS NOT NULL AND number > "
            "(SELECT COALESCE(MAX(number), 0) FROM sweep_attempt WHERE trial_id = %s "
            "AND outcome = ANY(%s))",
            (trial_id, outcomes.RESUME_FAILED, trial_id, list(BEGUN_ANEW)),
        )
        return frozenset(str(row[0]) for row in rows)

    def last_step(self, trial_id: int, attempts: Sequence[int], until_s: float) -> int | None:
        """Return the step of the last report that attempts made until a time, or None.

        Args:
            until_s: By the clock of the machine that trained, in seconds since 1970.
        """
        rows = self.db.execute(
            "SELECT step FROM sweep_metric WHERE trial_id = %s AND attempt = ANY(%s) "
            "AND logged <= %s ORDER BY logged DESC, attempt DESC, step DESC LIMIT 1",
            (trial_id, list(attempts), until_s),
        )
        return int(rows[0][0]) if rows else None

    def failed_numbers(self, limit: int) -> list[tuple[int, float]]:
        """Return the trials that have failed last, with how many days ago; the latest first."""
        rows = self.db.execute(
            "SELECT t.number, EXTRACT(EPOCH FROM (clock_timestamp() AT TIME ZONE 'UTC') "
            "- t.datetime_complete)::float8 / 86400 FROM trials t "
            "JOIN trial_user_attributes u ON u.trial_id = t.trial_id AND u.key = %s "
            "WHERE t.study_id = %s AND t.state = 'FAIL' AND t.datetime_complete IS NOT NULL "
            "AND u.value_json::json ->> 'state' = %s "
            "ORDER BY t.datetime_complete DESC, t.number LIMIT %s",
            (END, self.study_id, outcomes.FAILED, limit),
        )
        return [(int(number), float(days)) for number, days in rows]

    def count_states(self) -> dict[str, int]:
        """Return how many trials Optuna has in each of its states."""
        rows = self.db.execute(
            "SELECT state::text, COUNT(*) FROM trials WHERE study_id = %s GROUP BY state",
            (self.study_id,),
        )
        return {state: int(count) for state, count in rows}

    def unfinished(self) -> int:
        """Return how many trials are not final, and are the study's to run.

        One that somebody else has asked for (a notebook, by Optuna's API) runs without an attempt
        of ours: nobody here can end it, and no study waits for it.
        """
        rows = self.db.execute(
            "SELECT COUNT(*) FROM trials t WHERE t.study_id = %s AND (t.state = 'WAITING' OR "
            "(t.state = 'RUNNING' AND EXISTS (SELECT 1 FROM sweep_attempt a "
            "WHERE a.trial_id = t.trial_id)))",
            (self.study_id,),
        )
        return int(rows[0][0])

    def count_untold(self) -> int:
        """Return how many trials run that somebody else has asked for."""
        rows = self.db.execute(
            "SELECT COUNT(*) FROM trials t WHERE t.study_id = %s AND t.state = 'RUNNING' AND "
            "NOT EXISTS (SELECT 1 FROM sweep_attempt a WHERE a.trial_id = t.trial_id)",
            (self.study_id,),
        )
        return int(rows[0][0])

    def trained_for(self, trial_id: int) -> tuple[int, int] | None:
        """Return (number, id) of the trial whose result a trial has that did not train itself;
        None where it did."""
        sql = f"SELECT r.* FROM trials t CROSS JOIN LATERAL ({REUSED_SQL}) r WHERE t.trial_id = %s"
        rows = self.db.execute(sql, (trial_id,))
        return (int(rows[0][0]), int(rows[0][1])) if rows else None

    def best_numbers(
        self, limit: int, *, infeasible: bool = False, reused: bool = True
    ) -> list[int]:
        """Return the numbers of the best complete trials, best first (one objective).

        Those without a finite value have no rank.

        Args:
            infeasible: Also of those that break the study's constraints, after the others.
            reused: Also of those that have another's result, and never trained.
        """
        order = "DESC" if self.study.objective.direction == "maximize" else "ASC"
        keeps = order_by = ""
        if self.study.constraints:
            order_by = f"{VIOLATION_SQL}, "
            keeps = "" if infeasible else f"AND {VIOLATION_SQL} = 0 "
        if not reused:
            keeps += f"AND NOT EXISTS ({REUSED_SQL}) "
        rows = self.db.execute(
            "SELECT t.number FROM trials t JOIN trial_values v USING (trial_id) "
            f"WHERE t.study_id = %s AND t.state = 'COMPLETE' AND v.objective = 0 "
            f"AND v.value_type = 'FINITE' {keeps}"
            f"ORDER BY {order_by}v.value {order}, t.number LIMIT %s",
            (self.study_id, limit),
        )
        return [int(row[0]) for row in rows]


def stale(token: str) -> StaleAttempt:
    return StaleAttempt(
        f"The attempt {token[:8]}… no longer owns its trial; nothing was written.",
        "Another attempt has taken over, or the study was changed; this one ends.",
    )


def clean(text: str, encoding: str = "utf-8") -> str:
    """Return text that a database of this encoding can hold: also without NUL and half characters.

    Such stand in names of files, for one, whose bytes are no text.
    """
    whole = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return whole.encode("utf-8", "replace").decode().encode(encoding, "replace").decode(encoding)
