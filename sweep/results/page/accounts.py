"""What a study cost and what became of it: hours, losses, savings, interruptions, quality levels.

Pure: each number follows from the records and series that ``collect`` prints.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

from sweep.core import outcomes
from sweep.core.outcomes import GIVEN_BACK, PAUSED, RESUME_FAILED
from sweep.core.trial import Attempt, TrialRecord, better
from sweep.results.page.source import Source

# Outcomes of an attempt whose trial may go on from its checkpoint.
INTERRUPTIONS = (*outcomes.RESUMABLE, outcomes.TERMINATED, PAUSED, GIVEN_BACK, RESUME_FAILED)
LEVELS = 12  # rows of the table of quality levels


@dataclass(frozen=True)
class Hours:
    """Hours of training of all attempts, and their parts; times the GPUs of a trial: GPU-hours.

    Attributes:
        training: Of all attempts, what was lost included: the sum of ``collect``'s ``duration_s``.
        lost: Of it, what no result came of: failed trials, and what an interrupted attempt did
            after the last step that its successor went on from.
        saved: About what pruned trials would have taken on to the usual number of steps; None
            where no complete trial says how many that is.
        gpus: GPUs of one trial, on average where trials share them; None where that is not known
            (shares of a GPU).
    """

    training: float
    lost: float
    saved: float | None
    gpus: float | None

    def of_gpus(self, hours: float | None) -> float | None:
        """Return GPU-hours for hours of training."""
        return None if hours is None or self.gpus is None else hours * self.gpus


@dataclass(frozen=True)
class EnergySum:
    """What attempts used, as far as it was measured: the sum of ``collect``'s ``energy_j``.

    Attributes:
        joules: Of those that were measured; None without any.
        by: By which measurements.
        measured: How many attempts were, of ``attempts`` that have ended.
    """

    joules: float | None
    by: frozenset[str]
    measured: int
    attempts: int


@dataclass(frozen=True)
class Interruptions:
    """What became of attempts that were interrupted.

    Attributes:
        resumed: Went on from a checkpoint.
        restarted: Went on from the start.
        over: Their trial did not go on (yet).
    """

    resumed: int
    restarted: int
    over: int

    @property
    def total(self) -> int:
        return self.resumed + self.restarted + self.over

    @property
    def share(self) -> float | None:
        """Share of them that resumed; None without any."""
        return self.resumed / self.total if self.total else None


@dataclass(frozen=True)
class Level:
    """A quality that the study came to: the first complete trial that is at least so good.

    Attributes:
        value: Of the objective.
        trial: Its number.
        ended: So many trials had a result then, this one included.
        after_h: Hours since the first attempt began.
        training_h: Hours of training that all attempts had used by then.
    """

    value: float
    trial: int
    ended: int
    after_h: float
    training_h: float


@dataclass(frozen=True)
class NodeFailures:
    """Attempts that did not end well, of one kind on one node."""

    outcome: str
    host: str
    count: int
    example: str


def attempts(source: Source) -> Iterator[tuple[TrialRecord, Attempt]]:
    """Yield all attempts, each with its trial."""
    for record in source.records:
        for attempt in record.attempts:
            yield record, attempt


def end_of(attempt: Attempt) -> datetime:
    """Return when an attempt ended; of a live one, when it was last seen."""
    return attempt.ended or attempt.seen


def length_s(attempt: Attempt) -> float:
    return (end_of(attempt) - attempt.claimed).total_seconds()


def first_claim(source: Source) -> datetime | None:
    """Return when the study's first attempt began."""
    return min((attempt.claimed for _, attempt in attempts(source)), default=None)


def hours(source: Source) -> Hours:
    """Return what the study cost."""
    training_s = sum(record.duration_s or 0.0 for record in source.records)
    held_s = sum(record.held_s or 0.0 for record in source.records)
    gpus = source.study.resources.gpu_hours(3600.0)
    lost_s = sum(_lost_s(record, source) for record in source.records)
    saved_s = _saved_s(source)
    return Hours(
        training_s / 3600,
        lost_s / 3600,
        None if saved_s is None else saved_s / 3600,
        gpus * held_s / training_s if gpus and training_s else gpus,
    )


def energy(source: Source) -> EnergySum:
    """Return the energy that the study used."""
    ended = [attempt for _, attempt in attempts(source) if attempt.ended is not None]
    known = [a for _, a in attempts(source) if a.energy_j is not None]
    total = sum(record.energy_j or 0.0 for record in source.records) if known else None
    return EnergySum(total, frozenset(a.energy_by for a in known), len(known), len(ended))


def _lost_s(record: TrialRecord, source: Source) -> float:
    if record.state == outcomes.FAILED:
        return record.duration_s or 0.0
    lost = 0.0
    curve = source.series.get(record.number)
    for attempt in record.attempts[:-1]:
        kept = (
            []
            if curve is None
            else [
                when
                for number, when in zip(curve.attempts, curve.logged, strict=True)
                if number == attempt.number
            ]
        )
        whole_s = length_s(attempt)
        # The reports' clock is the node's, the attempt's the database's: never more than all of it.
        after_s = end_of(attempt).timestamp() - max(kept) if kept else whole_s
        lost += min(max(after_s, 0.0), whole_s)
    return lost


def _saved_s(source: Source) -> float | None:
    """Return the seconds that pruning saved: each pruned trial at its own pace to the usual end."""
    full = [
        len(source.series[record.number].steps)
        for record in source.records
        if record.state == outcomes.COMPLETE and record.number in source.series
    ]
    if not full:
        return None
    usual = median(full)
    saved = 0.0
    for record in source.records:
        curve = source.series.get(record.number)
        if record.state == outcomes.PRUNED and curve is not None and record.duration_s:
            reported = len(curve.steps)
            saved += record.duration_s / reported * max(0.0, usual - reported)
    return saved


def interruptions(source: Source) -> Interruptions:
    """Return what became of interrupted attempts."""
    found: Counter[str] = Counter()
    for record in source.records:
        for place, attempt in enumerate(record.attempts):
            if attempt.outcome not in INTERRUPTIONS:
                continue
            later = record.attempts[place + 1 : place + 2]
            found["over" if not later else "resumed" if later[0].resumed_from else "again"] += 1
    return Interruptions(found["resumed"], found["again"], found["over"])


def failures(source: Source) -> list[NodeFailures]:
    """Return attempts that ended badly by outcome and node, the most frequent first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for _, attempt in attempts(source):
        if attempt.outcome not in (None, outcomes.FINISHED):
            groups.setdefault((str(attempt.outcome), attempt.host), []).append(attempt.reason)
    found = [
        NodeFailures(outcome, host, len(reasons), Counter(reasons).most_common(1)[0][0])
        for (outcome, host), reasons in groups.items()
    ]
    return sorted(found, key=lambda failure: (-failure.count, failure.outcome, failure.host))


def finished(source: Source) -> list[TrialRecord]:
    """Return complete and pruned trials with a finite first value, in the order they ended."""
    done = [
        record
        for record in source.records
        if record.state in (outcomes.COMPLETE, outcomes.PRUNED)
        and record.ended is not None
        and record.values
        and math.isfinite(record.values[0])
    ]
    return sorted(done, key=lambda record: (record.ended, record.number))


def improvements(done: Sequence[TrialRecord], direction: str) -> list[tuple[int, TrialRecord]]:
    """Return (place from 1, trial) of each complete trial that was the best when it ended."""
    found: list[tuple[int, TrialRecord]] = []
    for place, record in enumerate(done, 1):
        can_win = record.state == outcomes.COMPLETE and record.is_feasible
        if can_win and (not found or better(record.values[0], found[-1][1].values[0], direction)):
            found.append((place, record))
    return found


def levels(source: Source, most: int | None = LEVELS) -> list[Level]:
    """Return what each quality level took: one for each new best, the largest steps if many.

    Args:
        most: At most so many; all when None.
    """
    begin = first_claim(source)
    steps = improvements(finished(source), source.study.objective.direction)
    if begin is None or source.study.is_multi_objective:
        return []
    if most is not None and len(steps) > most:
        gains = [
            (abs(after[1].values[0] - before[1].values[0]), place)
            for place, (before, after) in enumerate(pairwise(steps), 1)
        ]
        kept = {0, len(steps) - 1} | {place for _, place in sorted(gains)[-(most - 2) :]}
        steps = [step for place, step in enumerate(steps) if place in kept]
    spans = [
        (attempt.claimed.timestamp(), end_of(attempt).timestamp())
        for _, attempt in attempts(source)
    ]
    found = []
    for place, record in steps:
        assert record.ended is not None  # ``finished`` says so
        now = record.ended.timestamp()
        used_s = sum(min(end, now) - start for start, end in spans if start < now)
        found.append(
            Level(
                record.values[0],
                record.number,
                place,
                (now - begin.timestamp()) / 3600,
                used_s / 3600,
            )
        )
    return found
