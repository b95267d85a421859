"""Constraints: by how much they are broken, and what that makes of a ranking."""

from __future__ import annotations

import math

import pytest

from sweep.core.pareto import constrained_fronts, total, violations
from sweep.core.study import Constraint, Objective
from sweep.core.trial import TrialRecord
from sweep.results import ranking
from tests.study_rows import make_study

MS = Constraint("ms", max=50)
SHARE = Constraint("share", min=0.2, max=0.8)


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"ms": 50, "share": 0.5}, [0, -0.3, -0.3]),
        ({"ms": 60, "share": 0.9}, [10, 0.1, -0.7]),
        ({"ms": 0, "share": 0.1}, [-50, -0.7, 0.1]),
    ],
)
def test_violations(metrics: dict[str, float], expected: list[float]) -> None:
    assert violations([MS, SHARE], metrics) == pytest.approx(expected)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_breaks_a_bound(value: float) -> None:
    """And stays a finite number, which JSON and a sampler's sums take."""
    (found,) = violations([MS], {"ms": value})
    assert 1e300 < found < math.inf


def test_a_missing_metric_is_an_error() -> None:
    with pytest.raises(KeyError):
        violations([MS], {})


def test_total() -> None:
    assert (total([-1, -2]), total([0.5, -3, 1]), total([])) == (0, 1.5, 0)


def test_fronts_with_constraints() -> None:
    """The best of the infeasible comes after the last front of the feasible."""
    points = [(1, 1), (2, 2), (0, 0), (9, 9), (0, 0)]
    broken = [0.0, 0.0, 3.0, 1.0, 3.0]
    assert constrained_fronts(points, ["minimize", "minimize"], broken) == [1, 2, 4, 3, 4]
    assert constrained_fronts(points[2:3], ["minimize", "minimize"], [3.0]) == [1]


def test_ranking_with_constraints() -> None:
    """One objective: feasible ones by value, then the others by how much they break."""
    study = make_study(constraints=(MS,), objectives=(Objective("acc", "maximize"),))
    given = [(0.9, 5.0), (0.5, 0.0), (0.7, 0.0), (0.99, 1.0)]
    records = [
        TrialRecord(n, n, "complete", (value,), violation=amount)
        for n, (value, amount) in enumerate(given)
    ]
    assert [r.number for r in ranking.rank(records, study)] == [2, 1, 3, 0]
    rows = ranking.rows(records, study)
    assert [(row["trial"], row["rank"], row["feasible"]) for row in rows] == [
        (2, 1, True),
        (1, 2, True),
        (3, 3, False),
        (0, 4, False),
    ]
