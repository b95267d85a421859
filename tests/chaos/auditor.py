"""An auditor that shares no code with sweep: it believes the training's ledger, and reads the rest.

It reads the ledger (``training.py``), the files under ``runs/<name>/``, the database with plain
SQL over Optuna's tables and ``sweep_attempt`` and ``sweep_metric``, what ``sweep collect`` printed,
and on Slurm the accounting. It counts faults by kind and says of which trials, and computes the
study's best by itself. Nothing here imports sweep; a test holds that.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What is counted, and what it means.
KINDS = {
    "wrong_number": "the study has not exactly N trials",
    "stuck": "trials that wait or run at the end",
    "wedged": "times that nothing moved any more until the study was launched again",
    "lost": "trials whose end is not the one that their training came to",
    "double": "trials with two attempts alive at once",
    "over_parallel": "times at which more than max_parallel trainings were alive",
    "repeated": "attempts that repeated more than one checkpoint interval",
    "foreign_checkpoint": "attempts that were given another trial's checkpoint",
    "stale_writes": "attempts whose metrics were written after their successor began",
    "lost_values": "attempts whose reports are not all stored",
    "foreign_values": "attempts with stored values that they never reported",
    "unknown_attempts": "attempts that ledger, files and database do not all know",
    "wrong_parameters": "trials that trained with other parameters than the stored ones",
    "invalid": "trials that trained with parameters that the study excludes",
    "same_at_once": "trials that trained with the parameters of another one that ran",
    "wrong_values": "trials whose objective is not the ledger's",
    "wrong_rank": "trials that are ranked otherwise than by the ledger",
    "wrong_status": "times that status tells another best or other counts",
    "left_over": "processes and jobs of the study that outlived it",
    "refused": "commands of sweep's that did not end well",
    "crashes": "faults of sweep's own (exit code 70, crash files)",
}
# In which a training whose task the scheduler took for gone may outlive its attempt: its task hears
# of that within ten seconds, and ends it. Until then max_parallel others may run beside it.
FENCED_S = 15.0
CLOCK_S = 0.05  # between a training's clock and the database's on one machine
FINAL = ("complete", "pruned", "failed", "cancelled")


@dataclass(frozen=True)
class Facts:
    """What the study was meant to be, told by who drew it and not by sweep.

    Attributes:
        trials: N at the end.
        objectives: {metric, direction, at} of each.
        constraints: {metric: {max or min: bound}}.
        prunes: Whether a trial may be pruned.
        ends_early: Whether something may end the study before its last trial.
        replicates: Trainings with different seeds that make a trial.
        most_sum: Parameters whose sum the study restricts, and its bound.
    """

    name: str
    trials: int
    max_parallel: int
    epochs: int
    every: int
    objectives: Sequence[Mapping[str, str]]
    constraints: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    prunes: bool = False
    ends_early: bool = False
    replicates: int = 1
    most_sum: tuple[Sequence[str], float] | None = None


@dataclass(frozen=True)
class Line:
    """One line of the ledger."""

    trial: int
    attempt: int
    pid: int
    word: str
    epoch: int
    time: float
    monotonic: float
    params: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    told: str = ""
    seed: int | None = None  # of a beginning


@dataclass(frozen=True)
class TrialRow:
    """A trial, as the database has it."""

    number: int
    state: str
    values: Sequence[float] = ()
    outcome: str = ""
    reason: str = ""


@dataclass(frozen=True)
class AttemptRow:
    """An attempt, as the database has it; times are epoch seconds."""

    trial: int
    number: int
    claimed: float
    ended: float | None
    outcome: str | None
    job: str = ""
    index: int | None = None


@dataclass(frozen=True)
class MetricRow:
    """A stored value."""

    trial: int
    attempt: int
    name: str
    step: int
    value: float
    logged: float


@dataclass
class Evidence:
    """All that was found, as plain data.

    Attributes:
        journals: What lies in the attempts' ``metrics.jsonl``.
        state: The study's own state: word, by.
        collected: What ``sweep collect --format json`` printed of all trials.
        status: What ``sweep status --json`` printed at the end.
        folders: (trial, attempt) of every attempt's folder.
        crashes: Crash files and commands that left with 70.
        refused: Commands that ended otherwise than they should.
        wedged: What status said whenever nothing had moved for long, unasked for.
        left: Processes and jobs that were left.
        watched: Numbers of stored values of attempts that have a successor, as seen over time.
        accounting: ``sacct -nPXD -o JobID,State,Start,End`` with times in epoch seconds.
    """

    lines: Sequence[Line] = ()
    trials: Sequence[TrialRow] = ()
    attempts: Sequence[AttemptRow] = ()
    metrics: Sequence[MetricRow] = ()
    journals: Sequence[MetricRow] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    collected: Sequence[Mapping[str, Any]] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    folders: Iterable[tuple[int, int]] = ()
    crashes: Sequence[str] = ()
    refused: Sequence[str] = ()
    wedged: Sequence[str] = ()
    left: Sequence[str] = ()
    watched: Sequence[Mapping[tuple[int, int], int]] = ()
    accounting: Sequence[str] = ()


@dataclass(frozen=True)
class Finding:
    """One fault."""

    kind: str
    trial: int | None
    what: str


@dataclass
class Report:
    """What an audit found."""

    name: str
    findings: list[Finding]
    figures: dict[str, Any]

    @property
    def is_clean(self) -> bool:
        return not self.findings

    def count(self, kind: str) -> int:
        return sum(finding.kind == kind for finding in self.findings)

    def trials(self, kind: str) -> list[int]:
        found = {f.trial for f in self.findings if f.kind == kind and f.trial is not None}
        return sorted(found)

    def to_dict(self) -> dict[str, Any]:
        kinds = {
            kind: {
                "count": self.count(kind),
                "trials": self.trials(kind),
                "what": [f.what for f in self.findings if f.kind == kind],
            }
            for kind in KINDS
        }
        return {"study": self.name, "clean": self.is_clean, **self.figures, "faults": kinds}

    def text(self) -> str:
        figures = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        lines = [f"audit of {self.name}: {figures}"]
        for kind, meaning in KINDS.items():
            count = self.count(kind)
            if not count:
                continue
            trials = ", ".join(map(str, self.trials(kind))) or "-"
            lines.append(f"  FAULT {kind}: {count} ({meaning}); trials {trials}")
            lines += [f"    {f.what}" for f in self.findings if f.kind == kind][:12]
        return "\n".join([*lines, "  no fault" if self.is_clean else ""]).rstrip()


@dataclass
class Run:
    """One process of a training, by its own words."""

    trial: int
    attempt: int
    pid: int
    lines: list[Line]

    @property
    def began(self) -> float:
        return self.lines[0].monotonic

    @property
    def last(self) -> float:
        return self.lines[-1].monotonic

    @property
    def ended(self) -> dict[int, Line]:
        """The epochs that it ended."""
        return {line.epoch: line for line in self.lines if line.word == "ended"}

    @property
    def end(self) -> Line | None:
        """Its own last word, where it came to one; None of a process that was killed."""
        return self.lines[-1] if self.lines[-1].word in ("left", "done") else None

    @property
    def first(self) -> int:
        """The epoch that it began with."""
        return next((line.epoch for line in self.lines if line.word == "begin"), 0)

    @property
    def seed(self) -> int | None:
        return next((line.seed for line in self.lines if line.word == "begin"), None)


def audit(facts: Facts, found: Evidence) -> Report:
    """Return every fault that the evidence shows."""
    auditor = _Auditor(facts, found)
    return Report(facts.name, auditor.findings(), auditor.figures())


class _Auditor:
    def __init__(self, facts: Facts, found: Evidence) -> None:
        self.facts, self.found = facts, found
        self.runs = group_runs(found.lines)
        self.by_trial: dict[int, list[Run]] = defaultdict(list)
        for run in self.runs:
            self.by_trial[run.trial].append(run)
        self.trainings = {
            trial: split_trainings(runs) if facts.replicates > 1 else [runs]
            for trial, runs in self.by_trial.items()
        }
        self.rows = {row.number: row for row in found.trials}
        self.objectives = self._own_objectives()
        self._findings: list[Finding] = []

    def findings(self) -> list[Finding]:
        for check in (
            self._numbers,
            self._ends,
            self._doubles,
            self._parallel,
            self._repeats,
            self._stale,
            self._values,
            self._attempts,
            self._parameters,
            self._proposals,
            self._results,
            self._status,
            self._outside,
        ):
            check()
        return self._findings

    def figures(self) -> dict[str, Any]:
        states: dict[str, int] = defaultdict(int)
        for row in self.found.trials:
            states[row.state] += 1
        return {
            "trials": self.facts.trials,
            "states": dict(sorted(states.items())),
            "attempts": len({(run.trial, run.attempt) for run in self.runs}),
            "epochs": sum(len(run.ended) for run in self.runs),
            "best": self._own_best(),
            **({"proposals": waits} if (waits := self.found.status.get("proposals")) else {}),
        }

    def _add(self, kind: str, trial: int | None, what: str) -> None:
        where = "" if trial is None else f"trial {trial}: "
        self._findings.append(Finding(kind, trial, where + what))

    # N, and the end of each

    def _numbers(self) -> None:
        numbers = sorted(row.number for row in self.found.trials)
        wanted = list(range(self.facts.trials))
        for number in sorted(set(wanted) - set(numbers)):
            self._add("wrong_number", number, "is not in the database")
        for number in sorted(set(numbers) - set(wanted)):
            self._add("wrong_number", number, f"is beyond N = {self.facts.trials}")
        if len(set(numbers)) < len(numbers):
            self._add("wrong_number", None, f"a number twice among {numbers}")

    def _ends(self) -> None:
        for row in self.found.trials:
            if row.state not in FINAL:
                self._add("stuck", row.number, f"is {row.state} at the end")
                continue
            if wrong := self._explain_end(row):
                self._add("lost", row.number, f"is {row.state} ({row.reason or '-'}): {wrong}")

    def _explain_end(self, row: TrialRow) -> str:
        """Return why a trial's end is not what its training came to; empty where it is."""
        runs = self.by_trial.get(row.number, [])
        count = sum(map(is_done, self.trainings.get(row.number, [])))
        done = count >= self.facts.replicates
        if count > self.facts.replicates:
            return f"it was trained {count} times, and not {self.facts.replicates}"
        if row.state == "complete":
            return "" if done else "its training never came to its end"
        if row.state == "pruned":
            if not self.facts.prunes:
                return "the study has no pruner"
            return "" if runs else "it never trained"
        if row.state == "cancelled":
            if not (self.facts.ends_early and self.found.state.get("word") == "ended"):
                return f"the study's state is {self.found.state.get('word')}"
            return "its training had ended by itself" if done else ""
        return "no training failed by itself"

    # Who was alive when

    def _doubles(self) -> None:
        claims = {(row.trial, row.number): row.claimed for row in self.found.attempts}
        for trial, runs in self.by_trial.items():
            for earlier, later in _pairs(runs):
                over_s = earlier.last - later.began
                if over_s >= 0:
                    self._add(
                        "double",
                        trial,
                        f"attempt {earlier.attempt} (pid {earlier.pid}) lived for {over_s:.2f} s "
                        f"beside attempt {later.attempt} (pid {later.pid})",
                    )
            for run in runs:
                successor = claims.get((trial, run.attempt + 1))
                late_s = run.lines[-1].time - successor if successor else -math.inf
                if late_s > CLOCK_S:
                    self._add(
                        "double",
                        trial,
                        f"attempt {run.attempt} (pid {run.pid}) wrote {run.lines[-1].word} "
                        f"{late_s:.2f} s after attempt {run.attempt + 1} was claimed",
                    )

    def _parallel(self) -> None:
        # A process that was killed with its first line was alive for no time that can be told.
        ends = {(row.trial, row.number): row.ended for row in self.found.attempts}
        moments: list[tuple[float, int, Run]] = []
        for run in self.runs:
            until = _owned_until(run, ends.get((run.trial, run.attempt)))
            if until > run.began:
                moments += [(run.began, 1, run), (until, -1, run)]
        # At the same moment one that ends leaves its place to one that begins.
        alive: set[tuple[int, int, int]] = set()
        over = False
        for at, change, run in sorted(moments, key=lambda moment: moment[:2]):
            who = (run.trial, run.attempt, run.pid)
            alive.add(who) if change > 0 else alive.discard(who)
            if len(alive) > self.facts.max_parallel and not over:
                shown = ", ".join(f"{trial}/{attempt}" for trial, attempt, _ in sorted(alive))
                self._add(
                    "over_parallel",
                    None,
                    f"{len(alive)} at once at {at:.2f}, max_parallel is "
                    f"{self.facts.max_parallel}: {shown}",
                )
            over = len(alive) > self.facts.max_parallel

    # Epochs

    def _repeats(self) -> None:
        parts = [(trial, one) for trial, several in self.trainings.items() for one in several]
        for trial, runs in parts:
            reached = 0  # epochs that are trained
            for run in sorted(runs, key=lambda run: run.began):
                for line in run.lines:
                    if line.word == "foreign":
                        self._add("foreign_checkpoint", trial, f"attempt {run.attempt}")
                again = reached - run.first
                if again > self.facts.every:
                    self._add(
                        "repeated",
                        trial,
                        f"attempt {run.attempt} begins at epoch {run.first}, {reached} were "
                        f"trained: {again} again, a checkpoint is saved every {self.facts.every}",
                    )
                if again < 0:
                    self._add(
                        "repeated",
                        trial,
                        f"attempt {run.attempt} begins at epoch {run.first}, but only {reached} "
                        "were trained",
                    )
                reached = max(run.ended, default=run.first - 1) + 1

    # What is stored

    def _stale(self) -> None:
        claims = {(row.trial, row.number): row.claimed for row in self.found.attempts}
        late: dict[tuple[int, int], list[float]] = defaultdict(list)
        for row in self.found.metrics:
            successor = claims.get((row.trial, row.attempt + 1))
            if successor is not None and row.logged - successor > CLOCK_S:
                late[row.trial, row.attempt].append(row.logged - successor)
            if (row.trial, row.attempt) not in claims:
                late[row.trial, row.attempt].append(math.nan)
        for (trial, attempt), seconds in sorted(late.items()):
            self._add(
                "stale_writes",
                trial,
                f"{len(seconds)} values of attempt {attempt} stored under no attempt, or logged up "
                f"to {max(seconds):.2f} s after its successor began",
            )
        self._grown(claims)

    def _grown(self, claims: Mapping[tuple[int, int], float]) -> None:
        """Find attempts whose stored values grew beside their successor.

        The successor itself stores what its predecessor had reported and nobody had read: as many
        values as the ledger has of the time before it began are no fault.
        """
        reported: dict[tuple[int, int], int] = defaultdict(int)
        for run in self.runs:
            successor = claims.get((run.trial, run.attempt + 1), math.inf)
            for line in run.ended.values():
                if line.time <= successor + CLOCK_S:
                    reported[run.trial, run.attempt] += len(line.values)
        seen: dict[tuple[int, int], int] = {}
        for counts in self.found.watched:
            for (trial, attempt), count in counts.items():
                before = seen.setdefault((trial, attempt), count)
                if count > max(before, reported[trial, attempt]):
                    self._add(
                        "stale_writes",
                        trial,
                        f"values of attempt {attempt} grew from {before} to {count} while its "
                        f"successor was there; {reported[trial, attempt]} had been reported",
                    )
                seen[trial, attempt] = count

    def _values(self) -> None:
        stored: dict[tuple[int, int], dict[tuple[str, int], float]] = defaultdict(dict)
        for row in self.found.metrics:
            stored[row.trial, row.attempt][row.name, row.step] = row.value
        told: dict[tuple[int, int], dict[tuple[str, int], float]] = defaultdict(dict)
        unsure: dict[tuple[int, int], int] = {}
        for run in self.runs:
            key = (run.trial, run.attempt)
            for epoch, line in run.ended.items():
                told[key].update({(name, epoch): value for name, value in line.values.items()})
            if run.end is None and run.lines[-1].word == "ended":
                unsure[key] = run.lines[-1].epoch  # killed before, while or after it reported
        written: dict[tuple[int, int], dict[tuple[str, int], float]] = defaultdict(dict)
        for row in self.found.journals:
            written[row.trial, row.attempt][row.name, row.step] = row.value
        in_files = self._kept_in_files()
        for trial, attempt in sorted(set(stored) | set(told)):
            mine, theirs = told[trial, attempt], stored[trial, attempt]
            kept = written[trial, attempt] if (trial, attempt) in in_files else theirs
            lost = sorted(
                (name, step)
                for name, step in set(mine) - set(kept)
                if step != unsure.get((trial, attempt))
            )
            if lost:
                steps = sorted({step for _, step in lost})
                self._add(
                    "lost_values",
                    trial,
                    f"attempt {attempt}: {len(lost)} reports are not stored (steps {steps})",
                )
            self._foreign(trial, attempt, "stored", mine, theirs)
        for (trial, attempt), theirs in sorted(written.items()):
            self._foreign(trial, attempt, "in its journal", told[trial, attempt], theirs)

    def _kept_in_files(self) -> set[tuple[int, int]]:
        """Return the attempts of trainings that another one with another seed follows, or was to:
        the database has the curve of a trial's last training alone."""
        return {
            (run.trial, run.attempt)
            for trial, several in self.trainings.items()
            for place, one in enumerate(several, 1)
            for run in one
            if place < len(several) or (is_done(one) and place < self.facts.replicates)
        }

    def _foreign(
        self,
        trial: int,
        attempt: int,
        where: str,
        mine: Mapping[tuple[str, int], float],
        theirs: Mapping[tuple[str, int], float],
    ) -> None:
        foreign = sorted(key for key, value in theirs.items() if mine.get(key) != value)
        if foreign:
            self._add(
                "foreign_values",
                trial,
                f"attempt {attempt}: {where} but not reported, or otherwise: {foreign[:4]}",
            )

    def _attempts(self) -> None:
        rows = {(row.trial, row.number) for row in self.found.attempts}
        folders = set(self.found.folders)
        runs = {(run.trial, run.attempt) for run in self.runs}
        for trial, attempt in sorted(runs - rows):
            self._add("unknown_attempts", trial, f"attempt {attempt} trained and has no row")
        for trial, attempt in sorted(folders - rows):
            self._add("unknown_attempts", trial, f"attempt {attempt} has a folder and no row")
        for trial, attempt in sorted(runs - folders):
            self._add("unknown_attempts", trial, f"attempt {attempt} trained and has no folder")
        pids: dict[tuple[int, int], set[int]] = defaultdict(set)
        for run in self.runs:
            pids[run.trial, run.attempt].add(run.pid)
        for (trial, attempt), several in sorted(pids.items()):
            if len(several) > 1:
                self._add(
                    "double", trial, f"attempt {attempt} was trained by pids {sorted(several)}"
                )
        for row in self.found.attempts:
            if row.outcome is None:
                self._add("stuck", row.trial, f"attempt {row.number} has no end")

    def _proposals(self) -> None:
        """Find what was to be excluded, and what two trials trained with side by side."""
        given = {trial: dict(runs[0].lines[0].params) for trial, runs in self.by_trial.items()}
        spans = {
            trial: (min(run.began for run in runs), max(run.last for run in runs))
            for trial, runs in self.by_trial.items()
        }
        if self.facts.most_sum is not None:
            names, most = self.facts.most_sum
            for trial, params in sorted(given.items()):
                if (found := sum(float(params[name]) for name in names)) > most:
                    self._add("invalid", trial, f"{' + '.join(names)} is {found}, above {most}")
        for trial, other in itertools.combinations(sorted(given), 2):
            begun, ended = zip(spans[trial], spans[other], strict=True)
            if given[trial] == given[other] and max(begun) < min(ended):
                self._add("same_at_once", other, f"as trial {trial}: {given[other]}")

    def _parameters(self) -> None:
        shown = {row["trial"]: row["params"] for row in self.found.collected}
        for trial, runs in self.by_trial.items():
            for run in runs:
                trained = dict(run.lines[0].params)
                stored = {k: _as_told(v) for k, v in shown.get(trial, {}).items()}
                if trial in shown and trained != stored:
                    self._add(
                        "wrong_parameters",
                        trial,
                        f"attempt {run.attempt} trained with {trained}, stored is {stored}",
                    )
        if self.facts.replicates > 1:
            self._seeds()

    def _seeds(self) -> None:
        """One seed a training, another one each, and from the second on the same in all trials."""
        common: dict[int, int | None] = {}
        for trial, several in sorted(self.trainings.items()):
            seeds = [sorted({str(run.seed) for run in one}) for one in several]
            if any(len(one) > 1 for one in seeds) or len({one[0] for one in seeds}) < len(seeds):
                self._add("wrong_parameters", trial, f"the seeds of its trainings are {seeds}")
            for place, one in enumerate(several[1:], 2):
                if common.setdefault(place, one[0].seed) != one[0].seed:
                    self._add(
                        "wrong_parameters",
                        trial,
                        f"training {place} has seed {one[0].seed}, in others {common[place]}",
                    )

    # Results

    def _own_objectives(self) -> dict[int, tuple[float, ...]]:
        """Return the objective values of every complete trial, from the ledger alone."""
        found = {}
        for row in self.found.trials:
            if row.state == "complete":
                values = [
                    self._mean(
                        row.number, objective["metric"], objective["direction"], objective["at"]
                    )
                    for objective in self.facts.objectives
                ]
                if all(value is not None for value in values):
                    found[row.number] = tuple(value for value in values if value is not None)
        return found

    def _mean(self, trial: int, metric: str, direction: str, at: str) -> float | None:
        """Return what a trial's trainings gave, on average; None where one gave nothing."""
        found = [
            summarise(lineage(one, metric), direction, at) for one in self.trainings.get(trial, [])
        ]
        values = [value for value in found if value is not None]
        return sum(values) / len(values) if values and len(values) == len(found) else None

    def _own_violations(self) -> dict[int, float]:
        found = {}
        for trial in self.objectives:
            total = 0.0
            for metric, bound in self.facts.constraints.items():
                last = self._mean(trial, metric, "maximize", "last")
                if last is not None and "max" in bound:
                    total += max(0.0, last - bound["max"])
                if last is not None and "min" in bound:
                    total += max(0.0, bound["min"] - last)
            found[trial] = total
        return found

    def _own_ranks(self) -> dict[int, int]:
        directions = [objective["direction"] for objective in self.facts.objectives]
        return rank(self.objectives, self._own_violations(), directions)

    def _own_best(self) -> int | None:
        ranks = self._own_ranks()
        return min(ranks, key=lambda trial: (ranks[trial], trial), default=None)

    def _results(self) -> None:
        collected = {row["trial"]: row for row in self.found.collected}
        for trial, own in self.objectives.items():
            stored = tuple(self.rows[trial].values)
            if not _same(stored, own):
                self._add("wrong_values", trial, f"stored {stored}, by the ledger {own}")
            row = collected.get(trial)
            if row is not None and not _same(_values_of(row, self.facts), own):
                self._add(
                    "wrong_values",
                    trial,
                    f"collect shows {_values_of(row, self.facts)}, by the ledger {own}",
                )
        ranks = self._own_ranks()
        for trial in sorted(set(self.rows) & set(collected)):
            shown = collected[trial]["rank"]
            if shown != ranks.get(trial):
                self._add("wrong_rank", trial, f"rank {shown}, by the ledger {ranks.get(trial)}")
        for trial, row in sorted(self.rows.items()):
            if trial not in collected:
                self._add("wrong_rank", trial, "collect does not list it")
            elif collected[trial]["state"] != row.state:
                self._add("wrong_rank", trial, f"collect says it is {collected[trial]['state']}")

    def _status(self) -> None:
        status = self.found.status
        if not status:
            return
        counts: dict[str, int] = defaultdict(int)
        for row in self.found.trials:
            counts[row.state] += 1
        shown = {state: count for state, count in status["counts"].items() if count}
        if shown != counts:
            self._add("wrong_status", None, f"counts {shown}, in the database {dict(counts)}")
        violations = self._own_violations()
        kept = {trial for trial in self.objectives if not violations[trial]}
        if len(self.facts.objectives) > 1 or not kept:
            return  # there is no best one, or none keeps to the constraints
        best = (status.get("best") or {}).get("trial")
        if best != self._own_best():
            self._add("wrong_status", best, f"is the best; by the ledger {self._own_best()}")

    # Around it

    def _outside(self) -> None:
        for kind, found in (
            ("crashes", self.found.crashes),
            ("refused", self.found.refused),
            ("wedged", self.found.wedged),
            ("left_over", self.found.left),
        ):
            for what in found:
                self._add(kind, None, what)
        for line in self.found.accounting:
            job, state, *_ = line.split("|")
            # REQUEUED is how a row of it ended; the next one says what became of it.
            if state.split()[0] in ("RUNNING", "PENDING", "SUSPENDED"):
                self._add("left_over", None, f"Slurm's accounting says that job {job} is {state}")


def group_runs(lines: Iterable[Line]) -> list[Run]:
    """Return the processes that trained, by their beginning."""
    found: dict[tuple[int, int, int], Run] = {}
    for line in lines:
        key = (line.trial, line.attempt, line.pid)
        found.setdefault(key, Run(*key, [])).lines.append(line)
    return sorted(found.values(), key=lambda run: run.began)


def split_trainings(runs: Iterable[Run]) -> list[list[Run]]:
    """Return a trial's runs by training: a further one begins, from nothing, after one was done."""
    found: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: (run.attempt, run.began)):
        if not found or (is_done(found[-1]) and run.first == 0):
            found.append([])
        found[-1].append(run)
    return found


def is_done(runs: Iterable[Run]) -> bool:
    """Tell whether a training has come to its end."""
    return any(run.end is not None and run.end.word == "done" for run in runs)


def lineage(runs: Iterable[Run], metric: str) -> list[tuple[int, float]]:
    """Return what counts of a metric: the first step of a later attempt cuts the earlier series."""
    series: list[tuple[int, float]] = []
    for run in sorted(runs, key=lambda run: (run.attempt, run.began)):
        ended = run.ended
        steps = [
            (epoch, line.values[metric]) for epoch, line in ended.items() if metric in line.values
        ]
        if steps:
            cut = min(epoch for epoch, _ in steps)
            series = [(epoch, value) for epoch, value in series if epoch < cut] + steps
    return sorted(series)


def summarise(series: Sequence[tuple[int, float]], direction: str, at: str) -> float | None:
    """Return the value of a series that counts."""
    if not series:
        return None
    if at == "last":
        return series[-1][1]
    values = [value for _, value in series]
    return max(values) if direction == "maximize" else min(values)


def rank(
    points: Mapping[int, Sequence[float]],
    violations: Mapping[int, float],
    directions: Sequence[str],
) -> dict[int, int]:
    """Return the rank of each trial from 1: with several objectives the number of its front.

    What breaks a constraint comes after all that breaks none, the least broken first.
    """
    signs = [-1.0 if direction == "maximize" else 1.0 for direction in directions]
    costs = {
        trial: tuple(sign * value for sign, value in zip(signs, values, strict=True))
        for trial, values in points.items()
    }
    if len(directions) == 1:
        order = sorted(costs, key=lambda trial: (violations[trial], costs[trial], trial))
        return {trial: place for place, trial in enumerate(order, 1)}
    found, place = {}, 0
    left = {trial for trial in costs if not violations[trial]}
    while left:
        place += 1
        front = {
            trial
            for trial in left
            if not any(_dominates(costs[other], costs[trial]) for other in left)
        }
        found.update(dict.fromkeys(front, place))
        left -= front
    broken = sorted({violations[trial] for trial in costs if violations[trial]})
    for trial in costs:
        if violations[trial]:
            found[trial] = place + 1 + broken.index(violations[trial])
    return found


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other)) and tuple(one) != tuple(other)


def _pairs(runs: Sequence[Run]) -> Iterable[tuple[Run, Run]]:
    for place, earlier in enumerate(runs):
        for later in runs[place + 1 :]:
            yield earlier, later


def _same(one: Sequence[float | None], other: Sequence[float]) -> bool:
    return len(one) == len(other) and all(
        a is not None and math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-15)
        for a, b in zip(one, other)
    )


def _values_of(row: Mapping[str, Any], facts: Facts) -> tuple[float | None, ...]:
    if row.get("values"):
        return tuple(row["values"].get(objective["metric"]) for objective in facts.objectives)
    return (row.get("value"),)


def _as_told(value: Any) -> Any:
    """Return a parameter as the training reads it from its arguments."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return float(value)


# Reading the evidence


def read_ledger(folder: Path) -> list[Line]:
    """Return every whole line of a ledger, by time."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text(encoding="utf-8").split("\n")[:-1]:
            raw = json.loads(text)
            known = {name: raw[name] for name in Line.__dataclass_fields__ if name in raw}
            found.append(Line(**known))
    return sorted(found, key=lambda line: line.monotonic)


def read_folders(study: Path) -> set[tuple[int, int]]:
    """Return (trial, attempt) of every attempt's folder under ``runs/<name>``."""
    return {
        (int(path.parent.parent.name), int(path.name))
        for path in study.glob("trials/*/attempts/*")
        if path.name.isdigit()
    }


def read_journals(study: Path) -> list[MetricRow]:
    """Return every value in the attempts' ``metrics.jsonl``, as if it were stored."""
    found = []
    for path in study.glob("trials/*/attempts/*/metrics.jsonl"):
        trial, attempt = int(path.parents[2].name), int(path.parent.name)
        for text in path.read_text(encoding="utf-8").split("\n")[:-1]:
            raw = json.loads(text)
            found += [
                MetricRow(trial, attempt, name, raw["step"], value, raw["time"])
                for name, value in raw["metrics"].items()
            ]
    return found


TRIALS_SQL = """
SELECT t.number, lower(t.state::text), e.value_json,
  (SELECT array_agg(v.value ORDER BY v.objective) FROM trial_values v
   WHERE v.trial_id = t.trial_id)
FROM trials t JOIN studies s USING (study_id)
LEFT JOIN trial_user_attributes e ON e.trial_id = t.trial_id AND e.key = 'sweep:end'
WHERE s.study_name = %s ORDER BY t.number
"""
ATTEMPTS_SQL = """
SELECT t.number, a.number, EXTRACT(EPOCH FROM a.claimed)::float8,
  EXTRACT(EPOCH FROM a.ended)::float8, a.outcome, COALESCE(a.job, ''), a.array_index
FROM sweep_attempt a JOIN trials t USING (trial_id) JOIN studies s USING (study_id)
WHERE s.study_name = %s ORDER BY 1, 2
"""
METRICS_SQL = """
SELECT t.number, m.attempt, m.name, m.step, m.value, m.logged
FROM sweep_metric m JOIN trials t USING (trial_id) JOIN studies s USING (study_id)
WHERE s.study_name = %s
"""
STATE_SQL = """
SELECT a.value_json FROM study_system_attributes a JOIN studies s USING (study_id)
WHERE s.study_name = %s AND a.key = 'sweep:state'
"""
SUCCEEDED_SQL = """
SELECT t.number, m.attempt, COUNT(*)
FROM sweep_metric m JOIN trials t USING (trial_id) JOIN studies s USING (study_id)
WHERE s.study_name = %s AND EXISTS (SELECT 1 FROM sweep_attempt b
  WHERE b.trial_id = m.trial_id AND b.number > m.attempt)
GROUP BY 1, 2
"""


def read_database(url: str, name: str) -> Evidence:
    """Return what the database holds of a study: trials, attempts, metrics, state."""
    with _connected(url) as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

        def ask(statement: str) -> list[tuple[Any, ...]]:
            cursor.execute(statement, (name,))
            return list(cursor.fetchall())

        state = ask(STATE_SQL)
        return Evidence(
            trials=[_trial_row(*row) for row in ask(TRIALS_SQL)],
            attempts=[AttemptRow(*row) for row in ask(ATTEMPTS_SQL)],
            metrics=[MetricRow(*row) for row in ask(METRICS_SQL)],
            state=json.loads(state[0][0]) if state else {},
        )


def read_succeeded(url: str, name: str) -> dict[tuple[int, int], int]:
    """Return how many values are stored of each attempt that has a successor."""
    with _connected(url) as cursor:
        cursor.execute(SUCCEEDED_SQL, (name,))
        return {(trial, attempt): count for trial, attempt, count in cursor.fetchall()}


def count_open(url: str, name: str) -> tuple[int, int]:
    """Return how many trials a study has, and how many of them are not final."""
    with _connected(url) as cursor:
        cursor.execute(
            "SELECT COUNT(*), COUNT(*) FILTER (WHERE t.state IN ('WAITING', 'RUNNING')) "
            "FROM trials t JOIN studies s USING (study_id) WHERE s.study_name = %s",
            (name,),
        )
        total, left = cursor.fetchone()
        return int(total), int(left)


class _connected:
    """A cursor of a connection of its own, for one transaction."""

    def __init__(self, url: str) -> None:
        import psycopg2

        plain = url.replace("postgresql+psycopg2://", "postgresql://")
        self.connection = psycopg2.connect(plain, connect_timeout=5)

    def __enter__(self) -> Any:
        return self.connection.cursor()

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def _trial_row(number: int, state: str, note: str | None, values: Any) -> TrialRow:
    end = json.loads(note) if note else {}
    word = {"fail": end.get("state", "failed")}.get(state, state)
    numbers = [math.nan if value is None else float(value) for value in values or ()]
    return TrialRow(number, word, numbers, end.get("outcome") or "", end.get("reason") or "")


def _owned_until(run: Run, ended: float | None) -> float:
    """Return until when a process counts, which may be over a little later than its attempt."""
    late_s = run.lines[-1].time - ended if ended is not None else 0.0
    return run.last - late_s if 0 < late_s <= FENCED_S else run.last
