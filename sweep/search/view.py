"""How samplers and pruners see a study: one place, and a snapshot that holds for one decision.

A paused trial looks pruned. A trial that diverged counts as complete with the worst finite value,
or a sampler would propose its like again; other failures are ignored, as Optuna does. A running
trial is what it is: TPE takes it for one with a bad result. Waiting trials are left out.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Container, Sequence

from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweep.core.attributes import END
from sweep.core.outcomes import DIVERGED
from sweep.storage import promotion
from sweep.storage.optuna_storage import PostgresStorage


def view(
    trials: Sequence[FrozenTrial],
    directions: Sequence[StudyDirection],
    paused: Collection[int] = (),
) -> list[FrozenTrial]:
    """Return the trials as samplers shall see them; those given are not changed.

    Args:
        paused: Ids of the trials that are paused.
    """
    worst = _worst(trials, directions)
    return [_seen(trial, worst, paused) for trial in trials if trial.state != TrialState.WAITING]


def _seen(trial: FrozenTrial, worst: list[float] | None, paused: Collection[int]) -> FrozenTrial:
    if trial.state == TrialState.RUNNING and trial._trial_id in paused:
        trial = copy.copy(trial)
        trial.state = TrialState.PRUNED
    elif worst is not None and diverged(trial):
        trial = copy.copy(trial)
        trial.state = TrialState.COMPLETE
        trial.values = worst
    return trial


def diverged(trial: FrozenTrial) -> bool:
    """Tell whether a trial's objective was no finite number."""
    if trial.state == TrialState.COMPLETE:
        return not all(map(math.isfinite, trial.values))
    end = trial.user_attrs.get(END)
    return (
        trial.state == TrialState.FAIL and isinstance(end, dict) and end.get("outcome") == DIVERGED
    )


def _worst(
    trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection]
) -> list[float] | None:
    """Return the worst finite value of each objective, or None while there is none."""
    complete = [
        trial.values
        for trial in trials
        if trial.state == TrialState.COMPLETE and all(map(math.isfinite, trial.values))
    ]
    if not complete:
        return None
    return [
        min(column) if direction == StudyDirection.MAXIMIZE else max(column)
        for column, direction in zip(zip(*complete, strict=True), directions, strict=True)
    ]


class SamplerView(PostgresStorage):
    """A storage that shows one study through ``view``, as it was when it was first asked.

    Parameters that are written through it are kept until ``write_params`` stores them at once.

    Args:
        storage: Shares its connection and its history.
        more: Trials of an earlier study, shown before this one's.
    """

    def __init__(self, storage: PostgresStorage, more: Sequence[FrozenTrial] = ()) -> None:
        self.__dict__.update(storage.__dict__)
        self._more = list(more)
        self._snapshots: dict[int, list[FrozenTrial]] = {}
        self._params: dict[int, dict[str, tuple[float, BaseDistribution]]] = {}

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if study_id not in self._snapshots:
            seen = tuple(state for state in TrialState if state != TrialState.WAITING)
            trials = super().get_all_trials(study_id, deepcopy=False, states=seen)
            paused: set[int] = set()
            if any(trial.state == TrialState.RUNNING for trial in trials):
                paused = self._again(lambda db: promotion.read_paused(db, study_id))
            directions = self.get_study_directions(study_id)
            self._snapshots[study_id] = self._more + view(trials, directions, paused)
        trials = [t for t in self._snapshots[study_id] if states is None or t.state in states]
        return copy.deepcopy(trials) if deepcopy else trials

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        params = self._params.setdefault(trial_id, {})
        params[param_name] = (param_value_internal, distribution)

    def chosen_params(self, trial_id: int) -> dict[str, float]:
        """Return the parameters that were set and are not stored yet, as Optuna's numbers."""
        return {name: value for name, (value, _) in self._params.get(trial_id, {}).items()}

    def forget_choice(self, trial_id: int) -> None:
        """Take back the parameters that were set, and look at the study anew."""
        self._params.pop(trial_id, None)
        self._snapshots.clear()

    def write_params(self, trial_id: int, study_id: int) -> None:
        """Store the parameters that were set, in one statement.

        Raises:
            As ``set_trial_param`` of the storage.
        """
        self.set_trial_params(trial_id, self._params.pop(trial_id, {}), study_id)
