"""Points by chance: each parameter's value from the study's seed, the trial's number and its name.

Values are the ones that Optuna stores (lists and objects as JSON text). Imports no Optuna.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from sweep.core.space import Parameter, Space, to_optuna
from sweep.core.study import Study


def stored_point(study: Study, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return a user's configuration as Optuna stores it."""
    stored = {}
    for name, value in point.items():
        kind = study.space.get(name).type
        stored[name] = float(value) if kind == "float" else to_optuna(value)
    return stored


def random_point(study: Study, number: int) -> dict[str, Any]:
    """Return a trial's random point: from the study's seed, its number and each name alone."""
    return place_values(study.space, lambda name: unit_draw(study.seed, number, name))


def unit_draw(seed: int, number: int, name: str) -> float:
    """Return a number in [0, 1) for one parameter of one trial: 53 bits of SHA-256.

    A parameter that is added to the space leaves the others' draws as they are.
    """
    digest = hashlib.sha256(f"{seed}:{number}:{name}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def from_unit(parameter: Parameter, unit: float) -> Any:
    """Return the parameter's value at a place in [0, 1): uniform, or uniform in the logarithm."""
    if parameter.type == "categorical":
        return parameter.choices[
            min(int(unit * len(parameter.choices)), len(parameter.choices) - 1)
        ]
    low, high = parameter.low, parameter.high
    assert low is not None and high is not None
    if low == high:
        return low if parameter.type == "int" else float(low)
    if parameter.type == "int" and parameter.log:
        # Half a step on either side, so that the ends are as likely as their neighbours.
        whole = round(_logarithmic(low - 0.5, high + 0.5, unit))
        return int(min(max(whole, low), high))
    count = parameter.count()
    if count is not None and not parameter.log:
        place = min(int(unit * count), count - 1)
        if parameter.type == "int":
            return int(low + place * (parameter.step or 1))
        return parameter.values()[place]
    value = _logarithmic(low, high, unit) if parameter.log else low + unit * (high - low)
    return float(min(max(value, low), high))


def _logarithmic(low: float, high: float, unit: float) -> float:
    return math.exp(math.log(low) + unit * (math.log(high) - math.log(low)))


def place_values(
    space: Space,
    unit: Callable[[str], float],
    known: Mapping[str, Any] | None = None,
    place: Callable[[Parameter, float], Any] = from_unit,
) -> dict[str, Any]:
    """Return stored values of every parameter that exists, taking ``known`` ones as they are.

    Args:
        unit: Returns a parameter's place in [0, 1).
        place: Returns a parameter's value at a place.
    """
    known = known or {}
    values: dict[str, Any] = {}
    stored: dict[str, Any] = {}
    for parameter in space:
        if not parameter.is_active(values):
            continue
        name = parameter.name
        value = (
            parameter.from_optuna(known[name]) if name in known else place(parameter, unit(name))
        )
        values[name] = value
        stored[name] = to_optuna(value)
    return stored
