"""What several commands share: options, opening a study, its scheduler and its tasks."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from rich.console import Console

from sweep.control import finaliser
from sweep.control import look_after as lookout
from sweep.control.open_study import open_study as open_by_name
from sweep.core.errors import EXIT_INTERRUPTED, CouldNotAsk
from sweep.core.executors import kind_of
from sweep.core.paths import Runs, StudyFolder, runs_folder
from sweep.core.scheduler import ENDED, Scheduler
from sweep.core.study import Study
from sweep.schedulers.choose import scheduler_of
from sweep.storage import studies
from sweep.storage.access import EmbeddedDatabase, stop_if_unused
from sweep.studyfile import load
from sweep.tasks.side_runs import rerun

if TYPE_CHECKING:
    from sweep.control.open_study import Opened

QUEUE_EVERY_S = 30.0

F = TypeVar("F", bound=Callable[..., Any])


def runs_option(command: F) -> F:
    """Add ``--runs``."""
    return click.option(
        "--runs",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder for everything of a study [default: $SWEEP_RUNS or ./runs].",
    )(command)


def study_argument(command: F) -> F:
    """Add the optional STUDY."""
    return click.argument("study", required=False)(command)


def json_option(command: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def get_runs(given: Path | None) -> Runs:
    return Runs(runs_folder(given))


def open_study(runs: Runs, name: str | None) -> Opened:
    """Open a study by name; the path of its study file serves as well."""
    if name and name.endswith((".yaml", ".yml")) and Path(name).is_file():
        name = load(Path(name)).name
    opened = open_by_name(runs, name)
    if not kind_of(opened.study).shares_this_machine:
        leave_no_server(opened)
    return opened


def leave_no_server(opened: Opened) -> None:
    """On a cluster, let no server of this command's outlive it; a job serves the database."""
    db = opened.ledger.db

    def stop() -> None:
        db.close()
        if isinstance(db, EmbeddedDatabase):
            stop_if_unused(opened.folder)

    atexit.register(stop)


def scheduler_for(study: Study) -> Callable[[StudyFolder], Scheduler]:
    """Return what gives a study's folder its scheduler."""
    return lambda folder: scheduler_of(folder, study)


class Queue:
    """What the scheduler says of a study, which is looked after on the way; now and then only.

    A view that stays reads the database all the time; a cluster's queue belongs to everybody.

    Args:
        unseen_s: Attempts that have been silent for so long are looked after.
        patience_s: For a database that is away.
    """

    def __init__(
        self,
        opened: Opened,
        schedule: Scheduler,
        unseen_s: float = 120.0,
        patience_s: float = 60.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.opened = opened
        self.schedule = schedule
        self.unseen_s = unseen_s
        self.patience_s = patience_s
        self.now_s = now_s
        self.every_s = 0.0 if schedule.is_cheap_to_ask else QUEUE_EVERY_S
        self._answer: dict[str, Any] = {}
        self._asked = float("-inf")

    def ask(self) -> Mapping[str, Any]:
        """Return ``tasks``, ``notes`` and ``coming`` as ``status.snapshot`` takes them."""
        if self.now_s() - self._asked >= self.every_s:
            self._answer = self._ask()
            self._asked = self.now_s()
        return self._answer

    def _ask(self) -> dict[str, Any]:
        ledger, schedule = self.opened.ledger, self.schedule
        look_after(self.opened, schedule, self.unseen_s, self.patience_s)
        waves = ledger.db.retry(
            lambda db: studies.read_waves(db, ledger.study_id), patience_s=self.patience_s
        )
        jobs = [wave.job for wave in waves if wave.job and not wave.over]
        try:
            tasks = schedule.poll(jobs) if jobs else {}
            has_task = any(task.state != ENDED for task in tasks.values())
            beside = finaliser.look_beside(ledger, schedule)
            return {
                "tasks": tasks,
                "notes": finaliser.notes(ledger, beside),
                "coming": "" if has_task else finaliser.coming(beside),
            }
        except CouldNotAsk as error:
            said = f"the scheduler does not answer: {error.message}"
            return {"tasks": None, "notes": [said], "coming": ""}


def look_after(
    opened: Opened, schedule: Scheduler, unseen_s: float, patience_s: float = 60.0
) -> None:
    """Reconcile and tend the study's jobs, as every command that looks at a study does."""
    lookout.look_after(
        opened.ledger,
        opened.folder,
        schedule,
        lambda text: click.echo(text, err=True),
        unseen_s=unseen_s,
        every_s=10.0,
        patience_s=patience_s,
    )


def leave(look: str, study: str) -> NoReturn:
    """Say after Ctrl-C that a study goes on, and how to see and how to end it; exit."""
    click.echo(
        f"\nYou left; the study goes on without you. See it: {look}\nEnd it: sweep stop {study}",
        err=True,
    )
    raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def wait_side_runs(
    opened: Opened, schedule: Scheduler, numbers: Sequence[int], what: str, again: str
) -> None:
    """Wait for re-runs and their like, showing how many are left; Ctrl-C leaves them running.

    Args:
        what: What is shown.
        again: A sentence on how the result is had after Ctrl-C.
    """

    def show(live: int) -> None:
        shown.update(what if len(numbers) == 1 else f"{what}: {live} of {len(numbers)} left")

    try:
        with Console(stderr=True).status(what) as shown:
            rerun.wait(opened, schedule, numbers, show)
    except KeyboardInterrupt:
        click.echo(f"\nYou left; it goes on. {again}", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
