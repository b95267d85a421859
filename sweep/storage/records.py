"""Reading whole studies back: trials as records, and how many are in which state.

The number of statements does not depend on the number of trials. Attempts are read before trials:
an attempt and its trial end in one transaction, so a trial that a later statement shows open was
open when its attempts were read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from sweep.core import outcomes, pareto
from sweep.core.attributes import CONSTRAINTS, END, ENERGY, GPU_SECONDS, REPLICATES, RETRIED
from sweep.core.outcomes import USER_FAILURES
from sweep.core.study import Study
from sweep.core.trial import Attempt, Replicate, TakenBack, TrialRecord, trial_seed
from sweep.storage import energy, gpu_shares, replicates
from sweep.storage.connection import Database
from sweep.storage.series import LINEAGE_SQL
from sweep.storage.tables import READING_COLUMNS, read_notes
from sweep.storage.trial_rows import read_number

# An open trial is what its last attempt makes of it: none, or a live one, and it runs; a failure of
# the user's own code, and it has failed (launch gives it back once the code is corrected); anything
# else, and it waits to go on. ``shown_state`` says the same in Python.
_STATE_SQL = f"""
CASE t.state::text WHEN 'WAITING' THEN 'waiting' WHEN 'COMPLETE' THEN 'complete'
  WHEN 'PRUNED' THEN 'pruned'
  WHEN 'FAIL' THEN CASE WHEN (SELECT u.value_json::json ->> 'state' FROM trial_user_attributes u
    WHERE u.trial_id = t.trial_id AND u.key = '{END}') = 'cancelled'
    THEN 'cancelled' ELSE 'failed' END
  ELSE (SELECT CASE WHEN a.outcome IS NULL THEN 'running' WHEN a.outcome = ANY(%(user)s)
    THEN 'failed' ELSE 'waiting' END FROM (SELECT (SELECT b.outcome FROM sweep_attempt b
      WHERE b.trial_id = t.trial_id ORDER BY b.number DESC LIMIT 1) AS outcome) a) END
"""

_CHOSEN = "t.study_id = %(study)s AND (%(numbers)s::int[] IS NULL OR t.number = ANY(%(numbers)s))"
_WITH_VALUES = (outcomes.COMPLETE, outcomes.PRUNED)


def shown_state(optuna_state: str, last: Attempt | None, end: Mapping[str, Any]) -> str:
    """Return the word that users see for a trial.

    Args:
        optuna_state: WAITING, RUNNING, COMPLETE, PRUNED or FAIL.
        last: The trial's last attempt, or None.
        end: What was noted when sweep made the trial final; empty for a notebook's trial.
    """
    if optuna_state == "FAIL":
        return outcomes.CANCELLED if end.get("state") == outcomes.CANCELLED else outcomes.FAILED
    if optuna_state != "RUNNING":
        return optuna_state.lower()
    if last is None or last.outcome is None:
        return outcomes.RUNNING
    return outcomes.FAILED if last.outcome in USER_FAILURES else outcomes.WAITING


def count(records: Iterable[TrialRecord]) -> dict[str, int]:
    """Return how many records are in each of the six states."""
    found = Counter(record.state for record in records)
    return {state: found[state] for state in outcomes.STATES}


def count_states(db: Database, study_id: int) -> dict[str, int]:
    """Return how many trials are in each of the six states, by one statement."""
    rows = db.execute(
        f"SELECT {_STATE_SQL} AS shown, COUNT(*) FROM trials t WHERE t.study_id = %(study)s "
        "GROUP BY shown",
        {"study": study_id, "user": list(USER_FAILURES)},
    )
    found = {str(state): int(number) for state, number in rows}
    return {state: found.get(state, 0) for state in outcomes.STATES}


def count_all(db: Database) -> dict[int, dict[str, int]]:
    """Return the same of every study in the database, by its id."""
    rows = db.execute(
        f"SELECT t.study_id, {_STATE_SQL} AS shown, COUNT(*) FROM trials t "
        "GROUP BY t.study_id, shown",
        {"user": list(USER_FAILURES)},
    )
    found: dict[int, dict[str, int]] = {}
    for study_id, state, number in rows:
        found.setdefault(study_id, dict.fromkeys(outcomes.STATES, 0))[str(state)] = int(number)
    return found


def read_trials(
    db: Database,
    study_id: int,
    study: Study,
    *,
    metrics: bool = False,
    numbers: Sequence[int] | None = None,
) -> list[TrialRecord]:
    """Return a study's trials, by number, in five statements (six with metrics).

    Args:
        metrics: Also read every metric's lineage: an attempt's steps count up to the first step
            at which a later attempt reported that metric.
        numbers: Only these trials; all when None.

    Raises:
        DatabaseUnavailable: The database does not answer at present.
    """
    chosen = {"study": study_id, "numbers": list(numbers) if numbers is not None else None}
    attempts = _read_attempts(db, chosen)
    trials = db.execute(
        "SELECT t.trial_id, t.number, t.state::text, t.datetime_start, t.datetime_complete "
        f"FROM trials t WHERE {_CHOSEN} ORDER BY t.number, t.trial_id",
        chosen,
    )
    values = _read_values(db, chosen)
    ends: dict[int, dict[str, Any]] = {}
    used: dict[int, dict[int, energy.Energy]] = {}
    held: dict[int, dict[int, float]] = {}
    retries: dict[int, tuple[TakenBack, ...]] = {}
    several: dict[int, tuple[Replicate, ...]] = {}
    for trial_id, key, text in db.execute(
        "SELECT u.trial_id, u.key, u.value_json FROM trial_user_attributes u JOIN trials t "
        f"USING (trial_id) WHERE u.key IN ('{END}', '{ENERGY}', '{REPLICATES}', '{RETRIED}', "
        f"'{GPU_SECONDS}') AND {_CHOSEN}",
        chosen,
    ):
        if key == END:
            ends[trial_id] = _end(text)
        elif key == RETRIED:
            retries[trial_id] = read_retries(text)
        elif key == REPLICATES:
            several[trial_id] = replicates.parse(text)
        elif key == GPU_SECONDS:
            held[trial_id] = gpu_shares.parse(text)
        else:
            used[trial_id] = energy.parse(text)
    params = _read_params(db, chosen, study)
    broken = read_violations(db, study_id, numbers) if study.constraints else {}
    series = _read_metrics(db, chosen) if metrics else {}
    records = []
    for trial_id, number, optuna_state, started, ended in trials:
        tried = _with_energy(attempts.get(trial_id, []), used.get(trial_id, {}))
        if trial_id in held:
            tried = [replace(a, gpu_s=held[trial_id].get(a.number)) for a in tried]
        last = tried[-1] if tried else None
        end = ends.get(trial_id, {})
        state = shown_state(optuna_state, last, end)
        done = several.get(trial_id, ())
        started_utc, ended_utc = utc(started), utc(ended)
        if tried:
            started_utc = tried[0].claimed
        records.append(
            TrialRecord(
                trial_id=trial_id,
                number=number,
                state=state,
                values=values.get(trial_id, ()) if state in _WITH_VALUES else (),
                params=params.get(trial_id, {}),
                seed=done[-1].seed if done else trial_seed(study.seed, number),
                reason=_reason(state, optuna_state, last, end),
                started=started_utc,
                ended=ended_utc,
                duration_s=_duration_s(tried, started_utc, ended_utc),
                attempts=tuple(tried),
                metrics=series.get(trial_id, {}),
                violation=broken.get(number),
                retries=retries.get(trial_id, ()),
                replicates=done,
            )
        )
    return records


def _read_attempts(db: Database, chosen: Mapping[str, Any]) -> dict[int, list[Attempt]]:
    rows = db.execute(
        "SELECT a.trial_id, t.number, a.number, a.token, a.job, a.array_index, a.host, "
        "a.process_group, a.claimed, a.seen, a.ended, a.first_step, a.outcome, a.reason, "
        f"a.exit_code, a.checkpoint, a.resumed_from, {READING_COLUMNS} "
        "FROM sweep_attempt a JOIN trials t "
        f"USING (trial_id) WHERE {_CHOSEN} ORDER BY a.number",
        chosen,
    )
    found: dict[int, list[Attempt]] = {}
    for *row, _, notes in rows:
        attempt = replace(Attempt(*row), notes=read_notes(notes))
        found.setdefault(attempt.trial_id, []).append(attempt)
    return found


def _with_energy(attempts: list[Attempt], used: Mapping[int, energy.Energy]) -> list[Attempt]:
    if not used:
        return attempts
    return [
        replace(a, energy_j=used[a.number].joules, energy_by=used[a.number].by)
        if a.number in used
        else a
        for a in attempts
    ]


def read_violations(
    db: Database, study_id: int, numbers: Sequence[int] | None = None
) -> dict[int, float]:
    """Return by how much trials break the study's constraints, by number, where that is known."""
    lists = read_violation_lists(db, study_id, numbers)
    return {number: pareto.total(found) for number, found in lists.items()}


def read_violation_lists(
    db: Database, study_id: int, numbers: Sequence[int] | None = None
) -> dict[int, list[float]]:
    """Return by how much trials break each bound of the constraints, by number, where known."""
    rows = db.execute(
        "SELECT t.number, s.value_json FROM trials t JOIN trial_system_attributes s "
        f"USING (trial_id) WHERE s.key = '{CONSTRAINTS}' AND {_CHOSEN}",
        {"study": study_id, "numbers": list(numbers) if numbers is not None else None},
    )
    return {int(number): json.loads(text) for number, text in rows}


def _read_values(db: Database, chosen: Mapping[str, Any]) -> dict[int, tuple[float, ...]]:
    rows = db.execute(
        "SELECT v.trial_id, v.value, v.value_type::text FROM trial_values v "
        f"JOIN trials t USING (trial_id) WHERE {_CHOSEN} ORDER BY v.objective",
        chosen,
    )
    found: dict[int, tuple[float, ...]] = {}
    for trial_id, value, kind in rows:
        found[trial_id] = (*found.get(trial_id, ()), read_number(value, kind))
    return found


def _read_params(
    db: Database, chosen: Mapping[str, Any], study: Study
) -> dict[int, dict[str, Any]]:
    """Return parameter values as training got them, in declared order.

    One row for each parameter and distribution, not for each value: at 100,000 trials most of the
    time would go into reading the same distribution again.
    """
    rows = db.execute(
        "SELECT p.param_name, p.distribution_json, array_agg(p.trial_id), "
        "array_agg(p.param_value) FROM trial_params p JOIN trials t USING (trial_id) "
        f"WHERE {_CHOSEN} GROUP BY p.param_name, p.distribution_json",
        chosen,
    )
    place = {name: index for index, name in enumerate(study.space.names())}
    rows.sort(key=lambda row: (place.get(row[0], len(place)), row[0]))
    found: dict[int, dict[str, Any]] = {}
    for name, distribution, trial_ids, stored in rows:
        for trial_id, value in zip(
            trial_ids, _converted(name, distribution, stored, study), strict=True
        ):
            found.setdefault(trial_id, {})[name] = value
    return found


def _converted(
    name: str, distribution_json: str, stored: Sequence[float], study: Study
) -> list[Any]:
    distribution = json.loads(distribution_json)
    if distribution["name"] == "CategoricalDistribution":
        choices = distribution["attributes"]["choices"]
        values = [study.space.from_optuna({name: choice})[name] for choice in choices]
        return [values[int(index)] for index in stored]
    if distribution["name"].startswith("Int"):
        return [int(value) for value in stored]
    return [float(value) for value in stored]


def _read_metrics(
    db: Database, chosen: Mapping[str, Any]
) -> dict[int, dict[str, list[tuple[int, float]]]]:
    order = "ORDER BY m.step, m.attempt"
    rows = db.execute(
        f"SELECT m.trial_id, m.name, array_agg(m.step {order}), array_agg(m.value {order}) "
        f"FROM {LINEAGE_SQL} GROUP BY m.trial_id, m.name ORDER BY m.name",
        {**chosen, "names": None},
    )
    found: dict[int, dict[str, list[tuple[int, float]]]] = {}
    for trial_id, name, steps, values in rows:
        pairs = dict(zip(steps, map(float, values), strict=True))
        found.setdefault(trial_id, {})[name] = list(pairs.items())
    return found


def _end(text: str) -> dict[str, Any]:
    """Return the note on a trial's end; a notebook may have put anything under our key."""
    note = json.loads(text)
    return note if isinstance(note, dict) else {}


def read_retries(text: str) -> tuple[TakenBack, ...]:
    """Return what a trial's attribute says; a notebook may have put anything under our key."""
    found = json.loads(text)
    if not isinstance(found, list):
        return ()
    return tuple(_retry(one) for one in found if isinstance(one, Mapping) and "state" in one)


def _retry(found: Mapping[str, object]) -> TakenBack:
    values = found.get("values")
    return TakenBack(
        attempt=int(str(found.get("attempt", 0))),
        at=str(found.get("at", "")),
        state=str(found["state"]),
        reason=str(found.get("reason", "")),
        values=tuple(float(value) for value in values) if isinstance(values, list) else (),
        resuming=found.get("resuming") is True,
    )


def _reason(state: str, optuna_state: str, last: Attempt | None, end: Mapping[str, Any]) -> str:
    if state == outcomes.COMPLETE:
        return ""
    if optuna_state in ("FAIL", "PRUNED"):
        return str(end.get("reason") or end.get("outcome") or "")
    if last is not None and last.outcome is not None:
        return last.reason or last.outcome
    return ""


def utc(naive: datetime | None) -> datetime | None:
    """Return a time of Optuna's tables with its zone: they hold UTC without saying so."""
    return naive.replace(tzinfo=timezone.utc) if naive is not None else None


def _duration_s(
    attempts: Sequence[Attempt], started: datetime | None, ended: datetime | None
) -> float | None:
    if attempts:
        return sum(((a.ended or a.seen) - a.claimed).total_seconds() for a in attempts)
    if started is not None and ended is not None:
        return (ended - started).total_seconds()
    return None
