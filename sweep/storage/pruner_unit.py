"""What a pruner counts: reported steps, epochs, or seconds of training.

Optuna's table of intermediate values is keyed by it, so that pruners and samplers compare trials at
the same amount of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

STEPS = "steps"  # the step that training reports
EPOCHS = "epochs"  # the metric ``epoch`` that it reports beside
SECONDS = "seconds"  # its age, over all its attempts
EPOCH = ("epoch", "epochs")  # names of that metric


class Reported(Protocol):
    """One report of a training."""

    @property
    def step(self) -> int: ...
    @property
    def time_s(self) -> float: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


def amount(report: Reported, unit: str, started_s: float) -> int | None:
    """Return how much a training had used when it reported, in whole units; None when unknown.

    Args:
        unit: steps, epochs or seconds.
        started_s: When it began, in epoch seconds, moved back by what earlier attempts used.
    """
    if unit == SECONDS:
        return max(0, math.floor(report.time_s - started_s))
    if unit == EPOCHS:
        found = next((report.metrics[name] for name in EPOCH if name in report.metrics), math.nan)
        return math.floor(found) if math.isfinite(found) else None
    return report.step


def keyed(
    reports: Sequence[Reported], metric: str, unit: str, started_s: float
) -> dict[int, float]:
    """Return a metric's reported values by what had been used; of several the last."""
    those = [report for report in reports if metric in report.metrics]
    pairs = ((amount(r, unit, started_s), r.metrics[metric]) for r in those)
    return {used: value for used, value in pairs if used is not None}


def first(reports: Sequence[Reported], unit: str, started_s: float) -> int | None:
    """Return what had been used at the first report that says so, or None."""
    found = (amount(report, unit, started_s) for report in reports)
    return next((used for used in found if used is not None), None)
