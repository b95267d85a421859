"""What a trial shall try, and whether it shall go on: Optuna's samplers and pruners on our storage.

Functions; Optuna is imported when one of them needs it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from sweep.space import Parameter, Space
from sweep.storage import twins, warm_start
from sweep.storage.design import FIXED, fixed_design, random_point, spread_design, stored_point
from sweep.storage.samplers import (
    AUTO_PRUNER,
    STARTUP,
    build_pruner,
    build_sampler,
    choose,
    one_thread,
)
from sweep.study import Choice, Study
from sweep.trial import trial_seed

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from sweep.storage.optuna_storage import PostgresStorage
    from sweep.storage.view import SamplerView

TRIES = 8  # draws beyond the first for a configuration that nobody has
LEAST_REPORTS = 3  # no trial is stopped before it has made so many
SHARE = 10  # nor before this part of the longest run
FIRST_RUNG = "sweep:first_rung"  # attribute of a study: what its pruner has made of "auto"
RUNGED = ("asha", "hyperband")

__all__ = [
    "build_pruner",
    "build_sampler",
    "first_rows",
    "fixed_design",
    "internal",
    "propose",
    "random_point",
    "should_prune",
    "stored_point",
]

# Made once for the space or study last seen: distributions as text, for 10,000 rows; pruners by
# their first resource, for every step.
_texts: list[tuple[Space, dict[str, str]]] = []
_pruners: list[tuple[Study, dict[int, Any]]] = []


def _kept(kept: list[tuple[Any, Any]], owner: Any, make: Callable[[], Any]) -> Any:
    """Return what was made for an owner, anew where another one was the last."""
    if not kept or kept[0][0] is not owner:
        kept[:] = [(owner, make())]
    return kept[0][1]


def internal(study: Study, params: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Return stored parameters as Optuna's tables hold them, for ``bulk.insert_waiting_trials``.

    Returns:
        For each name Optuna's internal value and the distribution as JSON text.

    Raises:
        ValueError: A value is none of its parameter's.
        KeyError: The space has no such parameter.
    """
    space = study.space
    known = _kept(_texts, space, lambda: {p.name: p.distribution_json() for p in space})
    return {
        name: (space.get(name).to_internal(value), known[name]) for name, value in params.items()
    }


def propose(
    study: Study, storage: PostgresStorage, study_id: int, trial_id: int, number: int
) -> dict[str, Any]:
    """Give a trial the parameters that it lacks, and return all that it has, as Optuna stores them.

    The proposal follows from the history, the study's seed and the trial's number alone. What the
    user has fixed for the trial (``fixed_params``) is taken as it is. Safe to repeat: a value that
    is stored stays.

    Args:
        storage: With the attempt's token, so that the writes are refused once it has ended.

    Raises:
        SweepError: The sampler cannot work here; what to install.
        StaleAttempt: The storage's attempt has ended.
        DatabaseUnavailable: The database does not answer.
    """
    import optuna

    from sweep.storage.view import SamplerView

    view = SamplerView(storage, warm_start.frozen(storage.database, study_id, study))
    name = view.get_study_name_from_id(study_id)
    is_fixed = study.sampler.type in FIXED
    for again in range(TRIES + 1):
        seed = trial_seed(study.seed + again, number)
        # What a sampler insists on it may propose again: chance has the last word.
        by_chance = again > TRIES // 2 and not is_fixed
        drawn = dataclasses.replace(study, sampler=Choice("random")) if by_chance else study
        sampler = build_sampler(drawn, seed)
        with _quiet(), one_thread() if choose(drawn)[0] == "gp" else nullcontext():
            trial = optuna.trial.Trial(optuna.study.Study(name, view, sampler=sampler), trial_id)
            if is_fixed:
                # A design without results: the sampler has no say, the user's fixed values do.
                trial._fixed_params = {**_choose_fixed(study, number), **trial._fixed_params}
            _suggest_all(study, trial)
        may_draw_again = again < TRIES and not is_fixed and bool(view.chosen_params(trial_id))
        with twins.one_at_a_time(storage.database, study_id):
            if not (may_draw_again and _is_known(study, view, study_id, trial_id)):
                view.write_params(trial_id, study_id)
                break
        view.forget_choice(trial_id)
    return dict(storage.get_trial(trial_id).params)


def _suggest_all(study: Study, trial: Any) -> None:
    values: dict[str, Any] = {}
    for parameter in study.space:
        if parameter.is_active(values):
            values[parameter.name] = parameter.from_optuna(_suggest(trial, parameter))


def _is_known(study: Study, view: SamplerView, study_id: int, trial_id: int) -> bool:
    """Tell whether a configuration that was chosen is to be drawn again.

    It is where another trial runs it at present (two that were proposed at the same moment), and,
    with ``duplicates: resample``, where one has finished it.
    """
    params = view.chosen_params(trial_id)
    if twins.is_taken(view.database, study_id, trial_id, params):
        return True
    if study.duplicates != "resample":
        return False
    return any(
        other.number >= 0
        and other.state.is_finished()
        and other.params.keys() == params.keys()
        and all(
            other.distributions[name].to_internal_repr(other.params[name]) == value
            for name, value in params.items()
        )
        for other in view.get_all_trials(study_id, deepcopy=False)
    )


def _choose_fixed(study: Study, number: int) -> dict[str, Any]:
    """Return the design's row of one trial, completed by random values for every parameter."""
    everything = dataclasses.replace(
        study, space=Space(tuple(dataclasses.replace(p, when={}) for p in study.space)), points=()
    )
    rows = fixed_design(dataclasses.replace(study, trials=max(study.trials, number + 1)))
    return {**random_point(everything, number), **(rows or [])[number]}


def _suggest(trial: Any, parameter: Parameter) -> Any:
    if parameter.type == "categorical":
        return trial.suggest_categorical(parameter.name, parameter.distribution().choices)
    if parameter.type == "int":
        step = int(parameter.step or 1)
        return trial.suggest_int(
            parameter.name, parameter.low, parameter.high, step=step, log=parameter.log
        )
    return trial.suggest_float(
        parameter.name, parameter.low, parameter.high, step=parameter.step, log=parameter.log
    )


def should_prune(
    study: Study,
    storage: PostgresStorage,
    study_id: int,
    trial_id: int,
    steps: Mapping[int, float] | None = None,
) -> bool:
    """Tell whether the study's pruner would stop a trial at the last step that it reported.

    Args:
        steps: What the trial has reported, where the caller knows: its only writer does. Then most
            verdicts of the median and percentile pruners need no statement; they know what had
            finished a second ago (see ``History.follow``).

    Raises:
        StaleAttempt: The storage's attempt has ended.
        DatabaseUnavailable: The database does not answer.
    """
    if study.pruner.type == "none":
        return False
    import optuna

    from sweep.storage.verdicts import is_quick, judge
    from sweep.storage.view import SamplerView

    if steps is not None and is_quick(_kept_pruner(study, 1)):
        curves = storage.curves(study_id)
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
    with _quiet():
        name = view.get_study_name_from_id(study_id)
        optuna_study = optuna.study.Study(name, view, pruner=pruner)
        return bool(pruner.prune(optuna_study, trial))


def _kept_pruner(study: Study, first: int) -> Any:
    """Return a pruner of which only its settings are read: made once, not at every step."""
    made: dict[int, Any] = _kept(_pruners, study, dict)
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back Optuna's experimental warnings while it does what the study file asks for."""
    import warnings

    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield


def start_size(study: Study) -> int:
    """Return how many trials of an adaptive study are laid out at launch: none can learn yet.

    The first K start together; without a K nobody knows how many do, and a tenth is laid out. No
    sampler learns from fewer than ``STARTUP`` trials. With an earlier study to learn from only the
    user's own points are laid out.
    """
    if study.warm_start:
        return len(study.points)
    together = study.parallel if study.max_parallel else math.ceil(study.trials / SHARE)
    return max(min(max(together, STARTUP), study.trials), len(study.points))


def first_rows(study: Study, count: int, start: int = 0) -> list[dict[str, Any]]:
    """Return the waiting trials ``start`` to ``start + count - 1`` as ``bulk`` takes them.

    Where the design is fixed all get their parameters here; where the sampler is adaptive the first
    ones do (``start_size``), and the rest when they are pulled.
    """
    whole = fixed_design(dataclasses.replace(study, trials=start + count))
    if whole is None:
        whole = spread_design(study, start_size(study))
    return [
        {"params": internal(study, whole[number])} if number < len(whole) else {}
        for number in range(start, start + count)
    ]
