"""The Optuna-sweeper section of a Hydra configuration as a study file.

Source of the format: hydra.cc/docs/plugins/optuna_sweeper; there a range includes its stop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.core.hydra_text import Call, read_value
from sweep.core.placeholders import EDIT, escape
from sweep.studyfile.starter.draft import HINTS, Draft, fit_grid, make_name
from sweep.studyfile.starter.wandb_ranges import distinct

DEFAULT_TRIALS = 20  # the plugin's own default
_CASTS = {"int": int, "float": float, "str": str, "bool": bool}
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
_KNOWN = {
    "_target_",
    "defaults",
    "sampler",
    "direction",
    "study_name",
    "storage",
    "n_trials",
    "n_jobs",
    "params",
    "search_space",
    "max_failure_rate",
    "custom_search_space",
}


def find_sweeper(data: Any) -> Mapping[str, Any] | None:
    """Return the sweeper's section of a file's content, or None where it holds none."""
    if not isinstance(data, Mapping):
        return None
    hydra = data.get("hydra")
    places = [
        hydra.get("sweeper") if isinstance(hydra, Mapping) else None,
        data.get("hydra.sweeper"),
        data.get("sweeper"),
        data,
    ]
    for place in places:
        if place is data and "sampling_algorithm" in data:
            continue  # Azure ML
        if isinstance(place, Mapping) and place.keys() & {"n_trials", "params", "search_space"}:
            return place
    return None


def convert_hydra(
    data: Mapping[str, Any], sweeper: Mapping[str, Any], path: Path, lost: list[str]
) -> Draft:
    """Return the study of a sweeper's section; what could not be carried over goes to ``lost``."""
    draft = Draft(
        f"Made from the Hydra configuration {path.name}.",
        make_name(str(sweeper.get("study_name") or path.resolve().parent.name or "study")),
        ["python", escape(_find_program(path, lost)), "{overrides}", "hydra.run.dir={trial_dir}"],
        hints=list(HINTS),
        notes={"command": "{overrides} stands for all of space and fixed, as name=value."},
    )
    if sweeper.get("params") and sweeper.get("search_space"):
        lost.append("search_space: is ignored beside params, as the plugin does")
    for name, value in (sweeper.get("params") or {}).items():
        _add_parameter(draft, str(name), value, lost)
    if not sweeper.get("params"):
        for name, value in (sweeper.get("search_space") or {}).items():
            _add_old_parameter(draft, str(name), value, lost)
    _add_objectives(draft, sweeper.get("direction") or "minimize", lost)
    draft.more["trials"] = int(sweeper.get("n_trials") or DEFAULT_TRIALS)
    draft.more["seed"] = 0
    _add_sampler(draft, data, sweeper.get("sampler"), lost)
    draft.more["max_parallel"] = int(sweeper.get("n_jobs") or 2)
    if sweeper.get("storage"):
        lost.append("storage: the study's rows are kept in PostgreSQL here; see the key storage")
    if sweeper.get("max_failure_rate"):
        lost.append("max_failure_rate: has no counterpart here; see retry.max_user_failures")
    if sweeper.get("custom_search_space"):
        lost.append("custom_search_space: code is not read; conditions can be declared with `when`")
    for key in sweeper:
        if str(key) not in _KNOWN:
            lost.append(f"{key}: has no counterpart here")
    return draft


def _find_program(path: Path, lost: list[str]) -> str:
    """Return the one script near a configuration that is a Hydra application."""
    folder = path.resolve().parent
    for place in (folder, folder.parent, folder.parent.parent):
        found = [script for script in sorted(place.glob("*.py")) if "hydra.main" in _read(script)]
        if len(found) == 1:
            here = Path.cwd()
            return str(found[0].relative_to(here) if found[0].is_relative_to(here) else found[0])
        if found:
            break
    lost.append(f"the application: replace {EDIT} in the command by your script")
    return EDIT


def _read(script: Path) -> str:
    try:
        return script.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a folder of that name, a file that is closed to us
        return ""


def _add_parameter(draft: Draft, name: str, given: Any, lost: list[str]) -> None:
    try:
        value = read_value(given) if isinstance(given, str) else given
        if not isinstance(value, Call):
            draft.fixed[name] = value
            return
        found = _convert_sweep(name, value, lost)
    except (ValueError, TypeError) as error:
        lost.append(f"params.{name}: {error} (got {given!r})")
        return
    draft.space[name] = found


def _convert_sweep(
    name: str, call: Call, lost: list[str], tags: tuple[str, ...] = (), cast: Any = None
) -> dict[str, Any]:
    """Return a sweep expression as a parameter. Raises: ValueError, TypeError."""
    arguments = list(call.arguments)
    if call.name == "tag":
        inner = call.options.get("sweep", arguments[-1] if arguments else None)
        return _convert_sweep(name, _sweep(inner), lost, (*tags, *map(str, arguments[:-1])), cast)
    if call.name in ("shuffle", "sort"):
        inner = _sweep(
            call.options.get(
                "sweep", arguments[0] if len(arguments) == 1 else Call("choice", tuple(arguments))
            )
        )
        # The order of choices means nothing to a search.
        return _convert_sweep(name, inner, lost, tags, cast)
    if call.name in _CASTS and arguments:
        return _convert_sweep(name, _sweep(arguments[0]), lost, tags, cast or _CASTS[call.name])
    if call.name == "choice":
        values = [cast(item) if cast else item for item in arguments]
        if any(isinstance(value, Call) for value in values):
            raise ValueError("a choice of sweeps has no counterpart here")
        return {"type": "categorical", "choices": distinct(f"params.{name}", values, lost)}
    if call.name == "range":
        numbers = [_number(item) for item in arguments]
        numbers = [0, *numbers] if len(numbers) == 1 else numbers
        start, stop = (
            _number(call.options.get("start", (numbers or [0])[0])),
            _number(call.options.get("stop", numbers[1] if len(numbers) > 1 else None)),
        )
        step = _number(call.options.get("step", numbers[2] if len(numbers) > 2 else 1))
        low, high, step = fit_grid(start, stop, step)
        return _grid(cast(low) if cast else low, cast(high) if cast else high, step)
    if call.name == "interval":
        bounds = [*arguments, *call.options.values()]
        low, high = (_number(item) for item in bounds)
        kind = int if cast is int else float
        found = {"type": kind.__name__, "low": kind(low), "high": kind(high)}
        return found | {"log": True} if "log" in tags else found
    raise ValueError(f"{call.name}() has no counterpart here")


def _sweep(value: Any) -> Call:
    return value if isinstance(value, Call) else Call("choice", (value,))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a number is expected, not {value!r}")
    return value


def _grid(low: float, high: float, step: float) -> dict[str, Any]:
    whole = all(isinstance(value, int) for value in (low, high)) and float(step).is_integer()
    found: dict[str, Any] = {"type": "int" if whole else "float", "low": low, "high": high}
    if whole and step == 1:
        return found
    return found | {"step": int(step) if whole else step}


def _add_old_parameter(draft: Draft, name: str, given: Any, lost: list[str]) -> None:
    """Add an entry of ``search_space``, the form before Hydra 1.2: type, low, high, step, log."""
    try:
        kind = given["type"]
        if kind == "categorical":
            choices = distinct(f"search_space.{name}", given["choices"], lost)
            draft.space[name] = {"type": kind, "choices": choices}
            return
        if kind not in ("int", "float"):
            raise ValueError(f"type {kind} has no counterpart here")
        number = int if kind == "int" else float
        low, high, step = given["low"], given["high"], given.get("step")
        if given.get("log"):
            found = {"low": number(low), "high": number(high), "log": True}
        elif step is not None and not (kind == "int" and step == 1):
            low, high, step = fit_grid(number(low), number(high), number(step))
            found = {"low": low, "high": high, "step": step}
        else:
            found = {"low": number(low), "high": number(high)}
        draft.space[name] = {"type": kind, **found}
    except (KeyError, TypeError, ValueError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        lost.append(f"search_space.{name}: {why}")


def _add_objectives(draft: Draft, direction: Any, lost: list[str]) -> None:
    directions = direction if isinstance(direction, list) else [direction]
    names = (
        ["objective"]
        if len(directions) == 1
        else [f"objective_{i + 1}" for i in range(len(directions))]
    )
    for name, wanted in zip(names, directions, strict=True):
        wanted = str(wanted).rpartition(".")[2].lower()
        draft.objectives.append({"metric": name, "direction": wanted})
    lost.append(
        "the returned value: Hydra took the objective from what the application returns. Report "
        f"it: from sweep.report import Reporter; Reporter().log({names[0]}=value)"
    )


def _add_sampler(draft: Draft, data: Mapping[str, Any], given: Any, lost: list[str]) -> None:
    options = given if isinstance(given, Mapping) else {}
    target = str(options.get("_target_") or _named_default(data) or "tpe")
    word = re.sub(r"sampler$", "", target.rpartition(".")[2].lower())
    name, renamed = _SAMPLERS.get(word, ("auto", {}))
    if word not in _SAMPLERS:
        lost.append(f"sampler: {target} has no counterpart here; sampler auto chooses")
    kept: dict[str, Any] = {}
    for key, value in options.items():
        if key == "seed":
            draft.more["seed"] = int(value or 0)
        elif key in renamed and value is not None:
            kept[renamed[key]] = value
        elif key not in ("_target_", "_partial_") and value is not None and key not in renamed:
            lost.append(f"sampler.{key}: has no counterpart here")
    draft.more["sampler"] = {"type": name, **kept} if kept else name


def _named_default(data: Mapping[str, Any]) -> str | None:
    """Return the sampler that the defaults list names: ``override hydra/sweeper/sampler: tpe``."""
    for entry in data.get("defaults") or []:
        if isinstance(entry, Mapping):
            for key, value in entry.items():
                if str(key).endswith("sweeper/sampler"):
                    return str(value)
    return None
