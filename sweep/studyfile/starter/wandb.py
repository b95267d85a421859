"""A W&B sweep configuration as a study file.

Source of the format: docs.wandb.ai/models/sweeps/sweep-config-keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from sweep.core.placeholders import EDIT, escape
from sweep.studyfile.starter.draft import HINTS, Draft, fit_grid, make_name

DEFAULT_TRIALS = 50
# A normal range has no bounds; 95 % of it lies within two standard deviations.
DEVIATIONS = 2.0
_KNOWN = {
    "program",
    "name",
    "project",
    "description",
    "method",
    "metric",
    "parameters",
    "early_terminate",
    "command",
    "run_cap",
}
_DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
_NAME = re.compile(r"[\w+@~][\w./:@+-]{0,199}")


def is_wandb(data: Any) -> bool:
    """Tell whether a file's content is a W&B sweep."""
    return isinstance(data, Mapping) and isinstance(data.get("parameters"), Mapping)


def convert_wandb(data: Mapping[str, Any], file: str, lost: list[str]) -> Draft:
    """Return the study of a W&B sweep; what could not be carried over is added to ``lost``."""
    draft = Draft(
        f"Made from the W&B sweep {file}.",
        make_name(str(data.get("name") or data.get("project") or "study")),
        [],
        hints=list(HINTS),
    )
    for name, value in data["parameters"].items():
        _add_parameter(draft, str(name), value, lost)
    draft.command = _convert_command(data, lost)
    # `env NAME=value program` sets variables; here they have a place of their own.
    variables = {}
    while draft.command and (found := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", draft.command[0])):
        variables[found[1]] = found[2]
        draft.command.pop(0)
    _add_objective(draft, data.get("metric"), lost)
    _add_search(draft, data, lost)
    if variables:
        draft.more["environment"] = {"env": variables}
    for key in data:
        if key not in _KNOWN:
            lost.append(f"{key}: has no counterpart here")
    lost.append(
        "wandb.config and wandb.log: W&B itself gave the script its values and took its metrics. "
        "Here the script gets the values as the command says, or reads the file that SWEEP_CONFIG "
        "names; and it reports by sweep.report.Reporter().log(step=…, …), or prints what "
        "objective.from.stdout finds"
    )
    return draft


def _add_parameter(draft: Draft, name: str, given: Any, lost: list[str]) -> None:
    if not _NAME.fullmatch(name):
        lost.append(f"parameters.{name}: rename it to letters, digits and any of _ . / : @ + -")
        return
    if not isinstance(given, Mapping):
        lost.append(f"parameters.{name}: is not a mapping (got {given!r})")
        return
    if isinstance(given.get("parameters"), Mapping):
        for inner, value in given["parameters"].items():
            _add_parameter(draft, f"{name}.{inner}", value, lost)
        return
    kind = str(given.get("distribution") or _guess_kind(given))
    if kind == "constant":
        draft.fixed[name] = given.get("value")
        return
    try:
        found = _convert_range(name, kind, given, lost)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        lost.append(f"parameters.{name}: {why}")
        return
    if found is None:
        lost.append(f"parameters.{name}: distribution {kind} has no counterpart here")
    else:
        draft.space[name] = found


def _guess_kind(given: Mapping[str, Any]) -> str:
    """Return the distribution that W&B takes where none is named."""
    if "values" in given:
        return "categorical"
    if "value" in given:
        return "constant"
    if "mu" in given or "sigma" in given:
        return "normal"
    whole = all(isinstance(given.get(key), int) for key in ("min", "max"))
    return "int_uniform" if whole else "uniform"


def _convert_range(
    name: str, kind: str, given: Mapping[str, Any], lost: list[str]
) -> dict[str, Any] | None:
    if kind in ("categorical", "categorical_w_probabilities"):
        if "probabilities" in given:
            lost.append(f"parameters.{name}.probabilities: choices are equally likely here")
        return {"type": "categorical", "choices": distinct(name, given["values"], lost)}
    quantised = kind.startswith("q_")
    base = kind.removeprefix("q_").removeprefix("inv_")
    log = base.startswith("log")
    if base in ("normal", "log_normal"):
        mu, sigma = float(given.get("mu", 0.0)), float(given.get("sigma", 1.0))
        low, high = mu - DEVIATIONS * sigma, mu + DEVIATIONS * sigma
        if log:
            low, high = math.exp(low), math.exp(high)
        lost.append(
            f"parameters.{name}: {kind} has no counterpart here; it became even over mu ± "
            f"{DEVIATIONS:g} sigma{', on a logarithmic scale' if log else ''}"
        )
        low, high = float(f"{low:.4g}"), float(f"{high:.4g}")
    elif base == "log_uniform":
        low, high = float(given["min"]), float(given["max"])
        if "inv_" in kind:
            low, high = -high, -low
        low, high = float(f"{math.exp(low):.6g}"), float(f"{math.exp(high):.6g}")
    elif base in ("uniform", "int_uniform", "log_uniform_values"):
        low, high = given["min"], given["max"]
        for bound in (low, high):
            if isinstance(bound, bool) or not isinstance(bound, int | float):
                raise TypeError(f"min and max must be numbers (got {bound!r})")
    else:
        return None
    if base == "int_uniform":
        return {"type": "int", "low": int(low), "high": int(high)}
    if quantised:
        return _quantise(name, low, high, given.get("q", 1), log, lost)
    found = {"type": "float", "low": float(low), "high": float(high)}
    return found | {"log": True} if log else found


def _quantise(
    name: str, low: float, high: float, q: float, log: bool, lost: list[str]
) -> dict[str, Any]:
    if log:
        if q == 1 and high >= 1:
            low, high = max(1, math.ceil(low)), math.floor(high)
            return {"type": "int", "low": low, "high": high, "log": True}
        lost.append(f"parameters.{name}.q: a logarithmic range has no steps here")
        return {"type": "float", "low": float(low), "high": float(high), "log": True}
    first, last, step = fit_grid(low, high, q, origin=0)
    if (first, last) != (low, high):
        lost.append(
            f"parameters.{name}: the bounds became the outermost multiples of q, {first} and {last}"
        )
    if isinstance(first, int):
        found: dict[str, Any] = {"type": "int", "low": first, "high": last}
        return found if step == 1 else found | {"step": step}
    return {"type": "float", "low": first, "high": last, "step": step}


def distinct(name: str, values: Any, lost: list[str]) -> list[Any]:
    """Return choices without those that Optuna cannot tell apart. Raises: TypeError, ValueError."""
    if not isinstance(values, list):
        raise TypeError(f"the choices must be a list (got {values!r})")
    if not values:
        raise ValueError("there are no choices")
    kept: list[Any] = []
    for value in values:
        if any(value == other for other in kept):
            lost.append(f"{name}: the choice {value!r} is there twice, and was dropped once")
        else:
            kept.append(value)
    return kept


def _convert_command(data: Mapping[str, Any], lost: list[str]) -> list[str]:
    program = str(data.get("program") or "")
    given = data.get("command") or _DEFAULT_COMMAND
    if isinstance(given, str):
        given = given.split()
    found: list[str] = []
    for element in map(str, given):
        if element == "${env}":
            continue  # /usr/bin/env, which only looks python up on PATH, as is done here anyway
        if element in ("${args}", "${args_no_boolean_flags}"):
            found.append("{params}")
            if element != "${args}":
                lost.append(
                    "command: ${args_no_boolean_flags} gives true booleans as --name and omits "
                    "false ones; {params} gives --name=True and --name=False"
                )
        elif element == "${args_no_hyphens}":
            found.append("{overrides}")
        elif element == "${args_json_file}":
            found.append("{config}")
            lost.append("command: ${args_json_file} names a JSON file; {config} names a YAML file")
        else:
            found.append(_convert_element(element, program, lost))
    if not program and "${program}" in given:
        lost.append(f"program: is missing; replace {EDIT} in the command")
    return found


def _convert_element(element: str, program: str, lost: list[str]) -> str:
    """Replace W&B's macros inside one argument."""

    def replace(found: re.Match[str]) -> str:
        name = found[1]
        if name == "interpreter":
            return "python"
        if name == "program":
            return escape(program or EDIT)
        lost.append(
            f"command: ${{{name}}} has no counterpart here; replace {EDIT} in the command"
            + (
                " (variables of the environment reach training as they are)"
                if name.startswith("envvar:")
                else ""
            )
        )
        return EDIT

    parts = re.split(r"(\$\{[^}]+\})", element)
    return "".join(
        re.sub(r"\$\{([^}]+)\}", replace, part) if part.startswith("${") else escape(part)
        for part in parts
    )


def _add_objective(draft: Draft, metric: Any, lost: list[str]) -> None:
    metric = metric if isinstance(metric, Mapping) else {}
    if not metric.get("name"):
        lost.append("metric.name: is missing; val_loss was put in its place")
    goal = str(metric.get("goal") or "minimize")
    draft.objectives.append(
        {
            "metric": str(metric.get("name") or "val_loss"),
            "direction": "maximize" if goal.startswith("max") else "minimize",
            # W&B compares runs by the summary, which holds the last value.
            "at": "last",
        }
    )
    if "target" in metric:
        lost.append(f"metric.target ({metric['target']}): has no counterpart here")
    for key in metric.keys() - {"name", "goal", "target"}:
        lost.append(f"metric.{key}: has no counterpart here")


def _add_search(draft: Draft, data: Mapping[str, Any], lost: list[str]) -> None:
    method = str(data.get("method") or "random")
    sampler = {"grid": "grid", "random": "random", "bayes": "auto"}.get(method)
    if sampler is None:
        lost.append(f"method: {method} has no counterpart here; sampler auto chooses")
    if sampler == "grid" and any(
        p["type"] == "float" and "step" not in p for p in draft.space.values()
    ):
        lost.append("method: grid needs choices, whole numbers or steps; sampler random was taken")
        sampler = "random"
    if data.get("run_cap"):
        draft.more["trials"] = int(data["run_cap"])
    elif sampler != "grid":
        draft.more["trials"] = DEFAULT_TRIALS
        lost.append(f"run_cap: is missing, and a study has an end: trials is {DEFAULT_TRIALS}")
    draft.more |= {"seed": 0, "sampler": sampler or "auto"}
    draft.more |= _convert_stopping(data.get("early_terminate"), lost)
    draft.more["max_parallel"] = 4
    draft.notes["max_parallel"] = "so many at once, at most; W&B has as many as agents"


def _convert_stopping(given: Any, lost: list[str]) -> dict[str, Any]:
    """Return the pruner: W&B's hyperband has one bracket, which is successive halving."""
    if not isinstance(given, Mapping):
        return {}
    if given.get("type") != "hyperband":
        lost.append(f"early_terminate.type: {given.get('type')} has no counterpart here")
        return {}
    eta = max(2, round(float(given.get("eta", 3))))
    first = given.get("min_iter")
    if first is None and given.get("max_iter"):
        # Brackets of W&B end at max_iter / eta, / eta² …, s of them.
        first = int(given["max_iter"]) // eta ** int(given.get("s", 1))
    for key in given.keys() - {"type", "min_iter", "max_iter", "s", "eta"}:
        lost.append(f"early_terminate.{key}: has no counterpart here")
    return {
        "pruner": {"type": "asha", "min_resource": max(1, int(first or 1)), "reduction_factor": eta}
    }
