"""How samplers and pruners see a study: one place, and a snapshot that holds for one decision.

A paused trial looks pruned. A trial that diverged counts as complete with the worst finite value,
or a sampler would propose its like again. One whose configuration asked for too much (memory, or
time: ``risk``) is shown to samplers so as well, and as infeasible. Other failures are ignored, as
Optuna does. A running trial is what it is: TPE takes it for one with a bad result. Waiting trials
are left out. What breaks the study's relations (``where``) is infeasible, too. A trial of several
trainings (``replicates``) counts for ``tpe`` and ``gp`` with the mean of those that have ended.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, FloatDistribution, json_to_distribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweep.core import pareto
from sweep.core.attributes import CONSTRAINTS, END, REPLICATES
from sweep.core.outcomes import DIVERGED
from sweep.core.space import on_step
from sweep.core.study import Study
from sweep.core.trial import mean_bounded, mean_values
from sweep.search.risk import asked_too_much
from sweep.search.valid import Where
from sweep.storage import promotion, replicates
from sweep.storage.optuna_storage import PostgresStorage

_REJECTED = -(10**6)  # below the numbers of trials of an earlier study


def view(
    trials: Sequence[FrozenTrial],
    directions: Sequence[StudyDirection],
    paused: Collection[int] = (),
    failures: bool = True,
    marked: bool = True,
    ranked: bool = False,
    broken: Callable[[FrozenTrial], bool] = asked_too_much,
) -> list[FrozenTrial]:
    """Return the trials as samplers shall see them; those given are not changed.

    Args:
        paused: Ids of the trials that are paused.
        failures: Whether to show trials that asked for too much: for samplers, not for pruners.
        marked: Whether beside those all others get the same constraint, which gp needs.
        ranked: Whether what breaks a constraint gets a value behind all others, by how much it
            does: for cmaes, which knows no constraints and goes by the order of values alone.
        broken: Which trials are shown as infeasible; by default those that asked for too much.
    """
    worst = _worst(trials, directions)
    seen = [_seen(trial, worst, paused) for trial in trials if trial.state != TrialState.WAITING]
    if failures and worst is not None and any(map(broken, seen)):
        seen = _with_failures(seen, worst, marked, broken)
    if ranked and worst is not None:
        sign = -1.0 if directions[0] == StudyDirection.MAXIMIZE else 1.0
        return [_ranked(trial, worst[0], sign) for trial in seen]
    return seen


def bounded(
    trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection], most: int
) -> list[FrozenTrial]:
    """Return trials with so many complete ones at the most, in their order: the best of them for
    one half; the most recent of the others for a quarter, or what was just tried would be tried
    again; and of the rest each so-manieth, which keeps what is known of the whole space.

    Args:
        trials: As ``view`` returns them.
    """
    complete = [n for n, trial in enumerate(trials) if trial.state == TrialState.COMPLETE]
    if len(complete) <= most:
        return list(trials)
    finite = [n for n in complete if all(map(math.isfinite, trials[n].values))]
    ranks = pareto.constrained_fronts(
        [trials[n].values for n in finite],
        [direction.name.lower() for direction in directions],
        [pareto.total(trials[n].system_attrs.get(CONSTRAINTS) or ()) for n in finite],
    )
    newest_first = sorted(zip(ranks, (-n for n in finite), strict=True))
    kept = {-n for _, n in newest_first[: most // 2]}
    others = [n for n in complete if n not in kept]
    recent = min(most // 4, most - len(kept))
    rest, count = others[: len(others) - recent], most - len(kept) - recent
    kept |= set(others[len(rest) :]) | {rest[n * len(rest) // count] for n in range(count)}
    return [t for n, t in enumerate(trials) if n in kept or t.state != TrialState.COMPLETE]


def by_means(study: Study, trial: FrozenTrial) -> FrozenTrial:
    """Return an open trial some of whose replicates have ended as complete, with their mean and by
    how much that breaks the study's constraints; any other as it is.
    """
    if trial.state != TrialState.RUNNING:
        return trial
    done = replicates.of_note(trial.user_attrs.get(REPLICATES))
    sizes = {(len(one.values), len(one.bounded)) for one in done}
    if sizes != {(len(study.objectives), len(study.constraints))}:  # none, or not our note
        return trial
    values = mean_values(done)
    if not all(map(math.isfinite, values)):
        return trial
    trial = copy.copy(trial)
    trial.state, trial.datetime_complete = TrialState.COMPLETE, trial.datetime_start
    trial.values = list(values)
    if study.constraints:
        means = mean_bounded(study.constraints, done)
        noted = pareto.violations(study.constraints, means)
        trial.system_attrs = {**trial.system_attrs, CONSTRAINTS: noted}
    return trial


def broken_by(study: Study) -> Callable[[FrozenTrial], bool]:
    """Return what tells which trials are infeasible though they may have no constraint: those that
    asked for too much, and those against the study's relations, which it did not propose itself.
    """
    where = Where(study)
    if not where:
        return asked_too_much

    def is_broken(trial: FrozenTrial) -> bool:
        if not trial.state.is_finished():
            return False
        return asked_too_much(trial) or not where.keeps(trial.params)

    return is_broken


def _ranked(trial: FrozenTrial, worst: float, sign: float) -> FrozenTrial:
    broken = pareto.total(trial.system_attrs.get(CONSTRAINTS, ()))
    if trial.state != TrialState.COMPLETE or not broken:
        return trial
    trial = copy.copy(trial)
    # Beyond the worst however large that is: a small amount would vanish beside it.
    trial.value = worst + sign * max(abs(worst), 1.0) * (1.0 + broken / (1.0 + broken))
    return trial


def _with_failures(
    trials: Sequence[FrozenTrial],
    worst: list[float],
    marked: bool,
    is_broken: Callable[[FrozenTrial], bool],
) -> list[FrozenTrial]:
    """Return the trials with those that are broken as complete, worst and infeasible.

    Where the study has no constraint, one is made up.
    """
    known = [t.system_attrs[CONSTRAINTS] for t in trials if CONSTRAINTS in t.system_attrs]
    broken = [max(1.0, *column) for column in zip(*known, strict=False)] or [1.0]
    found = []
    for trial in trials:
        failed = is_broken(trial)
        if failed or (marked and not known and trial.state == TrialState.COMPLETE):
            trial = copy.copy(trial)
            note = broken if failed else [-1.0]
            trial.system_attrs = {**trial.system_attrs, CONSTRAINTS: note}
        if failed:
            trial.state = TrialState.COMPLETE
            trial.values = worst
        found.append(trial)
    return found


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

    Parameters that are written through it are kept until ``write_params`` stores them at once, and
    so is what ``note`` is given.

    Args:
        storage: Shares its connection and its history.
        more: Trials of an earlier study, shown before this one's.
        failures, marked, ranked, broken: As for ``view``.
        most: Of complete trials that are shown, as ``bounded`` chooses them; None: all.
        replicated: A study whose open trials are shown by the means of their replicates.
    """

    def __init__(
        self,
        storage: PostgresStorage,
        more: Sequence[FrozenTrial] = (),
        failures: bool = False,
        marked: bool = False,
        ranked: bool = False,
        broken: Callable[[FrozenTrial], bool] = asked_too_much,
        most: int | None = None,
        replicated: Study | None = None,
    ) -> None:
        self.__dict__.update(storage.__dict__)
        self._more = list(more)
        self._shows = (failures, marked, ranked, broken)
        self._most = most
        self._replicated = replicated
        self._expected: list[FrozenTrial] = []
        self._told: dict[int, list[FrozenTrial]] = {}
        self._whole: dict[int, list[FrozenTrial]] = {}
        self._snapshots: dict[int, list[FrozenTrial]] = {}
        self._params: dict[int, dict[str, tuple[float, BaseDistribution]]] = {}
        self._notes: dict[int, dict[str, Any]] = {}

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if study_id not in self._snapshots:
            begun = tuple(state for state in TrialState if state != TrialState.WAITING)
            trials = super().get_all_trials(study_id, deepcopy=False, states=begun)
            paused: set[int] = set()
            if any(trial.state == TrialState.RUNNING for trial in trials):
                paused = self._again(lambda db: promotion.read_paused(db, study_id))
            directions = self.get_study_directions(study_id)
            self._told[study_id] = trials
            if self._replicated is not None:
                trials = [by_means(self._replicated, trial) for trial in trials]
            seen = view([*self._more, *trials, *self._expected], directions, paused, *self._shows)
            self._whole[study_id] = self._snapshots[study_id] = seen
            if self._most is not None:
                self._snapshots[study_id] = bounded(seen, directions, self._most)
        trials = [t for t in self._snapshots[study_id] if states is None or t.state in states]
        return copy.deepcopy(trials) if deepcopy else trials

    def expect(self, prepared: Mapping[int, Mapping[str, tuple[float, str]]]) -> None:
        """Show trials that wait as running ones, with what is prepared for them.

        Args:
            prepared: By the trial's number: of each parameter Optuna's number and the
                distribution as text.
        """
        for number, stored in prepared.items():
            kinds = {name: json_to_distribution(text) for name, (_, text) in stored.items()}
            params = {name: kinds[name].to_external_repr(v) for name, (v, _) in stored.items()}
            trial = create_trial(state=TrialState.RUNNING, params=params, distributions=kinds)
            trial.number, trial._trial_id = number, -1 - number
            self._expected.append(trial)

    def told(self, study_id: int) -> list[FrozenTrial]:
        """Return the study's own trials as they are, of the same moment."""
        self.get_all_trials(study_id, deepcopy=False)
        return self._told[study_id]

    def whole(self, study_id: int) -> list[FrozenTrial]:
        """Return all that is shown, beyond the most of complete ones, too."""
        self.get_all_trials(study_id, deepcopy=False)
        return self._whole[study_id]

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        params = self._params.setdefault(trial_id, {})
        if isinstance(distribution, FloatDistribution) and distribution.step is not None:
            low, step = distribution.low, distribution.step
            param_value_internal = on_step(param_value_internal, low, step)
        params[param_name] = (param_value_internal, distribution)

    def note(self, trial_id: int, notes: Mapping[str, Any]) -> None:
        """Set what a sampler notes with the parameters of a trial: system attributes."""
        self._notes[trial_id] = dict(notes)

    def notes(self, trial_id: int) -> dict[str, Any]:
        """Return what was noted with the parameters that were set, and is not stored yet."""
        return dict(self._notes.get(trial_id, {}))

    def chosen_params(self, trial_id: int) -> dict[str, float]:
        """Return the parameters that were set and are not stored yet, as Optuna's numbers."""
        return {name: value for name, (value, _) in self._params.get(trial_id, {}).items()}

    def take_choice(self, trial_id: int) -> dict[str, tuple[float, BaseDistribution]]:
        """Take back the parameters that were set, and return them for ``put_choice``."""
        self._notes.pop(trial_id, None)
        return self._params.pop(trial_id, {})

    def reject(
        self, study_id: int, params: Mapping[str, tuple[float, BaseDistribution]], least: int
    ) -> None:
        """Show a choice that was taken back as one that is broken, from now on.

        Args:
            least: Not before so many trials are complete: a start by chance is no shorter for it.
        """
        complete = sum(t.state == TrialState.COMPLETE for t in self.told(study_id))
        if complete < least:
            return
        trial = create_trial(
            state=TrialState.FAIL,
            params={name: kind.to_external_repr(value) for name, (value, kind) in params.items()},
            distributions={name: kind for name, (_, kind) in params.items()},
        )
        trial.number = trial._trial_id = _REJECTED - len(self._more)
        self._more.append(trial)
        self._snapshots.clear()

    def put_choice(self, trial_id: int, params: dict[str, tuple[float, BaseDistribution]]) -> None:
        """Set the parameters that were taken back."""
        self._params[trial_id] = params

    def forget_choice(self, trial_id: int) -> None:
        """Take back the parameters that were set, and look at the study anew."""
        self.take_choice(trial_id)
        self._snapshots.clear()

    def write_params(self, trial_id: int, study_id: int) -> None:
        """Store the parameters that were set, in one statement, after what was noted with them.

        Raises:
            As ``set_trial_param`` of the storage.
        """
        for name, value in self._notes.pop(trial_id, {}).items():
            self.set_trial_system_attr(trial_id, name, value)
        self.set_trial_params(trial_id, self._params.pop(trial_id, {}), study_id)
