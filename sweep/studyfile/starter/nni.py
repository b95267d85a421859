"""NNI's experiments as studies: their files, of both versions, and ``Experiment`` in a script."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.core.placeholders import EDIT
from sweep.studyfile.starter.draft import Draft, make_name
from sweep.studyfile.starter.foreign_parts import split_words, try_add, whole
from sweep.studyfile.starter.foreign_python import Unknown, evaluate
from sweep.studyfile.starter.foreign_yaml import read_yaml
from sweep.studyfile.starter.wandb_ranges import distinct, multiples, normal_bounds, normal_prior
from sweep.studyfile.tree import YamlError

_SAMPLERS = {"TPE": "tpe", "Random": "random", "GridSearch": "grid", "GP": "gp", "GPTuner": "gp"}
_SAMPLERS |= {"BatchTuner": "grid"}
_FORGETTING = ("auto", "tpe", "gp")  # a wrong prior
# Of both versions: ours, for each of theirs.
_KEYS = {
    "searchSpacePath": "searchSpaceFile",
    "maxTrialNum": "maxTrialNumber",
    "maxExecDuration": "maxExperimentDuration",
}
_KNOWN = {
    *("searchSpace", "searchSpaceFile", "trialCommand", "trialGpuNumber", "trialConcurrency"),
    *("maxTrialNumber", "maxExperimentDuration", "experimentName", "tuner", "assessor", "trial"),
    *("authorName", "debug", "logLevel", "logCollection", "useAnnotation", "versionCheck"),
    *("experimentWorkingDirectory", "multiThread", "nniManagerIp", "logDir"),
}


def is_nni(data: Mapping[str, Any]) -> bool:
    """Tell whether a file's content is an experiment or a search space of NNI's."""
    if isinstance(data.get("searchSpace"), Mapping) or is_space(data):
        return True
    has_tuner = data.keys() & {"tuner", "advisor", "trainingService", "trainingServicePlatform"}
    return bool(has_tuner and data.keys() & {"trialCommand", "trial"})


def is_space(data: Any) -> bool:
    """Tell whether a mapping is a search space: each value has ``_type`` and ``_value``."""
    return (
        isinstance(data, Mapping)
        and bool(data)
        and all(
            isinstance(value, Mapping) and {"_type", "_value"} <= value.keys()
            for value in data.values()
        )
    )


def convert_nni(draft: Draft, data: Mapping[str, Any], path: Path, lost: list[str]) -> None:
    """Fill a draft with an experiment, whose search space may lie in a file beside it."""
    if is_space(data):
        data = {"searchSpace": data}
    data = {_KEYS.get(str(key), str(key)): value for key, value in data.items()}
    trial = data.get("trial")
    trial = trial if isinstance(trial, Mapping) else {}
    draft.name = make_name(str(data.get("experimentName") or "study"))
    command = data.get("trialCommand") or trial.get("command") or f"python {EDIT}"
    draft.command = [*split_words(command), "{params}"]
    space = data.get("searchSpace")
    if space is None and data.get("searchSpaceFile"):
        space = _read_space(path.parent / str(data["searchSpaceFile"]), lost)
    if space is None and data.get("useAnnotation"):
        lost.append("useAnnotation: the space is in comments of the script, which are not read")
    _add_tuner(draft, data, lost)
    for name, given in space.items() if isinstance(space, Mapping) else ():
        _add(draft, str(name), given, lost)
    gpus = data.get("trialGpuNumber", trial.get("gpuNum"))
    if isinstance(gpus, int) and not isinstance(gpus, bool) and gpus >= 0:
        draft.more["resources"] = {"gpus": gpus}
    draft.more["trials"] = whole(data.get("maxTrialNumber")) or 20
    if whole(data.get("maxTrialNumber")) is None:
        lost.append("maxTrialNumber: is missing, and a study has an end: trials is 20")
    draft.more["max_parallel"] = whole(data.get("trialConcurrency")) or 4
    if data.get("maxExperimentDuration") is not None:
        draft.more["time"] = str(data["maxExperimentDuration"])
    others = sorted(data.keys() - _KNOWN)
    if others:
        lost.append(f"{', '.join(others)}: no counterpart here; see resources, slurm, environment")
    lost.append(
        "nni.get_next_parameter: the values come as arguments here ({params}); "
        "nni.report_intermediate_result becomes sweep.report.Reporter().log(step=…, default=…)"
    )


def _read_space(path: Path, lost: list[str]) -> Any:
    try:
        return read_yaml(path.read_text(encoding="utf-8"), path.name).data
    except (OSError, UnicodeDecodeError, YamlError) as error:
        lost.append(f"searchSpaceFile: {path.name} cannot be read: {error}")
        return None


def _add_tuner(draft: Draft, data: Mapping[str, Any], lost: list[str]) -> None:
    tuner = data.get("tuner")
    tuner = tuner if isinstance(tuner, Mapping) else {}
    arguments = tuner.get("classArgs")
    mode = arguments.get("optimize_mode") if isinstance(arguments, Mapping) else None
    direction = "maximize" if mode == "maximize" else "minimize"
    draft.objectives.append({"metric": "default", "direction": direction})
    if mode is None:
        lost.append("optimize_mode: is not in this file; check the objective's direction")
    for key, value in arguments.items() if isinstance(arguments, Mapping) else ():
        if key == "seed" and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            draft.more["seed"] = value
        elif key != "optimize_mode":
            lost.append(f"tuner.classArgs.{key}: has no counterpart here")
    name = str(tuner.get("name") or tuner.get("builtinTunerName") or tuner.get("className") or "")
    draft.more["sampler"] = _SAMPLERS.get(name, "auto")
    if name and name not in _SAMPLERS:
        lost.append(f"tuner: {name} has no counterpart here; sampler auto chooses")
    assessor = data.get("assessor")
    if isinstance(assessor, Mapping):
        called = str(assessor.get("name") or assessor.get("builtinAssessorName") or "")
        if called == "Medianstop":
            draft.more["pruner"] = "median"
            given = assessor.get("classArgs")
            start = given.get("start_step") if isinstance(given, Mapping) else None
            if isinstance(start, int) and not isinstance(start, bool) and start > 0:
                draft.more["pruner"] = {"type": "median", "min_resource": start}
        else:
            lost.append(f"assessor: {called} has no counterpart here; see the key pruner")


def _add(draft: Draft, name: str, given: Any, lost: list[str]) -> None:
    """Add a parameter; of a choice between named parts, the parameters of each part too."""
    parts = given.get("_value") if isinstance(given, Mapping) else None
    is_nested = isinstance(parts, list) and any(
        isinstance(p, Mapping) and "_name" in p for p in parts
    )
    convert = functools.partial(_convert_parameter, priors=draft.more["sampler"] in _FORGETTING)
    if not is_nested:
        try_add(draft, name, given, convert, lost)
        return
    assert isinstance(parts, list)
    names = [part.get("_name") if isinstance(part, Mapping) else part for part in parts]
    draft.space[name] = {"type": "categorical", "choices": distinct(name, names, lost)}
    for part in parts:
        for inner, below in part.items() if isinstance(part, Mapping) else ():
            if inner == "_name":
                continue
            own = f"{name}.{part['_name']}.{inner}"
            try_add(draft, own, below, convert, lost)
            if own in draft.space:
                draft.space[own]["when"] = {name: part["_name"]}
                lost.append(f"{own}: is a parameter of its own here, which exists with that choice")


def _convert_parameter(name: str, given: Any, lost: list[str], *, priors: bool) -> dict[str, Any]:
    kind, value = str(given["_type"]), given["_value"]
    if kind == "choice":
        if any(isinstance(one, Mapping) for one in value):
            lost.append(f"{name}: each choice is a mapping, and reaches the command as JSON")
        return {"type": "categorical", "choices": distinct(name, value, lost)}
    if kind == "randint":
        return {"type": "int", "low": int(value[0]), "high": int(value[1]) - 1}
    low, high = float(value[0]), float(value[1])
    if kind in ("normal", "lognormal", "qnormal", "qlognormal"):
        return _convert_normal(name, kind, low, high, value[2:], lost, priors=priors)
    if kind == "uniform":
        return {"type": "float", "low": low, "high": high}
    if kind == "loguniform":
        return {"type": "float", "low": low, "high": high, "log": True}
    if kind in ("quniform", "qloguniform"):
        first, last, step = multiples(low, high, float(value[2]))
        whole = step == int(step)
        number = int if whole else float
        if kind == "qloguniform":
            lost.append(f"{name}: became even over the multiples of q: a range has steps or a log")
        found = {"type": number.__name__, "low": number(first), "high": number(last)}
        return found if whole and step == 1 else found | {"step": number(step)}
    raise ValueError(f"{kind} has no counterpart here")


def _convert_normal(
    name: str,
    kind: str,
    mu: float,
    sigma: float,
    steps: Sequence[Any],
    lost: list[str],
    *,
    priors: bool,
) -> dict[str, Any]:
    is_log = "log" in kind
    low, high = normal_bounds(f"{name}: {kind}", mu, sigma, lost, log=is_log, priors=priors)
    if low == high:
        return {"value": low}
    if steps:
        first, last, step = multiples(low, high, float(steps[0]))
        number = int if step == int(step) else float
        found: dict[str, Any]
        if first == last:
            return {"value": number(first)}
        if is_log:
            lost.append(f"{name}: became even over the multiples of q: a range has steps or a log")
        found = {"type": number.__name__, "low": number(first), "high": number(last)}
        if number is float or step != 1:
            found["step"] = number(step)
    else:
        found = {"type": "float", "low": low, "high": high} | ({"log": True} if is_log else {})
    return found | ({"prior": normal_prior(kind, mu, sigma, found)} if priors else {})


# ------------------------------------------------------------------------------ in a script

_SETTINGS = {
    "trial_command": "trialCommand",
    "trial_gpu_number": "trialGpuNumber",
    "trial_concurrency": "trialConcurrency",
    "max_trial_number": "maxTrialNumber",
    "max_experiment_duration": "maxExperimentDuration",
    "experiment_name": "experimentName",
}


def read_script(tree: ast.Module, space: Mapping[str, Any]) -> dict[str, Any]:
    """Return an experiment as its file would say it, from ``experiment.config.… = …``."""
    data: dict[str, Any] = {"searchSpace": space}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        found = re.fullmatch(
            r"\w+\.(?:config\.)?(tuner|assessor)?\.?(\w+)(?:\[['\"](\w+)['\"]\])?",
            ast.unparse(node.targets[0]),
        )
        if found is None:
            continue
        try:
            value = evaluate(node.value, {})
        except Unknown:
            continue
        if found[1] and found[2] == "name":
            data.setdefault(found[1], {})["name"] = value
        elif found[1] and found[2] == "class_args":
            own = data.setdefault(found[1], {}).setdefault("classArgs", {})
            own.update({found[3]: value} if found[3] else value if isinstance(value, dict) else {})
        elif not found[1] and found[2] in _SETTINGS:
            data[_SETTINGS[found[2]]] = value
    return data
