"""Show where a study stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from sweep.cli.common import (
    get_runs,
    json_option,
    leaving_study,
    open_study,
    runs_option,
    scheduler_view,
    study_argument,
)
from sweep.results.live import watch as watch_view
from sweep.results.plain_lines import is_plain, status_lines
from sweep.results.running_table import SHOWN
from sweep.results.status import snapshot
from sweep.results.terminal import status_panel

if TYPE_CHECKING:
    from sweep.results.status import Status


PATIENCE_S = 10.0  # for a database that is away: who looks wants to know
ASK_EVERY_S = 2.0  # local: reading a small file; a cluster's queue is asked less often


@click.command(epilog="\b\nExamples:\n  sweep status\n  sweep status digits --watch\n")
@study_argument
@click.option("--watch", is_flag=True, help="Stay and renew the view until the study has ended.")
@click.option("--all", "all_running", is_flag=True, help="Show every running trial, not only some.")
@json_option
@runs_option
def status(
    study: str | None, watch: bool, all_running: bool, as_json: bool, runs: Path | None
) -> None:
    """Show where a study stands: counts, best, what runs and how far it is, failures, its end.

    Into a pipe it prints plain lines, each with its label first.
    """
    opened = open_study(get_runs(runs), study)
    view = scheduler_view(opened)
    shown = None if all_running else SHOWN

    def look(gpus_of: int | None = None) -> Status:
        scheduler = view.ask()
        with opened.ledger.db.patient(PATIENCE_S):
            return snapshot(opened.ledger, opened.folder, **scheduler, shown=gpus_of)

    if as_json:
        click.echo(look().to_json())
    elif watch:
        with leaving_study(opened, "sweep status"):
            watch_view(lambda: look(shown), ASK_EVERY_S, shown=shown)
    elif is_plain(console := Console()):
        for line in status_lines(look()):
            click.echo(line)
    else:
        console.print(status_panel(look(shown), shown))
