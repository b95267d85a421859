"""NNI's and Determined's experiments, and seml's, as study files."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from sweep.core.placeholders import EDIT, escape
from sweep.core.shell_text import split_words
from sweep.studyfile.starter.draft import HINTS, Draft, fit_grid, make_name
from sweep.studyfile.starter.wandb_ranges import distinct, multiples

_MOST_VALUES = 1000


def find_other(data: Any) -> str | None:
    """Return which of these tools a file belongs to, or None."""
    if not isinstance(data, Mapping):
        return None
    if isinstance(data.get("searchSpace"), Mapping) or _is_nni_space(data):
        return "NNI"
    if isinstance(data.get("hyperparameters"), Mapping) and isinstance(
        data.get("searcher"), Mapping
    ):
        return "Determined"
    if isinstance(data.get("seml"), Mapping) and data.keys() & {"grid", "random", "fixed"}:
        return "seml"
    return None


def _is_nni_space(data: Mapping[str, Any]) -> bool:
    return bool(data) and all(
        isinstance(value, Mapping) and {"_type", "_value"} <= value.keys()
        for value in data.values()
    )


def convert_other(kind: str, data: Mapping[str, Any], file: str, lost: list[str]) -> Draft:
    """Return the study of an experiment; what could not be carried over is added to ``lost``."""
    draft = Draft(
        f"Made from the {kind} file {file}.",
        "study",
        [],
        hints=list(HINTS),
        more={"trials": 20, "seed": 0, "sampler": "auto"},
    )
    {"NNI": _convert_nni, "Determined": _convert_determined, "seml": _convert_seml}[kind](
        draft, data, lost
    )
    draft.more.setdefault("max_parallel", 4)
    return draft


def _try(draft: Draft, name: str, given: Any, convert: Any, lost: list[str]) -> None:
    try:
        found = convert(name, given, lost)
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        lost.append(f"{name}: {why}")
        return
    if "value" in found:
        draft.fixed[name] = found["value"]
    else:
        draft.space[name] = found


def _whole(value: Any) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if is_whole else None


def _spaced(low: float, high: float, count: int, *, log: bool) -> list[float]:
    """Return so many values from low to high, evenly on their scale."""
    ratio, width = (high / low) ** (1 / (count - 1)) if log else 1.0, (high - low) / (count - 1)
    values = [low * ratio**i if log else low + width * i for i in range(min(count, _MOST_VALUES))]
    return [float(f"{value:.6g}") for value in values]


def _words(text: Any) -> list[str]:
    try:
        return [escape(word) for word in split_words(str(text))]
    except ValueError:
        return [EDIT]


# ------------------------------------------------------------------------------------- NNI


def _convert_nni(draft: Draft, data: Mapping[str, Any], lost: list[str]) -> None:
    space = data.get("searchSpace") if "searchSpace" in data else data
    draft.name = make_name(str(data.get("experimentName") or "study"))
    draft.command = [*_words(data.get("trialCommand") or f"python {EDIT}"), "{params}"]
    for name, given in space.items() if isinstance(space, Mapping) else ():
        _try(draft, str(name), given, _nni_parameter, lost)
    tuner = data.get("tuner")
    tuner = tuner if isinstance(tuner, Mapping) else {}
    arguments = tuner.get("classArgs")
    mode = arguments.get("optimize_mode") if isinstance(arguments, Mapping) else None
    direction = "maximize" if mode == "maximize" else "minimize"
    draft.objectives.append({"metric": "default", "direction": direction})
    if mode is None:
        lost.append("optimize_mode: is not in this file; check the objective's direction")
    name = str(tuner.get("name") or "")
    samplers = {"TPE": "tpe", "Random": "random", "GridSearch": "grid", "GP": "gp"}
    draft.more["sampler"] = samplers.get(name, "auto")
    if name and name not in samplers:
        lost.append(f"tuner: {name} has no counterpart here; sampler auto chooses")
    draft.more["trials"] = _whole(data.get("maxTrialNumber")) or 20
    draft.more["max_parallel"] = _whole(data.get("trialConcurrency")) or 4
    lost.append(
        "nni.get_next_parameter: the values come as arguments here ({params}); "
        "nni.report_intermediate_result becomes sweep.report.Reporter().log(step=…, default=…)"
    )


def _nni_parameter(name: str, given: Any, lost: list[str]) -> dict[str, Any]:
    kind, value = str(given["_type"]), given["_value"]
    if kind == "choice":
        if any(isinstance(one, Mapping) for one in value):
            raise ValueError("a choice with parameters within it: write them with `when`")
        return {"type": "categorical", "choices": distinct(name, value, lost)}
    if kind == "randint":
        return {"type": "int", "low": int(value[0]), "high": int(value[1]) - 1}
    low, high = float(value[0]), float(value[1])
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


# ------------------------------------------------------------------------------ Determined


def _convert_determined(draft: Draft, data: Mapping[str, Any], lost: list[str]) -> None:
    searcher = data["searcher"]
    draft.name = make_name(str(data.get("name") or "study"))
    entrypoint = data.get("entrypoint")
    words = entrypoint if isinstance(entrypoint, list) else None
    command = (
        [escape(str(word)) for word in words] if words else _words(entrypoint or f"python {EDIT}")
    )
    draft.command = [*command, "{params}"]
    for name, given in data["hyperparameters"].items():
        _add_determined(draft, str(name), given, lost)
    direction = "minimize" if searcher.get("smaller_is_better", True) is not False else "maximize"
    draft.objectives.append(
        {"metric": str(searcher.get("metric") or "objective"), "direction": direction}
    )
    name = str(searcher.get("name") or "")
    draft.more["sampler"] = {"grid": "grid", "random": "random"}.get(name, "auto")
    if name == "grid":
        draft.more.pop("trials", None)
    else:
        draft.more["trials"] = _whole(searcher.get("max_trials")) or 20
    if "asha" in name:
        draft.more["sampler"] = "random"
        draft.more["pruner"] = {"type": "asha", "reduction_factor": 4}
        lost.append(f"searcher: {name} became random values under asha; check min_resource")
    resources = data.get("resources")
    slots = _whole(resources.get("slots_per_trial")) if isinstance(resources, Mapping) else None
    if slots:
        draft.more["resources"] = {"gpus": slots}
    draft.more["max_parallel"] = _whole(searcher.get("max_concurrent_trials")) or 4
    lost.append(
        "hparams: Determined gave them to the trial class; here they are arguments ({params}), "
        "and the file that SWEEP_CONFIG names has them"
    )


def _add_determined(draft: Draft, name: str, given: Any, lost: list[str]) -> None:
    if not isinstance(given, Mapping):
        draft.fixed[name] = given
    elif "type" in given:
        _try(draft, name, given, _determined_parameter, lost)
    else:
        for inner, value in given.items():
            _add_determined(draft, f"{name}.{inner}", value, lost)


def _determined_parameter(name: str, given: Any, lost: list[str]) -> dict[str, Any]:
    kind = given["type"]
    if kind == "const":
        return {"value": given["val"]}
    if kind == "categorical":
        return {"type": "categorical", "choices": distinct(name, given["vals"], lost)}
    if kind not in ("int", "double", "log"):
        raise ValueError(f"type {kind} has no counterpart here")
    low, high, count = given["minval"], given["maxval"], given.get("count")
    if kind == "int":
        found: dict[str, Any] = {"type": "int", "low": int(low), "high": int(high)}
    elif kind == "double":
        found = {"type": "float", "low": float(low), "high": float(high)}
    else:
        base = float(given.get("base", 10.0))
        bounds = [float(f"{math.pow(base, bound):.6g}") for bound in (low, high)]
        found = {"type": "float", "low": bounds[0], "high": bounds[1], "log": True}
    if isinstance(count, int) and count > 1:
        width = (found["high"] - found["low"]) / (count - 1)
        if kind != "int":
            values = _spaced(found["low"], found["high"], count, log=kind == "log")
            return {"type": "categorical", "choices": values}
        if width == int(width) and width > 1:
            found["step"] = int(width)
        elif width != 1:
            lost.append(f"{name}.count: {count} values do not divide the range; all were taken")
    return found


# ------------------------------------------------------------------------------------ seml


def _convert_seml(draft: Draft, data: Mapping[str, Any], lost: list[str]) -> None:
    seml = data["seml"]
    draft.name = make_name(str(seml.get("name") or "study"))
    draft.command = ["python", escape(str(seml.get("executable") or EDIT)), "with", "{overrides}"]
    random, grid, fixed = (data.get(key) for key in ("random", "grid", "fixed"))
    for name, value in fixed.items() if isinstance(fixed, Mapping) else ():
        draft.fixed[str(name)] = value
    sections: list[tuple[str, Any]] = []
    for section in (grid, random):
        sections += (
            [(str(k), v) for k, v in section.items()] if isinstance(section, Mapping) else []
        )
    for name, given in sections:
        if isinstance(given, Mapping):
            _try(draft, name, given, _seml_parameter, lost)
        elif name not in ("samples", "seed"):
            draft.fixed[name] = given
    samples = _whole(random.get("samples")) if isinstance(random, Mapping) else None
    has_random = isinstance(random, Mapping) and len(random) > len(
        {"samples", "seed"} & random.keys()
    )
    draft.more["sampler"] = "random" if has_random else "grid"
    draft.more.pop("trials", None)
    if has_random:
        sizes = [
            len(p["choices"])
            for n, p in draft.space.items()
            if isinstance(grid, Mapping) and n in grid and "choices" in p
        ]
        draft.more["trials"] = (samples or 1) * math.prod(itertools.chain([1], sizes))
        if sizes:
            lost.append(
                "grid and random: seml draws samples for each point of the grid; here all is random"
            )
    draft.objectives.append({"metric": "objective", "direction": "minimize"})
    lost.append("objective: seml compares none; name what the script reports, and its direction")
    slurm = data.get("slurm")
    options = slurm.get("sbatch_options") if isinstance(slurm, Mapping) else None
    for key, value in options.items() if isinstance(options, Mapping) else ():
        draft.more.setdefault("slurm", {}).setdefault("extra", []).append(f"--{key}={value}")
    for key in data.keys() - {"seml", "slurm", "fixed", "grid", "random"}:
        lost.append(f"{key}: has no counterpart here")


def _seml_parameter(name: str, given: Any, lost: list[str]) -> dict[str, Any]:
    kind = str(given["type"])
    if kind in ("choice", "parameter_collection"):
        if kind != "choice":
            raise ValueError("a parameter_collection: write its parameters one by one")
        return {"type": "categorical", "choices": distinct(name, given["options"], lost)}
    if kind == "range":
        low, high, step = fit_grid(given["min"], given["max"], given.get("step", 1))
        if low + step > high:
            return {"value": low}
        if high == given["max"]:  # numpy.arange ends before its stop
            high -= step
        number = type(low)
        return {"type": number.__name__, "low": low, "high": number(high), "step": step}
    low, high = given["min"], given["max"]
    if kind in ("uniform", "loguniform"):
        found = {"type": "float", "low": float(low), "high": float(high)}
        count = given.get("num")
        if isinstance(count, int) and count > 1:
            values = _spaced(float(low), float(high), count, log=kind == "loguniform")
            return {"type": "categorical", "choices": values}
        return found | {"log": True} if kind == "loguniform" else found
    if kind == "randint":
        return {"type": "int", "low": int(low), "high": int(high) - 1}
    raise ValueError(f"{kind} has no counterpart here")
