"""What a study cost and what became of it: hours, losses, savings, interruptions.

Pure: each number follows from the records and series that ``collect`` prints.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from sweep.core import outcomes
from sweep.core.outcomes import GIVEN_BACK, PAUSED, RESUME_FAILED
from sweep.core.trial import Attempt, TrialRecord, better
from sweep.results.page.source import Source

# Outcomes of an attempt whose trial may go on from its checkpoint.
INTERRUPTIONS = (*outcomes.RESUMABLE, outcomes.TERMINATED, PAUSED, GIVEN_BACK, RESUME_FAILED)


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


def energy(source: Source) -> EnergySum:
    """Return the energy that the study used."""
    ended = [attempt for _, attempt in attempts(source) if attempt.ended is not None]
    known = [a for _, a in attempts(source) if a.energy_j is not None]
    total = sum(record.energy_j or 0.0 for record in source.records) if known else None
    return EnergySum(total, frozenset(a.energy_by for a in known), len(known), len(ended))


def lost(record: TrialRecord, source: Source) -> list[tuple[Attempt, float]]:
    """Return the attempts of a trial of which no result came, each with so many seconds of it."""
    if record.state == outcomes.FAILED:
        return [(attempt, length_s(attempt)) for attempt in record.attempts]
    found = []
    until = {number: when for one in record.replicates for number, when in one.kept}
    if (curve := source.series.get(record.number)) is not None:
        for number, when in zip(curve.attempts, curve.logged, strict=True):
            until[number] = max(when, until.get(number, when))
    for attempt in record.attempts[:-1]:
        if attempt.outcome == outcomes.REPLICATED:
            continue  # it has given what it was for
        whole_s = length_s(attempt)
        # The reports' clock is the node's, the attempt's the database's: never more than all of it.
        kept = until.get(attempt.number)
        after_s = whole_s if kept is None else end_of(attempt).timestamp() - kept
        found.append((attempt, min(max(after_s, 0.0), whole_s)))
    return found


def saved_by_pruning(source: Source) -> list[tuple[TrialRecord, float]] | None:
    """Return the seconds that pruning saved: each pruned trial at its own pace to the usual end;
    None where no complete trial says where that is."""
    full = [
        len(source.series[record.number].steps)
        for record in source.records
        if record.state == outcomes.COMPLETE and record.number in source.series
    ]
    if not full:
        return None
    usual = median(full)
    saved = []
    for record in source.records:
        curve = source.series.get(record.number)
        if record.state == outcomes.PRUNED and curve is not None and record.duration_s:
            reported = len(curve.steps)
            saved.append((record, record.duration_s / reported * max(0.0, usual - reported)))
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
        if attempt.outcome not in (None, outcomes.FINISHED, outcomes.REPLICATED):
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
