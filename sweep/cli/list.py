"""List the studies of a database: state, age, counts, folder."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sweep.cli.common import get_runs, json_option, runs_option
from sweep.control import known_databases
from sweep.core import outcomes
from sweep.core.errors import EXIT_DONE, EXIT_FAILED, InputError
from sweep.core.terminal_text import visible
from sweep.core.times import span
from sweep.results.overview import StudyLine, read_overview
from sweep.storage.url import normalise


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep list\n"
    "  sweep list --json | jq -r '.[] | select(.state == \"held\") | .name'\n"
    "  sweep list --storage postgresql://me@db.example.org/sweep"
)
@click.option(
    "--storage",
    metavar="URL",
    help="Only of this database [default: $SWEEP_STORAGE, and all that the runs folder knows].",
)
@json_option
@runs_option
def list(storage: str | None, as_json: bool, runs: Path | None) -> int:
    """List all studies of a database: state, age, counts, folder.

    From the databases alone, so that it is quick: `sweep status STUDY` also asks the scheduler.
    A folder that is gone is marked; `sweep remove STUDY` removes what is left.
    """
    where = get_runs(runs)
    places = known_databases.known(where)
    if storage is not None:
        places = [known_databases.KnownDatabase(normalise(storage))]
    if not places:
        raise InputError(
            f"No database is known in {where.root}.",
            "Launch a study first, name another folder with --runs, or a database with --storage.",
        )
    lines, problems = read_overview(places)
    for problem in problems:
        click.echo(problem, err=True)
    if as_json:
        flat = [line.to_dict() for each in lines.values() for line in each]
        click.echo(json.dumps(flat, indent=2, ensure_ascii=False))
    else:
        for place_name, each in lines.items():
            _show(place_name, each, heading=len(lines) > 1)
    return EXIT_FAILED if problems else EXIT_DONE


def _show(place: str, lines: tuple[StudyLine, ...], *, heading: bool) -> None:
    if heading:
        click.echo(f"{place}:")
    if not lines:
        click.echo("no studies")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("STUDY", "STATE", "ENDED", "TRIALS", "AGE", "FOLDER"):
        table.add_column(name, overflow="fold", no_wrap=name != "FOLDER")
    now = time.time()
    for line in lines:
        done = sum(line.counts[state] for state in outcomes.FINAL_STATES)
        counts = ", ".join(f"{n} {state}" for state, n in line.counts.items() if n)
        folder = visible(line.folder or "")
        if line.mark:
            folder = f"{folder} ({line.mark})" if folder else f"({line.mark})"
        since = line.launched if line.launched is not None else line.active
        table.add_row(
            escape(visible(line.name)),
            line.state,
            f"{done}/{line.trials}",
            counts,
            "" if since is None else span(max(0.0, now - since), rough=True),
            escape(folder),
        )
    console = Console(soft_wrap=False)
    console.print(table)
    for line in lines:
        if line.reason:
            click.echo(f"{visible(line.name)}: {visible(line.reason)}")
