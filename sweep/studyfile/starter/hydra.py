"""The sweep of a Hydra configuration as a study file.

Sources of the formats: hydra.cc/docs (override grammar; Optuna, Nevergrad and Ax sweepers; submitit
launcher), and the plugins' code. Expressions are in ``hydra_sweeps``, the application and its
arguments in ``hydra_app``, the launcher in ``hydra_launcher``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.core.errors import InputError
from sweep.core.hydra_text import Call, read_value
from sweep.studyfile.starter.draft import HINTS, Draft, fit_grid, make_name
from sweep.studyfile.starter.hydra_app import build_command, find_folders
from sweep.studyfile.starter.hydra_interpolation import is_open, resolve
from sweep.studyfile.starter.hydra_launcher import add_launcher
from sweep.studyfile.starter.hydra_sweeps import (
    AX,
    BASIC,
    NEVERGRAD,
    OPTUNA,
    OPTUNA_GRID,
    convert_sweep,
    has_sweep,
)
from sweep.studyfile.starter.wandb_ranges import distinct

DEFAULT_TRIALS = {OPTUNA: 20, NEVERGRAD: 80, AX: 10}  # the plugins' own
# Optuna's class (or the name of the plugin's configuration), ours, and its options' names here.
_SAMPLERS: dict[str, tuple[str, dict[str, str]]] = {
    "tpe": (
        "tpe",
        {
            "n_startup_trials": "startup_trials",
            "n_ei_candidates": "candidates",
            "multivariate": "multivariate",
        },
    ),
    "motpe": ("tpe", {"n_startup_trials": "startup_trials", "n_ehvi_candidates": "candidates"}),
    "random": ("random", {}),
    "grid": ("grid", {}),
    "cmaes": (
        "cmaes",
        {"n_startup_trials": "startup_trials", "sigma0": "sigma0", "popsize": "population"},
    ),
    "nsgaii": (
        "nsgaii",
        {
            "population_size": "population",
            "mutation_prob": "mutation_prob",
            "crossover_prob": "crossover_prob",
        },
    ),
    "qmc": ("qmc", {"qmc_type": "sequence", "scramble": "scramble"}),
    "gp": (
        "gp",
        {"n_startup_trials": "startup_trials", "deterministic_objective": "deterministic"},
    ),
}
# The plugin's own defaults, which its users copy out: they change nothing here.
_USUAL: dict[str, Any] = {
    "consider_prior": True,
    "prior_weight": 1.0,
    "consider_magic_clip": True,
    "consider_endpoints": False,
    "warn_independent_sampling": True,
    "consider_pruned_trials": False,
    "inc_popsize": 2,
    "use_separable_cma": False,
    "swapping_prob": 0.5,
}
_OF_OPTUNA = {
    *("_target_", "defaults", "sampler", "direction", "study_name", "storage", "n_trials"),
    *("n_jobs", "params", "search_space", "max_failure_rate", "custom_search_space"),
}
_KNOWN = {
    OPTUNA: _OF_OPTUNA,
    BASIC: {"_target_", "params", "max_batch_size"},
    NEVERGRAD: {"_target_", "optim", "params", "parametrization", "version", "class"},
    AX: {"_target_", "ax_config", "params", "max_batch_size"},
}
_METRICS = ("optimized_metric", "optimize_metric", "optimised_metric", "objective_metric")
_SPACES = {"params", "search_space", "parametrization", "ax_config"}
_USUAL_NAMES = {
    "config",
    "conf",
    "configs",
    "sweep",
    "sweeper",
    "optuna",
    "main",
    "default",
    "hydra",
}
# Azure ML, Comet and others also have search spaces and parameters.
_OTHERS = {"sampling_algorithm", "$schema", "algorithm", "tuner", "searcher", "command"}


def find_sweeper(data: Any) -> Mapping[str, Any] | None:
    """Return the sweeper's section of a file's content, or None where it holds none."""
    if not isinstance(data, Mapping):
        return None
    hydra = data.get("hydra")
    for place in (
        hydra.get("sweeper") if isinstance(hydra, Mapping) else None,
        data.get("hydra.sweeper"),
    ):
        if isinstance(place, Mapping):
            return place
    for place in (data.get("sweeper"), data):
        if not isinstance(place, Mapping) or data.keys() & _OTHERS:
            continue
        # A file under "# @package hydra.sweeper", or "# @package hydra".
        is_its = place.keys() & {"n_trials", "_target_", "ax_config", "optim"}
        if is_its and place.keys() & _SPACES:
            return place
    return None


def convert_hydra(data: Mapping[str, Any], path: Path, text: str, lost: list[str]) -> Draft:
    """Return the study of a configuration's sweeper; what could not be carried over goes to
    ``lost``.

    Raises:
        InputError: Its sweeper is of another kind, or there is nothing to vary.
    """
    data = resolve(data)
    sweeper = find_sweeper(data)
    assert sweeper is not None
    kind = _find_kind(data, sweeper, path)
    name = sweeper.get("study_name")
    draft = Draft(
        f"Made from the Hydra configuration {path.name}"
        + (f" ({kind} sweeper)." if kind != OPTUNA else "."),
        make_name(str(name) if name and not is_open(name) else _name(path)),
        build_command(path, text, lost),
        hints=list(HINTS),
        notes={
            "command": "{overrides} stands for all of space and fixed, as name=value. "
            "hydra.mode=RUN keeps each trial to one training."
        },
    )
    convert = {OPTUNA: _convert_optuna, BASIC: _convert_basic, NEVERGRAD: _convert_nevergrad}
    convert.get(kind, _convert_ax)(draft, data, sweeper, path, lost)
    for key in sweeper:
        if str(key) not in _KNOWN[kind]:
            lost.append(f"{key}: has no counterpart here")
    if not draft.space:
        why = "; ".join(lost[:3])
        raise InputError(
            f"{path}: its sweeper varies nothing that is known from this file"
            + (f": {why}." if lost else "."),
            "Write params: {name: interval(…)} in it, or name the parameters under space in a "
            "study file (sweep init SCRIPT writes one).",
        )
    _add_metric(draft, data, lost)
    hydra = data.get("hydra")
    launcher = hydra.get("launcher") if isinstance(hydra, Mapping) else data.get("launcher")
    if isinstance(launcher, Mapping):
        named = _default_of(data, "hydra/launcher") or ""
        add_launcher(draft.more, launcher, named, lost)
    return draft


def _name(path: Path) -> str:
    """Return a name for a study whose file gives none: the file's, or its project's."""
    if path.stem not in _USUAL_NAMES:
        return path.stem
    parents = (folder.name for folder in path.resolve().parents)
    return next((name for name in parents if name and name not in _USUAL_NAMES), "study")


def _find_kind(data: Mapping[str, Any], sweeper: Mapping[str, Any], path: Path) -> str:
    """Return the sweeper's kind. Raises: InputError where it is none that is converted."""
    target = str(sweeper.get("_target_") or sweeper.get("class") or "")
    named = target.rpartition(".")[2] or _default_of(data, "hydra/sweeper") or ""
    words = named.lower()
    for word, kind in (("optuna", OPTUNA), ("basic", BASIC), ("nevergrad", NEVERGRAD)):
        if word in words:
            return kind
    if re.match(r"(custom)?ax(sweeper)?$", words):
        return AX
    if named:
        raise InputError(
            f"{path}: the sweeper {named} is not converted; Optuna's, Nevergrad's, Ax's and "
            "Hydra's own are.",
            "Write its parameters under space in a study file: docs/coming-from.md says how.",
        )
    if "ax_config" in sweeper:
        return AX
    if sweeper.keys() & {"optim", "parametrization"} or (
        isinstance(sweeper.get("params"), Mapping) and "optim" in sweeper["params"]
    ):
        return NEVERGRAD
    if sweeper.keys() & (_OF_OPTUNA - {"params", "_target_", "defaults"}):
        return OPTUNA
    return BASIC


def _default_of(data: Mapping[str, Any], group: str) -> str | None:
    """Return what the defaults list chooses for a group: ``override /hydra/sweeper: optuna``."""
    entries = data.get("defaults")
    for entry in entries if isinstance(entries, list) else ():
        for key, value in entry.items() if isinstance(entry, Mapping) else ():
            name = re.sub(r"^override\s+", "", str(key)).lstrip("/")
            if name == group and isinstance(value, str):
                return value
    return None


# ------------------------------------------------------------------------------ Hydra's own


def _convert_basic(
    draft: Draft, data: Mapping[str, Any], sweeper: Mapping[str, Any], path: Path, lost: list[str]
) -> None:
    """Add the product of all choices, which is a grid."""
    _add_parameters(draft, sweeper.get("params"), BASIC, path, lost)
    draft.objectives.append({"metric": "objective", "direction": "minimize"})
    lost.append(
        "objective: Hydra's own sweeper runs all combinations and compares none; name what the "
        "application reports, and in which direction it is better"
    )
    draft.more |= {"trials": _size(draft), "seed": 0, "sampler": "grid"}
    width = _whole(sweeper, "max_batch_size", None, lost)
    draft.more["max_parallel"] = width or 4


def _size(draft: Draft) -> int:
    return math.prod(_count(parameter) for parameter in draft.space.values())


def _count(parameter: Mapping[str, Any]) -> int:
    if "choices" in parameter:
        return len(parameter["choices"])
    if parameter["low"] == parameter["high"]:
        return 1
    step = parameter.get("step", 1 if parameter["type"] == "int" else None)
    return round((parameter["high"] - parameter["low"]) / step) + 1 if step else 1


# -------------------------------------------------------------------------------- Optuna's


def _convert_optuna(
    draft: Draft, data: Mapping[str, Any], sweeper: Mapping[str, Any], path: Path, lost: list[str]
) -> None:
    draft.more["trials"] = _whole(sweeper, "n_trials", DEFAULT_TRIALS[OPTUNA], lost)
    draft.more["seed"] = 0
    _add_sampler(draft, data, sweeper.get("sampler"), lost)
    is_grid = draft.more["sampler"] == "grid"
    kind = OPTUNA_GRID if is_grid else OPTUNA
    if sweeper.get("params") and sweeper.get("search_space"):
        lost.append("search_space: is ignored beside params, as the plugin does")
    if sweeper.get("params"):
        _add_parameters(draft, sweeper["params"], kind, path, lost)
    else:
        space = sweeper.get("search_space")
        if space is not None and not isinstance(space, Mapping):
            lost.append(f"search_space: is not a mapping (got {space!r})")
        for name, value in space.items() if isinstance(space, Mapping) else ():
            _add_old_parameter(draft, str(name), value, lost, is_grid=is_grid)
    _add_directions(draft, sweeper.get("direction"), lost)
    if is_grid:
        size = _size(draft)
        if size < draft.more["trials"]:
            draft.notes["trials"] = f"the size of the grid; n_trials was {draft.more['trials']}"
            draft.more["trials"] = size
    draft.more["max_parallel"] = _whole(sweeper, "n_jobs", 2, lost)
    if sweeper.get("storage"):
        lost.append("storage: the study's rows are kept in PostgreSQL here; see the key storage")
    if sweeper.get("max_failure_rate"):
        lost.append("max_failure_rate: has no counterpart here; see retry.max_user_failures")
    if sweeper.get("custom_search_space"):
        lost.append("custom_search_space: code is not read; conditions can be declared with `when`")


def _whole(given: Mapping[str, Any], key: str, default: int | None, lost: list[str]) -> Any:
    """Return a whole number above 0 of a section, or the default where it is none."""
    value = given.get(key)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**7:
        return value
    if value is not None:
        what = "is not in this file" if is_open(value) else "is no whole number above 0"
        lost.append(f"{key}: {value} {what}" + (f"; it is {default} here" if default else ""))
    return default


def _add_parameters(draft: Draft, params: Any, kind: str, path: Path, lost: list[str]) -> None:
    if params is None:
        return
    if not isinstance(params, Mapping):
        lost.append(f"params: is not a mapping of names to values (got {params!r})")
        return
    for name, value in params.items():
        _add_parameter(draft, str(name), value, kind, path, lost)


def _add_parameter(
    draft: Draft, name: str, given: Any, kind: str, path: Path, lost: list[str]
) -> None:
    if isinstance(given, Mapping):
        lost.append(
            f"params.{name}: is a mapping, which Hydra's sweepers do not read; write {name}.KEY"
        )
        return
    # The sweepers put it together as name=value, and read that.
    text = given if isinstance(given, str) else str(given)
    if is_open(given):
        lost.append(f"params.{name}: {text} is not in this file")
        return
    if name.startswith("~"):
        draft.command.insert(2, name)
        return
    try:
        value = read_value(text)
        if not isinstance(value, Call) and has_sweep(value):
            raise ValueError("a value holds a sweep, which Hydra does not take apart")
        if isinstance(value, Call):
            draft.space[name] = convert_sweep(name, value, kind, find_folders(path), lost)
        else:
            draft.fixed[name] = value
            if given is None:
                lost.append(f"params.{name}: null arrives as the text None, as it does in Hydra")
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        why = "is nested too deep" if isinstance(error, RecursionError) else error
        lost.append(f"params.{name}: {why} (got {text!r})")


def _add_old_parameter(
    draft: Draft, name: str, given: Any, lost: list[str], *, is_grid: bool
) -> None:
    """Add an entry of ``search_space``, the form before Hydra 1.2: type, low, high, step, log."""
    try:
        if not isinstance(given, Mapping):
            raise TypeError(f"is not a mapping (got {given!r})")
        if is_open(list(given.values())):
            raise ValueError("holds what is not in this file")
        kind = given["type"]
        for key in given.keys() - {"type", "choices", "low", "high", "step", "log"}:
            lost.append(f"search_space.{name}.{key}: has no counterpart here")
        if kind == "categorical":
            choices = distinct(f"search_space.{name}", given["choices"], lost)
            draft.space[name] = {"type": kind, "choices": choices}
            return
        if kind not in ("int", "float"):
            raise ValueError(f"type {kind} has no counterpart here")
        number = int if kind == "int" else float
        low, high, step = number(given["low"]), number(given["high"]), given.get("step")
        if low > high:
            raise ValueError(f"low {low} is above high {high}")
        if given.get("log"):
            if low <= 0:
                raise ValueError(f"a logarithmic range starts above 0 (got {low})")
            if step is not None:
                lost.append(f"search_space.{name}.step: is ignored beside log, as the plugin does")
            found: dict[str, Any] = {"low": low, "high": high, "log": True}
        elif step is not None and not (kind == "int" and int(step) == 1):
            low, high, step = fit_grid(low, high, number(step))
            found = {"low": low, "high": high, "step": step}
        else:
            found = {"low": low, "high": high}
        if is_grid:
            found = _end_grid(found, kind)
        draft.space[name] = {"type": kind, **found}
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        lost.append(f"search_space.{name}: {why}")


def _end_grid(found: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a range as the plugin's grid has it: it ends one step before the last."""
    step = found.get("step", 1 if kind == "int" else None)
    if step is None or found.get("log"):
        raise ValueError("Optuna's grid needs choices or steps")
    count = int((found["high"] - found["low"]) // step)
    if count < 1:
        raise ValueError("the range is empty for Optuna's grid")
    _, high, _ = fit_grid(found["low"], found["low"] + (count - 0.5) * step, step)
    ended = found | {"high": type(found["high"])(high)}
    return {key: value for key, value in ended.items() if key != "step" or count > 1}


def _add_directions(draft: Draft, given: Any, lost: list[str]) -> None:
    directions = given if isinstance(given, list) and given else [given]
    for i, wanted in enumerate(directions):
        name = "objective" if len(directions) == 1 else f"objective_{i + 1}"
        word = str(wanted).rpartition(".")[2].lower()
        if wanted is None:
            word = "minimize"
        elif word not in ("minimize", "maximize"):
            lost.append(f"direction: {wanted} is neither minimize nor maximize; check it")
            word = "minimize"
        draft.objectives.append({"metric": name, "direction": word})


def _add_metric(draft: Draft, data: Mapping[str, Any], lost: list[str]) -> None:
    """Name the objective as the configuration does, and say how its value comes here."""
    found = next((data[key] for key in _METRICS if data.get(key)), None)
    is_one = isinstance(found, str) and not is_open(found) and len(draft.objectives) == 1
    if is_one:
        draft.objectives[0]["metric"] = found
    elif found is not None:
        lost.append(f"optimized_metric: {found} is not in this file; name the metric")
    metric = str(draft.objectives[0]["metric"])
    call = f"{metric}=value" if metric.isidentifier() else f'metrics={{"{metric}": value}}'
    lost.append(
        "the returned value: Hydra took the objective from what the application returns. Report "
        f"it: from sweep.report import Reporter; Reporter().log({call})"
    )


def _add_sampler(draft: Draft, data: Mapping[str, Any], given: Any, lost: list[str]) -> None:
    options = given if isinstance(given, Mapping) else {}
    named = given if isinstance(given, str) else _default_of(data, "hydra/sweeper/sampler")
    target = str(options.get("_target_") or named or "tpe")
    word = re.sub(r"sampler$", "", target.rpartition(".")[2].lower())
    name, renamed = _SAMPLERS.get(word, ("auto", {}))
    if word not in _SAMPLERS:
        lost.append(f"sampler: {target} has no counterpart here; sampler auto chooses")
    kept: dict[str, Any] = {}
    for key, value in options.items():
        if key in ("_target_", "_partial_") or value is None:
            continue
        if is_open(value):
            lost.append(f"sampler.{key}: {value} is not in this file")
        elif key == "seed":
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                draft.more["seed"] = value
            else:
                lost.append(f"sampler.seed: {value} is no whole number; it is 0 here")
        elif key in renamed:
            kept[renamed[key]] = value
        elif _USUAL.get(key) != value:
            lost.append(f"sampler.{key}: has no counterpart here")
    draft.more["sampler"] = {"type": name, **kept} if kept else name


# ------------------------------------------------------------------------ Nevergrad and Ax


def _convert_nevergrad(
    draft: Draft, data: Mapping[str, Any], sweeper: Mapping[str, Any], path: Path, lost: list[str]
) -> None:
    params = sweeper.get("params")
    if isinstance(params, Mapping) and isinstance(params.get("optim"), Mapping):
        sweeper = params  # the way of Hydra 1.0
        params = None
    optim = sweeper.get("optim")
    optim = optim if isinstance(optim, Mapping) else {}
    draft.more["trials"] = _whole(optim, "budget", DEFAULT_TRIALS[NEVERGRAD], lost)
    draft.more |= {"seed": _whole(optim, "seed", None, lost) or 0, "sampler": "auto"}
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
                _add_parameter(draft, str(name), value, NEVERGRAD, path, lost)
    draft.more["max_parallel"] = _whole(optim, "num_workers", 10, lost)


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


def _convert_ax(
    draft: Draft, data: Mapping[str, Any], sweeper: Mapping[str, Any], path: Path, lost: list[str]
) -> None:
    config = sweeper.get("ax_config")
    config = config if isinstance(config, Mapping) else {}
    experiment = config.get("experiment")
    experiment = experiment if isinstance(experiment, Mapping) else {}
    client = config.get("client")
    seed = client.get("random_seed") if isinstance(client, Mapping) else None
    draft.more["trials"] = _whole(config, "max_trials", DEFAULT_TRIALS[AX], lost)
    draft.more |= {"seed": seed if isinstance(seed, int) and seed >= 0 else 0, "sampler": "auto"}
    lost.append("sampler: Ax has no counterpart here; sampler auto chooses")
    direction = "minimize" if experiment.get("minimize", True) is not False else "maximize"
    draft.objectives.append(
        {"metric": str(experiment.get("objective_name") or "objective"), "direction": direction}
    )
    for key in experiment.keys() - {"name", "objective_name", "minimize"}:
        if experiment[key]:
            lost.append(f"ax_config.experiment.{key}: has no counterpart here; see constraints")
    if config.get("early_stop"):
        lost.append("ax_config.early_stop: see patience, which counts trials")
    params = config.get("params")
    for name, value in params.items() if isinstance(params, Mapping) else ():
        _add_ax_parameter(draft, str(name), value, path, lost)
    _add_parameters(draft, sweeper.get("params"), AX, path, lost)
    draft.more["max_parallel"] = _whole(sweeper, "max_batch_size", 4, lost)


def _add_ax_parameter(draft: Draft, name: str, given: Any, path: Path, lost: list[str]) -> None:
    if not isinstance(given, Mapping):
        _add_parameter(draft, name, given, AX, path, lost)
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
