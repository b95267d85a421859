"""Successive halving by promotion: trials pause at a rung, and the best go on later.

Asynchronous, after ASHA (Li and others 2020, "A system for massively parallel hyperparameter
tuning", algorithm 2): whoever looks for work takes the best paused trial of the highest rung that
is among its rung's best 1/η, or else starts a new one, so that nothing waits for a rung to fill. A
paused trial keeps its checkpoint and goes on from it, on any task.

What a trial reached lies in its system attributes: ``RUNG`` K is the objective at rung K, and
``PROMOTED`` the highest rung that it may leave behind. Imports no Optuna.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.core.attributes import PROMOTED, RUNG
from sweep.core.outcomes import PAUSED
from sweep.core.study import Study
from sweep.core.trial import summarise
from sweep.storage import locks, trial_rows
from sweep.storage.connection import Database

NAME = "promotion"

LAST_SQL = """(SELECT a.outcome FROM sweep_attempt a WHERE a.trial_id = t.trial_id
  ORDER BY a.number DESC LIMIT 1)"""


def promotes(study: Study) -> bool:
    """Tell whether a study's trials pause at rungs."""
    return study.pruner.type == NAME


def rungs(study: Study) -> list[int]:
    """Return the resource of each rung, ascending: min_resource times powers of the factor.

    A rung at which trials are complete, or beyond, is none.
    """
    options = study.pruner.options
    most, factor = int(options["max_resource"]), int(options.get("reduction_factor", 3))
    first = options.get("min_resource", "auto")
    resource = max(3, math.ceil(most / 10)) if first == "auto" else int(first)
    found = []
    while resource < most:
        found.append(resource)
        resource *= factor
    return found


def factor_of(study: Study) -> int:
    return int(study.pruner.options.get("reduction_factor", 3))


def judge(db: Database, study_id: int, study: Study, trial_id: int) -> bool:
    """Tell whether a running trial is to pause now, at the rung that it has reached.

    Notes its value at each rung that it has newly reached. Inside a transaction of whoever owns
    the trial.
    """
    steps = {
        int(step): _number(value, kind)
        for step, value, kind in db.execute(
            "SELECT step, intermediate_value, intermediate_value_type::text "
            "FROM trial_intermediate_values WHERE trial_id = %s",
            (trial_id,),
        )
    }
    attributes = _read_attributes(db, trial_id)
    reached = -1
    for rung, resource in enumerate(rungs(study)):
        at = min((step for step in steps if step >= resource), default=None)
        if at is None:
            break
        reached = rung
        if RUNG + str(rung) not in attributes:
            series = [(step, value) for step, value in steps.items() if step <= at]
            value = summarise(series, study.objective.at, study.objective.direction)
            finite = value if value is not None and math.isfinite(value) else None
            _write_attribute(db, trial_id, RUNG + str(rung), finite)
    if reached <= attributes.get(PROMOTED, -1):
        return False
    locks.hold(db, locks.PROMOTE, study_id)
    places = [found for found, _, _ in _best_of_rung(db, study_id, study, reached)]
    if trial_id not in places:
        return True
    _write_attribute(db, trial_id, PROMOTED, reached)
    return False


def promote(db: Database, study_id: int, study: Study) -> int | None:
    """Choose a paused trial that goes on now and note it; return its id, or None.

    Inside the transaction of a claim: promotions take place one after another.
    """
    locks.hold(db, locks.PROMOTE, study_id)
    for rung in reversed(range(len(rungs(study)))):
        for trial_id, outcome, promoted in _best_of_rung(db, study_id, study, rung):
            if outcome == PAUSED and promoted < rung and _holds_open(db, trial_id):
                _write_attribute(db, trial_id, PROMOTED, rung)
                return trial_id
    found = _last_chance(db, study_id, study)
    if found is None or not _holds_open(db, found[0]):
        return None
    trial_id, rung = found
    _write_attribute(db, trial_id, PROMOTED, rung)
    return trial_id


def _holds_open(db: Database, trial_id: int) -> bool:
    """Tell whether a trial is not final, and keep it so until the transaction has ended.

    One that was pruned at its rung is final: a study that goes on with more trials has it among the
    members of the rung, and does not take it up. One that waits may just have been ended.
    """
    rows = db.execute(
        "SELECT 1 FROM trials WHERE trial_id = %s AND state = 'RUNNING' FOR UPDATE", (trial_id,)
    )
    return bool(rows)


def unpromoted(db: Database, study_id: int, study: Study) -> list[int]:
    """Return the paused trials, if nothing can promote one of them any more; inside a transaction.

    That is once every other trial is final, and the best of each rung have gone on.
    """
    locks.hold(db, locks.PROMOTE, study_id)
    members = _members(db, study_id)
    if any(m.state == "WAITING" or (m.is_open and m.outcome != PAUSED) for m in members):
        return []
    if _last_chance(db, study_id, study, members) is not None:
        return []
    return [m.trial_id for m in members if m.is_open]


def read_paused(db: Database, study_id: int) -> set[int]:
    """Return the ids of the trials that wait at a rung."""
    rows = db.execute(
        "SELECT t.trial_id FROM trials t WHERE t.study_id = %s AND t.state = 'RUNNING' "
        f"AND {LAST_SQL} = '{PAUSED}'",
        (study_id,),
    )
    return {int(row[0]) for row in rows}


def count_paused(db: Database, study_id: int) -> int:
    """Return how many trials wait at a rung."""
    return len(read_paused(db, study_id))


def worth_tasks(db: Database, study_id: int, study: Study, left: int) -> int:
    """Return for how many trials tasks are worth having: of paused ones, those that may go on."""
    if not promotes(study) or not left:
        return left
    paused = count_paused(db, study_id)
    return max(1, left - paused + paused // factor_of(study))


def _best_of_rung(
    db: Database, study_id: int, study: Study, rung: int
) -> list[tuple[int, str | None, int]]:
    """Return (trial id, last outcome, promoted) of a rung's best 1/η, best first.

    Failed and cancelled trials do not count. Of equals the older one is better.
    """
    order = "DESC" if study.objective.direction == "maximize" else "ASC"
    rows = db.execute(
        f"SELECT t.trial_id, {LAST_SQL}, COALESCE((SELECT p.value_json::int FROM "
        "trial_system_attributes p WHERE p.trial_id = t.trial_id AND p.key = %(promoted)s), -1) "
        "FROM (SELECT t.trial_id, row_number() OVER (ORDER BY NULLIF(s.value_json, 'null')::float8 "
        f"{order} NULLS LAST, t.trial_id) AS place, COUNT(*) OVER () AS members FROM trials t "
        "JOIN trial_system_attributes s USING (trial_id) WHERE t.study_id = %(study)s "
        "AND t.state <> 'FAIL' AND s.key = %(rung)s) t "
        "WHERE t.place <= t.members / %(factor)s ORDER BY t.place",
        {
            "study": study_id,
            "rung": f"{RUNG}{rung}",
            "promoted": PROMOTED,
            "factor": factor_of(study),
        },
    )
    return [(int(trial_id), outcome, int(promoted)) for trial_id, outcome, promoted in rows]


@dataclass(frozen=True)
class Member:
    """A trial that has not failed: its state, its last attempt's outcome, what it has reached."""

    trial_id: int
    state: str
    outcome: str | None
    promoted: int = -1
    values: Mapping[int, float | None] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.state == "RUNNING"


def _members(db: Database, study_id: int) -> list[Member]:
    rows = db.execute(
        f"SELECT t.trial_id, t.state::text, {LAST_SQL}, (SELECT json_object_agg(s.key, "
        "s.value_json)::text FROM trial_system_attributes s WHERE s.trial_id = t.trial_id "
        "AND (s.key LIKE %s OR s.key = %s)) FROM trials t WHERE t.study_id = %s "
        "AND t.state <> 'FAIL' AND (t.state <> 'RUNNING' OR EXISTS (SELECT 1 FROM sweep_attempt a "
        "WHERE a.trial_id = t.trial_id)) ORDER BY t.trial_id",
        (f"{RUNG}%", PROMOTED, study_id),
    )
    return [_member(*row) for row in rows]


def _member(trial_id: int, state: str, outcome: str | None, text: str | None) -> Member:
    found = {key: json.loads(value) for key, value in json.loads(text or "{}").items()}
    promoted = int(found.pop(PROMOTED, -1))
    values = {int(key.removeprefix(RUNG)): value for key, value in found.items()}
    return Member(trial_id, state, outcome, promoted, values)


def _last_chance(
    db: Database, study_id: int, study: Study, members: Sequence[Member] | None = None
) -> tuple[int, int] | None:
    """Return (trial id, rung) of a trial to promote because its rung gets no further members.

    Of so small a rung that 1/η of it is none, the best one goes on, or no trial of a small study
    would ever be complete.
    """
    waiting = db.execute(
        "SELECT 1 FROM trials WHERE study_id = %s AND state = 'WAITING' LIMIT 1", (study_id,)
    )
    if waiting:
        return None
    members = _members(db, study_id) if members is None else members
    return next(_chances(members, study), None)


def _chances(members: Sequence[Member], study: Study) -> Iterator[tuple[int, int]]:
    sign = -1.0 if study.objective.direction == "maximize" else 1.0

    def key(member: Member, rung: int) -> tuple[float, int]:
        value = member.values[rung]
        return (math.inf if value is None else sign * value, member.trial_id)

    for rung in range(len(rungs(study))):
        if any(m.is_open and m.outcome != PAUSED and rung not in m.values for m in members):
            return  # one that runs may yet reach it
        here = sorted((m for m in members if rung in m.values), key=lambda m: key(m, rung))
        best = here[: max(1, len(here) // factor_of(study))]
        chosen = [m for m in best if m.is_open and m.outcome == PAUSED and m.promoted < rung]
        yield from ((m.trial_id, rung) for m in chosen)


def _number(value: float | None, kind: str) -> float:
    if kind == "FINITE" and value is not None:
        return float(value)
    return {"INF_POS": math.inf, "INF_NEG": -math.inf}.get(kind, math.nan)


def _read_attributes(db: Database, trial_id: int) -> dict[str, Any]:
    rows = db.execute(
        "SELECT key, value_json FROM trial_system_attributes WHERE trial_id = %s "
        "AND (key LIKE %s OR key = %s)",
        (trial_id, f"{RUNG}%", PROMOTED),
    )
    return {key: json.loads(value) for key, value in rows}


def _write_attribute(db: Database, trial_id: int, key: str, value: Any) -> None:
    trial_rows.write_attribute(db, "system", [trial_id], key, value)
