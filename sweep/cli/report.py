"""Make a page of a study, for any browser, without network."""

from __future__ import annotations

from pathlib import Path

import click

from sweep.cli.common import get_runs, open_study, runs_option, scheduler_view, study_argument
from sweep.control.slurm_energy import note_tasks
from sweep.results.page import write


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep report\n"
    "  sweep report digits -o digits.html\n"
    "  sweep report digits --figures pictures --figure-format svg"
)
@study_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file [default: runs/<name>/results/report.html].",
)
@click.option(
    "--figures",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the charts as pictures into this folder as well.",
)
@click.option(
    "--figure-format",
    "formats",
    multiple=True,
    type=click.Choice(["png", "svg"]),
    help="Of the pictures; repeatable [default: both].",
)
@runs_option
def report(
    study: str | None,
    output: Path | None,
    figures: Path | None,
    formats: tuple[str, ...],
    runs: Path | None,
) -> None:
    """Make one HTML file of a study: what ran, the winner and how to run it again, its course,
    curves, parameters, failures, and what it cost.

    The file needs no network and nothing beside it: send it, archive it, print it.
    """
    opened = open_study(get_runs(runs), study)
    view = scheduler_view(opened)
    scheduler = view.ask()
    note_tasks(opened.ledger, view.schedule)
    for path in write.report(opened, output, figures, formats or ("png", "svg"), scheduler):
        click.echo(f"wrote {path}")
