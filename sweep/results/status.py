"""Where a study stands: counts, best, tasks, failures, and when it may be done.

Reads the database in a handful of statements, whatever the number of trials; what the scheduler
says is handed in by the caller, who asks it less often.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from sweep.control import retrying, sick_nodes
from sweep.control.notifying import complaints
from sweep.core import outcomes, scheduler
from sweep.core.executors import is_packed, slots_of
from sweep.core.pareto import fronts
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Task, TaskState
from sweep.core.study import Study
from sweep.core.times import iso_utc
from sweep.core.trial import deviation
from sweep.results import held_back
from sweep.results.failure_kinds import FailureKind, kinds_of
from sweep.results.feasibility import read_none_feasible
from sweep.results.running import RunningLine, lines_of
from sweep.results.shared_gpus import SharedGpu, read_gpus, usual_lengths
from sweep.results.time_left import time_left_s
from sweep.storage import notices, promotion, proposals, records, running_rows, status_rows, studies
from sweep.storage.connection import Database
from sweep.storage.gpu_shares import EndedTrial, read_lengths
from sweep.storage.ledger import Ledger
from sweep.storage.notices import Notice
from sweep.storage.proposals import Waits
from sweep.storage.running_rows import RunningTrial
from sweep.storage.status_rows import Failure, Times

# What a study is doing, beside the words of ``studies`` (running, held, stopped, draining).
FINISHED = "finished"  # every trial is final
QUEUED = "queued"  # its tasks have not started
IDLE = "idle"  # trials are left, and nothing is there to run them
# Longer than attempts are left unseen by whoever looks after the study: nobody does.
GONE_S = 300.0

_NEXT = {
    studies.HELD: "correct the command or the study file; then `sweep launch` goes on",
    studies.STOPPED: "`sweep launch` takes it up again",
    IDLE: "`sweep launch` goes on",
}
FRONT_SHOWN = 20
BEST_POINTS = 40


@dataclass(frozen=True)
class Status:
    """Where a study stands.

    Attributes:
        state: running, queued, idle, held, stopped, draining or finished.
        reason: Why, and what to do; may be empty.
        counts: Trials in each of the six states.
        metric: Name of the objective (the first of several).
        best: {"trial", "value", "params"} of the best complete trial, or None; also None with
            several objectives. Where a trial may be several trainings also {"sd", "replicates"}: of
            their objectives the standard deviation, None of one, and how many they are.
        front: With several objectives, {"trial", "values", "params"} of the Pareto front's trials.
        front_size: How many trials the front has.
        untold: Running trials that somebody else has asked for, with Optuna's API.
        infeasible: That no complete trial keeps to the constraints, in words; else empty.
        tasks: {"pending", "running"}, or None where the scheduler could not be asked.
        max_parallel: K.
        slots: Trials that a task serves side by side.
        trials: N.
        now: The database's clock, when it was asked.
        started: First claim, or None; elapsed_s: Seconds from it to now, or to the end.
        left_s: Seconds until the end, estimated; None where nothing is known or nothing runs.
        trials_per_hour: Trials that became final, per hour since the start.
        notes: Sentences that the caller adds (the scheduler did not answer, no finaliser).
        running: What is known of each trial that trains now.
        spare_tasks: Tasks that run and have no trial, where the scheduler could be asked.
        best_so_far: The best value after each share of the complete trials, oldest first.
        gpus: Those that trials share (``resources.share``), while some train there.
        waits: How long tasks waited for the parameters of their trials.
    """

    name: str
    state: str
    reason: str
    counts: Mapping[str, int]
    metric: str
    trials: int
    max_parallel: int
    best: Mapping[str, Any] | None = None
    front: Sequence[Mapping[str, Any]] = ()
    front_size: int = 0
    infeasible: str = ""
    untold: int = 0
    tasks: Mapping[str, int] | None = None
    now: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    started: datetime | None = None
    elapsed_s: float | None = None
    left_s: float | None = None
    expected_end: datetime | None = None
    trials_per_hour: float | None = None
    failures: Sequence[FailureKind] = field(default_factory=tuple)
    notes: Sequence[str] = ()
    slots: int = 1
    running: Sequence[RunningLine] = ()
    spare_tasks: int = 0
    best_so_far: Sequence[float] = ()
    gpus: Sequence[SharedGpu] = ()
    waits: Waits = field(default_factory=Waits)

    @property
    def done(self) -> int:
        """Trials that have ended."""
        return sum(self.counts[state] for state in outcomes.FINAL_STATES)

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more happens without somebody's doing."""
        ends = (studies.HELD, studies.STOPPED, studies.DRAINING)
        # Of a finished study nothing runs but what a notebook has asked for.
        return self.state == FINISHED or (
            self.state in ends and self.counts[outcomes.RUNNING] <= self.untold
        )

    @property
    def total(self) -> int:
        """All trials: N, and those that were added with Optuna's API beyond them."""
        return max(self.trials, sum(self.counts.values()))

    @property
    def next_step(self) -> str:
        """What goes on after a state that does not change by itself; empty for the others."""
        if self.state == studies.HELD and not self.failures:
            return "mend that; then `sweep launch` goes on"
        usual = _NEXT.get(self.state, "")
        advice = self.failures[0].advice if self.state == studies.HELD else ""
        return f"{advice}; else {usual}" if advice else usual

    def to_dict(self) -> dict[str, Any]:
        """Return what ``status --json`` prints."""
        return {
            "name": self.name,
            "state": self.state,
            "reason": self.reason,
            "counts": dict(self.counts),
            "best": dict(self.best) if self.best else None,
            "front": [dict(member) for member in self.front],
            "tasks": dict(self.tasks) if self.tasks is not None else None,
            "trials": self.trials,
            "max_parallel": self.max_parallel,
            "slots": self.slots,
            "spare_tasks": self.spare_tasks,
            "gpus": [gpu.to_dict() for gpu in self.gpus],
            "proposals": {
                "prepared": self.waits.prepared,
                "made": self.waits.made,
                "late": self.waits.late,
                "longest_wait_s": self.waits.longest_s,
            },
            "running": [line.to_dict(self.now) for line in self.running],
            "best_so_far": list(self.best_so_far),
            "started": iso_utc(self.started),
            "elapsed_s": self.elapsed_s,
            "left_s": self.left_s,
            "expected_end": iso_utc(self.expected_end),
            "trials_per_hour": self.trials_per_hour,
            "failures": [
                {"reason": f.reason, "count": f.count, "trial": f.trial, "log": f.log}
                for f in self.failures
            ],
            "notes": [*([self.infeasible] if self.infeasible else []), *self.notes],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)


def snapshot(
    ledger: Ledger,
    folder: StudyFolder,
    tasks: Mapping[Task, TaskState] | None,
    *,
    notes: Sequence[str] = (),
    coming: str = "",
    shown: int | None = None,
) -> Status:
    """Return where a study stands now.

    Args:
        tasks: What the scheduler says of the study's tasks; None when it could not be asked.
        notes: Sentences to show beside.
        coming: Who goes on with a study that has no task, in words; empty where nobody does.
        shown: Of how many running trials the GPUs are read, a file each; of all when None.

    Raises:
        DatabaseUnavailable: It is away for longer.
    """
    study = ledger.study
    seen = ledger.db.retry(lambda db: _read(db, ledger))
    if seen.untold:
        run = "1 trial runs that was" if seen.untold == 1 else f"{seen.untold} trials run that were"
        notes = (*notes, f"{run} asked for outside of sweep; no study waits for it")
    if (beyond := sum(seen.counts.values()) - study.trials) > 0:
        were = "1 trial was" if beyond == 1 else f"{beyond} trials were"
        notes = (*notes, f"{were} added outside of sweep, beyond the study's {study.trials}")
    if seen.retried:
        was = "was" if len(seen.retried) == 1 else "were"
        notes = (*notes, f"{retrying.name_trials(seen.retried)} {was} retried (`--retry`)")
    if promotion.promotes(study) and seen.unfinished:
        paused = ledger.db.retry(lambda db: promotion.count_paused(db, ledger.study_id))
        waits = "1 trial waits" if paused == 1 else f"{paused} trials wait"
        notes = (*notes, f"{waits} at their rungs to be promoted") if paused else notes
    if study.profile:
        held = held_back.note(held_back.read(ledger, folder), study.name)
        notes = (*notes, held) if held else notes
    sick = ledger.db.retry(lambda _: sick_nodes.explain(ledger, folder))
    polled = None if tasks is None else _count_tasks(tasks)
    ours = {**seen.counts, outcomes.RUNNING: seen.counts[outcomes.RUNNING] - seen.untold}
    state, reason = decide(
        seen.state,
        ours,
        seen.unfinished,
        polled,
        _pending_reason(tasks),
        coming,
        gone=bool(seen.running) and all(row.unseen_s > GONE_S for row in seen.running),
    )
    over = state == FINISHED or (
        state in (studies.HELD, studies.STOPPED) and seen.counts[outcomes.RUNNING] <= seen.untold
    )
    elapsed_s = _elapsed_s(seen.times, over)
    gpus = read_gpus(folder, [one.trial for one in seen.running])
    usual_s = usual_lengths(gpus, seen.ended)
    times = seen.times
    if usual_s:  # those that have ended trained beside more or fewer others
        times = replace(times, mean_s=sum(usual_s.values()) / len(usual_s))
    left_s = None
    if state in (studies.RUNNING, studies.DRAINING):
        left_s = time_left_s(
            seen.counts,
            times,
            study.parallel,
            _places(study, seen, polled),
            draining=state == studies.DRAINING,
        )
    done = (
        sum(seen.counts[final] for final in outcomes.FINAL_STATES) - seen.counts[outcomes.CANCELLED]
    )
    return Status(
        name=study.name,
        state=state,
        reason=reason,
        counts=seen.counts,
        metric=study.objective.metric,
        trials=study.trials,
        max_parallel=study.parallel,
        best=seen.best,
        front=seen.front,
        front_size=seen.front_size,
        infeasible=seen.infeasible,
        untold=seen.untold,
        tasks=polled,
        now=seen.times.now,
        started=seen.times.started,
        elapsed_s=elapsed_s,
        left_s=left_s,
        expected_end=None if left_s is None else seen.times.now + timedelta(seconds=left_s),
        trials_per_hour=3600 * done / elapsed_s if elapsed_s and done else None,
        failures=kinds_of(seen.failures, study, folder),
        notes=(*notes, *sick, *seen.noted, *complaints(seen.notices, seen.times.now.timestamp())),
        slots=1 if is_packed(study) else slots_of(study),
        running=lines_of(
            seen.running, study, seen.lengths, seen.times.mean_s, folder, shown, usual_s
        ),
        spare_tasks=_count_spare(tasks, seen.running),
        best_so_far=seen.best_so_far,
        gpus=gpus,
        waits=seen.waits,
    )


def _places(study: Study, seen: _Seen, polled: Mapping[str, int] | None) -> int:
    """Return how many trials train at once in the tasks that run, as far as is known."""
    if not polled:
        return 0
    if is_packed(study):
        return max(polled["running"], seen.counts[outcomes.RUNNING])
    return polled["running"] * slots_of(study)


@dataclass(frozen=True)
class _Seen:
    counts: Mapping[str, int]
    unfinished: int
    state: studies.StudyState
    times: Times
    failures: Sequence[Failure]
    best: Mapping[str, Any] | None
    front: Sequence[Mapping[str, Any]]
    front_size: int
    noted: Sequence[str]
    notices: Mapping[str, Notice]
    infeasible: str
    untold: int
    retried: Sequence[int]
    running: Sequence[RunningTrial]
    lengths: tuple[int, int] | None
    best_so_far: Sequence[float]
    waits: Waits
    ended: Sequence[EndedTrial]


def _read(db: Database, ledger: Ledger) -> _Seen:
    study_id, study = ledger.study_id, ledger.study
    # First: a trial that ends in between may be counted as final while the study still runs, but a
    # study that has ended must not count it as running.
    unfinished = ledger.unfinished()
    counts = records.count_states(db, study_id)
    best, front, size = None, [], 0
    if counts[outcomes.COMPLETE] and study.is_multi_objective:
        complete = status_rows.read_complete_values(db, study_id)
        if study.constraints:
            broken = records.read_violations(db, study_id)
            complete = [pair for pair in complete if not broken.get(pair[0], 0.0)]
        placed = fronts([values for _, values in complete], study.directions)
        numbers = [n for (n, _), place in zip(complete, placed, strict=True) if place == 1]
        size = len(numbers)
        names = [objective.metric for objective in study.objectives]
        for record in records.read_trials(db, study_id, study, numbers=numbers[:FRONT_SHOWN]):
            values = dict(zip(names, record.values, strict=True))
            front.append({"trial": record.number, "values": values, "params": record.params})
    elif counts[outcomes.COMPLETE]:
        for number in ledger.best_numbers(1):
            record = records.read_trials(db, study_id, study, numbers=[number])[0]
            if math.isfinite(record.values[0]):
                best = {"trial": number, "value": record.values[0], "params": record.params}
                if study.is_replicated:
                    done = record.replicates
                    best |= {"sd": deviation(done), "replicates": len(done)}
    found = best or front
    untold = ledger.count_untold() if counts[outcomes.RUNNING] else 0
    running = running_rows.read_running(ledger) if counts[outcomes.RUNNING] else []
    return _Seen(
        counts=counts,
        unfinished=unfinished,
        state=studies.read_state(db, study_id),
        times=status_rows.read_times(db, study_id),
        failures=status_rows.read_failures(db, study_id) if counts[outcomes.FAILED] else (),
        best=best,
        front=front,
        front_size=size,
        noted=status_rows.noted(ledger),
        notices=notices.read_notices(db, study_id),
        infeasible=read_none_feasible(ledger) if counts[outcomes.COMPLETE] and not found else "",
        untold=untold,
        retried=status_rows.retried(ledger),
        running=running,
        lengths=running_rows.read_lengths(ledger) if running else None,
        best_so_far=running_rows.read_best_so_far(ledger, BEST_POINTS) if best else (),
        waits=proposals.read_waits(db, study_id),
        ended=read_lengths(db, study_id) if running and study.resources.share else (),
    )


def decide(
    wanted: studies.StudyState,
    counts: Mapping[str, int],
    unfinished: int,
    tasks: Mapping[str, int] | None,
    pending_reason: str = "",
    coming: str = "",
    *,
    gone: bool = False,
) -> tuple[str, str]:
    """Return what a study is doing, and why.

    Args:
        wanted: What its row says.
        unfinished: Trials that are not final, those that failed before the study was proven too.
        tasks: How many are pending and running; None when the scheduler could not be asked.
        pending_reason: The scheduler's, of a pending task.
        coming: Who goes on with a study that has no task, in words.
        gone: Its running trials have not been heard of for long, any of them.
    """
    has_ended = wanted.word == studies.ENDED
    if not unfinished:
        return FINISHED, f"it ended early: {wanted.reason}" if has_ended else ""
    if has_ended:
        return studies.DRAINING, f"it ends early: {wanted.reason}"
    if wanted.word != studies.RUNNING:
        return wanted.word, wanted.reason
    if tasks is not None and gone and not any(tasks.values()) and not coming:
        running = counts[outcomes.RUNNING]
        left = "1 trial runs" if running == 1 else f"{running} trials run"
        return IDLE, (
            f"{left} by the database alone: no task is there any more, and nobody has looked after "
            "the study since; `sweep status` does"
        )
    if counts[outcomes.RUNNING] or tasks is None or tasks["running"]:
        return studies.RUNNING, ""
    if tasks["pending"]:
        return QUEUED, pending_reason and f"the scheduler says: {pending_reason}"
    left = "1 trial is" if unfinished == 1 else f"{unfinished} trials are"
    if coming:
        return QUEUED, f"{left} left, and {coming}"
    return IDLE, f"{left} left and no task is there to run them"


def _count_tasks(tasks: Mapping[Task, TaskState]) -> dict[str, int]:
    found = [task.state for task in tasks.values()]
    return {"pending": found.count(scheduler.PENDING), "running": found.count(scheduler.RUNNING)}


def _count_spare(tasks: Mapping[Task, TaskState] | None, running: Sequence[RunningTrial]) -> int:
    """Return how many tasks run without a trial of theirs: they wait for one, or are about to end.

    Their trainings may be known before the scheduler says that they run.
    """
    at_work = {(row.job, row.index) for row in running}
    found = (tasks or {}).items()
    return sum(state.state == scheduler.RUNNING and task not in at_work for task, state in found)


def _pending_reason(tasks: Mapping[Task, TaskState] | None) -> str:
    reasons = [t.reason for t in (tasks or {}).values() if t.state == scheduler.PENDING]
    return next((reason for reason in reasons if reason), "")


def _elapsed_s(times: Times, over: bool) -> float | None:
    if times.started is None:
        return None
    until = times.ended if over and times.ended is not None else times.now
    return max(0.0, (until - times.started).total_seconds())
