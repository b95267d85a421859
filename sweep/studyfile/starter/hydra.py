"""The sweep of a Hydra configuration as a study file.

Sources of the formats: hydra.cc/docs (override grammar; Optuna, Nevergrad and Ax sweepers; submitit
launcher), and the plugins' code. Expressions are in ``hydra_sweeps``, the application and its
arguments in ``hydra_app``, the launcher in ``hydra_launcher``, the sweepers of Nevergrad and Ax in
``hydra_others``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.core.errors import InputError
from sweep.studyfile.starter.draft import HINTS, Draft, make_name
from sweep.studyfile.starter.foreign_yaml import read_yaml
from sweep.studyfile.starter.hydra_app import build_command, find_folders
from sweep.studyfile.starter.hydra_interpolation import is_open, resolve
from sweep.studyfile.starter.hydra_launcher import add_launcher
from sweep.studyfile.starter.hydra_old_space import add_old_parameter
from sweep.studyfile.starter.hydra_others import convert_ax, convert_nevergrad
from sweep.studyfile.starter.hydra_params import add_parameters, whole
from sweep.studyfile.starter.hydra_sweeps import AX, BASIC, NEVERGRAD, OPTUNA, OPTUNA_GRID
from sweep.studyfile.starter.metrics import Metric, doubt_direction
from sweep.studyfile.tree import YamlError

DEFAULT_TRIALS = 20  # the plugin's own
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


def add_sweeper(data: Any, path: Path) -> Any:
    """Return a configuration with the sweeper that its defaults take from a file of their own:
    ``override hydra/sweeper: mine`` means ``hydra/sweeper/mine.yaml``.

    Raises:
        InputError: There is no such file, and nothing of a sweeper in this one.
    """
    named = _default_of(data, "hydra/sweeper") if isinstance(data, Mapping) else None
    if named is None:
        return data
    own = find_sweeper(data)
    name = re.sub(r"\.ya?ml$", "", named)
    for folder in find_folders(path):
        file = folder / "hydra" / "sweeper" / f"{name}.yaml"
        try:
            found = read_yaml(file.read_text(encoding="utf-8"), file.name).data
        except (OSError, UnicodeDecodeError, YamlError):
            continue
        if isinstance(found, Mapping):
            hydra = data.get("hydra")
            below = {**found, **(own or {})}
            return {
                **data,
                "hydra": {**(hydra if isinstance(hydra, Mapping) else {}), "sweeper": below},
            }
    if own is None:
        raise InputError(
            f"{path}: its defaults choose the sweeper {name}, and what that varies is not in this "
            "file.",
            f"Looked for: hydra/sweeper/{name}.yaml. Convert the file that has its params.",
        )
    return data


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
    add_study(draft, data, path, lost)
    if not draft.space:
        why = "; ".join(lost[:3])
        raise InputError(
            f"{path}: its sweeper varies nothing that is known from this file"
            + (f": {why}." if lost else "."),
            "Write params: {name: interval(…)} in it, or name the parameters under space in a "
            "study file (sweep init SCRIPT writes one).",
        )
    return draft


def add_study(draft: Draft, data: Mapping[str, Any], path: Path, lost: list[str]) -> str:
    """Add what a configuration's sweeper and launcher say to a draft; return the sweeper's kind.

    Raises:
        InputError: Its sweeper is of another kind.
    """
    sweeper = find_sweeper(data)
    assert sweeper is not None
    kind = _find_kind(data, sweeper, path)
    convert = {OPTUNA: _convert_optuna, BASIC: _convert_basic, NEVERGRAD: convert_nevergrad}
    convert.get(kind, convert_ax)(draft, data, sweeper, path, lost)
    for key in sweeper:
        if str(key) not in _KNOWN[kind]:
            lost.append(f"{key}: has no counterpart here")
    _add_metric(draft, data, kind, lost)
    hydra = data.get("hydra")
    launcher = hydra.get("launcher") if isinstance(hydra, Mapping) else data.get("launcher")
    if isinstance(launcher, Mapping):
        named = _default_of(data, "hydra/launcher") or ""
        add_launcher(draft.more, launcher, named, lost)
    return kind


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


def _convert_basic(
    draft: Draft, data: Mapping[str, Any], sweeper: Mapping[str, Any], path: Path, lost: list[str]
) -> None:
    """Add the product of all choices, which is a grid."""
    add_parameters(draft, sweeper.get("params"), BASIC, path, lost)
    draft.objectives.append({"metric": "objective", "direction": "minimize"})
    lost.append(
        "objective: Hydra's own sweeper runs all combinations and compares none; name what the "
        "application reports, and in which direction it is better"
    )
    draft.more |= {"trials": _size(draft), "seed": 0, "sampler": "grid"}
    width = whole(sweeper, "max_batch_size", None, lost)
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


def _convert_optuna(
    draft: Draft, data: Mapping[str, Any], sweeper: Mapping[str, Any], path: Path, lost: list[str]
) -> None:
    draft.more["trials"] = whole(sweeper, "n_trials", DEFAULT_TRIALS, lost)
    draft.more["seed"] = 0
    _add_sampler(draft, data, sweeper.get("sampler"), lost)
    is_grid = draft.more["sampler"] == "grid"
    kind = OPTUNA_GRID if is_grid else OPTUNA
    if sweeper.get("params") and sweeper.get("search_space"):
        lost.append("search_space: is ignored beside params, as the plugin does")
    if sweeper.get("params"):
        add_parameters(draft, sweeper["params"], kind, path, lost)
    else:
        space = sweeper.get("search_space")
        lost.append(
            "hydra.mode=RUN: Hydra has it from 1.2 on; take it out of the command for an older one"
        )
        if space is not None and not isinstance(space, Mapping):
            lost.append(f"search_space: is not a mapping (got {space!r})")
        for name, value in space.items() if isinstance(space, Mapping) else ():
            add_old_parameter(draft, str(name), value, lost, is_grid=is_grid)
    _add_directions(draft, sweeper.get("direction"), lost)
    if is_grid:
        size = _size(draft)
        if size < draft.more["trials"]:
            draft.notes["trials"] = f"the size of the grid; n_trials was {draft.more['trials']}"
            draft.more["trials"] = size
    draft.more["max_parallel"] = whole(sweeper, "n_jobs", 2, lost)
    if sweeper.get("storage"):
        lost.append("storage: the study's rows are kept in PostgreSQL here; see the key storage")
    if sweeper.get("max_failure_rate"):
        lost.append("max_failure_rate: has no counterpart here; see retry.max_user_failures")
    if sweeper.get("custom_search_space"):
        lost.append("custom_search_space: code is not read; conditions can be declared with `when`")


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


def _add_metric(draft: Draft, data: Mapping[str, Any], kind: str, lost: list[str]) -> None:
    """Name the objective as the configuration does, and say how its value comes here."""
    found = next((data[key] for key in _METRICS if data.get(key)), None)
    is_one = isinstance(found, str) and not is_open(found) and len(draft.objectives) == 1
    if is_one:
        draft.objectives[0]["metric"] = found
        doubt = doubt_direction(str(found), draft.objectives[0]["direction"])
        if doubt and kind != BASIC:
            lost.append(f"direction: {doubt}")
        if Metric(str(found)).is_test:
            lost.append(f"optimized_metric: {found}: a search should not choose by the test set")
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
