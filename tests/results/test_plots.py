"""Pictures of values that no axis can show as they are: each is drawn, whatever trials report."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from sweep.core.study import Objective
from sweep.core.trial import TrialRecord
from sweep.results import plots
from tests.study_rows import NOON, make_study

TINY, LARGE = 5e-324, 1.7976931348623157e308
VALUES: list[Sequence[float]] = [
    (TINY, 5.0),
    (TINY, LARGE),
    (-LARGE, LARGE),
    (LARGE, LARGE),
    (TINY, TINY),
    (0.0, 0.0),
    (-TINY, TINY, 0.0),
    (1e-300, 1e300, 1.0),
    (1.0, 1.0 + 2**-52),
    (5.0,),
]
# Upwards in the short form: three that the axes take in three ways.
UPWARDS = ((TINY, 5.0), (-LARGE, LARGE), (-TINY, TINY, 0.0))
CASES = [(values, "minimize") for values in VALUES] + [
    pytest.param(values, "maximize", marks=() if values in UPWARDS else pytest.mark.long)
    for values in VALUES
]


def records(values: Sequence[float], objectives: int = 1) -> list[TrialRecord]:
    """Trials that ended one after another, with a curve each from the first value to their own."""
    return [
        TrialRecord(
            number,
            number,
            "complete",
            (value, values[-1 - number])[:objectives],
            ended=NOON + timedelta(minutes=number),
            metrics={"acc": [(0, values[0]), (1, value)]},
        )
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(("values", "direction"), CASES, ids=str)
def test_any_finite_values_are_drawn(
    values: Sequence[float], direction: str, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    study = make_study(objectives=(Objective("acc", direction),), trials=len(values))
    both = make_study(
        objectives=(Objective("acc", direction), Objective("loss", "minimize")), trials=len(values)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn, _ = plots.draw(records(values), study, tmp_path / "one")
        fronts, _ = plots.draw(records(values, 2), both, tmp_path / "two")
    assert [path.name for path in (*drawn, *fronts)] == ["history.png", "curves.png", "front.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (*drawn, *fronts))
