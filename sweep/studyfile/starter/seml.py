"""seml's experiments as studies: grids and random values for sacred, on Slurm."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from sweep.core.placeholders import EDIT, escape
from sweep.studyfile.starter.draft import Draft, fit_grid, make_name
from sweep.studyfile.starter.foreign_parts import spaced, try_add, whole
from sweep.studyfile.starter.sbatch_options import add_options
from sweep.studyfile.starter.wandb_ranges import distinct


def convert_seml(draft: Draft, data: Mapping[str, Any], lost: list[str]) -> None:
    """Fill a draft with an experiment.

    sacred reads ``name=value`` as Python, where true and null are texts: it gets a file.
    """
    seml = data["seml"]
    draft.name = make_name(str(seml.get("name") or "study"))
    draft.command = ["python", escape(str(seml.get("executable") or EDIT)), "with", "{config:json}"]
    draft.more["config"] = {"seed": False, "nested": True}
    random, grid, fixed = (data.get(key) for key in ("random", "grid", "fixed"))
    for name, value in _flatten(fixed, ""):
        _keep(draft, name, value, lost)
    sections: list[tuple[str, Any]] = []
    for section in (grid, random):
        sections += (
            [(str(k), v) for k, v in section.items()] if isinstance(section, Mapping) else []
        )
    for name, given in sections:
        if name.startswith("+"):
            _keep(draft, name, given, lost)
        elif isinstance(given, Mapping):
            try_add(draft, name, given, _convert_parameter, lost)
        elif name not in ("samples", "seed"):
            _keep(draft, name, given, lost)
    _add_search(draft, grid, random, lost)
    draft.objectives.append({"metric": "objective", "direction": "minimize"})
    lost.append("objective: seml compares none; name what the script reports, and its direction")
    _add_slurm(draft, data.get("slurm"), lost)
    for key in data.keys() - {"seml", "slurm", "fixed", "grid", "random"}:
        lost.append(f"{key}: has no counterpart here")


def _flatten(given: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield values by their dotted names, as seml passes them."""
    for name, value in given.items() if isinstance(given, Mapping) else ():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _keep(draft: Draft, name: str, value: Any, lost: list[str]) -> None:
    if name.startswith("+"):
        lost.append(f"{name}: is a named configuration of sacred; add its name to the command")
    else:
        draft.fixed[name] = value


def _add_search(draft: Draft, grid: Any, random: Any, lost: list[str]) -> None:
    samples = whole(random.get("samples")) if isinstance(random, Mapping) else None
    has_random = isinstance(random, Mapping) and len(random) > len(
        {"samples", "seed"} & random.keys()
    )
    draft.more["sampler"] = "random" if has_random else "grid"
    draft.more.pop("trials", None)
    if not has_random:
        return
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


def _add_slurm(draft: Draft, given: Any, lost: list[str]) -> None:
    """Add the options of Slurm; newer files have a list of them, of which the first is taken."""
    blocks = given if isinstance(given, list) else [given]
    first = blocks[0] if blocks and isinstance(blocks[0], Mapping) else {}
    if len(blocks) > 1:
        lost.append(f"slurm: the first of {len(blocks)} blocks was taken")
    options = first.get("sbatch_options")
    texts: dict[str, str] = {}
    for key, value in options.items() if isinstance(options, Mapping) else ():
        if key == "time" and isinstance(value, int):  # 00:03:00 without quotes, in YAML 1.1
            lost.append(f"slurm.time: {value} is a number to YAML, and minutes to Slurm")
            value = f"{value // 60:02d}:{value % 60:02d}:00"
        if value is None or value == "":  # seml writes --exclude=, which asks for nothing
            lost.append(f"slurm.{key}: is empty; was left out")
            continue
        texts[str(key)] = str(value)
    add_options(draft, texts, lost)
    width = whole(first.get("max_simultaneous_jobs"))
    if width:
        draft.more["max_parallel"] = width
    for key in first.keys() - {"sbatch_options", "max_simultaneous_jobs"}:
        if (key, first[key]) != ("experiments_per_job", 1):
            lost.append(f"slurm.{key}: {first[key]}: has no counterpart here; see slots and tasks")


def _convert_parameter(name: str, given: Any, lost: list[str]) -> dict[str, Any]:
    kind = str(given["type"])
    if "zip_id" in given:
        lost.append(
            f"{name}.zip_id: changes together with others of {given['zip_id']}; here they are "
            "combined: write points"
        )
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
        if count == 1:  # as numpy's linspace has it
            return {"value": float(low)}
        if isinstance(count, int) and count > 1:
            values = spaced(float(low), float(high), count, log=kind == "loguniform")
            return {"type": "categorical", "choices": values}
        return found | {"log": True} if kind == "loguniform" else found
    if kind == "randint":
        return {"type": "int", "low": int(low), "high": int(high) - 1}
    raise ValueError(f"{kind} has no counterpart here")
