"""Designs that need no results: grid, random, quasi-random and spread points, and the user's own.

Deterministic in the study's seed, and stable when N is raised: the first trials stay as they are.
Values are the ones that Optuna stores (lists and objects as JSON text). Imports no Optuna.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sweep.core.errors import InputError, SweepError
from sweep.core.space import Parameter, Space, to_optuna
from sweep.core.study import Study

FIXED = ("grid", "random", "qmc")
GRID_LIMIT = 100_000  # points; more do not make a search
DRAWS = 50  # for a random point that is not there yet
_FAR = 10**6  # beyond every trial's number


def fixed_design(study: Study) -> list[dict[str, Any]] | None:
    """Return the stored parameters of all N trials, or None where the sampler learns from results.

    A parameter that does not exist beside the others' values is left out. The user's own points
    come first, completed from the design where they leave something out.

    Raises:
        InputError: A grid of endless or too many values, or of fewer than N points.
        SweepError: SciPy is missing, which makes quasi-random sequences.
    """
    kind = study.sampler.type
    if kind not in FIXED:
        return None
    count = study.trials
    if kind == "grid":
        rows = _grid(study)
    elif kind == "qmc":
        units = _sequence(study, count)
        rows = [_place(study.space, unit.__getitem__) for unit in units]
    else:
        rows = _random_rows(study, count)
    return [
        complete_point(study, number, rows[number] if number < len(rows) else {})
        if number < len(study.points)
        else rows[number]
        for number in range(count)
    ]


def spread_design(study: Study, count: int) -> list[dict[str, Any]]:
    """Return the stored parameters of ``count`` trials that start before anything is known.

    A Latin hypercube (McKay, Beckman and Conover 1979): each parameter's range is cut into
    ``count`` parts, and each part is tried once, in an order of that parameter's own. The user's
    points come first and take their place in it where they leave something out.
    """
    order: dict[str, list[int]] = {}

    def unit(number: int, name: str) -> float:
        if name not in order:
            draws = [unit_draw(study.seed, n, f"{name} part") for n in range(count)]
            order[name] = sorted(range(count), key=draws.__getitem__)
        return (order[name][number] + unit_draw(study.seed, number, name)) / count

    rows = [_place(study.space, partial(unit, number)) for number in range(count)]
    if study.duplicates == "resample":
        rows = _without_twins(study, rows)
    return [
        complete_point(study, number, row) if number < len(study.points) else row
        for number, row in enumerate(rows)
    ]


def _random_rows(study: Study, count: int) -> list[dict[str, Any]]:
    """Return random points; with ``duplicates: resample`` no two alike, while there are others."""
    if study.duplicates != "resample":
        return [random_point(study, number) for number in range(count)]
    return _without_twins(study, [random_point(study, number) for number in range(count)])


def _without_twins(study: Study, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows, with one drawn by chance for each that an earlier one is alike to."""
    seen: set[str] = set()
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        for again in range(1, DRAWS):
            if json.dumps(row, sort_keys=True) not in seen:
                break
            row = random_point(study, number + again * _FAR)
        seen.add(json.dumps(row, sort_keys=True))
        found.append(row)
    return found


def complete_point(study: Study, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's point of a trial; what it leaves out is from ``row``, else random."""
    point = stored_point(study, study.points[number])
    known = {**row, **point}
    return _place(study.space, lambda name: unit_draw(study.seed, number, name), known)


def place_point(study: Study, number: int, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return a user's point as the stored values of a trial; what it leaves out is random."""
    known = stored_point(study, point)
    return _place(study.space, lambda name: unit_draw(study.seed, number, name), known)


def stored_point(study: Study, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return a user's configuration as Optuna stores it."""
    stored = {}
    for name, value in point.items():
        kind = study.space.get(name).type
        stored[name] = float(value) if kind == "float" else to_optuna(value)
    return stored


def random_point(study: Study, number: int) -> dict[str, Any]:
    """Return a trial's random point: from the study's seed, its number and each name alone."""
    return _place(study.space, lambda name: unit_draw(study.seed, number, name))


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


def _place(space: Space, unit: Any, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return stored values of every parameter that exists, taking ``known`` ones as they are."""
    known = known or {}
    values: dict[str, Any] = {}
    stored: dict[str, Any] = {}
    for parameter in space:
        if not parameter.is_active(values):
            continue
        name = parameter.name
        value = (
            parameter.from_optuna(known[name])
            if name in known
            else from_unit(parameter, unit(name))
        )
        values[name] = value
        stored[name] = to_optuna(value)
    return stored


def _grid(study: Study) -> list[dict[str, Any]]:
    """Return the user's points' places (empty), then the grid in an order drawn by the seed.

    Drawn, because the first N of a bigger grid in its own order would leave most of it out.
    """
    endless = [p.name for p in study.space if p.count() is None]
    if endless:
        raise InputError(
            f"A grid needs separate values, and {', '.join(endless)} has no end of them.",
            "Give it a step, or make it categorical, or use the sampler qmc.",
        )
    points = []
    for point in _combinations(list(study.space), {}):
        points.append(point)
        if len(points) > GRID_LIMIT:
            raise InputError(
                f"The grid has more than {GRID_LIMIT} points.",
                "Use fewer values, or the sampler qmc or random.",
            )
    needed = study.trials - len(study.points)
    if needed > len(points):
        raise InputError(
            f"The grid has {len(points)} points, and {needed} trials are to be made of it.",
            f"Set trials to {len(points) + len(study.points)}.",
        )
    order = sorted(range(len(points)), key=lambda i: unit_draw(study.seed, i, "grid order"))
    return [{} for _ in study.points] + [points[i] for i in order]


def _combinations(
    parameters: Sequence[Parameter], values: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    if not parameters:
        yield {name: to_optuna(value) for name, value in values.items()}
        return
    first, rest = parameters[0], parameters[1:]
    if not first.is_active(values):
        yield from _combinations(rest, values)
        return
    for value in first.values():
        yield from _combinations(rest, values | {first.name: value})


def _sequence(study: Study, count: int) -> list[dict[str, float]]:
    """Return ``count`` quasi-random places, one coordinate a parameter."""
    try:
        from scipy.stats import qmc
    except ImportError as error:
        raise SweepError(
            "The sampler qmc needs SciPy, which is not installed.", "pip install scipy"
        ) from error
    options = study.sampler.options
    names = study.space.names()
    if not names or not count:
        return [{} for _ in range(count)]
    scramble = bool(options.get("scramble", True))
    if options.get("sequence", "sobol") == "halton":
        rows = qmc.Halton(len(names), scramble=scramble, seed=study.seed).random(count)
    else:
        # Sobol' sequences are balanced in powers of two; the first ``count`` are the same.
        engine = qmc.Sobol(len(names), scramble=scramble, seed=study.seed)
        rows = engine.random_base2((count - 1).bit_length())[:count]
    return [dict(zip(names, map(float, row), strict=True)) for row in rows]
