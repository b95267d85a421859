"""Verdicts on a running trial from what this process knows already: no statement for most of them.

Optuna's percentile pruner (the median is one) goes through all finished trials at every step of
every trial. What it needs of them is one number a step, and that changes only when a trial has
finished: it is kept here. The rules are Optuna's, and so are the functions that apply them; the
other pruners are asked as they are (``should_prune``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy
import optuna

from sweep.core import pareto
from sweep.core.attributes import CONSTRAINTS, FIRST_RUNG
from sweep.core.study import Study
from sweep.core.trial import better, summarise
from sweep.search.samplers import AUTO_PRUNER, SHARE, build_pruner, kept, quiet
from sweep.search.view import SamplerView
from sweep.storage import series

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from sweep.search.own import Asked
    from sweep.search.view import SamplerView
    from sweep.storage.optuna_storage import PostgresStorage


from optuna.pruners import MedianPruner, PercentilePruner
from optuna.pruners._percentile import _is_first_in_interval_step
from optuna.study import StudyDirection
from optuna.trial import TrialState

from sweep.search.view import diverged
from sweep.storage.history import History


def is_quick(pruner: Any) -> bool:
    """Tell whether a pruner's verdicts can be given here."""
    return type(pruner) in (PercentilePruner, MedianPruner)


class Curves:
    """What the complete trials of a study reported, by step. Follows a ``History``."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._forget()

    def _forget(self) -> None:
        self.complete = 0  # trials
        self.longest = 0  # last step of any finished trial
        self._generation = self._history.generation
        self._read = 0  # of the history's finished trials
        self._values: dict[int, list[float]] = {}
        self._thresholds: dict[tuple[int, float, int], float] = {}

    def follow(self) -> None:
        """Take in what the history has read since."""
        if self._generation != self._history.generation:
            self._forget()
        new = self._history.finished_order[self._read :]
        self._read += len(new)
        for trial in new:
            self.longest = max(self.longest, trial.last_step or 0)
            if trial.state == TrialState.COMPLETE or diverged(trial):  # as in ``view``
                self.complete += 1
                for step, value in trial.intermediate_values.items():
                    self._values.setdefault(step, []).append(value)
        if new:
            self._thresholds.clear()

    def percentile(self, step: int, percentile: float, at_least: int) -> float:
        """Return the percentile of the values at a step; NaN of fewer than so many values."""
        key = (step, percentile, at_least)
        found = self._thresholds.get(key)
        if found is None:
            values = self._values.get(step, [])
            found = math.nan
            if len(values) >= max(at_least, 1):
                finite = numpy.array(values, dtype=float)
                if not numpy.isnan(finite).all():
                    found = float(numpy.nanpercentile(finite, percentile))
            self._thresholds[key] = found
        return found


_curves: WeakKeyDictionary[PostgresStorage, dict[int, Curves]] = WeakKeyDictionary()


def curves_of(storage: PostgresStorage, study_id: int) -> Curves:
    """Return what the complete trials reported, kept with the storage that reads them."""
    history = storage.follow(study_id)
    known = _curves.setdefault(storage, {})
    if study_id not in known:
        known[study_id] = Curves(history)
    known[study_id].follow()
    return known[study_id]


def judge(
    pruner: PercentilePruner, steps: Mapping[int, float], curves: Curves, direction: StudyDirection
) -> bool:
    """Tell whether the pruner would stop a trial at its last step, as its ``prune`` does.

    Args:
        steps: What the trial has reported, by step.
    """
    if curves.complete == 0 or curves.complete < pruner._n_startup_trials or not steps:
        return False
    step = max(steps)
    warmup = pruner._n_warmup_steps
    if step < warmup:
        return False
    if not _is_first_in_interval_step(step, steps.keys(), warmup, pruner._interval_steps):
        return False
    known = [value for value in steps.values() if not math.isnan(value)]
    if not known:
        return True
    is_max = direction == StudyDirection.MAXIMIZE
    percentile = 100.0 - pruner._percentile if is_max else pruner._percentile
    threshold = curves.percentile(step, percentile, pruner._n_min_trials)
    if math.isnan(threshold):
        return False
    return max(known) < threshold if is_max else min(known) > threshold


LEAST_REPORTS = 3  # no trial is stopped before it has made so many
RUNGED = ("asha", "hyperband")
_pruners: list[tuple[Study, dict[int, Any]]] = []


def leads(trial: int, bests: Mapping[int, float], direction: str) -> bool:
    """Tell whether a trial's best value so far is better than any other's; NaN never is.

    Args:
        bests: Each trial's best reported value, by a number of it.
    """
    mine = bests.get(trial, math.nan)
    return not math.isnan(mine) and not any(
        not better(mine, value, direction) for other, value in bests.items() if other != trial
    )


def should_prune(
    study: Study,
    storage: PostgresStorage,
    study_id: int,
    trial_id: int,
    steps: Mapping[int, float] | None = None,
    asked: Asked | None = None,
) -> bool:
    """Tell whether the study's pruner would stop a trial at the last step that it reported.

    Args:
        steps: What the trial has reported, where the caller knows: its only writer does. Then most
            verdicts of the median and percentile pruners need no statement; they know what had
            finished a second ago (see ``History.follow``).
        asked: Answers for the user's own pruner; needed where the study has one.

    Raises:
        OwnFailed: The user's own pruner has failed.
        StaleAttempt: The storage's attempt has ended.
        DatabaseUnavailable: The database does not answer.
    """
    if study.pruner.type == "none":
        return False
    if study.pruner.is_own:
        assert asked is not None, "a study with a pruner of its own is asked for by a task"
        shown = SamplerView(storage)
        seen = shown.get_all_trials(study_id, deepcopy=False)
        return asked.prunes(study, seen, shown.get_trial(trial_id))
    if steps is not None and is_quick(_kept_pruner(study, 1)):
        curves = curves_of(storage, study_id)
        first = _warmup(study, sorted(steps), lambda: curves.longest)
        if first is None:
            return False
        direction = storage.get_study_directions(study_id)[0]
        return judge(_kept_pruner(study, first), steps, curves, direction)
    view = SamplerView(storage)
    trial = view.get_trial(trial_id)
    first = first_resource(study, view, study_id, trial)
    if first is None:
        return False
    pruner = build_pruner(study, first)
    with quiet():
        name = view.get_study_name_from_id(study_id)
        optuna_study = optuna.study.Study(name, view, pruner=pruner)
        stops = bool(pruner.prune(optuna_study, trial))
    return stops and not (_kind(study) in RUNGED and _is_leader(study, view, study_id, trial))


def _is_leader(study: Study, view: SamplerView, study_id: int, trial: FrozenTrial) -> bool:
    """Tell whether a trial has the best result so far, which would be lost if it were stopped.

    A rung compares what trials have there: one that was better before, and gets worse, is none of
    its best, although with ``at: best`` its result is what it had. Failed trials have no result,
    and those that break the constraints win nothing. What was reported counts: of several reports
    in one epoch a pruner that counts epochs sees the last alone.
    """
    objective = study.objective
    if objective.at != "best":
        return False
    summaries = series.read_summaries(view.database, study_id, names=[objective.metric])
    bests: dict[int, float] = {}
    for other in view.get_all_trials(study_id, deepcopy=False):
        is_broken = pareto.total(other.system_attrs.get(CONSTRAINTS) or ()) > 0
        if other.state == TrialState.FAIL or is_broken:
            continue
        summary = summaries.get(other.number, {}).get(objective.metric)
        known = [*other.intermediate_values.values(), *(other.values or ())]
        if summary is not None:
            known += [v for v in (summary.least, summary.greatest) if v is not None]
        value = summarise(list(enumerate(known)), objective.at, objective.direction)
        if value is not None and math.isfinite(value):
            bests[other.number] = value
    return leads(trial.number, bests, objective.direction)


def _kept_pruner(study: Study, first: int) -> Any:
    """Return a pruner of which only its settings are read: made once, not at every step."""
    made: dict[int, Any] = kept(_pruners, study, dict)
    if first not in made:
        made[first] = build_pruner(study, first)
    return made[first]


def first_resource(
    study: Study, view: SamplerView, study_id: int, trial: FrozenTrial
) -> int | None:
    """Return before which amount a pruner stops no trial; None while it may not stop this one.

    What the study file says; else the third report and a tenth of the longest run, whichever is
    later: before that the order of trials says little, and a pruner that errs early misleads the
    sampler as well. For rungs, which have to be the same for all trials, that is taken from the
    first trial that is complete, once.
    """
    steps = sorted(trial.intermediate_values)
    if _given(study) is None and _kind(study) in RUNGED:
        if len(steps) < LEAST_REPORTS:
            return None
        fixed = view.read_study_note(study_id, FIRST_RUNG)
        if fixed is None:
            fixed = _first_rung(view.get_all_trials(study_id, deepcopy=False))
            if fixed is None:
                return None
            fixed = view.write_study_note(study_id, FIRST_RUNG, fixed)
        return int(fixed)

    def longest() -> int:
        others = view.get_all_trials(study_id, deepcopy=False)
        return max((other.last_step or 0 for other in others), default=0)

    return _warmup(study, steps, longest)


def _given(study: Study) -> int | None:
    """Return the amount before which no trial is stopped where the study file says so."""
    options = study.pruner.options
    inner: Mapping[str, Any] = options.get("pruner") or options
    given = inner.get("min_resource", inner.get("warmup", "auto"))
    return None if given == "auto" else int(given)


def _warmup(study: Study, steps: Sequence[int], longest: Callable[[], int]) -> int | None:
    """Return ``first_resource`` of pruners without rungs.

    Args:
        steps: What the trial has reported, ascending.
        longest: Asked for the last step of the longest run.
    """
    given = _given(study)
    if given is not None:
        return given
    if len(steps) < LEAST_REPORTS:
        return None
    first = max(steps[LEAST_REPORTS - 1], -(-longest() // SHARE))
    return first if steps[-1] >= first else None


def _kind(study: Study) -> str:
    """Return which pruner decides: the one that a patient one holds back, if any."""
    kind = str((study.pruner.options.get("pruner") or {}).get("type") or study.pruner.type)
    return AUTO_PRUNER if kind == "auto" else kind


def _first_rung(trials: list[FrozenTrial]) -> int | None:
    """Return a tenth of the first complete trial, and its third report at least, or None."""
    for trial in trials:
        steps = sorted(trial.intermediate_values)
        if trial.state.name == "COMPLETE" and len(steps) >= LEAST_REPORTS:
            return max(1, int(steps[LEAST_REPORTS - 1]), -(-int(steps[-1]) // SHARE))
    return None
