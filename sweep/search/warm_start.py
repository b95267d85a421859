"""What a study's sampler learns from an earlier one: its trials, as far as they fit the space.

They are copied when the study is made, so that what is proposed later depends on nothing else.
They are none of the study's trials: N does not count them, and no ranking shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweep.core import outcomes
from sweep.core.attributes import WARM_START
from sweep.core.errors import InputError, closest
from sweep.core.space import to_optuna
from sweep.core.study import Study
from sweep.core.trial import TrialRecord
from sweep.storage import records, studies
from sweep.storage.connection import Database

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

MOST = 1000  # newest trials of the earlier study; more make proposals slow and no better


@dataclass(frozen=True)
class Found:
    """The earlier study's trials that fit, and how many do not, in ``left_out``."""

    trials: Sequence[Mapping[str, Any]]
    left_out: int

    def describe(self, study: Study) -> str:
        """Return in words what the study starts with."""
        rest = f"; {self.left_out} do not fit this space" if self.left_out else ""
        return f"the sampler starts with {len(self.trials)} trials of {study.warm_start}{rest}"


def reconcile(study: Study, before: Study, earlier: Sequence[TrialRecord]) -> Found:
    """Return an earlier study's complete trials in terms of this one's space.

    A parameter that this space lacks is dropped; one that the earlier study held fixed has that
    value. A trial that lacks a value which this space needs, or has one outside of it, is left out.
    """
    found, left_out = [], 0
    for record in earlier:
        if record.state != outcomes.COMPLETE:
            continue
        known = {**before.fixed, **record.params}
        values: dict[str, Any] = {}
        fits = True
        for parameter in study.space:
            if not parameter.is_active(values):
                continue
            value = known.get(parameter.name)
            if parameter.type == "float" and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            if parameter.name not in known or not parameter.contains(value):
                fits = False
                break
            values[parameter.name] = value
        if fits:
            params = {name: to_optuna(value) for name, value in values.items()}
            found.append({"params": params, "values": list(record.values)})
        else:
            left_out += 1
    return Found(found[-MOST:], left_out)


def read(db: Database, study: Study) -> Found | None:
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
    return reconcile(study, before, records.read_trials(db, study_id, before))


def write(db: Database, study_id: int, found: Found) -> None:
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
        )
        trial.number = trial._trial_id = place
        made.append(trial)
    return made
