"""Show MLflow's pages of the studies that have `track: [mlflow]`."""

from __future__ import annotations

import os
import sys
from contextlib import closing, nullcontext
from importlib.util import find_spec
from pathlib import Path

import click

from sweep.cli.common import get_runs, open_study, runs_option, study_argument
from sweep.cli.serve import ssh_line
from sweep.control.open_study import open_study as open_by_name
from sweep.core.errors import EXIT_DONE, InputError, SweepError
from sweep.core.masking import mask_url
from sweep.results import mlflow_pages
from sweep.storage import access, tracker_database
from sweep.storage.embedded.server import using
from sweep.training.command.environment import MLFLOW_URI

BY_HAND = f'{mlflow_pages.STORE}="$(sweep mlflow --url)" mlflow server --host 127.0.0.1'


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep mlflow                                  # pip install mlflow\n"
    "  sweep mlflow digits --port 5000\n"
    "  sweep mlflow --python ~/mlflow/bin/python     # an environment of MLflow's own\n"
    f"  {BY_HAND}"
)
@study_argument
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Listen at this one [default: any free one]."
)
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An interpreter that has the whole MLflow and psycopg2 [default: sweep's own].",
)
@click.option("--url", is_flag=True, help="Print the database's URL, with its password, instead.")
@runs_option
def mlflow(
    study: str | None, port: int | None, python: Path | None, url: bool, runs: Path | None
) -> int:
    """Show MLflow's pages of the studies that have `track: [mlflow]`, from the database that holds
    them.

    It is MLflow's own server, on this machine's 127.0.0.1, without a password: whoever is logged in
    here can open and change what it shows. While it runs the embedded database stays up. Ctrl-C
    ends it; studies go on.
    """
    elsewhere = os.environ.get(MLFLOW_URI)
    if elsewhere:
        raise InputError(
            f"{MLFLOW_URI} is set: MLflow's runs are at {mask_url(elsewhere)}.",
            f"Open that; or, for studies launched without it: unset {MLFLOW_URI}",
        )
    # On a cluster the embedded server ends with a command, but not with one that gives its address.
    opened = (open_by_name if url else open_study)(get_runs(runs), study)
    with closing(opened.ledger.db) as db:
        if not tracker_database.is_made(db):
            raise InputError(
                f"{opened.study.name}: its database holds nothing of MLflow's.",
                "Write `track: [mlflow]` into the study file, and launch.",
            )
        address = tracker_database.url_beside(db)
    if url:
        click.echo(address)
        return EXIT_DONE
    interpreter = str(python or sys.executable)
    if python is None and not (find_spec("mlflow") and find_spec("flask")):
        raise SweepError(
            "MLflow's server is not installed beside sweep (mlflow-skinny is its client alone).",
            "pip install mlflow, or name an interpreter that has it: --python PATH; or start it "
            f"where it is: {BY_HAND}",
        )
    port = port or mlflow_pages.free_port()
    note = access.read_note(opened.folder)
    used = using(Path(note["embedded"])) if "embedded" in note else nullcontext()
    with used:  # its watcher would stop it, between two looks at MLflow's pages
        click.echo(f"http://127.0.0.1:{port}/  (it takes some seconds to begin)")
        click.echo(f"From elsewhere first: {ssh_line(port)}")
        click.echo("It asks for no password. Ctrl-C ends it.")
        code = mlflow_pages.serve(interpreter, address, port)
    if code is None:
        click.echo("\nIt has ended.")
        return EXIT_DONE
    raise SweepError(
        f"MLflow's server has ended with exit code {code}; what it said stands above.",
        "Where it speaks of an out-of-date schema, a newer MLflow is to show what an older one has "
        'written: mlflow db upgrade "$(sweep mlflow --url)"',
    )
