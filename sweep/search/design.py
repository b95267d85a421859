"""Designs that need no results: grid, random, quasi-random and spread points, and the user's own.

Deterministic in the study's seed, and stable when N is raised: the first trials stay as they are.
Values are the ones that Optuna stores (lists and objects as JSON text). Imports no Optuna.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from sweep.core.errors import InputError, SweepError
from sweep.core.space import to_optuna
from sweep.core.study import Study
from sweep.search.draws import place_values, stored_point, unit_draw
from sweep.search.priors import has_priors, with_believed
from sweep.search.valid import Where, any_valid_point, survey, valid_point, valid_points

FIXED = ("grid", "random", "qmc")
GRID_LIMIT = 100_000  # points; more do not make a search
DRAWS = 50  # for a random point that is not there yet
_FAR = 10**6  # beyond every trial's number
LONGEST = 2**17  # points of a sequence of which relations leave too few


def fixed_design(study: Study) -> list[dict[str, Any]] | None:
    """Return the stored parameters of all N trials, or None where the sampler learns from results.

    A parameter that does not exist beside the others' values is left out. The user's own points
    come first, completed from the design where they leave something out.

    Raises:
        InputError: A grid of endless or too many values, or of fewer than N points; no point that
            keeps to the study's relations was found.
        SweepError: SciPy is missing, which makes quasi-random sequences.
    """
    kind = study.sampler.type
    if kind not in FIXED:
        return None
    count = study.trials
    if kind == "grid":
        rows = _grid(study)
    elif kind == "qmc":
        rows = _sequence_rows(study, count)
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
    points come first and take their place in it where they leave something out. With priors every
    other point is drawn from those.
    """
    where = Where(study)
    # Of a larger one what keeps to the study's relations: so that is spread evenly, too.
    size = min(math.ceil(count / survey(study).share_at_least), LONGEST) if where else count
    order: dict[str, list[int]] = {}

    def unit(number: int, name: str) -> float:
        if name not in order:
            draws = [unit_draw(study.seed, n, f"{name} part") for n in range(size)]
            order[name] = sorted(range(size), key=draws.__getitem__)
        return (order[name][number] + unit_draw(study.seed, number, name)) / size

    rows = [place_values(study.space, partial(unit, number)) for number in range(size)]
    rows = _filled(study, [row for row in rows if where.keeps(row)], count)
    if has_priors(study.space):
        rows = with_believed(study, rows, where.keeps)
    if study.duplicates == "resample":
        rows = _without_twins(study, rows)
    return [
        complete_point(study, number, row) if number < len(study.points) else row
        for number, row in enumerate(rows)
    ]


def _filled(study: Study, rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return ``count`` rows: those, and random ones where they are fewer."""
    return [*rows[:count], *valid_points(study, range(len(rows), count))]


def _random_rows(study: Study, count: int) -> list[dict[str, Any]]:
    """Return random points; with ``duplicates: resample`` no two alike, while there are others."""
    rows = list(valid_points(study, range(count)))
    return _without_twins(study, rows) if study.duplicates == "resample" else rows


def _without_twins(study: Study, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows, with one drawn by chance for each that an earlier one is alike to."""
    seen: set[str] = set()
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        for again in range(1, DRAWS):
            if json.dumps(row, sort_keys=True) not in seen:
                break
            row = any_valid_point(study, number + again * _FAR)
        seen.add(json.dumps(row, sort_keys=True))
        found.append(row)
    return found


def complete_point(study: Study, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's point of a trial; what it leaves out is from ``row``, else random."""
    point = stored_point(study, study.points[number])
    return _completed(study, number, point, row, f"points[{number}]")


def place_point(study: Study, number: int, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return a user's point as the stored values of a trial; what it leaves out is random.

    Raises:
        InputError: It breaks the study's relations, whatever completes it.
    """
    return _completed(study, number, stored_point(study, point), {}, "The configuration")


def _completed(
    study: Study, number: int, point: Mapping[str, Any], row: Mapping[str, Any], what: str
) -> dict[str, Any]:
    known = {**row, **point}
    completed = place_values(study.space, lambda name: unit_draw(study.seed, number, name), known)
    where = Where(study)
    if where.keeps(completed):
        return completed
    found = valid_point(study, number, point)
    if found is None:
        raise InputError(
            f"{what} breaks where, whatever completes it: {where.describe(completed)}.",
            "Correct it, or leave it out.",
        )
    return found


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
    points, where = [], Where(study)
    for number, values in enumerate(study.space.combinations(), 1):
        point = {name: to_optuna(value) for name, value in values.items()}
        if where.keeps(point):
            points.append(point)
        if number > GRID_LIMIT:
            raise InputError(
                f"The grid has more than {GRID_LIMIT} points.",
                "Use fewer values, or the sampler qmc or random.",
            )
    needed = study.trials - len(study.points)
    if needed > len(points):
        raise InputError(
            f"The grid has {len(points)} points{' that keep to where' if where else ''}, and "
            f"{needed} trials are to be made of it.",
            f"Set trials to {len(points) + len(study.points)}.",
        )
    order = sorted(range(len(points)), key=lambda i: unit_draw(study.seed, i, "grid order"))
    return [{} for _ in study.points] + [points[i] for i in order]


def _sequence_rows(study: Study, count: int) -> list[dict[str, Any]]:
    """Return the first places of a quasi-random sequence that keep to the study's relations."""
    where, size = Where(study), count
    while True:
        units = _sequence(study, size)
        rows = [place_values(study.space, unit.__getitem__) for unit in units]
        rows = [row for row in rows if where.keeps(row)]
        if len(rows) >= count or size >= LONGEST:
            return _filled(study, rows, count)
        size = min(4 * size, LONGEST)


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
