"""Fetch data, keep copies of them on this machine, make shards."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from sweep.cli.common import get_runs, json_option, runs_option, scheduler_for, study_argument
from sweep.control import fetch_job
from sweep.core.errors import InputError, SweepError
from sweep.core.masking import mask
from sweep.core.paths import Runs, StudyFolder
from sweep.core.sizes import byte_text
from sweep.core.study import Staging, Study
from sweep.core.terminal_text import visible
from sweep.schedulers.choose import resolve
from sweep.studyfile import load
from sweep.studyfile.amounts import parse_memory
from sweep.studyfile.defaults import read_defaults
from sweep.tasks.sharding import shards, source_kinds
from sweep.tasks.staging import on_machine, on_nodes
from sweep.tasks.staging.cache import KeptCopy
from sweep.tasks.staging.stage import Stager
from sweep.training import fetched, fetching
from sweep.training.command import environment

DAY_S = 86_400


@click.group(
    epilog="\b\nExamples:\n  sweep data fetch study.yaml --job\n  sweep data status\n"
    "  sweep data stage study.yaml\n"
    "  sweep data purge --days 14\n  srun -w n3 sweep data status --place /local\n"
    "  sweep data shard /data/birds /data/birds-shards --size 256M"
)
def data() -> None:
    """Fetch data; show, make and remove a machine's copies (`stage: node`); make shards.

    Copies belong to the node on which they lie: on a cluster call this there, by srun.
    """


place_option = click.option(
    "--place",
    metavar="DIR",
    help="Look in this folder [default: staging.place of your defaults, else the usual ones].",
)


def _named(place: str | None) -> str | None:
    """Return the place that is asked for, or that a site's or the user's defaults name."""
    for layer in [] if place else read_defaults():
        staging = layer.entries.get("staging")
        if staging is not None and "place" in staging.entries:
            place = str(staging.entries["place"].value)
    return place


@data.command(name="status")
@place_option
@json_option
def status_of_copies(place: str | None, as_json: bool) -> None:
    """Show the places of this machine, and the copies in them."""
    found = on_machine.look(_named(place), os.environ)
    if as_json:
        click.echo(json.dumps([one.to_data() for one in found.places], indent=1))
        return
    for one in found.places:
        private = f"; of this job alone: {one.private}" if one.private else ""
        in_memory = "; in memory" if one.is_memory else ""
        click.echo(f"{one.folder}: {byte_text(one.free_bytes)} free{in_memory}{private}")
        for entry in reversed(one.entries):
            click.echo(f"  {_line(entry)}")
        if not one.entries:
            click.echo("  no copies")
    for reason in found.others:
        click.echo(f"not used: {reason}")
    if not found.places:
        click.echo("There is no place for copies here; name one: staging.place, --place.")


def _line(entry: KeptCopy) -> str:
    days = max(0.0, time.time() - entry.used_s) / DAY_S
    used = "in use" if entry.is_used else f"unused for {days:.1f} days"
    state = "" if entry.is_complete else ", incomplete"
    return f"{byte_text(entry.bytes):>8}  {visible(entry.source or entry.key)}  {used}{state}"


@data.command()
@study_argument
@place_option
@runs_option
def stage(study: str | None, place: str | None, runs: Path | None) -> None:
    """Copy a study's data to this machine now, as a training would.

    STUDY is a launched study, or a study file.
    """
    where = get_runs(runs)
    given = _read_study(where, study)
    if place is not None:
        given = _at(given, place)
    wanted = [name for name, one in given.datasets.items() if one.stage != "none"]
    if not wanted:
        raise InputError(
            f"study {given.name} has no data that are staged.",
            "Write data: {mnist: {path: /data/mnist, stage: node}}, say.",
        )
    folder = where.study(given.name)
    with tempfile.TemporaryDirectory(prefix="sweep-data-") as nowhere:
        # What is not launched yet has no folder, and gets none.
        home = folder if folder.study.exists() else StudyFolder(Path(nowhere))
        stager = Stager(given, home, os.environ, lambda text: click.echo(mask(text), err=True))
        staged = stager.stage(given.data_paths)
        staged.close()
    for name in wanted:
        click.echo(f"data.{name} {staged.data[name]}")
    if staged.notes:
        raise SweepError("Not all of it could be copied.", "What is wrong stands above.")


@data.command()
@study_argument
@click.option("--job", is_flag=True, help="In a job of Slurm's, and wait for it.")
@runs_option
def fetch(study: str | None, job: bool, runs: Path | None) -> None:
    """Bring a study's data to their paths, by what `fetch` says in the study file.

    What is there already stays. `sweep launch` does it as well: on a cluster in a job, which the
    study's tasks wait for.
    """
    where = get_runs(runs)
    given = resolve(_read_study(where, study))
    wanted = [name for name, one in given.datasets.items() if one.fetch]
    if not wanted:
        raise InputError(
            f"study {given.name} has no data that are fetched.",
            "Write data: {birds: {path: /data/birds, fetch: 'rsync -a host:/birds/ {target}'}}, "
            "say.",
        )
    if job:
        fetch_job.fetch(given, where, scheduler_for, os.environ, _tell_aside)
    else:
        environ = environment.without_database(os.environ, os.environ)
        fetching.fetch(given, wanted, environ, _tell_aside)
    for note in fetched.notes(given):
        _tell_aside(note)
    for name in wanted:
        click.echo(f"data.{name} {given.data_paths[name]}")


def _tell_aside(text: str) -> None:
    click.echo(mask(text), err=True)


def _read_study(where: Runs, name: str | None) -> Study:
    if name and name.endswith((".yaml", ".yml")) and Path(name).is_file():
        return load(Path(name))
    if name is None and where.last.exists():
        name = where.last.read_text(encoding="utf-8").strip()
    if not name or not where.study(name).study.exists():
        raise InputError(
            f"There is no study {name or 'here'} in {where.root}.", "Give a study file or its name."
        )
    return Study.read(where.study(name).study)


def _at(study: Study, place: str) -> Study:
    return dataclasses.replace(study, staging=Staging(place, study.staging.quota_mb))


@data.command()
@place_option
@click.option(
    "--days", type=click.FloatRange(0), default=0.0, help="Only what was unused for so long."
)
@click.option("--dry-run", is_flag=True, help="Show what would go; remove nothing.")
@runs_option
def purge(place: str | None, days: float, dry_run: bool, runs: Path | None) -> None:
    """Remove the copies on this machine that no training uses.

    They are made again where they are needed. What killed tasks of trials on several nodes have
    left in the runs folder goes as well.
    """
    before = time.time() - days * DAY_S

    def wanted(entry: KeptCopy) -> bool:
        return not entry.is_used and entry.used_s <= before

    gone: list[Any] = []
    for one in on_machine.look(_named(place), os.environ).places:
        found = [entry for entry in one.entries if wanted(entry)]
        if not dry_run and one.cache is not None:
            found = one.cache.purge(wanted)
        gone += found
    for entry in gone:
        click.echo(f"  {_line(entry)}")
    total = byte_text(sum(entry.bytes for entry in gone))
    click.echo(f"{total} would be removed" if dry_run else f"{total} removed")
    if not dry_run:
        _clear_steps(get_runs(runs))


def _clear_steps(runs: Runs) -> None:
    for name in runs.studies():
        folder = runs.study(name)
        if not on_nodes.has_steps(folder):
            continue
        gone, failed = on_nodes.clear_study(folder)
        for place in gone:
            click.echo(f"  {visible(str(place))}  of a task that was killed")
        if failed:
            _tell_aside(f"{folder.data}: what killed tasks have left stays: {failed}")


@data.command(
    epilog="\b\nExamples:\n  sweep data shard /data/birds /data/birds-shards --size 256M\n"
    "  sweep data shard scans scans-shards --labels scans/labels.csv\n"
    "  sweep data shard mnist.npz mnist-shards\n"
    "  sweep data shard train.parquet rows-shards --label-column fine_label"
)
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--size", default="256M", show_default=True, help="Most that a shard takes.")
@click.option(
    "--labels",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="CSV file with the columns file and label; else folders are classes.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the order of files.")
@click.option("--ignore", multiple=True, metavar="GLOB", help="Leave such files out; repeatable.")
@click.option("--label-column", metavar="NAME", help="The class, in Parquet [default: label].")
@click.option("--leave-out", multiple=True, metavar="COLUMN", help="Of Parquet; repeatable.")
@click.option("--skip-unreadable", is_flag=True, help="Leave out what cannot be read.")
@click.option("--restart", is_flag=True, help="Drop what an interrupted run has left.")
@json_option
def shard(
    source: Path,
    target: Path,
    size: str,
    labels: Path | None,
    seed: int,
    ignore: tuple[str, ...],
    label_column: str | None,
    leave_out: tuple[str, ...],
    skip_unreadable: bool,
    restart: bool,
    as_json: bool,
) -> None:
    """Write a data set as a few large tar files, as WebDataset reads them.

    SOURCE is a folder of pictures or .npy files, a .npz file, or Parquet. TARGET becomes a folder
    of shards with an index and the SHA-256 of each. Interrupted, the same command goes on.
    """
    size_mb = parse_memory(size)
    if not size_mb:
        raise InputError(f"--size {size}: must be a size with a unit.", "Write 256M or 1G.")
    found = source_kinds.read_source(
        source,
        labels=labels,
        seed=seed,
        ignore=ignore,
        label_column=label_column,
        leave_out=leave_out,
    )
    packed = shards.pack(
        found,
        target,
        size_mb << 20,
        lambda text: click.echo(text, err=True),
        options={"seed": seed, "label": label_column, "leave_out": sorted(leave_out)},
        skip_unreadable=skip_unreadable,
        restart=restart,
    )
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(packed)))
        return
    for line in shards.duplicate_lines(packed):
        click.echo(visible(line))
    for name in packed.unreadable:
        click.echo(visible(f"left out: {name}"))
    parts = ", ".join(f"{count} {split}" for split, count in packed.examples.items())
    click.echo(f"{target}: {parts} examples in {packed.shards} shards, {byte_text(packed.bytes)}")


@data.command(epilog="\b\nExample:\n  sweep data verify /data/birds-shards")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def verify(folder: Path) -> None:
    """Compare shards with the SHA-256 that their index holds."""
    count = shards.verify(folder, lambda text: click.echo(text, err=True))
    click.echo(f"{count} shards are whole")
