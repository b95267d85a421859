"""Whether a trial keeps to the study's constraints, and by how much it does not.

Violations are what Optuna's samplers learn from: above 0 where a constraint is broken.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from sweep.pareto import fronts
from sweep.study import Constraint

KEY = "constraints"  # the trial's system attribute in which Optuna keeps violations


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
