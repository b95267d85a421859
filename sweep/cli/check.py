"""Check a study file and what it names; make nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.common import (
    cpu_option,
    get_runs,
    json_option,
    overrides_option,
    patience_option,
    runs_option,
    say_progress,
    scheduler_for,
)
from sweep.control.check import (
    FAILED,
    NOT_ASKED,
    OK,
    WARNING,
    has_failed,
    patterns,
    pointers,
    quick,
    reach,
    table,
    trackers,
)
from sweep.control.check.on_node import check as ask_node
from sweep.core import executors
from sweep.core.errors import EXIT_DONE, EXIT_FAILED, InputError
from sweep.results.counts import count_trainings
from sweep.results.terminal import shown
from sweep.schedulers.choose import resolve
from sweep.search import cost, hub
from sweep.search.propose import check_design
from sweep.search.valid import check_where, describe_share
from sweep.studyfile import load
from sweep.training import build

if TYPE_CHECKING:
    from sweep.core.space import Parameter


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
@patience_option
@overrides_option
@cpu_option
@json_option
@runs_option
def check(
    study_file: Path,
    on_node: bool,
    executor: str | None,
    patience: int,
    overrides: tuple[str, ...],
    cpu: bool,
    as_json: bool,
    runs: Path | None,
) -> int:
    """Check a study file and what it names; make nothing.

    With --on-node a short job asks where trials would run: the interpreter, the environment with
    its Python and torch, GPUs, folders, the database, Slurm's commands, signals, the network. Each
    line of the table is ok, a warning, failed or not asked, and says what to do; the exit code is
    1 where one has failed.
    """
    if on_node:
        return _check_on_node(study_file, executor, overrides, patience, as_json, runs, cpu=cpu)
    if as_json or executor:
        raise InputError("--json and --executor go with --on-node.", "Add it, or leave them out.")
    study = load(study_file, overrides, cpu=cpu)
    folder = get_runs(runs).study(study.name)
    study = hub.ensure(study, folder, os.environ, say_progress)
    keeps = quick.check_startable(study, os.environ, folder)
    few = check_where(study)
    check_design(study)
    click.echo(f"{study_file}: ok")
    click.echo(f"  command   {' '.join(study.command)}")
    for parameter in study.space:
        click.echo(f"  space     {_describe(parameter)}")
    for clause in study.where:
        click.echo(f"  where     {clause}")
    if study.where and study.sampler.type != "grid":
        click.echo(f"  where     leaves {describe_share(study)} of the space")
    if few:
        click.echo(f"  warning   {few}")
    if study.fixed:
        fixed = ", ".join(f"{name}={shown(value)}" for name, value in study.fixed.items())
        click.echo(f"  fixed     {fixed}")
    for objective in study.objectives:
        click.echo(f"  objective {objective.direction} {objective.metric} ({objective.at})")
    for bound in study.constraints:
        click.echo(f"  constraint {bound.metric} {bound.limits}")
    click.echo(
        f"  trials    {study.trials}, at most {study.parallel} at once, pruner {study.pruner.type}"
    )
    if study.is_replicated:
        each, total = count_trainings(study), count_trainings(study, study.trials)
        click.echo(f"  replicates {each} trainings a trial, {total} in all")
    name, why = cost.describe_choice(study)
    click.echo(f"  sampler   {name}" + (f" (auto: {why})" if study.sampler.type == "auto" else ""))
    for said in (keeps, cost.warn(study)):
        if said:
            click.echo(f"  warning   {said}")
    found = trackers.look(study, folder.root, os.environ)
    for line in (*reach.look(study), *patterns.look(study), *pointers.look(study), *found):
        click.echo(f"  {line.state}   {line.text}\n            → {line.advice}")
    return EXIT_DONE


def _check_on_node(
    study_file: Path,
    executor: str | None,
    overrides: tuple[str, ...],
    patience_s: int,
    as_json: bool,
    runs: Path | None,
    *,
    cpu: bool,
) -> int:
    """Ask on a node, and print the table; 1 where a line has failed."""
    if executor:
        overrides = (*overrides, f"executor={executor}")

    place = get_runs(runs)
    # As launch does it: what is asked is what trials would start.
    given = resolve(load(study_file, overrides, cpu=cpu))
    study, _ = build.ensure(given, place, os.environ, say_progress)
    lines = [*reach.look(study), *patterns.look(study), *pointers.look(study)]
    lines += ask_node(
        study, place, scheduler_for(study), os.environ, say_progress, float(patience_s)
    )
    failed = has_failed(lines)
    if as_json:
        data = {"study": study.name, "ok": not failed, "lines": [one.to_data() for one in lines]}
        click.echo(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        click.echo(table(lines))
        counts = [
            (sum(line.state == state for line in lines), state)
            for state in (FAILED, WARNING, OK, NOT_ASKED)
        ]
        found = ", ".join(f"{count} {state}" for count, state in counts if count)
        click.echo(f"{study.name}: {found}")
    return EXIT_FAILED if failed else EXIT_DONE


def _describe(parameter: Parameter) -> str:
    if parameter.type == "categorical":
        what = ", ".join(shown(choice) for choice in parameter.choices)
        if len(what) > 60:
            what = f"{len(parameter.choices)} choices"
    else:
        what = f"{shown(parameter.low)} to {shown(parameter.high)}"
        what += ", log" if parameter.log else ""
        what += f", step {shown(parameter.step)}" if parameter.step else ""
    if parameter.prior and parameter.prior.weights:
        what += f"; prior {':'.join(shown(weight) for weight in parameter.prior.weights)}"
    elif parameter.prior:
        sign = "×÷" if parameter.log else "±"
        what += f"; prior {shown(parameter.prior.center)} {sign} {shown(parameter.prior.spread)}"
    when = " and ".join(
        f"{parent} is {' or '.join(shown(value) for value in values)}"
        for parent, values in parameter.when.items()
    )
    return f"{parameter.name}: {parameter.type}, {what}" + (f"; only when {when}" if when else "")
