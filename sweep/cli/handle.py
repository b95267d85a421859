"""sweep from Python: launch a study, and look at it, steer it, wait for it.

``sweep.launch`` and ``sweep.load`` return the same handle; what its methods do, the commands of the
same names do.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.cli.logs import attempts_of, log_text
from sweep.control import add_points, cancel_trials, retrying
from sweep.control.launch import Launched
from sweep.control.launch import launch as launch_study
from sweep.control.open_study import Opened, open_study
from sweep.control.scheduler_view import SchedulerView
from sweep.control.waves import stop_study
from sweep.core import outcomes
from sweep.core.errors import InputError
from sweep.core.paths import Runs, StudyFolder, runs_folder
from sweep.core.scheduler import Scheduler
from sweep.core.trial_choice import TrialChoice
from sweep.results.frames import Results
from sweep.results.live import PATIENCE_S, WAITED_UNSEEN_S, until_over
from sweep.results.status import Status, snapshot
from sweep.schedulers.choose import resolve, scheduler_of
from sweep.storage import records
from sweep.storage.studies import RUNNING
from sweep.studyfile import load as load_file
from sweep.studyfile.from_python import GivenStudy, as_file, plain
from sweep.tasks.side_runs import rerun
from sweep.tasks.side_runs.reproduction import DEFAULT_TOLERANCE, Verdict, judge

TASK_VARIABLE = "SWEEP_TRIAL"  # set within a training


class StudyHandle(Results):
    """One study: its results, what it does, and what is to be done with it.

    Read anew at each call. Iterating yields the trials as they end, until the study is over. Close
    it, or use it in a ``with``; that stops nothing.

    Attributes:
        name: The study's name.
        study: The study as it was launched.
        launched: What ``sweep.launch`` has done; None where it was only opened.
    """

    def __init__(self, opened: Opened, runs: Runs, launched: Launched | None = None) -> None:
        self._runs = runs
        self.launched = launched
        self._use(opened)

    def _use(self, opened: Opened) -> None:
        super().__init__(opened)
        self._view = SchedulerView(opened, self._schedule, unseen_s=WAITED_UNSEEN_S)

    def __repr__(self) -> str:
        return f"<Study {self.name}, {self.study.trials} trials>"

    @property
    def _schedule(self) -> Scheduler:
        return scheduler_of(self._opened.folder, self._opened.study)

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self._opened.folder.root

    def status(self) -> Status:
        """Return where it stands: counts, best, what runs, failures, its expected end.

        Raises:
            DatabaseUnavailable: The database does not answer at present.
        """
        return snapshot(self._opened.ledger, self._opened.folder, **self._view.ask())

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The best complete trial: {"trial", "value", "params"}; None before the first."""
        return self.status().best

    def wait(self, timeout_s: float | None = None) -> Status:
        """Wait until it has ended, is held or stopped, or nothing is left to run it; return that.

        Raises:
            TimeoutError: It has not within so many seconds; it goes on.
        """
        *_, last = self._watch(timeout_s)
        return last

    def _watch(self, timeout_s: float | None = None) -> Iterator[Status]:
        """Yield its status every second until it is over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for status in until_over(self._look, self._view.every_s):
            yield status
            if deadline is not None and time.monotonic() > deadline and not status.is_over:
                raise TimeoutError(f"{self.name} has not ended within {timeout_s:g} s; it goes on")

    def _look(self) -> Status:
        with self._db.patient(PATIENCE_S):
            return self.status()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield each trial once it has ended: number, state, value(s), params, reason."""
        told: set[int] = set()
        for _ in self._watch():
            for record in self._ended(told):
                told.add(record["trial"])
                yield record

    def _ended(self, told: set[int]) -> list[dict[str, Any]]:
        ledger = self._opened.ledger
        found = ledger.db.retry(
            lambda db: records.read_trials(db, ledger.study_id, self.study, metrics=False)
        )
        return [
            {
                "trial": record.number,
                "state": record.state,
                "value": record.values[0] if len(record.values) == 1 else None,
                "values": list(record.values),
                "params": dict(record.params),
                "reason": record.reason,
            }
            for record in found
            if record.state in outcomes.FINAL_STATES and record.number not in told
        ]

    def stop(
        self, trials: Sequence[int] | int | None = None, *, drain: bool = False, now: bool = False
    ) -> list[str]:
        """Stop the study, or cancel single trials of it; return what became of them.

        Args:
            trials: Their numbers; the whole study when None.
            drain: Let the running trials end.
            now: Without ``grace``.
        """
        if trials is not None:
            if drain:
                raise InputError("drain stops the whole study, and trials single ones: give one.")
            numbers = (trials,) if isinstance(trials, int) else tuple(trials)
            choice = TrialChoice(ranges=tuple((n, n) for n in numbers))
            said = cancel_trials.cancel(self._opened, self._schedule, choice, now=now)
            return [f"trial {number}: {what}" for number, what in said]
        by = "by `stop()` in Python"
        stop_study(self._opened.ledger, self._schedule, by, drain=drain, now=now)
        return []

    def add(self, points: Sequence[Mapping[str, Any]]) -> list[int]:
        """Add a trial for each configuration; return their numbers. N grows by as many.

        Tasks that are at work take them. Where none is, it is warned of: ``sweep.launch`` with the
        same study goes on.

        Raises:
            InputError: A point is none of the space's, or the study has ended early.
        """
        added = add_points.add(self._opened, self._runs, self._schedule, points)
        self._db.close()
        self._use(open_study(self._runs, self.name))
        if added.state.word != RUNNING or not added.has_array:
            which = retrying.name_trials(added.numbers)
            text = f"No task is there to run {which} of {self.name}: sweep.launch(…) goes on."
            warnings.warn(text, stacklevel=2)
        return list(added.numbers)

    def logs(self, trial: int) -> str:
        """Return what a trial's training has printed, attempt after attempt.

        Raises:
            InputError: There is no such trial.
        """
        ledger = self._opened.ledger
        found = ledger.db.retry(lambda _: ledger.find_trial(trial))
        if found is None:
            raise InputError(f"{self.name} has no trial {trial}.")
        return "".join(log_text(self._opened, trial, lambda: attempts_of(ledger, found[0])))

    def rerun_best(
        self, trial: int | None = None, *, tolerance: float = DEFAULT_TOLERANCE
    ) -> Verdict:
        """Run the best trial again, from nothing, wait for it, and say whether it reproduced.

        Args:
            trial: Another one than the best.
            tolerance: Relative difference that still counts as reproduced.

        Raises:
            InputError: There is no complete trial, or its code, image or data are gone.
        """
        opened, schedule = self._opened, self._schedule
        number, trial_id, _ = rerun.choose_trial(opened, trial)
        rerun.refresh(opened, schedule)
        known = rerun.newest(opened, number, untold=True)
        numbers = [run.k for run in known]
        if not known:
            plan = rerun.plan(opened.ledger, number, trial_id)
            numbers = rerun.submit(opened, schedule, os.environ, plan, [number])
        rerun.wait(opened, schedule, numbers)
        return judge(opened, numbers[0], tolerance)


def launch(
    study: GivenStudy | Mapping[str, Any] | Callable[..., Any] | str | os.PathLike[str],
    *,
    wait: bool = False,
    runs: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = lambda _: None,
    **keys: Any,
) -> StudyHandle:
    """Launch a study, or go on with it, as ``sweep launch`` does.

    Args:
        study: The path of a study file; a ``Study`` or dict with the keys of one; or a function,
            which is called with a dict of a trial's values and, where it takes two arguments, a
            ``Reporter``.
        wait: Wait until it is over.
        runs: The runs folder; $SWEEP_RUNS, else ./runs, when None.
        say: Told what takes long.
        keys: Further keys of a study file, which win over the study's. ``objective`` may be a
            metric's name beside ``direction``.

    Raises:
        StudyFileError: With all problems of the keys.
        InputError: The function cannot be found by a training, or this is one.
        SweepError: As ``sweep launch`` refuses.
    """
    if TASK_VARIABLE in os.environ:
        raise InputError(
            "sweep.launch was called within a training: it would launch itself for ever.",
            'Put the call under: if __name__ == "__main__":',
        )
    where = Runs(runs_folder(runs))
    undecided = load_file(*as_file(study, plain(keys), where))
    decided = resolve(undecided)

    def schedule_for(folder: StudyFolder) -> Scheduler:
        return scheduler_of(folder, decided)

    launched = launch_study(decided, where, schedule_for, os.environ, say, undecided=undecided)
    handle = StudyHandle(open_study(where, decided.name), where, launched)
    if wait:
        handle.wait()
    return handle


def load(name: str | None = None, runs: str | os.PathLike[str] | None = None) -> StudyHandle:
    """Open a study that was launched; Args and Raises as ``sweep.load``'s."""
    where = Runs(runs_folder(runs))
    return StudyHandle(open_study(where, name), where)
