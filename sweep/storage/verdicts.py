"""Verdicts on a running trial from what this process knows already: no statement for most of them.

Optuna's percentile pruner (the median is one) goes through all finished trials at every step of
every trial. What it needs of them is one number a step, and that changes only when a trial has
finished: it is kept here. The rules are Optuna's, and so are the functions that apply them; the
other pruners are asked as they are (``sampling.should_prune``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from optuna.pruners import MedianPruner, PercentilePruner
from optuna.pruners._percentile import _is_first_in_interval_step
from optuna.study import StudyDirection
from optuna.trial import TrialState

from sweep.storage.history import History
from sweep.storage.view import diverged


def is_quick(pruner: Any) -> bool:
    """Tell whether a pruner's verdicts can be given here."""
    return type(pruner) in (PercentilePruner, MedianPruner)


class Curves:
    """What the complete trials of a study reported, by step. Follows a ``History``."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._forget()

    def _forget(self) -> None:
        self.complete = 0  # trials
        self.longest = 0  # last step of any finished trial
        self._generation = self._history.generation
        self._read = 0  # of the history's finished trials
        self._values: dict[int, list[float]] = {}
        self._thresholds: dict[tuple[int, float, int], float] = {}

    def follow(self) -> None:
        """Take in what the history has read since."""
        if self._generation != self._history.generation:
            self._forget()
        new = self._history.finished_order[self._read :]
        self._read += len(new)
        for trial in new:
            self.longest = max(self.longest, trial.last_step or 0)
            if trial.state == TrialState.COMPLETE or diverged(trial):  # as in ``view``
                self.complete += 1
                for step, value in trial.intermediate_values.items():
                    self._values.setdefault(step, []).append(value)
        if new:
            self._thresholds.clear()

    def percentile(self, step: int, percentile: float, at_least: int) -> float:
        """Return the percentile of the values at a step; NaN of fewer than so many values."""
        key = (step, percentile, at_least)
        found = self._thresholds.get(key)
        if found is None:
            values = self._values.get(step, [])
            found = math.nan
            if len(values) >= max(at_least, 1):
                import numpy

                finite = numpy.array(values, dtype=float)
                if not numpy.isnan(finite).all():
                    found = float(numpy.nanpercentile(finite, percentile))
            self._thresholds[key] = found
        return found


def judge(
    pruner: PercentilePruner, steps: Mapping[int, float], curves: Curves, direction: StudyDirection
) -> bool:
    """Tell whether the pruner would stop a trial at its last step, as its ``prune`` does.

    Args:
        steps: What the trial has reported, by step.
    """
    if curves.complete == 0 or curves.complete < pruner._n_startup_trials or not steps:
        return False
    step = max(steps)
    warmup = pruner._n_warmup_steps
    if step < warmup:
        return False
    if not _is_first_in_interval_step(step, steps.keys(), warmup, pruner._interval_steps):
        return False
    known = [value for value in steps.values() if not math.isnan(value)]
    if not known:
        return True
    is_max = direction == StudyDirection.MAXIMIZE
    percentile = 100.0 - pruner._percentile if is_max else pruner._percentile
    threshold = curves.percentile(step, percentile, pruner._n_min_trials)
    if math.isnan(threshold):
        return False
    return max(known) < threshold if is_max else min(known) > threshold
