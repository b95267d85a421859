"""Determined's experiments as studies."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from sweep.core.placeholders import EDIT, escape
from sweep.studyfile.starter.draft import Draft, make_name
from sweep.studyfile.starter.foreign_parts import spaced, split_words, try_add, whole
from sweep.studyfile.starter.wandb_ranges import distinct

_OF_SEARCHER = {
    *("name", "metric", "smaller_is_better", "max_trials", "max_concurrent_trials", "divisor")
}
_KNOWN = {
    *("name", "hyperparameters", "searcher", "entrypoint", "resources"),
    *("description", "labels", "notes", "tags", "workspace", "project"),
}


def convert_determined(draft: Draft, data: Mapping[str, Any], lost: list[str]) -> None:
    """Fill a draft with an experiment."""
    searcher = data["searcher"]
    draft.name = make_name(str(data.get("name") or "study"))
    draft.command = [*_command(data.get("entrypoint"), lost), "{params}"]
    given = data.get("hyperparameters")
    for name, value in given.items() if isinstance(given, Mapping) else ():
        _add(draft, str(name), value, lost)
    direction = "minimize" if searcher.get("smaller_is_better", True) is not False else "maximize"
    draft.objectives.append(
        {"metric": str(searcher.get("metric") or "objective"), "direction": direction}
    )
    _add_searcher(draft, searcher, lost)
    resources = data.get("resources")
    resources = resources if isinstance(resources, Mapping) else {}
    slots = whole(resources.get("slots_per_trial"))
    if slots:
        draft.more["resources"] = {"gpus": slots}
    for key in resources.keys() - {"slots_per_trial"}:
        lost.append(f"resources.{key}: has no counterpart here; see resources and slurm")
    others = sorted(str(key) for key in data.keys() - _KNOWN)
    if others:
        lost.append(f"{', '.join(others)}: no counterpart here; see environment and binds")
    lost.append(
        "hparams: Determined gave them to the trial class; here they are arguments ({params}), "
        "and the file that SWEEP_CONFIG names has them"
    )


def _command(entrypoint: Any, lost: list[str]) -> list[str]:
    if isinstance(entrypoint, list):
        return [escape(str(word)) for word in entrypoint]
    if re.fullmatch(r"[\w.]+:\w+", str(entrypoint)):
        lost.append(
            f"entrypoint: {entrypoint} is a class that Determined calls; name for {EDIT} a script "
            "that trains once"
        )
        return ["python", EDIT]
    return split_words(entrypoint or f"python {EDIT}")


def _add_searcher(draft: Draft, searcher: Mapping[str, Any], lost: list[str]) -> None:
    name = str(searcher.get("name") or "")
    draft.more["sampler"] = {"grid": "grid", "random": "random"}.get(name, "auto")
    if name == "grid":
        draft.more.pop("trials", None)
    elif name == "single":
        draft.more["trials"] = 1
    else:
        draft.more["trials"] = whole(searcher.get("max_trials")) or 20
        if whole(searcher.get("max_trials")) is None:
            lost.append("searcher.max_trials: is missing; trials is 20")
    if "asha" in name:
        draft.more["sampler"] = "random"
        factor = whole(searcher.get("divisor")) or 4
        draft.more["pruner"] = {"type": "asha", "reduction_factor": max(2, factor)}
        lost.append(f"searcher: {name} became random values under asha; check min_resource")
    elif name not in ("grid", "random", "single"):
        lost.append(f"searcher: {name} has no counterpart here; sampler auto chooses")
    draft.more["max_parallel"] = whole(searcher.get("max_concurrent_trials")) or 4
    for key in searcher:
        if key in ("max_length", "max_time"):
            lost.append(
                f"searcher.{key}: {searcher[key]}: how long a trial trains; give it to the script"
            )
        elif key not in _OF_SEARCHER or (key == "divisor" and "asha" not in name):
            lost.append(f"searcher.{key}: has no counterpart here")


def _add(draft: Draft, name: str, given: Any, lost: list[str]) -> None:
    if not isinstance(given, Mapping):
        draft.fixed[name] = given
    elif "type" in given:
        try_add(draft, name, given, _convert_parameter, lost)
    else:
        for inner, value in given.items():
            _add(draft, f"{name}.{inner}", value, lost)


def _convert_parameter(name: str, given: Any, lost: list[str]) -> dict[str, Any]:
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
            values = spaced(found["low"], found["high"], count, log=kind == "log")
            return {"type": "categorical", "choices": values}
        if width == int(width) and width > 1:
            found["step"] = int(width)
        elif width != 1:
            lost.append(f"{name}.count: {count} values do not divide the range; all were taken")
    return found
