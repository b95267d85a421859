"""The memory that a trial may need on a card, by what was seen of others.

What memory depends on is found in the trials' parameters: a peak that grows with a width or a batch
size is expected to grow on for values that were not seen. What the parameters do not explain is
the spread, and the margin covers it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

CONTEXT_BYTES = 600_000_000  # CUDA's context of a process, which no allocator counts
SURE = 2.0  # standard deviations of the logarithm that the margin covers
FIRST_SPREAD = 0.1  # of a peak's logarithm, expected before two were seen
LEAST_SPREAD = 0.02
MOST_SEEN = 64
ENOUGH = 4  # peaks, before they are taken to depend on a parameter
STEEPEST = 3.0  # memory grows at most with this power of a parameter
LARGEST = 60.0  # logarithm of more bytes than any card has
DOUBT = 0.05  # how much evidence an exponent needs: the larger, the more


class Peaks:
    """The peaks of trials with their parameters, the newest last."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[dict[str, float], int]] = {}

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> Peaks:
        """Return what ``to_json`` gave.

        Raises:
            TypeError, ValueError, AttributeError: It is something else.
        """
        found = cls()
        for key, params, peak in stored:
            found.note(str(key), params, int(peak))
        return found

    def to_json(self) -> list[Any]:
        """Return all of it as plain values."""
        return [[key, params, peak] for key, (params, peak) in self._seen.items()]

    def forget_trials(self) -> None:
        """Keep the peaks without the names of their trials: those that come have others."""
        self._seen = {f"#{i}": each for i, each in enumerate(self._seen.values())}

    def note(self, key: str, params: Mapping[str, object], peak: int) -> None:
        """Note the most that a trial was seen to need so far."""
        if peak <= 0:
            return
        _, before = self._seen.pop(key, ({}, 0))
        self._seen[key] = (_numbers(params), max(peak, before))
        for old in list(self._seen)[:-MOST_SEEN]:
            del self._seen[old]

    def of(self, key: str) -> int:
        """Return the most that a trial was seen to need, 0 where it was not seen."""
        return self._seen[key][1] if key in self._seen else 0

    def usual(self) -> int | None:
        """Return what the next trial may need, whichever parameters it has; None if none was seen.

        That is their mean and above it the spread over all configurations so far.
        """
        if not self._seen:
            return None
        logs = [math.log(peak) for _, peak in self._seen.values()]
        return _bytes(statistics.fmean(logs) + SURE * _deviation(logs))

    def expected(self, params: Mapping[str, object]) -> int | None:
        """Return what a trial with these parameters may need, with its margin; None if none was
        seen."""
        exponents = self._exponents()
        if not exponents:
            return self.usual()
        own = _numbers(params)
        rest = [
            math.log(peak) - sum(e * math.log(seen[name]) for name, e in exponents.items())
            for seen, peak in self._seen.values()
            if exponents.keys() <= seen.keys()
        ]
        if not exponents.keys() <= own.keys():
            return self.usual()
        explained = sum(e * math.log(own[name]) for name, e in exponents.items())
        return _bytes(explained + statistics.fmean(rest) + SURE * _deviation(rest))

    def _exponents(self) -> dict[str, float]:
        """Return with which power of which parameters the peaks grow: a ridge regression of their
        logarithms, one parameter after the other until nothing changes."""
        if len(self._seen) < ENOUGH:
            return {}
        names = set.intersection(*(set(params) for params, _ in self._seen.values()))
        peaks = _centred([math.log(peak) for _, peak in self._seen.values()])
        columns = {
            name: _centred([math.log(params[name]) for params, _ in self._seen.values()])
            for name in sorted(names)
        }
        columns = {name: column for name, column in columns.items() if any(column)}
        powers = dict.fromkeys(columns, 0.0)
        for _ in range(50):
            changed = 0.0
            for name, column in columns.items():
                left = [
                    peak - sum(powers[o] * columns[o][i] for o in columns if o != name)
                    for i, peak in enumerate(peaks)
                ]
                square = sum(x * x for x in column)
                power = sum(x * y for x, y in zip(column, left, strict=True)) / (square + DOUBT)
                power = min(max(power, 0.0), STEEPEST)
                changed = max(changed, abs(power - powers[name]))
                powers[name] = power
            if changed < 1e-4:
                break
        return {name: power for name, power in powers.items() if power > 0.05}


def _numbers(params: Mapping[str, object]) -> dict[str, float]:
    """Return the parameters that are positive numbers: those whose logarithm may explain memory."""
    return {
        str(name): float(value)
        for name, value in params.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e300
    }


def _bytes(log: float) -> int:
    return round(math.exp(min(log, LARGEST)))


def _centred(values: Sequence[float]) -> list[float]:
    middle = statistics.fmean(values)
    return [value - middle for value in values]


def _deviation(values: Sequence[float]) -> float:
    """Return how far the next value may lie from the mean of those seen."""
    squares = sum(each**2 for each in _centred(values)) + FIRST_SPREAD**2
    spread = max(LEAST_SPREAD, math.sqrt(squares / len(values)))
    return spread * math.sqrt(1 + 1 / len(values))
