"""``search_space`` of Hydra's Optuna sweeper: the form before Hydra 1.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.studyfile.starter.draft import Draft, fit_grid
from sweep.studyfile.starter.hydra_interpolation import is_open
from sweep.studyfile.starter.wandb_ranges import distinct


def add_old_parameter(
    draft: Draft, name: str, given: Any, lost: list[str], *, is_grid: bool
) -> None:
    """Add an entry: type, low, high, step, log."""
    try:
        if not isinstance(given, Mapping):
            raise TypeError(f"is not a mapping (got {given!r})")
        if is_open(list(given.values())):
            raise ValueError("holds what is not in this file")
        kind = given["type"]
        for key in given.keys() - {"type", "choices", "low", "high", "step", "log"}:
            lost.append(f"search_space.{name}.{key}: has no counterpart here")
        if kind == "choice":
            lost.append(f"search_space.{name}.type: choice is none of the plugin's; categorical is")
            kind = "categorical"
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
