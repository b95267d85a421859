"""How fast trials train at a level, in units of their own speed alone.

Trial i at level n makes steps at the rate a_i · s_n: a_i is its own scale (unlike models have
unlike steps), s_n the speed at the level, s_1 = 1. A trial that trained at a measured level and
trains at the next one tells their ratio by itself. One that is new tells it with the spread that
the scales of others have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

MOST_INTERVALS = 12  # a trial's reports at a level are summed up to so many
SHORTEST_S = 1.0  # of an interval: shorter ones are summed up
INTERVAL_NOISE = 0.1  # of a rate's logarithm, expected before any was seen
BELIEF = 2  # as many values the expected spread of scales is worth
MOST_SCALES = 64


@dataclass(frozen=True)
class Rate:
    """The logarithm of a trial's steps a second, its variance, and from how many intervals."""

    log: float
    variance: float
    intervals: int


@dataclass(frozen=True)
class Speed:
    """The logarithm of the speed at a level against alone, and its variance."""

    log: float
    variance: float


def rate_of(reports: Sequence[tuple[float, float]], since_s: float) -> Rate | None:
    """Return a trial's rate by the intervals between its reports since a time; None without one.

    Args:
        reports: (second, step) in their order. Where a step or the time goes back, training began
            anew: what comes before does not count.
    """
    kept: list[tuple[float, float]] = []
    for at_s, step in reports:
        if at_s < since_s or not (math.isfinite(at_s) and math.isfinite(step)):
            continue
        if kept and (step < kept[-1][1] or at_s < kept[-1][0]):
            kept = []
        kept.append((at_s, step))
    if len(kept) < 2:
        return None
    shortest_s = max(SHORTEST_S, (kept[-1][0] - kept[0][0]) / MOST_INTERVALS)
    logs, begin = [], kept[0]
    for end in kept[1:]:
        took_s, steps = end[0] - begin[0], end[1] - begin[1]
        if took_s >= shortest_s * 0.999 and 0 < steps < math.inf:
            logs.append(math.log(steps) - math.log(took_s))
            begin = end
    if len(logs) > 3:
        del logs[0]  # where compilers and caches warm up
    return _rate(logs) if logs else None


def _rate(logs: Sequence[float]) -> Rate:
    middle = statistics.median(logs)
    scatter = sum((each - middle) ** 2 for each in logs)
    count = len(logs)
    return Rate(middle, (scatter + INTERVAL_NOISE**2) / count**2, count)


class Speeds:
    """The rates that were seen at the level that is being measured, and the scales of trials.

    Attributes:
        current: By trial, its rate at that level.

    Args:
        spread: Of the scales' logarithms, expected before any was seen.
    """

    def __init__(self, spread: float) -> None:
        self._usual_spread = spread
        self.current: dict[str, Rate] = {}
        self._scales: dict[str, Rate] = {}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], spread: float) -> Speeds:
        """Return what ``to_json`` gave.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: It is something else.
        """
        found = cls(spread)
        for mine, part in ((found.current, "current"), (found._scales, "scales")):
            for key, (log, variance, intervals) in stored[part].items():
                mine[str(key)] = Rate(float(log), float(variance), int(intervals))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "current": {key: list(astuple(rate)) for key, rate in self.current.items()},
            "scales": {key: list(astuple(rate)) for key, rate in self._scales.items()},
        }

    def intervals(self) -> int:
        """Return how many intervals were seen at the level that is being measured."""
        return sum(rate.intervals for rate in self.current.values())

    def estimate(self, fewest: int) -> Speed | None:
        """Return the speed at the level that is being measured; None where nothing tells it.

        Args:
            fewest: With fewer scales known, trials that are new tell nothing.
        """
        paired, new = [], []
        for key, rate in self.current.items():
            scale = self._scales.get(key)
            if scale is None:
                new.append(rate)
            else:
                paired.append(Speed(rate.log - scale.log, rate.variance + scale.variance))
        parts = [mean(paired)] if paired else []
        if new and len(self._scales) >= fewest:
            spread = self._spread(new)
            usual = statistics.fmean(each.log for each in self._scales.values())
            found = mean([Speed(rate.log - usual, rate.variance + spread) for rate in new])
            parts.append(Speed(found.log, found.variance + spread / len(self._scales)))
        return mean(parts) if parts else None

    def settle(self, speed: Speed) -> None:
        """Keep what a level, now that its speed is known, tells of the scales of its trials."""
        for key, rate in self.current.items():
            self.learn(key, rate, speed)
        self.current.clear()

    def learn(self, key: str, rate: Rate, speed: Speed) -> None:
        """Keep what a trial's rate at a level of known speed tells of its scale."""
        told = Speed(rate.log - speed.log, rate.variance + speed.variance)
        before = self._scales.pop(key, None)
        if before is not None:
            told = mean([told, Speed(before.log, before.variance)])
        self._scales[key] = Rate(told.log, told.variance, rate.intervals)
        for old in list(self._scales)[:-MOST_SCALES]:
            del self._scales[old]

    def forget_trials(self) -> None:
        """Keep the scales of trials without their names: those that come have others."""
        self.current.clear()
        self._scales = {f"#{i}": scale for i, scale in enumerate(self._scales.values())}

    def _spread(self, new: Sequence[Rate]) -> float:
        """Return the variance of trials' scales, by those known and by rates at one level."""
        squares, freedom = BELIEF * self._usual_spread**2, BELIEF
        for group in ([scale.log for scale in self._scales.values()], [rate.log for rate in new]):
            middle = statistics.fmean(group)
            squares += sum((each - middle) ** 2 for each in group)
            freedom += len(group) - 1
        return squares / freedom


def mean(parts: Sequence[Speed]) -> Speed:
    """Return the mean, each part weighted by how sure it is."""
    weights = [1.0 / part.variance for part in parts]
    total = sum(weights)
    log = sum(weight * part.log for weight, part in zip(weights, parts, strict=True)) / total
    return Speed(log, 1.0 / total)
