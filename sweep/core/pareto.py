"""Fronts of several objectives, and whether a trial keeps to the study's constraints.

Violations are what Optuna's samplers learn from: above 0 where a constraint is broken.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial

from sweep.core.study import Constraint

Point = tuple[float, ...]


def fronts(points: Sequence[Sequence[float]], directions: Sequence[str]) -> list[int]:
    """Return the front of each point, from 1: front 1 is dominated by no point, front 2 only by
    points of front 1, and so on. Equal points share a front.

    Efficient non-dominated sort with binary search (Zhang and others 2015, "An efficient approach
    to nondominated sorting for evolutionary multiobjective optimization"): a point is compared only
    with points that come before it in the order of the first objective. With two objectives that is
    one comparison a front, O(n log n) in all.

    Args:
        points: One tuple of finite numbers each, in the order of the objectives.
        directions: "maximize" or "minimize" for each objective.
    """
    signs = [-1.0 if direction == "maximize" else 1.0 for direction in directions]
    costs = [tuple(s * v for s, v in zip(signs, point, strict=True)) for point in points]
    found: list[list[Point]] = []
    number: dict[Point, int] = {}
    for cost in sorted(set(costs)):
        # A front that holds a dominating point comes after none that does not.
        place = bisect_right(found, False, key=partial(_spares, cost))
        if place == len(found):
            found.append([])
        found[place].append(cost)
        number[cost] = place + 1
    return [number[cost] for cost in costs]


def _spares(cost: Point, front: Sequence[Point]) -> bool:
    """Tell whether no point of a front, all of them earlier in order, dominates this one."""
    rivals = front[-1:] if len(cost) <= 2 else reversed(front)
    return not any(all(a <= b for a, b in zip(rival, cost, strict=True)) for rival in rivals)


def violations(constraints: Sequence[Constraint], metrics: Mapping[str, float]) -> list[float]:
    """Return by how much each bound is broken, at most 0 where it is kept; NaN breaks it wholly.

    Args:
        metrics: The last reported value of each constrained metric.

    Raises:
        KeyError: A metric is missing.
    """
    found = []
    for constraint in constraints:
        value = metrics[constraint.metric]
        if constraint.max is not None:
            found.append(_finite(value - constraint.max))
        if constraint.min is not None:
            found.append(_finite(constraint.min - value))
    return found


def _finite(excess: float) -> float:
    # Neither JSON nor a sampler's sum takes an infinity.
    if math.isnan(excess):
        return sys.float_info.max / 1e6
    return min(max(excess, -sys.float_info.max), sys.float_info.max / 1e6)


def total(found: Sequence[float]) -> float:
    """Return by how much all constraints are broken together; 0 of a feasible trial."""
    return math.fsum(violation for violation in found if violation > 0)


def constrained_fronts(
    points: Sequence[Sequence[float]], directions: Sequence[str], broken: Sequence[float]
) -> list[int]:
    """Return the front of each point, from 1, by constrained domination (Deb and others 2002).

    Feasible points come first, by Pareto fronts; then the others, the least broken first.

    Args:
        broken: The total violation of each point.
    """
    feasible = [i for i, amount in enumerate(broken) if not amount]
    placed = fronts([points[i] for i in feasible], directions)
    found = dict(zip(feasible, placed, strict=True))
    after = max(placed, default=0)
    levels = {amount: place for place, amount in enumerate(sorted(set(broken) - {0.0}), 1)}
    return [found.get(i, after + levels.get(amount, 0)) for i, amount in enumerate(broken)]
