"""Commands about files and the database: init, check, schema, db."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.checking import check_on_node
from sweep.cli.common import get_runs, json_option, runs_option
from sweep.control.check import quick
from sweep.core import executors
from sweep.core.errors import SweepError
from sweep.core.files import make_private
from sweep.results.terminal import shown
from sweep.search.propose import fixed_design
from sweep.search.samplers import choose
from sweep.storage.embedded import control, server
from sweep.storage.embedded.server import running
from sweep.studyfile import json_schema, load
from sweep.studyfile.starter.init import init as write_starter

if TYPE_CHECKING:
    from sweep.core.space import Parameter


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep init                       a small example that runs as it is\n"
    "  sweep init train.py              a study file for your script, from its flags\n"
    "  sweep init --from wandb.yaml     converts a W&B sweep or a Hydra-Optuna configuration"
)
@click.argument("script", required=False, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, path_type=Path),
    help="Convert a W&B sweep file or a Hydra Optuna-sweeper configuration.",
)
@click.option(
    "--dir",
    "folder",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write [default: here].",
)
@click.option("--force", is_flag=True, help="Replace a study file that is there.")
def init(script: Path | None, source: Path | None, folder: Path, force: bool) -> None:
    """Write a commented study file."""
    written = write_starter(folder, script, source, force=force)
    for path in written.files:
        click.echo(f"wrote {path}")
    for remark in written.remarks:
        click.echo(f"  {remark}")
    click.echo(f"next: read {written.files[0]}, then  sweep launch {written.files[0]} --wait")


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep check study.yaml\n"
    "  sweep check study.yaml --on-node           a short job where trials would run\n"
    "  sweep check study.yaml --on-node --json"
)
@click.argument("study_file", metavar="STUDY.yaml", type=click.Path(path_type=Path))
@click.option(
    "--on-node",
    is_flag=True,
    help="Ask on a node, in a short job with the study's "
    "resources and environment, what would fail there.",
)
@click.option(
    "--executor",
    type=click.Choice(executors.words()),
    help="With --on-node: where the tasks would run.",
)
@click.option(
    "--patience",
    type=click.IntRange(1),
    default=1800,
    show_default=True,
    metavar="SECONDS",
    help="With --on-node: wait so long for the job to start.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the file."
)
@json_option
@runs_option
def check(
    study_file: Path,
    on_node: bool,
    executor: str | None,
    patience: int,
    overrides: tuple[str, ...],
    as_json: bool,
    runs: Path | None,
) -> None:
    """Check a study file and what it names; makes nothing.

    With --on-node a short job asks where trials would run: the interpreter, the environment with
    its Python and torch, GPUs, folders, the database, Slurm's commands, signals, the network. Each
    line of the table is ok, a warning, failed or not asked, and says what to do; the exit code is
    1 where one has failed.
    """
    if on_node:
        check_on_node(study_file, executor, overrides, patience, as_json, runs)
        return
    if as_json or executor:
        raise click.UsageError("--json and --executor go with --on-node.")
    study = load(study_file, overrides)
    quick.check_startable(study, os.environ)
    fixed_design(study)
    click.echo(f"{study_file}: ok")
    click.echo(f"  command   {' '.join(study.command)}")
    for parameter in study.space:
        click.echo(f"  space     {_describe(parameter)}")
    if study.fixed:
        fixed = ", ".join(f"{name}={shown(value)}" for name, value in study.fixed.items())
        click.echo(f"  fixed     {fixed}")
    for objective in study.objectives:
        click.echo(f"  objective {objective.direction} {objective.metric} ({objective.at})")
    for bound in study.constraints:
        limits = [
            f"{sign} {limit:g}"
            for sign, limit in (("<=", bound.max), (">=", bound.min))
            if limit is not None
        ]
        click.echo(f"  constraint {bound.metric} {' and '.join(limits)}")
    click.echo(
        f"  trials    {study.trials}, at most {study.parallel} at once, pruner {study.pruner.type}"
    )
    name, why = choose(study)
    click.echo(f"  sampler   {name}" + (f" (auto: {why})" if study.sampler.type == "auto" else ""))


def _describe(parameter: Parameter) -> str:
    if parameter.type == "categorical":
        what = ", ".join(shown(choice) for choice in parameter.choices)
        if len(what) > 60:
            what = f"{len(parameter.choices)} choices"
    else:
        what = f"{shown(parameter.low)} to {shown(parameter.high)}"
        what += ", log" if parameter.log else ""
        what += f", step {shown(parameter.step)}" if parameter.step else ""
    when = " and ".join(
        f"{parent} is {' or '.join(shown(value) for value in values)}"
        for parent, values in parameter.when.items()
    )
    return f"{parameter.name}: {parameter.type}, {what}" + (f"; only when {when}" if when else "")


@click.command(
    epilog="\b\nExample:\n  sweep schema > ~/.config/sweep.schema.json\n"
    "Then, as a study file's first line:\n  # yaml-language-server: $schema=/path/to/it"
)
def schema() -> None:
    """Print the JSON Schema of study files, for editors."""
    click.echo(json.dumps(json_schema(), indent=2))


@click.group(
    epilog="\b\nExamples:\n  sweep db status\n  sweep db stop\n"
    "  optuna-dashboard $(sweep db url)\n  psql $(sweep db url --psql)"
)
def db() -> None:
    """The embedded PostgreSQL server of a runs folder."""


@db.command()
@runs_option
def start(runs: Path | None) -> None:
    """Start the server (commands start it by themselves when they need it)."""
    where = get_runs(runs)
    make_private(where.root)
    server = control.start(where.postgres)
    click.echo(f"running at {server.url(masked=True)}")


@db.command(name="stop")
@runs_option
def stop_server(runs: Path | None) -> None:
    """Stop the server; the data stay."""
    where = get_runs(runs)
    click.echo("stopped" if control.stop(where.postgres) else "it was not running")


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
    """Print the server's URL, for Optuna and its dashboard; starts the server if need be."""
    where = get_runs(runs)
    server = running(where.postgres)
    if server is None:
        if not where.postgres.exists():
            raise SweepError(
                f"{where.root} has no embedded database yet.", "sweep launch, or sweep db start."
            )
        server = control.start(where.postgres)
    text = server.url(masked=not password)
    # Optuna needs the driver's name: without one, SQLAlchemy 2.1 looks for psycopg 3.
    click.echo(text.replace("postgresql+psycopg2://", "postgresql://") if psql else text)
