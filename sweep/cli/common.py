"""What several commands share: options, opening a study, its scheduler and its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sweep.errors import CouldNotAsk
from sweep.paths import Runs, StudyFolder, runs_folder
from sweep.scheduler import Scheduler, Task, TaskState
from sweep.study import Study

if TYPE_CHECKING:
    from sweep.launch import Opened

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
    from sweep.launch import open_study as open_by_name

    if name and name.endswith((".yaml", ".yml")) and Path(name).is_file():
        from sweep.studyfile import load

        name = load(Path(name)).name
    opened = open_by_name(runs, name)
    if opened.study.executor == "slurm":
        leave_no_server(opened)
    return opened


def leave_no_server(opened: Opened) -> None:
    """On a cluster, let no server of this command's outlive it; a job serves the database."""
    import atexit

    from sweep.access import EmbeddedDatabase, stop_if_unused

    db = opened.ledger.db

    def stop() -> None:
        db.close()
        if isinstance(db, EmbeddedDatabase):
            stop_if_unused(opened.folder)

    atexit.register(stop)


def scheduler_for(study: Study) -> Callable[[StudyFolder], Scheduler]:
    """Return what gives a study's folder its scheduler."""
    from sweep.executors import scheduler_of

    return lambda folder: scheduler_of(folder, study)


def poll_tasks(
    opened: Opened, schedule: Scheduler, patience_s: float = 20.0
) -> Mapping[Task, TaskState] | None:
    """Return the states of a study's tasks; None when the scheduler does not answer.

    Args:
        patience_s: How long a database that is away is waited for.
    """
    from sweep.storage import studies

    ledger = opened.ledger
    waves = ledger.db.retry(
        lambda db: studies.read_waves(db, ledger.study_id), patience_s=patience_s
    )
    jobs = [wave.job for wave in waves if wave.job and not wave.over]
    try:
        return schedule.poll(jobs) if jobs else {}
    except CouldNotAsk:
        return None


def read_notes(opened: Opened, schedule: Scheduler) -> list[str]:
    """Return what a user should know of the study's waves."""
    from sweep import waves

    try:
        return waves.notes(opened.ledger, schedule)
    except CouldNotAsk as error:
        return [f"the scheduler does not answer: {error.message}"]


def look_after(
    opened: Opened, schedule: Scheduler, unseen_s: float, patience_s: float = 60.0
) -> None:
    """Reconcile, as every command that looks at a study does."""
    from sweep.reconcile import reconcile

    reconcile(
        opened.ledger, opened.folder, schedule, unseen_s=unseen_s, every_s=10.0,
        patience_s=patience_s,
    )  # fmt: skip
