"""What a trial shall try, and whether it shall go on: Optuna's samplers and pruners on our storage.

Functions; Optuna is imported when one of them needs it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sweep.space import Parameter, Space
from sweep.storage.design import FIXED, fixed_design, random_point, stored_point
from sweep.storage.samplers import build_pruner, build_sampler, sampler_name
from sweep.study import Choice, Study
from sweep.trial import trial_seed

if TYPE_CHECKING:
    from sweep.storage.optuna_storage import PostgresStorage

__all__ = [
    "build_pruner",
    "build_sampler",
    "first_rows",
    "fixed_design",
    "internal",
    "propose",
    "random_point",
    "sampler_name",
    "should_prune",
    "stored_point",
]

# Distributions of the space last seen, as text: made once for 10,000 rows.
_last: list[tuple[Space, dict[str, str]]] = []


def internal(study: Study, params: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Return stored parameters as Optuna's tables hold them, for ``bulk.insert_waiting_trials``.

    Returns:
        For each name Optuna's internal value and the distribution as JSON text.

    Raises:
        ValueError: A value is none of its parameter's.
        KeyError: The space has no such parameter.
    """
    space = study.space
    if not _last or _last[0][0] is not space:
        _last[:] = [(space, {p.name: p.distribution_json() for p in space})]
    known = _last[0][1]
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

    view = SamplerView(storage)
    sampler = build_sampler(study, trial_seed(study.seed, number))
    name = view.get_study_name_from_id(study_id)
    with _quiet(), _one_thread(study):
        optuna_study = optuna.study.Study(name, view, sampler=sampler)
        trial = optuna.trial.Trial(optuna_study, trial_id)
        chosen = _choose_fixed(study, number) if study.sampler.type in FIXED else None
        if chosen is not None:
            # A design without results: the sampler has no say, the user's fixed values do.
            trial._fixed_params = {**chosen, **trial._fixed_params}
        values: dict[str, Any] = {}
        for parameter in study.space:
            if parameter.is_active(values):
                stored = _suggest(trial, parameter)
                values[parameter.name] = parameter.from_optuna(stored)
    view.write_params(trial_id)
    return dict(storage.get_trial(trial_id).params)


def _choose_fixed(study: Study, number: int) -> dict[str, Any]:
    """Return the design's row of one trial, completed by random values for every parameter."""
    everything = dataclasses.replace(
        study,
        space=Space(tuple(dataclasses.replace(p, when={}) for p in study.space)),
        points=(),
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


def should_prune(study: Study, storage: PostgresStorage, study_id: int, trial_id: int) -> bool:
    """Tell whether the study's pruner would stop a trial at the last step that it reported.

    Raises:
        StaleAttempt: The storage's attempt has ended.
        DatabaseUnavailable: The database does not answer.
    """
    if study.pruner.type == "none":
        return False
    import optuna

    from sweep.storage.view import SamplerView

    view = SamplerView(storage)
    pruner = build_pruner(study)
    with _quiet():
        name = view.get_study_name_from_id(study_id)
        optuna_study = optuna.study.Study(name, view, pruner=pruner)
        return bool(pruner.prune(optuna_study, view.get_trial(trial_id)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back Optuna's experimental warnings while it does what the study file asks for."""
    import warnings

    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield


@contextmanager
def _one_thread(study: Study) -> Iterator[None]:
    """Let a Gaussian process use one thread: its matrices are small, and training runs beside."""
    if sampler_name(study) != "gp":
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def first_rows(study: Study, count: int, start: int = 0) -> list[dict[str, Any]]:
    """Return the waiting trials ``start`` to ``start + count - 1`` as ``bulk`` takes them.

    Where the design is fixed all get their parameters here; where the sampler is adaptive the first
    K do (there is no history to learn from yet), and the rest when they are pulled.
    """
    whole = fixed_design(dataclasses.replace(study, trials=start + count))
    if whole is None:
        early = min(max(study.parallel, len(study.points)), start + count)
        by_chance = dataclasses.replace(study, sampler=Choice("random"), trials=early)
        whole = fixed_design(by_chance) or []
    return [
        {"params": internal(study, whole[number])} if number < len(whole) else {}
        for number in range(start, start + count)
    ]
