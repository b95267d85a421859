"""What a live attempt writes: that it has started, that it lives, and what it reports.

One statement each, fenced: it takes the attempt's live row, and writes nothing without it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg2
import psycopg2.errors

from sweep.core.attributes import LEAVE
from sweep.core.study import Study
from sweep.core.trial import Reading, Report
from sweep.storage import promotion, pruner_unit, studies
from sweep.storage.attempts import REPLICATED_SQL, USED_SQL, Attempts, clean, stale
from sweep.storage.connection import Database
from sweep.storage.prepared import numbers
from sweep.storage.tables import LONGEST_STEP
from sweep.storage.trial_rows import stored_number

# ``attempt`` is the live row.
RECORD_SQL = """
WITH attempt AS (
  UPDATE sweep_attempt SET seen = clock_timestamp(),
    first_step = COALESCE(first_step, %(first)s::bigint){reading}
  WHERE token = %(token)s AND outcome IS NULL RETURNING trial_id, number
), metrics AS (
  INSERT INTO sweep_metric (trial_id, attempt, name, step, value, logged)
  SELECT a.trial_id, a.number, u.* FROM attempt a,
    unnest(%(names)s::text[], %(steps)s::bigint[], %(values)s::float8[], %(logged)s::float8[]) u
  ON CONFLICT (trial_id, attempt, name, step) DO UPDATE
  SET value = excluded.value, logged = excluded.logged
)
"""
# In the same statement as the reports: what is stored is not read again.
READING_SQL = ", journal = COALESCE(%(journal)s::text, journal), notes = %(notes)s::text"
UNSHOWN = (
    f"reports of steps above {LONGEST_STEP:,} are not in Optuna's own table, which holds 32 "
    "bits on this server: results are complete, but no pruner and no dashboard sees those steps"
)
# Optuna has intermediate values for one objective only.
OBJECTIVE_SQL = """
, objective AS (
  INSERT INTO trial_intermediate_values
    (trial_id, step, intermediate_value, intermediate_value_type)
  SELECT a.trial_id, u.step, u.value, u.kind::trialintermediatevaluetype FROM attempt a,
    unnest(%(objective_steps)s::bigint[], %(objective_values)s::float8[], %(kinds)s::text[])
      AS u(step, value, kind) {of_first}
  ON CONFLICT (trial_id, step) DO UPDATE SET intermediate_value = excluded.intermediate_value,
    intermediate_value_type = excluded.intermediate_value_type
)
"""
# A later attempt's first report of the objective cuts what earlier ones put there from that step
# on. Not the steps that are reported now: one statement cannot delete a row and insert it again.
# What the attempt had reported before is read as it was when the statement began.
CUT_SQL = """
, cut AS (
  DELETE FROM trial_intermediate_values i USING attempt a
  WHERE a.number > 1 AND NOT EXISTS (SELECT 1 FROM sweep_metric p
      WHERE p.trial_id = a.trial_id AND p.attempt = a.number AND p.name = %(objective)s::text)
    AND i.trial_id = a.trial_id AND i.step >= %(cut_from)s::bigint
    AND i.step <> ALL (%(objective_steps)s::bigint[]) {and_of_first}
)
"""
# Of a trial with several replicates pruners see the first one's curve.
_OF_FIRST = f"{REPLICATED_SQL} = 0"
LIVE_SQL = "SELECT 1 FROM attempt"
# What no further try stores: bytes or characters, a number, a length.
REFUSALS = (psycopg2.DataError, psycopg2.errors.ProgramLimitExceeded, UnicodeError, ValueError)


@dataclass(frozen=True)
class Wishes:
    """What is wanted of a live attempt.

    Attributes:
        state: The study's.
        cancel: Its trial is to be cancelled; now: without grace.
    """

    state: studies.StudyState
    cancel: bool = False
    now: bool = False

    @property
    def wants_leaving(self) -> bool:
        """Whether it is to leave, for whatever reason."""
        return self.cancel or self.state.wants_leaving


def _stored_reading(reading: Reading) -> dict[str, str | None]:
    # As JSON they are ASCII; half characters are escaped.
    notes = json.dumps([clean(note) for note in reading.notes]) if reading.notes else None
    return {"journal": clean(reading.position), "notes": notes}


class Reports(Attempts):
    """What live attempts write."""

    _cut = ""  # token of the attempt whose first report of the objective has been stored
    _began: tuple[str, float] = ("", 0.0)  # of an attempt: see _started_s
    _refused: dict[str, list[Any]]  # by token: how many values, and a sentence on the first
    _unshown = ""  # token of the attempt that has reported steps which Optuna's table cannot hold

    def __init__(self, db: Database, study_id: int, study: Study) -> None:
        super().__init__(db, study_id, study)
        self._refused = {}

    def started(self, token: str, process_group: int, resumed: tuple[str, str] | None) -> None:
        """Record the training's process group and the checkpoint that it goes on from.

        Raises:
            StaleAttempt: The attempt is over.
        """
        path, digest = resumed or (None, None)
        path = self.clean(path) if path else None
        self._touch(
            token,
            "process_group = %s, resumed_from = %s, resumed_sha256 = %s",
            (process_group, path, digest),
        )

    def touch(self, token: str) -> Wishes:
        """Say that the attempt lives, and return what is wanted of it.

        Raises:
            StaleAttempt: The attempt is over.
        """
        asked = self._touch(token)
        leave = json.loads(asked) if asked is not None else None
        now = isinstance(leave, dict) and leave.get("now") is True
        return Wishes(studies.read_state(self.db, self.study_id), leave is not None, now)

    def _touch(self, token: str, more: str = "", values: Sequence[Any] = ()) -> str | None:
        """Say that the attempt lives; return the wish that its trial be cancelled, or None."""
        more = f", {more}" if more else ""
        found = self.db.execute(
            f"UPDATE sweep_attempt a SET seen = clock_timestamp(){more} "
            "WHERE token = %s AND outcome IS NULL RETURNING (SELECT s.value_json FROM "
            "trial_system_attributes s WHERE s.trial_id = a.trial_id AND s.key = %s)",
            (*values, token, LEAVE),
        )
        if not found:
            raise stale(token)
        return found[0][0]  # type: ignore[no-any-return]

    def record(self, token: str, reports: Sequence[Report], reading: Reading | None = None) -> None:
        """Store reports of a live attempt; the objective goes to Optuna's table as well.

        The first step at which an attempt reports it cuts what earlier attempts put there from that
        step on. One statement, which may be repeated.

        Args:
            reports: Some thousand at most.
            reading: Up to where they were read.

        Raises:
            StaleAttempt: The attempt is over; nothing was stored.
        """
        if any(report.step > self.tables.longest_step for report in reports):
            self._unshown = token
        if reading is not None and self._unshown == token:
            reading = replace(reading, notes=(*reading.notes, UNSHOWN))
        reading = self._with_refused(token, reading)
        if not reports:
            live = self._note_reading(token, reading)
        else:
            try:
                live = self._record(token, reports, reading)
            except REFUSALS as error:
                if self.db.in_transaction:
                    raise
                live = self._record_apart(token, reports, reading, error)
        if not live:
            raise stale(token)

    def _record_apart(
        self, token: str, reports: Sequence[Report], reading: Reading | None, error: Exception
    ) -> list[tuple[Any, ...]]:
        """Store what the database takes of reports that it refuses together, and note the rest."""
        if len(reports) > 1:
            middle = len(reports) // 2
            parts = [reports[:middle], reports[middle:]]
        elif len(reports[0].metrics) > 1:
            parts = [
                [replace(reports[0], metrics={name: value})]
                for name, value in reports[0].metrics.items()
            ]
        else:
            (name,) = reports[0].metrics or ("",)
            why = str(error).strip().splitlines()[0]
            note = f"{name!r} at step {reports[0].step} was refused by the database: {why}"
            found = self._refused.setdefault(token, [0, note])
            found[0] += 1
            return self._note_reading(token, self._with_refused(token, reading))
        live: list[tuple[Any, ...]] = []
        for part in parts:
            try:
                live = self._record(token, part, None)
            except REFUSALS as refused:
                live = self._record_apart(token, part, None, refused)
            if not live:
                return live
        return self._note_reading(token, self._with_refused(token, reading))

    def _with_refused(self, token: str, reading: Reading | None) -> Reading | None:
        """Add what the database has refused of an attempt's reports to what is noted of it."""
        count, first = self._refused.get(token, (0, ""))
        if reading is None or not count:
            return reading
        note = first if count == 1 else f"{count:,} values were not stored, the first: {first}"
        return replace(reading, notes=(*reading.notes, note))

    def _note_reading(self, token: str, reading: Reading | None) -> list[tuple[Any, ...]]:
        if reading is None or not self.tables.keep_readings:
            return self.db.execute(
                "SELECT 1 FROM sweep_attempt WHERE token = %s AND outcome IS NULL FOR SHARE",
                (token,),
            )
        return self.db.execute(
            f"UPDATE sweep_attempt SET seen = clock_timestamp(){READING_SQL} "
            "WHERE token = %(token)s AND outcome IS NULL RETURNING 1",
            {"token": token, **_stored_reading(reading)},
        )

    def _record(
        self, token: str, reports: Sequence[Report], reading: Reading | None
    ) -> list[tuple[Any, ...]]:
        keeps = reading is not None and self.tables.keep_readings
        record_sql = RECORD_SQL.format(reading=READING_SQL if keeps else "")
        latest = {(r.step, name): (v, r.time_s) for r in reports for name, v in r.metrics.items()}
        params: dict[str, Any] = {
            "token": token,
            "first": reports[0].step,
            "names": [name for _, name in latest],
            "steps": numbers([step for step, _ in latest]),
            "values": numbers([value for value, _ in latest.values()]),
            "logged": numbers([logged for _, logged in latest.values()]),
        }
        if reading is not None and keeps:
            params |= _stored_reading(reading)
        if self.study.is_multi_objective:
            return self.db.execute_prepared(record_sql + LIVE_SQL, params)
        steps = self.objective_steps(token, reports)
        stored = [stored_number(value) for value in steps.values()]
        those = [r for r in reports if self.study.objective.metric in r.metrics]
        params |= {
            "objective": self.study.objective.metric,
            "cut_from": pruner_unit.first(those, self._unit, self._started_s(token)),
            "objective_steps": numbers(list(steps)),
            "objective_values": numbers([value for value, _ in stored]),
            "kinds": [kind for _, kind in stored],
        }
        is_several = self.study.is_replicated
        objective_sql = OBJECTIVE_SQL.format(of_first=f"WHERE {_OF_FIRST}" if is_several else "")
        if token == self._cut or not those:
            return self.db.execute_prepared(record_sql + objective_sql + LIVE_SQL, params)
        cut_sql = CUT_SQL.format(and_of_first=f"AND {_OF_FIRST}" if is_several else "")
        live = self.db.execute_prepared(record_sql + objective_sql + cut_sql + LIVE_SQL, params)
        # Inside a transaction this may still be undone: then the next try must cut again.
        self._cut = token if live and not self.db.in_transaction else ""
        return live

    def objective_steps(self, token: str, reports: Sequence[Report]) -> dict[int, float]:
        """Return what Optuna's table takes of an attempt's reports: the objective's values by step,
        or by what else the pruner counts (see ``resource``)."""
        values = pruner_unit.keyed(
            reports, self.study.objective.metric, self._unit, self._started_s(token)
        )
        most = self.tables.longest_step
        return {step: float(value) for step, value in values.items() if 0 <= step <= most}

    @property
    def _unit(self) -> str:
        return str(self.study.pruner.options.get("resource", pruner_unit.STEPS))

    def _started_s(self, token: str) -> float:
        """Return when a trial began, moved by what its earlier attempts used, where that counts."""
        if self._unit != pruner_unit.SECONDS:
            return 0.0
        if self._began[0] != token:
            rows = self.db.execute(
                f"SELECT EXTRACT(EPOCH FROM a.claimed)::float8 - {USED_SQL} "
                "FROM sweep_attempt a WHERE a.token = %s",
                (token,),
            )
            if not rows:
                raise stale(token)
            self._began = (token, float(rows[0][0]))
        return self._began[1]

    def judge_rung(self, token: str, trial_id: int) -> bool:
        """Tell whether a trial is to pause at the rung that it has reached; inside ``db.retry``.

        Raises:
            StaleAttempt: The attempt is over.
        """
        live = self.db.execute(
            "SELECT 1 FROM sweep_attempt WHERE token = %s AND outcome IS NULL FOR SHARE", (token,)
        )
        if not live:
            raise stale(token)
        return promotion.judge(self.db, self.study_id, self.study, trial_id)
