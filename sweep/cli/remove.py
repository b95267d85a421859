"""Remove a study: its rows in the database, and its folder."""

from __future__ import annotations

from pathlib import Path

import click

from sweep.cli import suggest
from sweep.cli.common import confirm_removal, get_runs, runs_option, scheduler_for
from sweep.control import removal
from sweep.core.errors import BusyError
from sweep.core.sizes import byte_text
from sweep.results.counts import count_trials, counted
from sweep.storage import reruns
from sweep.tasks.side_runs import rerun


@click.command(epilog="\b\nExamples:\n  sweep remove digits\n  sweep remove digits --yes")
@click.argument("study", shell_complete=suggest.studies)
@click.option("--yes", is_flag=True, help="Do not ask.")
@runs_option
def remove(study: str, yes: bool, runs: Path | None) -> None:
    """Remove a study: its trials in the database, and its folder with logs and checkpoints.

    Refused while anything of it runs, or where nobody can say whether it does. Only what carries
    this study's mark is touched, and no symbolic link is followed. Killed in between, the same
    command goes on. Images, the database's server and other studies stay.
    """
    where = get_runs(runs)
    with removal.found(where, study) as there, removal.alone(there):
        removal.refuse_if_busy(there)
        _refuse_reruns(there)
        if not yes:
            _ask(there)
        removal.carry_out(there)
    click.echo(f"study {study}: removed")


def _refuse_reruns(there: removal.Removal) -> None:
    opened = removal.opened(there)
    if opened is None:
        return
    rerun.refresh(opened, scheduler_for(opened.study)(opened.folder))
    known = opened.ledger.db.retry(lambda db: reruns.read_all(db, opened.ledger.study_id))
    live = [one for one in known if one.outcome is None]
    if live:
        raise BusyError(
            f"The study {there.name!r} is not removed: re-run {live[0].k} of trial "
            f"{live[0].trial} is at work.",
            "Wait for it, or cancel its job; then give the command again.",
        )


def _ask(there: removal.Removal) -> None:
    if there.ledger is not None:
        trials = count_trials(sum(there.counts.values()))
        click.echo(f"in {there.where}: {trials} ({counted(there.counts)})")
    elif there.where:
        click.echo(f"in {there.where}: nothing (any more)")
    else:
        click.echo("its database is gone")
    if there.has_folder:
        click.echo(f"{there.folder.root}: {byte_text(there.files_bytes())}")
    else:
        left = byte_text(there.files_bytes()) if there.leftovers else "gone already"
        click.echo(f"{there.folder.root}: {left}")
    confirm_removal("Give --yes to remove that for good.")
