"""What a study's quality cost: time, GPU-hours and energy to each level, what was lost and saved.

Pure: each number follows from the records and series that ``collect`` prints. What a level cost is
what all attempts of all trials had used until its first trial had ended, those that failed or were
worse included; within an attempt hours and energy are spread evenly over its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from sweep.core import outcomes
from sweep.core.outcomes import FINISHED
from sweep.core.study import Study
from sweep.core.trial import Attempt, better
from sweep.results.page import accounts
from sweep.results.page.source import Source

SHOWN = 12  # levels that people are shown
ALONE = 1.25  # trials on a GPU, on average, up to which one counts as alone on it


@dataclass(frozen=True)
class TrainingCost:
    """What some training took.

    Attributes:
        training_s: Seconds of training, over all attempts.
        gpu_hours: 0 without GPUs; None where that is not known (shares of a GPU).
        energy_j: Of the attempts that were measured; None where none was.
    """

    training_s: float = 0.0
    gpu_hours: float | None = 0.0
    energy_j: float | None = None


@dataclass(frozen=True)
class QualityLevel:
    """A new best: the first complete trial at least so good, and what it took until it had ended.

    Attributes:
        value: Of the objective.
        trial: Its number.
        ended: So many trials had a result then, this one included.
        after_s: Seconds since the first attempt began.
        spent: By all attempts until then.
    """

    value: float
    trial: int
    ended: int
    after_s: float
    spent: TrainingCost


@dataclass(frozen=True)
class Recovery:
    """What became of trials that met a failure or an interruption.

    Attributes:
        trials: So many did, of those that have ended.
        recovered: Came to a result all the same: complete or pruned.
        interrupted: Attempts that were interrupted.
        resumed: Of those, how many were followed by one that went on from a checkpoint.
    """

    trials: int
    recovered: int
    interrupted: int
    resumed: int

    @property
    def rate(self) -> float | None:
        """Share of the trials that recovered; None without any."""
        return self.recovered / self.trials if self.trials else None


@dataclass(frozen=True)
class CostToSolution:
    """What a study cost.

    Attributes:
        levels: One for each new best; none with several objectives.
        after_s: Seconds from the first attempt's begin to the last one's end; None before any.
        spent: By all attempts.
        energy_by: By which measurements; ``energy_measured`` of ``attempts`` that ended were.
        lost: What no result came of: failed trials, and what an interrupted attempt did after the
            last step that its successor went on from.
        saved_by_pruning: About what pruned trials would have taken on to the usual number of steps;
            None where no complete trial says how many that is.
        saved_by_packing: GPU-hours, about: what trials that shared GPUs would have held alone, less
            what they did; None where none shared, or none trained alone to compare with.
    """

    study: str
    metric: str
    direction: str
    trials: dict[str, int]
    levels: Sequence[QualityLevel]
    after_s: float | None
    spent: TrainingCost
    energy_by: Sequence[str]
    energy_measured: int
    attempts: int
    lost: TrainingCost
    saved_by_pruning: TrainingCost | None
    saved_by_packing: float | None
    recovery: Recovery

    @property
    def lost_share(self) -> float | None:
        """Share of all training that was lost; None before any."""
        return self.lost.training_s / self.spent.training_s if self.spent.training_s else None

    def reached(self, value: float) -> QualityLevel | None:
        """Return the first level at least as good as a value; None where none is."""
        for level in self.levels:
            if not better(value, level.value, self.direction):
                return level
        return None

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        rates = {"recovery_rate": self.recovery.rate, "lost_share": self.lost_share}
        return asdict(self) | {"energy_by": list(self.energy_by)} | rates


def cost(source: Source) -> CostToSolution:
    """Return what a study cost so far."""
    study = source.study
    used = accounts.energy(source)
    begin = accounts.first_claim(source)
    ends = [accounts.end_of(attempt) for _, attempt in accounts.attempts(source)]
    whole = [(a, accounts.length_s(a)) for _, a in accounts.attempts(source)]
    lost = [part for record in source.records for part in accounts.lost(record, source)]
    return CostToSolution(
        study=study.name,
        metric=study.objective.metric,
        direction=study.objective.direction,
        trials=dict(source.counts),
        levels=_levels(source, whole),
        after_s=None if begin is None else (max(ends) - begin).total_seconds(),
        spent=_sum(study, whole),
        energy_by=sorted(used.by),
        energy_measured=used.measured,
        attempts=used.attempts,
        lost=_sum(study, lost),
        saved_by_pruning=_saved_by_pruning(source),
        saved_by_packing=_saved_by_packing(source),
        recovery=_recovery(source),
    )


def _sum(study: Study, parts: Iterable[tuple[Attempt, float]]) -> TrainingCost:
    """Return what parts of attempts took: (attempt, seconds of it)."""
    training_s = held_s = 0.0
    joules: float | None = None
    for attempt, seconds in parts:
        whole_s = accounts.length_s(attempt)
        share = seconds / whole_s if whole_s > 0 else 1.0
        training_s += seconds
        held_s += seconds if attempt.gpu_s is None else attempt.gpu_s * share
        if attempt.energy_j is not None:
            joules = (joules or 0.0) + attempt.energy_j * share
    return TrainingCost(training_s, study.resources.gpu_hours(held_s), joules)


def _levels(source: Source, whole: Sequence[tuple[Attempt, float]]) -> list[QualityLevel]:
    begin = accounts.first_claim(source)
    if begin is None or source.study.is_multi_objective:
        return []
    found = []
    steps = accounts.improvements(accounts.finished(source), source.study.objective.direction)
    for place, record in steps:
        assert record.ended is not None  # ``finished`` says so
        now = record.ended
        parts = [
            (attempt, min(length_s, (now - attempt.claimed).total_seconds()))
            for attempt, length_s in whole
            if attempt.claimed < now
        ]
        after_s = (now - begin).total_seconds()
        spent = _sum(source.study, parts)
        found.append(QualityLevel(record.values[0], record.number, place, after_s, spent))
    return found


def thinned(levels: Sequence[QualityLevel], most: int = SHOWN) -> list[QualityLevel]:
    """Return at most so many levels: the first, the last and the largest steps."""
    if len(levels) <= most:
        return list(levels)
    gains = [
        (abs(after.value - before.value), place)
        for place, (before, after) in enumerate(pairwise(levels), 1)
    ]
    kept = {0, len(levels) - 1} | {place for _, place in sorted(gains)[-(most - 2) :]}
    return [level for place, level in enumerate(levels) if place in kept]


def _saved_by_pruning(source: Source) -> TrainingCost | None:
    saved = accounts.saved_by_pruning(source)
    if saved is None:
        return None
    training_s, hours = 0.0, source.study.resources.gpu_hours(0.0)
    for record, seconds in saved:
        training_s += seconds
        held_s = seconds * (record.held_s or 0.0) / (record.duration_s or 1.0)
        more = source.study.resources.gpu_hours(held_s)
        hours = None if hours is None or more is None else hours + more
    return TrainingCost(training_s, hours)


def _saved_by_packing(source: Source) -> float | None:
    """Return GPU-hours: the pace of those that trained alone, for the steps of the others."""
    alone: list[tuple[int, float, float]] = []
    together: list[tuple[int, float, float]] = []
    for record, attempt in accounts.attempts(source):
        curve = source.series.get(record.number)
        steps = 0 if curve is None else curve.attempts.count(attempt.number)
        length_s = accounts.length_s(attempt)
        if attempt.gpu_s and steps:
            is_alone = length_s / attempt.gpu_s <= ALONE
            (alone if is_alone else together).append((steps, length_s, attempt.gpu_s))
    if not alone or not together:
        return None
    pace_s = median(length_s / steps for steps, length_s, _ in alone)
    saved_s = sum(steps * pace_s - gpu_s for steps, _, gpu_s in together)
    return source.study.resources.gpu_hours(saved_s)


def _recovery(source: Source) -> Recovery:
    met = [
        record
        for record in source.records
        if record.state in (outcomes.COMPLETE, outcomes.PRUNED, outcomes.FAILED)
        and any(_went_wrong(attempt) for attempt in record.attempts)
    ]
    stops = accounts.interruptions(source)
    recovered = sum(record.state != outcomes.FAILED for record in met)
    return Recovery(len(met), recovered, stops.total, stops.resumed)


def _went_wrong(attempt: Attempt) -> bool:
    if attempt.outcome is None or attempt.outcome in (*outcomes.BEGUN_ANEW, outcomes.PAUSED):
        return False
    return attempt.outcome not in (FINISHED, outcomes.PRUNED)


@dataclass(frozen=True)
class CommonLevel:
    """A quality that two studies are compared at; None of one that did not come to it."""

    value: float
    a: QualityLevel | None
    b: QualityLevel | None


def common_levels(a: CostToSolution, b: CostToSolution) -> list[CommonLevel]:
    """Return each level of either study with what it took in both; none of two that measure
    different things."""
    if (a.metric, a.direction) != (b.metric, b.direction):
        return []
    values = {level.value for each in (a, b) for level in thinned(each.levels)}
    ordered = sorted(values, reverse=a.direction == "minimize")
    return [CommonLevel(value, a.reached(value), b.reached(value)) for value in ordered]
