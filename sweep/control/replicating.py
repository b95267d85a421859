"""Whether a trial whose training has ended well needs a further one, with another seed.

Every trial gets ``replicates.min``. Further ones, up to ``max``, go to trials that may still be the
best: whose mean is not worse than the best other trial's by more than two standard errors of the
difference, and whose means break no bound of the constraints by more than two standard errors. The
standard deviation is the pooled one of all trials so far, as it is in an analysis of variance with
one factor (https://en.wikipedia.org/wiki/Pooled_variance).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from sweep.core import pareto
from sweep.core.study import Study
from sweep.core.trial import (
    Attempt,
    Replicate,
    better,
    mean_bounded,
    mean_values,
    replicate_of,
    replicate_seed,
)
from sweep.storage import replicates
from sweep.storage.ledger import Ledger
from sweep.storage.series import read_series

STANDARD_ERRORS = 2.0


def after(
    ledger: Ledger, attempts: Sequence[Attempt], values: Sequence[float]
) -> tuple[Replicate, ...]:
    """Return a trial's replicates with the one that has just ended.

    Args:
        attempts: All of the trial, oldest first, the last one just ended.
        values: Its objectives.
    """
    study, last = ledger.study, attempts[-1]
    number = replicate_of(attempts)
    before = [one for one in replicates.read(ledger.db, last.trial_id) if one.number < number]
    bounded = [
        ledger.summary(last.trial_id, constraint.metric, "last", "minimize")
        for constraint in study.constraints
    ]
    this = Replicate(
        number,
        replicate_seed(study.seed, last.trial, number),
        last.number,
        tuple(values),
        tuple(math.nan if value is None else value for value in bounded),
        _kept(ledger, attempts, before),
    )
    return (*before, this)


def _kept(
    ledger: Ledger, attempts: Sequence[Attempt], before: Sequence[Replicate]
) -> tuple[tuple[int, float], ...]:
    """Return until when what the earlier attempts of this replicate did counts."""
    last, since = attempts[-1], max((one.attempt for one in before), default=0)
    earlier = [one.number for one in attempts if since < one.number < last.number]
    if not earlier:
        return ()
    names = [ledger.study.objective.metric]
    curves = read_series(ledger.db, ledger.study_id, numbers=[last.trial], names=names)
    until: dict[int, float] = {}
    for curve in curves:
        for number, when in zip(curve.attempts, curve.logged, strict=True):
            until[number] = max(when, until.get(number, when))
    return tuple((number, until[number]) for number in earlier if number in until)


def needs_more(ledger: Ledger, trial_id: int, found: Sequence[Replicate]) -> bool:
    """Tell whether a trial is to be trained with a further seed."""
    wanted = ledger.study.replicates
    if len(found) < wanted.min:
        return True
    if len(found) >= wanted.max:
        return False
    return may_be_best(ledger.study, found, replicates.of_others(ledger, trial_id))


def may_be_best(
    study: Study, found: Sequence[Replicate], others: Sequence[Sequence[Replicate]]
) -> bool:
    """Tell whether a trial may be the best one, by what is known of the others.

    Args:
        others: The complete trials that keep to the constraints.
    """
    if _breaks_a_bound(study, found, others):
        return False
    if not others:
        return True
    direction = study.objective.direction
    mean = mean_values(found)[0]
    best = others[0]
    for other in others[1:]:
        if better(mean_values(other)[0], mean_values(best)[0], direction):
            best = other
    ahead = mean_values(best)[0]
    if not better(ahead, mean, direction):
        return True
    spread = pooled_deviation([[one.values[0] for one in trial] for trial in (found, *others)])
    if spread is None:
        return True
    error = spread * math.sqrt(1 / len(found) + 1 / len(best))
    return abs(ahead - mean) <= STANDARD_ERRORS * error


def _breaks_a_bound(
    study: Study, found: Sequence[Replicate], others: Sequence[Sequence[Replicate]]
) -> bool:
    """Tell whether a trial's means break a bound by more than chance explains: it is never best."""
    means = mean_bounded(study.constraints, found)
    for place, constraint in enumerate(study.constraints):
        broken = max(pareto.violations([constraint], means))
        spread = pooled_deviation(
            [[one.bounded[place] for one in trial] for trial in (found, *others)]
        )
        if spread is not None and broken > STANDARD_ERRORS * spread / math.sqrt(len(found)):
            return True
    return False


def pooled_deviation(trials: Sequence[Sequence[float]]) -> float | None:
    """Return the standard deviation of a number within trials; None where no trial has two
    replicates with finite ones.

    Args:
        trials: Of each trial the number of each of its replicates.
    """
    several = [values for values in trials if len(values) > 1 and all(map(math.isfinite, values))]
    freedom = sum(len(values) - 1 for values in several)
    if not freedom:
        return None
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in several)
    return math.sqrt(squares / freedom)
