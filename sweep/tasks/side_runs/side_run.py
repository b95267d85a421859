"""One training beside the study's trials: a re-run, a further command, a case of a scaling study.

It has an attempt's files in a folder of its own, and is supervised like an attempt; no trial is
claimed for it.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from sweep.control import job_owners
from sweep.control.open_study import Opened
from sweep.core import outcomes
from sweep.core.errors import SweepError
from sweep.core.files import write_atomic
from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.core.scheduler import ArrayJob, Scheduler
from sweep.core.study import Study
from sweep.core.system import processes
from sweep.core.trial import End, Place, Reading, Report
from sweep.provenance import snapshot as code_snapshot
from sweep.storage import reruns
from sweep.storage.claims import read_params
from sweep.storage.ledger import Ledger
from sweep.storage.reruns import Rerun
from sweep.tasks.context import Context, config_of
from sweep.tasks.staging.stage import Staged, Stager
from sweep.training import own_workdir, ready
from sweep.training.attempt_files import make_folder, write_exit
from sweep.training.command import assembly, filling, launchers
from sweep.training.command.environment import TrialValues
from sweep.training.command.rendezvous import Rendezvous
from sweep.training.exit_reason import read_end
from sweep.training.journal import Journal
from sweep.training.leave import Leave
from sweep.training.supervisor import Channel, Observer, Supervisor

T = TypeVar("T")

AWAY_PATIENCE_S = 600.0  # for a database that is away when the task begins
END_PATIENCE_S = 3600.0  # and when its result is to be kept


def ask(ledger: Ledger, question: Callable[..., T], *arguments: Any) -> T:
    """Ask something of the table of re-runs: one of ``reruns``' functions, with the study's id."""
    return ledger.db.retry(lambda db: question(db, ledger.study_id, *arguments))


def params_of(ledger: Ledger, trial_id: int) -> dict[str, Any]:
    """Return what a trial trains with: its parameters and the fixed values."""
    study = ledger.study
    stored = ledger.db.retry(lambda db: read_params(db, [trial_id]))
    return {**study.space.from_optuna(stored.get(trial_id, {})), **study.fixed}


def submit_requested(
    ledger: Ledger, schedule: Scheduler, job: ArrayJob, runs: Sequence[int]
) -> None:
    """Submit the array of requested runs, and note its job on each.

    Raises:
        SchedulerError: The scheduler refused; none of the runs stays requested.
    """
    try:
        job_id = schedule.submit(job)
    except SweepError:
        for k in runs:
            ask(ledger, reruns.remove, k)
        raise
    for k in runs:
        ask(ledger, reruns.set_job, k, job_id, schedule.name)


def stop_all(opened: Opened, schedule: Scheduler) -> int:
    """Have the scheduler end the study's re-runs and further commands; return how many lived.

    Their tasks, or whoever looks next, write how they ended.

    Raises:
        SchedulerError: The scheduler refused.
        CouldNotAsk: It does not answer.
    """
    live = [run for run in ask(opened.ledger, reruns.read_all) if run.outcome is None and run.job]
    for job, executor in dict.fromkeys((run.job, run.executor) for run in live):
        owner = job_owners.named(executor, opened.folder, opened.study, schedule)
        owner.cancel(cast(str, job))
    return len(live)


def claim(context: Context, k: int, name: str) -> tuple[Rerun, str, AttemptFolder]:
    """Return a requested run, the token that it now has, and its folder, made anew.

    Args:
        name: What it is called in the error.

    Raises:
        SweepError: It is not there, or somebody else runs it.
    """
    token = secrets.token_hex(16)
    with context.ledger.db.patient(AWAY_PATIENCE_S):
        row = ask(context.ledger, reruns.claim, k, token, socket.gethostname())
    if row is None:
        raise SweepError(f"{name} {k} is not to be run: it has ended, or somebody runs it.")
    folder = context.folder.rerun(k)
    # One with this number may be there, of a database that is gone.
    for moved in make_folder(folder, token, later_too=False):
        context.say(f"a folder of a forgotten run is now {moved}")
    return row, token, folder


def write_values(
    study: Study,
    folder: AttemptFolder,
    token: str,
    *,
    number: int,
    seed: int,
    params: Mapping[str, Any],
    run: str,
    config: Path | None = None,
    resume: Path | None = None,
) -> TrialValues:
    """Return the values of a run's command, its config file written.

    Args:
        number: Of the trial.
        run: Its id, as ``context.logged_as`` makes it.
        config: Path of the config file; in the run's folder when None.
        resume: Checkpoint that it gets.
    """
    values = TrialValues.within(
        folder,
        config=filling.config_path(study, config or folder.root / "config.yaml"),
        params=dict(params),
        seed=seed,
        token=token,
        number=number,
        resume=resume,
        run=run,
        data=study.data_paths,
    )
    for path, text in filling.config_files(study, values.config, config_of(study, values)).items():
        write_atomic(path, text)
    return values


def train(
    study: Study,
    values: TrialValues,
    folder: AttemptFolder,
    journal: Journal,
    environ: Mapping[str, str],
    place: Place,
    python_path: Path,
    leave: Leave,
    touch: Callable[[int], object] = lambda _: None,
    more_environ: Mapping[str, str] | None = None,
    within: StudyFolder | None = None,
    began: Callable[[Sequence[str]], object] = lambda _: None,
    watch: Callable[[int], Observer | None] = lambda _: None,
) -> tuple[list[Report], End]:
    """Run the study's command to its end; return what it reported, and how it ended.

    Args:
        environ: What training inherits.
        python_path: As for ``command.build``.
        touch: Told the process group now and then, for others to see that it runs.
        more_environ: Variables for this training alone.
        within: The study's folder, where it has one; by it data sets are staged.
        began: Told the argv once its process has started.
        watch: Given its process's number, returns what looks at it.
    """
    reports: list[Report] = []
    meeting: Rendezvous | None = None
    staged: Staged | None = None
    # Else the task would die of the signal, and ranks in sessions of their own would outlive it.
    leave.folder = folder
    leave.listen()
    try:
        meeting = launchers.meet(study, environ, place.job, place.index, place.slot)
        ready.make_ready(study, environ, print)
        if within is not None and any(one.stage != "none" for one in study.datasets.values()):
            # What has changed since the launch is explained at the end, and hinders nothing.
            stager = Stager(study, within, environ, print, is_strict=False)
            staged = stager.stage(values.data, lambda: leave.wanted)
            values = replace(values, data=staged.data)
        laid = own_workdir.lay(study, environ, folder)
        argv, env = assembly.build(laid.study, values, laid.environ, python_path, meeting)
        env = {**env, **(more_environ or {})}
        locks = staged.locks if staged else ()
        child = processes.spawn(argv, cwd=laid.cwd, env=env, stdout=folder.log, inherited=locks)
    except SweepError as error:
        return reports, End(outcomes.NOT_STARTED, error.message)
    else:
        started = time.monotonic()
        began(argv)
        channel = _Kept(reports, lambda: touch(child.pid))
        supervisor = Supervisor(
            child,
            values.token,
            folder,
            study,
            journal,
            channel,
            leave,
            began=started,
            watch=watch(child.pid),
        )
        ended = supervisor.run()
        reports.extend(supervisor.unsent)
        reports.extend(journal.rest())
        end = read_end(study, folder, ended.exit_code, ended.signal, ended.told)
        write_exit(folder, end.exit_code, end.signal, ended.told)
        own_workdir.tidy(folder)
        return reports, end
    finally:
        if meeting is not None:
            meeting.close()
        if staged is not None:
            staged.close()


class _Kept(Channel):
    """Keeps a side run's reports, for its caller to store; nobody judges it or asks it to leave."""

    def __init__(self, reports: list[Report], touch: Callable[[], object]) -> None:
        self.reports = reports
        self._touch = touch

    def record(self, reports: Sequence[Report], reading: Reading) -> None:
        self.reports.extend(reports)

    def touch(self) -> str:
        self._touch()
        return ""


def train_claimed(
    context: Context,
    study: Study,
    values: TrialValues,
    folder: AttemptFolder,
    journal: Journal,
    snapshot: str | None,
) -> tuple[list[Report], End]:
    """Run a claimed run's command as ``train`` does, in its task's place.

    Args:
        snapshot: The frozen code that it runs; None for the live code.
    """
    db = context.ledger.db
    placed = code_snapshot.place(study, context.folder, snapshot, context.environ)
    return train(
        placed.study,
        values,
        folder,
        journal,
        placed.environ,
        context.place,
        context.folder.python_path,
        Leave(
            context.term_wait_s,
            float(study.grace_s),
            context.end_time_s,
            term_follows=context.others_end_it,
        ),
        lambda group: db.retry(lambda db: reruns.touch(db, values.token, group), patience_s=0.0),
        within=context.folder,
    )
