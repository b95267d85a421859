"""Which of several objectives' results no other result beats in everything."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial

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
