"""A W&B sweep configuration as a study file.

Source of the format: docs.wandb.ai/models/sweeps/sweep-config-keys, and the packages ``wandb`` and
``sweeps``. The parameters' ranges are in ``wandb_ranges``, the command's macros in
``wandb_command``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.studyfile.starter.draft import HINTS, Draft, make_name
from sweep.studyfile.starter.metrics import Metric, doubt_direction
from sweep.studyfile.starter.wandb_command import Passed, convert_command
from sweep.studyfile.starter.wandb_ranges import convert_parameter

DEFAULT_TRIALS = 50
_METHODS = {"grid": "grid", "random": "random", "bayes": "auto"}
_KNOWN = {
    *("program", "name", "project", "description", "method", "metric", "metrics", "parameters"),
    *("early_terminate", "command", "run_cap"),
}
_ITS_OWN = _KNOWN - {"name", "project", "description", "parameters", "metrics"}
_OF_A_PARAMETER = {
    *("values", "value", "min", "max", "distribution", "probabilities", "mu", "sigma", "q"),
    "parameters",
}
# Of other tools whose files have `parameters` as well: Comet, Azure ML, Google Vizier, Hydra.
_OTHERS = {
    *("algorithm", "spec", "search_space", "sampling_algorithm", "$schema", "hydra", "trial"),
    *("entry_points", "trialTemplate", "objective"),
}
_NAME = re.compile(r"[\w+@~][\w./:@+-]{0,199}")


def is_wandb(data: Any) -> bool:
    """Tell whether a file's content is a W&B sweep, and no other tool's."""
    if not isinstance(data, Mapping) or not isinstance(data.get("parameters"), Mapping):
        return False
    if data.keys() & _OTHERS:
        return False
    each = data["parameters"].values()
    look = [isinstance(one, Mapping) and bool(one.keys() & _OF_A_PARAMETER) for one in each]
    if str(data.get("method")) in _METHODS and data.keys() & {"program", "metric", "command"}:
        return True  # its own words, whatever became of the parameters
    return bool(data.keys() & _ITS_OWN and (any(look) or not look)) or bool(look and all(look))


def find_wandb(data: Any) -> tuple[str, Mapping[str, Any]] | None:
    """Return a file's W&B sweep, and the key under which it lies ("" for the file itself)."""
    if is_wandb(data):
        return "", data
    if isinstance(data, Mapping):
        inner = [(str(key), value) for key, value in data.items() if is_wandb(value)]
        if len(inner) == 1 and inner[0][1].keys() & _ITS_OWN:
            return inner[0]
    return None


def convert_wandb(data: Mapping[str, Any], file: str, lost: list[str]) -> Draft:
    """Return the study of a W&B sweep; what could not be carried over is added to ``lost``."""
    draft = Draft(
        f"Made from the W&B sweep {file}.",
        make_name(str(data.get("name") or data.get("project") or "study")),
        [],
        hints=list(HINTS),
    )
    passed = Passed(priors=_METHODS.get(str(data.get("method") or "random"), "auto") == "auto")
    for name, value in data["parameters"].items():
        added = _add_parameter(draft, passed, str(name), value, lost)
        if isinstance(added, dict) and added:
            passed.nested[str(name)] = added
    draft.command = convert_command(data, passed, lost)
    # `env NAME=value program` sets variables; here they have a place of their own.
    variables = {}
    while draft.command and (found := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", draft.command[0])):
        variables[found[1]] = found[2]
        draft.command.pop(0)
    _add_objectives(draft, data, lost)
    _add_search(draft, data, lost)
    if any("{config:json}" in word for word in draft.command):
        # W&B's file holds the parameters alone, and groups as objects.
        draft.more["config"] = {"seed": False} | ({"nested": True} if passed.nested else {})
    if variables:
        draft.more["environment"] = {"env": variables}
    for key in data:
        if key not in _KNOWN and not (key == "scheduler" and isinstance(data[key], Mapping)):
            lost.append(f"{key}: has no counterpart here")
    lost.append(
        "wandb.config and wandb.log: W&B itself gave the script its values and took its metrics. "
        "Here the script gets the values as the command says, or reads the file that SWEEP_CONFIG "
        "names; and it reports by sweep.report.Reporter().log(step=…, …), prints what "
        "objective.from.stdout finds, or is run by python -m sweep.integrations.wandb SCRIPT, "
        "which reports what wandb.log was given"
    )
    return draft


def _add_parameter(
    draft: Draft, passed: Passed, name: str, given: Any, lost: list[str]
) -> str | dict[str, Any] | None:
    """Add a parameter; return its flat name, a mapping of those within it, or None."""
    if not _NAME.fullmatch(name):
        lost.append(f"parameters.{name}: rename it to letters, digits and any of _ . / : @ + -")
        return None
    if not isinstance(given, Mapping):
        lost.append(f"parameters.{name}: is not a mapping (got {given!r})")
        return None
    if isinstance(given.get("parameters"), Mapping):
        for key in given.keys() - {"parameters"}:
            lost.append(f"parameters.{name}.{key}: a group of parameters does not use it")
        added = {
            str(inner): _add_parameter(draft, passed, f"{name}.{inner}", value, lost)
            for inner, value in given["parameters"].items()
        }
        return {key: value for key, value in added.items() if value is not None}
    if name in passed.values:
        lost.append(f"parameters.{name}: there are two of this name")
        return None
    try:
        found = convert_parameter(name, given, lost, priors=passed.priors)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        lost.append(f"parameters.{name}: {why}")
        return None
    if "value" in found:
        draft.fixed[name] = found["value"]
        passed.values[name] = [found["value"]]
        if isinstance(found["value"], list) and "value" in given:
            lost.append(
                f"parameters.{name}: `value` is one constant, the whole list, as it is for W&B; "
                "to try each of them, write `values` and convert again"
            )
    else:
        draft.space[name] = found
        passed.values[name] = found.get("choices")
    return name


def _add_objectives(draft: Draft, data: Mapping[str, Any], lost: list[str]) -> None:
    several = data.get("metrics")
    if isinstance(several, list) and several:
        if "metric" in data:
            lost.append("metric: is ignored beside metrics")
        for metric in several:
            _add_objective(draft, metric, lost, is_only=len(several) == 1)
    else:
        _add_objective(draft, data.get("metric"), lost, is_only=True)


def _add_objective(draft: Draft, metric: Any, lost: list[str], *, is_only: bool) -> None:
    if isinstance(metric, str):
        lost.append(f"metric: is a text where W&B wants name and goal; {metric} was taken")
        metric = {"name": metric}
    metric = metric if isinstance(metric, Mapping) else {}
    if not metric.get("name"):
        lost.append("metric.name: is missing; val_loss was put in its place")
    name = str(metric.get("name") or "val_loss")
    goal = metric.get("goal")
    direction = "minimize"
    if goal in ("minimize", "maximize"):
        direction = str(goal)
    elif goal is not None:
        direction = "maximize" if str(goal).lower().startswith("max") else "minimize"
        lost.append(
            f"metric.goal: {goal!r} is no goal, and W&B minimizes then; it was taken for "
            f"{direction}, so check the direction"
        )
    elif Metric(name).direction == "maximize":
        lost.append(f"metric.goal: is missing, so W&B minimizes {name}; check the direction")
    doubt = doubt_direction(name, direction) if "goal" in metric else ""
    if doubt:
        lost.append(f"metric.goal: {doubt}")
    if Metric(name).is_test:
        lost.append(f"metric.name: {name}: a search should not choose by the test set")
    # W&B compares runs by the summary, which holds the last value.
    draft.objectives.append({"metric": name, "direction": direction, "at": "last"})
    target = metric.get("target")
    is_number = isinstance(target, int | float) and not isinstance(target, bool)
    if target is not None and is_number and is_only and math.isfinite(float(target)):
        draft.more["target"] = target
    elif target is not None:
        lost.append(f"metric.target ({target}): has no counterpart here")
    for key in metric:
        if key not in ("name", "goal", "target"):
            lost.append(f"metric.{key}: has no counterpart here")


def _add_search(draft: Draft, data: Mapping[str, Any], lost: list[str]) -> None:
    method = str(data.get("method") or "random")
    sampler = _METHODS.get(method, "auto")
    if "method" not in data:
        lost.append("method: is missing; sampler random was taken")
    elif method not in _METHODS:
        lost.append(f"method: {method} has no counterpart here; sampler auto chooses")
    endless = [n for n, p in draft.space.items() if p["type"] == "float" and "step" not in p]
    if sampler == "grid" and endless:
        lost.append(
            f"method: grid needs choices, whole numbers or steps, which {', '.join(endless)} has "
            "not; sampler random was taken"
        )
        sampler = "random"
    cap = data.get("run_cap")
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
        lost.append(f"run_cap: must be a whole number above 0 (got {cap!r})")
        cap = None
    size = math.prod(_count(parameter) for parameter in draft.space.values())
    if sampler == "grid":
        if cap is not None:
            draft.more["trials"] = min(cap, size)
            if cap > size:
                draft.notes["trials"] = f"the size of the grid; run_cap was {cap}"
    elif cap is not None:
        draft.more["trials"] = cap
    else:
        draft.more["trials"] = DEFAULT_TRIALS
        lost.append(f"run_cap: is missing, and a study has an end: trials is {DEFAULT_TRIALS}")
    draft.more |= {"seed": 0, "sampler": sampler}
    draft.more |= _convert_stopping(data.get("early_terminate"), lost)
    draft.more["max_parallel"] = 4
    draft.notes["max_parallel"] = "so many at once, at most; W&B has as many as agents"
    queue = data.get("scheduler")
    if isinstance(queue, Mapping):
        workers = queue.get("num_workers")
        is_number = isinstance(workers, int) and not isinstance(workers, bool) and workers > 0
        if is_number:
            draft.more["max_parallel"] = workers
            draft.notes["max_parallel"] = "scheduler.num_workers"
        for key in queue:
            if key != "num_workers" or not is_number:
                lost.append(f"scheduler.{key}: has no counterpart here")


def _count(parameter: Mapping[str, Any]) -> int:
    """Return how many values a parameter has; 1 for a range without steps."""
    if "choices" in parameter:
        return len(parameter["choices"])
    step = parameter.get("step", 1 if parameter["type"] == "int" else None)
    return round((parameter["high"] - parameter["low"]) / step) + 1 if step else 1


def _join(numbers: Sequence[int]) -> str:
    return " and ".join(map(str, numbers))


def _convert_stopping(given: Any, lost: list[str]) -> dict[str, Any]:
    """Return the pruner: W&B's hyperband has one bracket, which is successive halving."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or given.get("type") != "hyperband":
        kind = given.get("type") if isinstance(given, Mapping) else given
        lost.append(f"early_terminate.type: {kind} has no counterpart here")
        return {}

    def number(key: str, default: float) -> float:
        value = given.get(key, default)
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if good and math.isfinite(value) and 0 < value < 1e9:
            return float(value)
        lost.append(f"early_terminate.{key}: must be a number above 0 (got {value!r})")
        return default

    eta = number("eta", 3)
    factor = max(2, round(eta))
    if factor != eta:
        lost.append(f"early_terminate.eta: is a whole number here: {factor} for {eta:g}")
    first = 1.0
    if given.get("max_iter") is not None:
        # Brackets of W&B end at max_iter / eta, / eta² …, s of them, but none below 1.
        last, steps = number("max_iter", 1), int(min(number("s", 1), 100))
        if "s" not in given:
            lost.append("early_terminate.s: is missing beside max_iter; 1 was taken")
        below = [last / eta**n for n in range(1, steps + 1) if last / eta**n >= 1]
        first = int(min(below)) if below else 1
        theirs = sorted(int(one) for one in below)
        ours = [first * factor**n for n in range(len(theirs))]
        if theirs != ours and factor == eta:
            lost.append(
                f"early_terminate: W&B compares at steps {_join(theirs)}; here at {_join(ours)} "
                f"and so on, each {factor} times the last"
            )
        if given.get("min_iter") is not None:
            lost.append("early_terminate.min_iter: is ignored beside max_iter, as W&B does")
    elif given.get("min_iter") is not None:
        first = number("min_iter", 1)
        if "s" in given:
            lost.append("early_terminate.s: is ignored beside min_iter, as W&B does")
    else:
        lost.append("early_terminate: names neither min_iter nor max_iter; min_resource is 1")
    for key in given:
        if key not in ("type", "min_iter", "max_iter", "s", "eta"):
            lost.append(f"early_terminate.{key}: has no counterpart here")
    return {
        "pruner": {"type": "asha", "min_resource": max(1, int(first)), "reduction_factor": factor}
    }
