"""What several commands share: options, opening a study, its scheduler and its tasks."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sweep.cli import suggest
from sweep.control.look_after import look_after
from sweep.control.open_study import open_study as open_by_name
from sweep.control.scheduler_view import TURN_EVERY_S, UNSEEN_S, SchedulerView
from sweep.core.errors import InputError, LeftRunning, SweepError
from sweep.core.executors import kind_of
from sweep.core.masking import mask
from sweep.core.numbers import whole
from sweep.core.paths import Runs, StudyFolder, runs_folder
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study
from sweep.schedulers.choose import scheduler_of
from sweep.storage.access import EmbeddedDatabase, stop_if_unused
from sweep.studyfile import load

if TYPE_CHECKING:
    from sweep.control.open_study import Opened

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
    return click.argument("study", required=False, shell_complete=suggest.studies)(command)


def study_and_trial_argument(command: F) -> F:
    """Add the optional STUDY and TRIAL, which ``read_study_and_trial`` reads."""
    return click.argument(
        "study_and_trial",
        metavar="[STUDY] [TRIAL]",
        nargs=-1,
        shell_complete=suggest.study_and_trial,
    )(command)


def overrides_option(command: F) -> F:
    """Add ``--set``."""
    return click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the file."
    )(command)


def cpu_option(command: F) -> F:
    """Add ``--cpu``."""
    return click.option(
        "--cpu",
        is_flag=True,
        help="Without GPUs (on a laptop, say), as a study of its own: NAME-cpu.",
    )(command)


def patience_option(command: F) -> F:
    """Add ``--patience``, of a command that has ``--on-node``."""
    return click.option(
        "--patience",
        type=click.IntRange(1),
        default=1800,
        show_default=True,
        metavar="SECONDS",
        help="With --on-node: wait so long for the job to start.",
    )(command)


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


def scheduler_view(opened: Opened, *, unseen_s: float = UNSEEN_S) -> SchedulerView:
    """Return what the scheduler says of a study while a command looks at it."""
    schedule = scheduler_for(opened.study)(opened.folder)
    return SchedulerView(opened, schedule, _say, unseen_s=unseen_s)


def look_once(opened: Opened, schedule: Scheduler) -> None:
    """Look after the study, as every command that looks at one does."""
    look_after(opened.ledger, opened.folder, schedule, _say, every_s=TURN_EVERY_S)


def say_progress(text: str) -> None:
    """Say what a command is at, beside its answer."""
    click.echo(mask(f"… {text}"), err=True)


def confirm_removal(otherwise: str) -> None:
    """Ask whether what was shown is to be removed.

    Args:
        otherwise: What to do where nobody is there to be asked.

    Raises:
        InputError: Nobody is there.
        SweepError: The answer is no.
    """
    if not sys.stdin.isatty():
        raise InputError("Nobody is there to be asked.", otherwise)
    if not click.confirm("Remove that for good?"):
        raise SweepError("Nothing was removed.")


def _say(text: str) -> None:
    click.echo(mask(text), err=True)


@contextmanager
def leaving(said: str, what_then: str = "") -> Iterator[None]:
    """Say after Ctrl-C, of what goes on without the user, how to see and how to end it."""
    try:
        yield
    except KeyboardInterrupt:
        raise LeftRunning(said, what_then) from None


def leaving_study(opened: Opened, look: str) -> Any:
    """Say after Ctrl-C that the study goes on.

    Args:
        look: The command that shows it.
    """
    return leaving(
        f"You left; the study goes on without you. See it: {look}",
        f"End it: sweep stop {opened.study.name}",
    )


def read_study_and_trial(words: tuple[str, ...]) -> tuple[str | None, int | None]:
    """Return a study's name and a trial's number, of what was given."""
    names = list(words)
    number = whole(names[-1]) if names else None
    if number is not None:
        names.pop()
    if len(names) > 1:
        raise InputError(
            f"TRIAL must be a trial's number (got {names[1]!r})."
            if number is None
            else "There are too many words.",
            "Give a trial's number, and the study's name before it.",
        )
    return (names[0] if names else None), number
