"""The sweeps of Hydra's Nevergrad and Ax plugins: their spaces and budgets, not their optimisers.

Sources: hydra.cc/docs/plugins/nevergrad_sweeper and ax_sweeper, and the plugins' code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.core.relation_syntax import RelationError
from sweep.core.relations import read_relation
from sweep.studyfile.starter.draft import Draft
from sweep.studyfile.starter.hydra_params import add_parameter, add_parameters, whole
from sweep.studyfile.starter.hydra_sweeps import AX, NEVERGRAD
from sweep.studyfile.starter.wandb_ranges import distinct

NEVERGRAD_TRIALS, AX_TRIALS = 80, 10  # the plugins' own defaults


def convert_nevergrad(
    draft: Draft, data: Mapping[str, Any], sweeper: Mapping[str, Any], path: Path, lost: list[str]
) -> None:
    params = sweeper.get("params")
    if isinstance(params, Mapping) and isinstance(params.get("optim"), Mapping):
        sweeper = params  # the way of Hydra 1.0
        params = None
    optim = sweeper.get("optim")
    optim = optim if isinstance(optim, Mapping) else {}
    draft.more["trials"] = whole(optim, "budget", NEVERGRAD_TRIALS, lost)
    draft.more |= {"seed": whole(optim, "seed", None, lost) or 0, "sampler": "auto"}
    lost.append(
        f"optim.optimizer: {optim.get('optimizer', 'NGOpt')} of Nevergrad has no counterpart "
        "here; sampler auto chooses"
    )
    for key in optim.keys() - {"optimizer", "budget", "num_workers", "maximize", "seed"}:
        if optim[key]:
            lost.append(f"optim.{key}: has no counterpart here")
    direction = "maximize" if optim.get("maximize") is True else "minimize"
    draft.objectives.append({"metric": "objective", "direction": direction})
    for space in (params, sweeper.get("parametrization")):
        for name, value in space.items() if isinstance(space, Mapping) else ():
            if isinstance(value, Mapping):
                _add_scalar(draft, str(name), value, lost)
            elif isinstance(value, list) and space is not params:
                _add_choices(draft, str(name), value, lost)
            else:
                add_parameter(draft, str(name), value, NEVERGRAD, path, lost)
    draft.more["max_parallel"] = whole(optim, "num_workers", 10, lost)


def _add_scalar(draft: Draft, name: str, given: Mapping[str, Any], lost: list[str]) -> None:
    """Add a scalar of Nevergrad: lower, upper, log, integer; init and step say where it starts."""
    low, high = given.get("lower"), given.get("upper")
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (low, high))
    if not numbers or low is None or high is None:
        lost.append(
            f"params.{name}: Nevergrad may go anywhere from init; a range here has two ends. Add "
            "it to space with low and high"
        )
        return
    for key in given.keys() - {"lower", "upper", "log", "integer"}:
        if given[key] is not None:
            lost.append(f"params.{name}.{key}: has no counterpart here")
    number = int if given.get("integer") else float
    found = {"type": number.__name__, "low": number(low), "high": number(high)}
    draft.space[name] = found | {"log": True} if given.get("log") else found


def _add_choices(draft: Draft, name: str, values: Any, lost: list[str]) -> None:
    try:
        draft.space[name] = {"type": "categorical", "choices": distinct(name, values, lost)}
    except (TypeError, ValueError) as error:
        lost.append(f"params.{name}: {error}")


def convert_ax(
    draft: Draft, data: Mapping[str, Any], sweeper: Mapping[str, Any], path: Path, lost: list[str]
) -> None:
    config = sweeper.get("ax_config")
    config = config if isinstance(config, Mapping) else {}
    experiment = config.get("experiment")
    experiment = experiment if isinstance(experiment, Mapping) else {}
    client = config.get("client")
    seed = client.get("random_seed") if isinstance(client, Mapping) else None
    draft.more["trials"] = whole(config, "max_trials", AX_TRIALS, lost)
    draft.more |= {"seed": seed if isinstance(seed, int) and seed >= 0 else 0, "sampler": "auto"}
    lost.append("sampler: Ax has no counterpart here; sampler auto chooses")
    direction = "minimize" if experiment.get("minimize", True) is not False else "maximize"
    draft.objectives.append(
        {"metric": str(experiment.get("objective_name") or "objective"), "direction": direction}
    )
    for key in experiment.keys() - {"name", "objective_name", "minimize", "parameter_constraints"}:
        if experiment[key]:
            lost.append(f"ax_config.experiment.{key}: has no counterpart here; see constraints")
    if config.get("early_stop"):
        lost.append("ax_config.early_stop: see patience, which counts trials")
    params = config.get("params")
    for name, value in params.items() if isinstance(params, Mapping) else ():
        _add_ax_parameter(draft, str(name), value, path, lost)
    add_parameters(draft, sweeper.get("params"), AX, path, lost)
    _add_relations(draft, experiment.get("parameter_constraints"), lost)
    draft.more["max_parallel"] = whole(sweeper, "max_batch_size", 4, lost)


def _add_relations(draft: Draft, given: Any, lost: list[str]) -> None:
    """Add Ax's constraints between parameters, which are written as ours are."""
    found = []
    for text in map(str, given if isinstance(given, list) else ()):
        what = f"ax_config.experiment.parameter_constraints: {text}"
        try:
            names = read_relation(text).names
        except RelationError as error:
            lost.append(f"{what}: {error}")
            continue
        if others := sorted(set(names) - {*draft.space, *draft.fixed}):
            lost.append(f"{what}: there is no parameter {', '.join(others)}")
        else:
            found.append(text)
    if found:
        draft.more["where"] = found


def _add_ax_parameter(draft: Draft, name: str, given: Any, path: Path, lost: list[str]) -> None:
    if not isinstance(given, Mapping):
        add_parameter(draft, name, given, AX, path, lost)
        return
    kind, bounds = given.get("type"), given.get("bounds")
    if kind == "fixed" and "value" in given:
        draft.fixed[name] = given["value"]
    elif kind == "choice":
        _add_choices(draft, name, given.get("values"), lost)
    elif (
        kind == "range"
        and isinstance(bounds, list)
        and len(bounds) == 2
        and all(isinstance(b, int | float) and not isinstance(b, bool) for b in bounds)
    ):
        whole = all(isinstance(bound, int) for bound in bounds)
        number = int if whole and given.get("value_type") != "float" else float
        low, high = (number(bound) for bound in bounds)
        found = {"type": number.__name__, "low": low, "high": high}
        draft.space[name] = found | {"log": True} if given.get("log_scale") is True else found
    else:
        lost.append(f"ax_config.params.{name}: is not understood (got {dict(given)!r})")
