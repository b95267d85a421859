"""Remove losers' checkpoints, old attempts and unused images."""

from __future__ import annotations

from pathlib import Path

import click

from sweep.cli.common import (
    confirm_removal,
    get_runs,
    open_study,
    runs_option,
    scheduler_for,
    study_argument,
)
from sweep.control import cleaning
from sweep.control.alone import keep_launches_away
from sweep.core.sizes import byte_text
from sweep.core.terminal_text import visible
from sweep.tasks.side_runs import rerun

SHOWN = 12


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep clean --dry-run\n"
    "  sweep clean digits\n"
    "  sweep clean digits --yes"
)
@study_argument
@click.option("--dry-run", is_flag=True, help="Show what would go; remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@runs_option
def clean(study: str | None, dry_run: bool, yes: bool, runs: Path | None) -> None:
    """Remove what is not needed: losers' checkpoints, old attempts, unused images.

    Of trials that have ended and are neither among the best `keep` nor what failed last: their
    checkpoints, and the attempts before the last, with their logs. Results stay. What runs, may go
    on or is being trained again is left alone, and so are images that any study here names.
    """
    where = get_runs(runs)
    opened = open_study(where, study)
    with keep_launches_away(where, opened.study.name, opened.ledger.db.url):
        rerun.refresh(opened, scheduler_for(opened.study)(opened.folder))
        items = cleaning.of_study(opened)
        images, notes = cleaning.of_images(where)
        items += images
        for note in notes:
            click.echo(f"note: {note}", err=True)
        if not items:
            click.echo(f"study {opened.study.name}: nothing to clean")
            return
        _show(items)
        if dry_run:
            click.echo("nothing was removed")
            return
        if not yes:
            confirm_removal("Give --yes to remove that.")
        gone = sum(item.size for item in cleaning.carry_out(items))
    click.echo(f"study {opened.study.name}: {byte_text(gone)} removed")


def _show(items: list[cleaning.Item]) -> None:
    for kind in (cleaning.CHECKPOINTS, cleaning.ATTEMPTS, cleaning.IMAGES):
        mine = sorted((item for item in items if item.kind == kind), key=lambda item: -item.size)
        if not mine:
            continue
        click.echo(f"{kind}: {len(mine)}, {byte_text(sum(item.size for item in mine))}")
        for item in mine[:SHOWN]:
            click.echo(f"  {byte_text(item.size):>8}  {visible(item.what)}")
        if len(mine) > SHOWN:
            click.echo(f"  {'…':>8}  and {len(mine) - SHOWN} more")
    click.echo(f"in all {byte_text(sum(item.size for item in items))}")
