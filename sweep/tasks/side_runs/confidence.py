"""The statistics of ``confirm``: means of fresh seeds, their intervals, and paired tests.

A search takes the best of many noisy results, so its winner's value is too good on average (the
winner's curse). Runs with seeds that had no part in the choice are free of that: their mean is an
unbiased estimate. All trials run with the same seeds, so that what a seed does to all of them
cancels in the paired differences.

Student's t throughout: results of one configuration under different seeds are taken as independent
and roughly normal.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.95
POWER = 0.8  # of the number of seeds that would tell two trials apart
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Estimate:
    """One trial over fresh seeds.

    Attributes:
        values: Results by seed, of the runs that gave one.
        failed: Runs that gave none.
        low, high: The mean's confidence interval; None with fewer than two values.
    """

    trial: int
    values: Mapping[int, float]
    failed: int
    mean: float
    deviation: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Judgement:
    """Which of several trials is best.

    Attributes:
        ranking: Best mean first; trials with failed runs after those without.
        p_value: Of the paired test of the first against the second; None where fewer than two
            seeds are common to both.
        distinguishable: Whether the first is better than the second at the level.
        as_good: Trials that the data cannot tell from the first (Holm's correction over them all).
        low, high: An interval for the first's mean that allows for its having been picked out of
            all these (Šidák's correction); None with fewer than two values.
        seeds_needed: About how many seeds would tell the first from the second, where these do not
            and MOST_SEEDS or fewer would.
    """

    ranking: Sequence[Estimate]
    p_value: float | None
    distinguishable: bool
    as_good: Sequence[int]
    low: float | None
    high: float | None
    seeds_needed: int | None


def estimate(
    trial: int, values: Mapping[int, float], failed: int = 0, level: float = LEVEL
) -> Estimate:
    """Return the mean of a trial's results with its confidence interval.

    Raises:
        ValueError: There is no value.
    """
    mean = statistics.fmean(values.values())
    deviation = statistics.stdev(values.values()) if len(values) > 1 else 0.0
    half = half_width(deviation, len(values), level)
    low, high = (None, None) if half is None else (mean - half, mean + half)
    return Estimate(trial, dict(values), failed, mean, deviation, low, high)


def half_width(deviation: float, count: int, level: float) -> float | None:
    """Return half the width of the t interval of a mean; None with fewer than two values."""
    if count < 2:
        return None
    return t_quantile(count - 1, (1 + level) / 2) * deviation / math.sqrt(count)


def t_quantile(degrees: int, share: float) -> float:
    """Return the quantile of Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, share))


def paired_p(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """Return the two-sided p-value of the paired t test over common seeds; None below two."""
    from scipy.special import stdtr

    differences = _differences(a, b)
    count = len(differences)
    if count < 2:
        return None
    mean, deviation = statistics.fmean(differences), statistics.stdev(differences)
    if deviation == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(count - 1, -abs(mean) / deviation * math.sqrt(count)))


def _differences(a: Mapping[int, float], b: Mapping[int, float]) -> list[float]:
    return [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]


def holm(p_values: Sequence[float | None], level: float = LEVEL) -> list[bool]:
    """Return which hypotheses are rejected at the family's level (Holm 1979); None never is."""
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    rejected = [False] * len(p_values)
    for rank, (p, place) in enumerate(order):
        if p > (1 - level) / (len(p_values) - rank):
            break
        rejected[place] = True
    return rejected


def seeds_to_tell(
    a: Mapping[int, float], b: Mapping[int, float], level: float = LEVEL
) -> int | None:
    """Return about how many seeds would tell two trials apart with a power of POWER.

    From the normal approximation, with the t quantiles of the number that it gives (Cohen 1988).
    None where there is no difference to be told, or it would take more than MOST_SEEDS.
    """
    differences = _differences(a, b)
    if len(differences) < 2 or (mean := statistics.fmean(differences)) == 0:
        return None
    ratio = statistics.stdev(differences) / abs(mean)
    for count in range(2, MOST_SEEDS + 1):
        quantiles = t_quantile(count - 1, (1 + level) / 2) + t_quantile(count - 1, POWER)
        if count >= (quantiles * ratio) ** 2:
            return count
    return None


def judge(estimates: Sequence[Estimate], direction: str, level: float = LEVEL) -> Judgement:
    """Rank trials by their means and say what holds.

    Args:
        estimates: At least one.
        direction: "maximize" or "minimize".
    """
    sign = -1.0 if direction == "maximize" else 1.0
    ranking = sorted(estimates, key=lambda e: (e.failed > 0, sign * e.mean, e.trial))
    first, rest = ranking[0], ranking[1:]
    p_values = [paired_p(first.values, other.values) for other in rest]
    told = holm(p_values, level)
    half = half_width(first.deviation, len(first.values), level ** (1 / len(ranking)))
    p_value = p_values[0] if rest else None
    # A second that ranks there only because its runs failed may have the better mean.
    distinguishable = bool(rest) and told[0] and sign * first.mean < sign * rest[0].mean
    as_good = [o.trial for o, apart in zip(rest, told, strict=True) if not apart and not o.failed]
    needed = None
    if rest and not distinguishable:
        needed = seeds_to_tell(first.values, rest[0].values, level)
    return Judgement(
        ranking=ranking,
        p_value=p_value,
        distinguishable=distinguishable,
        as_good=as_good,
        low=None if half is None else first.mean - half,
        high=None if half is None else first.mean + half,
        seeds_needed=needed,
    )
