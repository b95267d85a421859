"""Where users believe the best values to be: points from there, and whether results bear it out.

A belief (``prior``) is used twice. Every other trial of the start is drawn from it, the first at
its centre. After that a proposal now and then takes its values from there, fewer and fewer, and
only as long as the best results so far lie there more often than the others. So a wrong belief
costs some trials of the start and is forgotten.

Others weight an acquisition function with the prior to a power that falls (Hvarfner and others
2022, "piBO"). That is within a sampler; this works with any that learns from what it did not
propose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Any

from sweep.core import pareto
from sweep.core.attributes import CONSTRAINTS
from sweep.core.space import Parameter, Space
from sweep.core.study import Study
from sweep.search.draws import from_unit, place_values, unit_draw

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

EVERY = 2  # one of so many trials of the start is drawn from the belief
SHARE = 0.5  # of the proposals after it at most
EXPECTED = 10  # trials: of proposal n it is this part by n
LEAST = 4  # complete trials before results say anything
_REDRAWS = 100  # of a point of the start that breaks the study's relations
_FLAT = 1e-9  # of a prior within its range: it is so wide that it is even there
_FAR = 10**6  # beyond every trial's number


def has_priors(space: Space) -> bool:
    """Tell whether a belief is declared for any of the parameters."""
    return any(parameter.prior for parameter in space)


def believed_value(parameter: Parameter, unit: float) -> Any:
    """Return the parameter's value at a place in [0, 1) of its prior; uniform without one.

    A normal distribution, in the logarithm where the scale is logarithmic, cut at the ends of the
    range.
    """
    prior = parameter.prior
    if prior is None or (parameter.low == parameter.high and parameter.type != "categorical"):
        return from_unit(parameter, unit)
    if parameter.type == "categorical":
        place = unit * sum(prior.weights)
        for choice, weight in zip(parameter.choices, prior.weights, strict=True):
            place -= weight
            if place < 0:
                return choice
        return centre(parameter)
    normal, low, high = _normal(parameter)
    first, last = normal.cdf(low), normal.cdf(high)
    if last - first < _FLAT:
        return from_unit(parameter, unit)
    inner = min(max(first + unit * (last - first), 1e-12), 1 - 1e-12)
    value = min(max(normal.inv_cdf(inner), low), high)
    return _nearest(parameter, math.exp(value) if parameter.log else value)


def centre(parameter: Parameter) -> Any:
    """Return the most probable value of a parameter that has a prior."""
    prior = parameter.prior
    assert prior is not None
    if parameter.type == "categorical":
        return parameter.choices[prior.weights.index(max(prior.weights))]
    assert prior.center is not None
    return _nearest(parameter, prior.center)


def belief(space: Space, stored: Mapping[str, Any]) -> float:
    """Return how much denser the priors are at a configuration than chance, as a logarithm.

    Args:
        stored: Its values as Optuna stores them.
    """
    return sum(_log_density(p, stored[p.name]) for p in space if p.prior and p.name in stored)


def _log_density(parameter: Parameter, value: Any) -> float:
    assert parameter.prior is not None
    if parameter.type == "categorical":
        weights = parameter.prior.weights
        weight = weights[int(parameter.to_internal(value))]
        return math.log(max(weight / sum(weights) * len(weights), 1e-12))
    if parameter.low == parameter.high:
        return 0.0
    normal, low, high = _normal(parameter)
    at = math.log(value) if parameter.log else float(value)
    inside = normal.cdf(high) - normal.cdf(low)
    if inside < _FLAT:
        return 0.0
    # pdf underflows far out: its logarithm as such. A power would overflow where a product is inf.
    off = (at - normal.mean) / normal.stdev
    log_pdf = -off * off / 2
    share = inside / (high - low)
    return log_pdf - math.log(normal.stdev * math.sqrt(2 * math.pi)) - math.log(share)


def _normal(parameter: Parameter) -> tuple[NormalDist, float, float]:
    """Return the prior on the parameter's scale, and the ends of its range there."""
    prior = parameter.prior
    assert prior is not None and prior.center is not None and prior.spread is not None
    assert parameter.low is not None and parameter.high is not None
    if parameter.log:
        ends = math.log(parameter.low), math.log(parameter.high)
        return NormalDist(math.log(prior.center), math.log(prior.spread)), *ends
    return NormalDist(prior.center, prior.spread), float(parameter.low), float(parameter.high)


def _nearest(parameter: Parameter, value: float) -> float | int:
    low, high = parameter.low, parameter.high
    assert low is not None and high is not None
    if parameter.type == "int":
        step = int(parameter.step or 1)
        return int(min(low + round((value - low) / step) * step, high))
    if parameter.step:
        return parameter.values()[round((value - low) / parameter.step)]
    return float(min(max(value, low), high))


def with_believed(
    study: Study, rows: Sequence[dict[str, Any]], keeps: Callable[[Mapping[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Return the rows of a start with every other one drawn from the belief.

    A Latin hypercube in the priors' own measure; the first is their centre. A row stays as it is
    where no point of the belief is found that keeps to the study's relations.

    Args:
        keeps: Tells whether a stored configuration keeps to them.
    """
    found = list(rows)
    size = math.ceil(len(rows) / EVERY)
    order: dict[str, list[int]] = {}

    def unit(place: int, again: int, name: str) -> float:
        if again:
            return unit_draw(study.seed, place + again * _FAR, f"{name} start prior")
        if name not in order:
            draws = [unit_draw(study.seed, n, f"{name} prior part") for n in range(size)]
            order[name] = sorted(range(size), key=draws.__getitem__)
        return (order[name][place] + unit_draw(study.seed, place, f"{name} start prior")) / size

    for place in range(size):
        for again in range(_REDRAWS):
            # Other parameters may be drawn again beside the centre.
            centred = place == 0 and again < _REDRAWS // 2
            row = start_row(study.space, partial(unit, place, again), centred=centred)
            if keeps(row):
                found[place * EVERY] = row
                break
    return found


def start_row(space: Space, unit: Callable[[str], float], *, centred: bool) -> dict[str, Any]:
    """Return stored values of a trial of the start from the priors.

    Args:
        unit: Returns a parameter's place in [0, 1).
        centred: At the priors' centres; parameters without one by chance.
    """

    def value(parameter: Parameter, at: float) -> Any:
        is_known = centred and parameter.prior
        return centre(parameter) if is_known else believed_value(parameter, at)

    return place_values(space, unit, place=value)


def believed_row(study: Study, number: int) -> dict[str, Any]:
    """Return stored values from the priors for a trial after the start; nothing for parameters
    that have none: those are the sampler's.
    """
    point = place_values(
        study.space,
        lambda name: unit_draw(study.seed, number, f"{name} prior"),
        place=believed_value,
    )
    return {name: value for name, value in point.items() if study.space.get(name).prior}


def is_called_for(study: Study, trials: Sequence[FrozenTrial], number: int) -> bool:
    """Tell whether the proposal for a trial after the start takes its values from the priors.

    Args:
        trials: As the study's sampler sees them.
        number: The trial's.
    """
    share = min(SHARE, EXPECTED / max(number, 1))
    if not has_priors(study.space) or unit_draw(study.seed, number, "prior at all") >= share:
        return False
    return is_borne_out(study, trials)


def is_borne_out(study: Study, trials: Sequence[FrozenTrial]) -> bool:
    """Tell whether the best quarter of the trials lies where the priors are denser than chance more
    often than the others do.
    """
    done = [t for t in trials if t.state.name == "PRUNED" or t.state.name == "COMPLETE"]
    complete = [t for t in done if t.state.name == "COMPLETE"]
    if len(complete) < LEAST:
        return False
    ranks = pareto.constrained_fronts(
        [t.values for t in complete],
        study.directions,
        [pareto.total(t.system_attrs.get(CONSTRAINTS) or ()) for t in complete],
    )
    ranked = [t for _, _, t in sorted(zip(ranks, count(), complete, strict=False))]
    ranked += [t for t in done if t.state.name == "PRUNED"]
    inside = [belief(study.space, t.params) > 0 for t in ranked]
    best = max(2, len(inside) // 4)
    return fmean(inside[:best]) > fmean(inside[best:])
