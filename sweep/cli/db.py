"""Start, stop and show the embedded database of a runs folder."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sweep.cli.common import get_runs, json_option, runs_option
from sweep.control.stop_database import stop_database
from sweep.core.errors import SweepError
from sweep.core.files import make_runs_folder
from sweep.storage.embedded import server, start_stop
from sweep.storage.embedded.server import running


@click.group(
    epilog="\b\nExamples:\n  sweep db status\n  sweep db stop\n"
    "  optuna-dashboard $(sweep db url)\n  psql $(sweep db url --psql)"
)
def db() -> None:
    """Start, stop and show the embedded PostgreSQL server of a runs folder.

    Commands start it by themselves when they need it, and it ends when nobody has used it for a
    while. With `storage:` or $SWEEP_STORAGE there is none.
    """


@db.command()
@runs_option
def start(runs: Path | None) -> None:
    """Start the server.

    Commands start it by themselves when they need it.
    """
    where = get_runs(runs)
    make_runs_folder(where.root)
    server = start_stop.start(where.postgres)
    click.echo(f"running at {server.url(masked=True)}")


@db.command(name="stop")
@runs_option
def stop_server(runs: Path | None) -> None:
    """Stop what serves the database, jobs too; the data stay.

    Tasks that are queued or run bring it back: end their studies first (sweep stop STUDY).
    """
    was_there = stop_database(get_runs(runs), lambda text: click.echo(f"… {text}", err=True))
    click.echo("stopped" if was_there else "it was not running")


@db.command(name="status")
@json_option
@runs_option
def server_status(as_json: bool, runs: Path | None) -> None:
    """Show whether the server runs, and where."""
    found = server.status(get_runs(runs).postgres)
    if as_json:
        click.echo(json.dumps(found, indent=2, default=str))
        return
    for key, value in found.items():
        click.echo(f"{key:<14} {value}")


@db.command()
@click.option("--password/--no-password", default=True, help="With the password in it.")
@click.option("--psql", is_flag=True, help="As PostgreSQL's own programs take it.")
@runs_option
def url(password: bool, psql: bool, runs: Path | None) -> None:
    """Print the server's URL, for Optuna and its dashboard.

    Starts the server if need be.
    """
    where = get_runs(runs)
    server = running(where.postgres)
    if server is None:
        if not where.postgres.exists():
            raise SweepError(
                f"{where.root} has no embedded database yet.", "sweep launch, or sweep db start."
            )
        server = start_stop.start(where.postgres)
    text = server.url(masked=not password)
    # Optuna needs the driver's name: without one, SQLAlchemy 2.1 looks for psycopg 3.
    click.echo(text.replace("postgresql+psycopg2://", "postgresql://") if psql else text)
