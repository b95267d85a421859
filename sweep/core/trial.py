"""One trial, one attempt, one outcome, as data; and the words that say what happened."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sweep.core import outcomes
from sweep.core.study import Constraint


@dataclass(frozen=True)
class End:
    """How an attempt ended, and what that means for its trial.

    Attributes:
        outcome: One of the outcomes above.
        reason: A sentence for people.
        exit_code: Of the training's process, or None.
        signal: Number of the signal that ended it, or None.
    """

    outcome: str
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True)
class Claim:
    """A trial that this process owns until its attempt ends.

    Attributes:
        trial_id: Optuna's key.
        number: The trial's number in its study, from 0.
        attempt: Number of the attempt, from 1.
        token: The fence: writes under it are refused once the attempt is over.
        params: The stored (Optuna's) parameter values; empty when ``sampled`` is False.
        sampled: Whether the trial has its parameters.
        used_s: Seconds that earlier attempts trained, since the trial was retried.
        first: Number of the attempt that counts first: 1, or the one after a retry or after
            another replicate.
        replicate: Which of the trial's trainings it is, from 1.
        is_alone: It has run out of memory beside others, and has a GPU for itself from now on.
    """

    trial_id: int
    number: int
    attempt: int
    token: str
    params: Mapping[str, Any] = field(default_factory=dict)
    sampled: bool = True
    used_s: float = 0.0
    first: int = 1
    replicate: int = 1
    is_alone: bool = False


@dataclass(frozen=True)
class Attempt:
    """One attempt, as the ledger has it.

    Attributes:
        job: The array's job id; with ``index`` it names the task.
        slot: Which of a task's slots; None where a task serves one trial at a time.
        group: Process group of the training on ``host``, or None before it started.
        claimed, seen, ended: By the database's clock, UTC.
        first_step: First step that it reported, or None.
        outcome: None while it lives.
        checkpoint: Newest checkpoint that it left, or None.
        energy_j: What it used, where that was measured.
        energy_by: How: "nvml" (its GPUs' own counters) or "slurm" (a part of its task's); else "".
        gpu_s: Its part of a GPU that trials share, in GPU-seconds; None where it had its own.
        journal: Up to where its reports are stored (see ``Reading``).
        notes: What could not be read or stored of it, in sentences.
    """

    trial_id: int
    trial: int
    number: int
    token: str
    job: str | None
    index: int | None
    host: str
    group: int | None
    claimed: datetime
    seen: datetime
    ended: datetime | None = None
    first_step: int | None = None
    outcome: str | None = None
    reason: str = ""
    exit_code: int | None = None
    checkpoint: str | None = None
    resumed_from: str | None = None
    slot: int | None = None
    energy_j: float | None = None
    energy_by: str = ""
    gpu_s: float | None = None
    journal: str = ""
    notes: tuple[str, ...] = ()


def since_retry(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Return the attempts that count towards limits: those since a trial was retried last, or
    since another of its replicates ended.

    Args:
        attempts: All of the trial, oldest first.
    """
    return _after(attempts, outcomes.BEGUN_ANEW)


def since_nothing(attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """Return the attempts whose curves and checkpoints are the trial's: those since it was retried
    from nothing, of the replicate that came last; arguments as ``since_retry``'s."""
    return _after(attempts, (outcomes.RETRIED, outcomes.REPLICATED))


def replicate_of(attempts: Sequence[Attempt]) -> int:
    """Return which of a trial's replicates its last attempt is, from 1; arguments as above."""
    return 1 + sum(attempt.outcome == outcomes.REPLICATED for attempt in attempts[:-1])


def _after(attempts: Sequence[Attempt], words: Sequence[str]) -> Sequence[Attempt]:
    places = [place for place, attempt in enumerate(attempts) if attempt.outcome in words]
    return attempts[places[-1] + 1 :] if places else attempts


@dataclass(frozen=True)
class TakenBack:
    """A trial that was given back by a launch's ``--retry``, and what it had come to before.

    Attributes:
        attempt: Its last attempt before; 0 where it had none.
        at: When, ISO 8601, UTC.
        state: failed, cancelled, complete or pruned; with reason and values.
        resuming: Whether it went on from its checkpoint.
    """

    attempt: int
    at: str
    state: str
    reason: str = ""
    values: tuple[float, ...] = ()
    resuming: bool = False

    @property
    def sentence(self) -> str:
        """What happened."""
        was = ", ".join(f"{value:.6g}" for value in self.values) or self.reason
        how = "from its checkpoint" if self.resuming else "from nothing"
        before = f"it was {self.state}{f' ({was})' if was else ''} before"
        return f"retried {how} after attempt {self.attempt}, {self.at}; {before}"


@dataclass(frozen=True)
class Replicate:
    """What one training of a trial with several has given.

    Attributes:
        number: From 1.
        attempt: Its last attempt.
        values: Its objectives, in the study's order.
        bounded: The last value of each constraint's metric, in the study's order.
        kept: (attempt, epoch seconds of its last report that counts) of the attempts before its
            last: the curves of a replicate go when the next one begins.
    """

    number: int
    seed: int
    attempt: int
    values: tuple[float, ...]
    bounded: tuple[float, ...] = ()
    kept: tuple[tuple[int, float], ...] = ()


def mean_values(replicates: Sequence[Replicate]) -> tuple[float, ...]:
    """Return the mean of each objective over a trial's replicates; () without any."""
    columns = zip(*(one.values for one in replicates), strict=True)
    return tuple(statistics.fmean(column) for column in columns)


def mean_bounded(
    constraints: Sequence[Constraint], replicates: Sequence[Replicate]
) -> dict[str, float]:
    """Return the mean of each constraint's metric over a trial's replicates."""
    columns = zip(*(one.bounded for one in replicates), strict=True)
    return {c.metric: sum(v) / len(v) for c, v in zip(constraints, columns, strict=True)}


def deviation(replicates: Sequence[Replicate], place: int = 0) -> float | None:
    """Return the sample standard deviation of an objective; None below two replicates.

    Args:
        place: Which of the study's objectives, from 0.
    """
    if len(replicates) < 2:
        return None
    return statistics.stdev(one.values[place] for one in replicates)


@dataclass(frozen=True)
class TrialRecord:
    """A trial with all that is known of it, as ``collect`` and ``status`` read it.

    Attributes:
        values: Objective values in the study's order; empty unless complete (or pruned: the last).
        params: Values as training got them.
        metrics: For each metric its (step, value) pairs of the lineage, ascending in step; only
            filled when asked for.
        attempts: Oldest first.
        duration_s: Seconds of training over all attempts.
        violation: By how much it breaks the study's constraints, 0 where it keeps to them; None
            where that is not known.
        retries: What it had come to each time that a launch gave it back, oldest first.
        replicates: What each of its trainings has given so far, where a trial has several; then
            ``values`` are their means, and ``seed`` and ``metrics`` the last one's.
    """

    trial_id: int
    number: int
    state: str
    values: tuple[float, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    reason: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    duration_s: float | None = None
    attempts: Sequence[Attempt] = ()
    metrics: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    violation: float | None = None
    retries: Sequence[TakenBack] = ()
    replicates: Sequence[Replicate] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read or stored of its attempts, each sentence once."""
        return tuple(dict.fromkeys(note for attempt in self.attempts for note in attempt.notes))

    @property
    def is_feasible(self) -> bool:
        """Whether nothing is known of a broken constraint: only such a trial can be the best."""
        return not self.violation

    @property
    def held_s(self) -> float | None:
        """Seconds of training over all attempts, those on a GPU that trials share counted by their
        part of it: what a number of GPUs is multiplied with."""
        if self.duration_s is None or all(a.gpu_s is None for a in self.attempts):
            return self.duration_s
        lengths = [((a.ended or a.seen) - a.claimed).total_seconds() for a in self.attempts]
        return sum(
            length if a.gpu_s is None else a.gpu_s
            for a, length in zip(self.attempts, lengths, strict=True)
        )

    @property
    def energy_j(self) -> float | None:
        """Joules over the attempts of which that is known; None where it is of none."""
        known = [a.energy_j for a in self.attempts if a.energy_j is not None]
        return sum(known) if known else None


def trial_seed(study_seed: int, number: int) -> int:
    """Return the seed of a trial: the first 31 bits of SHA-256 of "study seed:number".

    Neighbouring numbers give unrelated seeds, and the same pair gives the same seed anywhere.
    """
    digest = hashlib.sha256(f"{study_seed}:{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


def replicate_seed(study_seed: int, number: int, replicate: int) -> int:
    """Return the seed of one of a trial's replicates.

    The first has the trial's own; that of a further one is the same in every trial, so that
    comparisons between trials are paired.
    """
    if replicate == 1:
        return trial_seed(study_seed, number)
    digest = hashlib.sha256(f"{study_seed}:replicate {replicate}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


def better(a: float, b: float, direction: str) -> bool:
    """Tell whether a is strictly better than b; NaN is worse than anything."""
    if math.isnan(a):
        return False
    if math.isnan(b):
        return True
    return a > b if direction == "maximize" else a < b


def summarise(series: Sequence[tuple[int, float]], at: str, direction: str) -> float | None:
    """Return the objective's value of a series of (step, value), or None when it is empty.

    Args:
        at: "last" takes the value of the highest step; "best" the best finite one, and where none
            is finite the last.
    """
    if not series:
        return None
    last = max(series)[1]
    finite = [value for _, value in series if math.isfinite(value)]
    if at == "last" or not finite:
        return last
    return max(finite) if direction == "maximize" else min(finite)


@dataclass(frozen=True)
class Report:
    """One journal line: (step, time, metrics)."""

    step: int
    time_s: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Reading:
    """Up to where an attempt's files were read.

    Attributes:
        position: For whoever reads on: a text that the journal understands.
        notes: What was odd about the files, in sentences for people.
    """

    position: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where a process runs: its task, its host and the boot of that host."""

    job: str | None
    index: int | None
    host: str
    boot_id: str = ""
    slot: int | None = None
