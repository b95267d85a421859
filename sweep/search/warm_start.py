"""What a study's sampler learns from an earlier one: its trials, as far as they fit the space.

They are copied when the study is made, so that what is proposed later depends on nothing else.
They are none of the study's trials: N does not count them, and no ranking shows them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweep.core import outcomes, pareto
from sweep.core.attributes import CONSTRAINTS, WARM_START
from sweep.core.errors import InputError, closest
from sweep.core.space import to_optuna
from sweep.core.study import Study
from sweep.core.trial import TrialRecord, mean_bounded
from sweep.search.valid import Where
from sweep.storage import records, series, studies
from sweep.storage.connection import Database

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

MOST = 1000  # newest trials of the earlier study; more make proposals slow and no better


@dataclass(frozen=True)
class EarlierTrials:
    """The earlier study's trials that fit, and how many do not, in ``left_out``; of those that
    would fit the space how many break this study's relations, in ``breaking``.
    """

    trials: Sequence[Mapping[str, Any]]
    left_out: int
    breaking: int = 0

    def describe(self, study: Study) -> str:
        """Return in words what the study starts with."""
        what = "this space and its constraints" if study.constraints else "this space"
        rest = f"; {self.left_out} do not fit {what}" if self.left_out else ""
        rest += f"; {self.breaking} break where" if self.breaking else ""
        return f"the sampler starts with {len(self.trials)} trials of {study.warm_start}{rest}"


def reconcile(
    study: Study,
    before: Study,
    earlier: Sequence[TrialRecord],
    broken: Mapping[int, Sequence[float]] | None = None,
) -> EarlierTrials:
    """Return an earlier study's complete trials in terms of this one's space.

    A parameter that this space lacks is dropped; one that the earlier study held fixed has that
    value. A trial that lacks a value which this space needs, or has one outside of it, is left out,
    and so is one without a finite result, of which this study's constraints are not known, or which
    breaks its relations.

    Args:
        broken: By how much they break this study's constraints, by number, where that is known.
    """
    violations = broken or {}
    found, left_out, breaking, where = [], 0, 0, Where(study)
    for record in earlier:
        if record.state != outcomes.COMPLETE:
            continue
        if not record.values or not all(map(math.isfinite, record.values)):
            left_out += 1
            continue
        known = {**before.fixed, **record.params}
        values: dict[str, Any] = {}
        fits = True
        for parameter in study.space:
            if not parameter.is_active(values):
                continue
            value = parameter.converted(known.get(parameter.name))
            if parameter.name not in known or not parameter.contains(value):
                fits = False
                break
            values[parameter.name] = value
        if study.constraints:
            amounts = violations.get(record.number)
            # CMA-ES knows no constraints: what breaks them would lead it there.
            fits = fits and amounts is not None
            fits = fits and not (study.sampler.type == "cmaes" and pareto.total(amounts or ()))
        params = {name: to_optuna(value) for name, value in values.items()}
        if fits and not where.keeps(params):
            breaking += 1
        elif fits:
            row = {"params": params, "values": list(record.values)}
            if study.constraints:
                row["constraints"] = list(violations[record.number])
            found.append(row)
        else:
            left_out += 1
    return EarlierTrials(found[-MOST:], left_out, breaking)


def read(db: Database, study: Study) -> EarlierTrials | None:
    """Return what a study that is about to be made starts with; None where it names no other.

    Raises:
        InputError: There is no such study here, or it answers another question.
    """
    name = study.warm_start
    if name is None:
        return None
    study_id = studies.find_study(db, name)
    before = studies.read_specification(db, study_id) if study_id is not None else None
    if study_id is None or before is None:
        known = studies.list_names(db)
        near = closest(name, known)
        raise InputError(
            f"warm_start: the database holds no study {name!r} of sweep's.",
            f"Did you mean {near}?" if near else f"It holds {', '.join(known) or 'none'}.",
        )
    ours = [(o.metric, o.direction) for o in study.objectives]
    theirs = [(o.metric, o.direction) for o in before.objectives]
    if ours != theirs:
        shown = ", ".join(f"{direction} {metric}" for metric, direction in theirs)
        raise InputError(
            f"warm_start: the study {name!r} has another objective ({shown}).",
            "A sampler can learn only from results of the same objective. Give its best "
            "configurations as points instead (sweep collect --format csv).",
        )
    earlier = records.read_trials(db, study_id, before)
    broken = _read_broken(db, study_id, study, before, earlier) if study.constraints else None
    return reconcile(study, before, earlier, broken)


def _read_broken(
    db: Database, study_id: int, study: Study, before: Study, earlier: Sequence[TrialRecord]
) -> dict[int, Sequence[float]]:
    """Return by how much an earlier study's trials break a study's constraints, by number.

    From what they reported, as their own constraints are judged: the bounds may be others now. What
    was noted counts where they are the same and nothing was reported (told from a notebook). Of a
    trial of several trainings it is the mean; of a metric that had no bound then only the last one
    is known.
    """
    found: dict[int, Sequence[float]] = {}
    if before.constraints == study.constraints:
        found |= records.read_violation_lists(db, study_id)
    last: dict[int, dict[str, float]] = {}
    names = [bound.metric for bound in study.constraints]
    for one in series.read_series(db, study_id, names=names):
        last.setdefault(one.trial, {})[one.metric] = one.values[-1]
    for trial in earlier:
        if trial.replicates and trial.number in last:
            last[trial.number] |= mean_bounded(before.constraints, trial.replicates)
    for number, metrics in last.items():
        if metrics.keys() >= set(names):
            found[number] = pareto.violations(study.constraints, metrics)
    return found


def write(db: Database, study_id: int, found: EarlierTrials) -> None:
    """Keep them with the study; inside the transaction that makes it."""
    studies.write_attribute(db, study_id, WARM_START, list(found.trials))


def frozen(db: Database, study_id: int, study: Study) -> list[FrozenTrial]:
    """Return them as Optuna's trials, with numbers below 0."""
    rows = studies.read_attribute(db, study_id, WARM_START) if study.warm_start else None
    if not rows:
        return []
    from optuna.trial import create_trial

    distributions = {p.name: p.distribution() for p in study.space}
    made = []
    for place, row in enumerate(rows, -len(rows)):
        trial = create_trial(
            params=row["params"],
            values=row["values"],
            distributions={name: distributions[name] for name in row["params"]},
            system_attrs=_notes(row, study),
        )
        trial.number = trial._trial_id = place
        made.append(trial)
    return made


def _notes(row: Mapping[str, Any], study: Study) -> dict[str, Any]:
    """Return what samplers look for beside a trial: its constraints; of which generation it is.

    NSGA-II breeds from generations, and knows only trials that belong to one: they are the first.
    """
    notes: dict[str, Any] = {}
    if "constraints" in row:
        notes[CONSTRAINTS] = row["constraints"]
    if study.sampler.type == "nsgaii":
        from optuna.samplers import NSGAIISampler

        notes[NSGAIISampler._get_generation_key()] = 0
    return notes
