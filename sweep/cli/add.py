"""Add trials at points of your own to a study."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from sweep.cli.common import get_runs, open_study, runs_option, scheduler_for, study_argument
from sweep.control import add_points
from sweep.control.retrying import name_trials
from sweep.core.errors import InputError
from sweep.storage import studies
from sweep.studyfile.points_file import read_points


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep add --point lr=0.01,layers=2\n"
    "  sweep add digits --point lr=0.01 --point lr=0.02,optimizer=sgd,momentum=0.9\n"
    "  sweep add digits --points best-of-last-year.csv"
)
@study_argument
@click.option(
    "--point",
    "texts",
    multiple=True,
    metavar="NAME=VALUE,…",
    help="A configuration; repeatable. What it leaves out is drawn by chance.",
)
@click.option(
    "--points",
    "table",
    type=click.Path(path_type=Path),
    help="A CSV file of configurations, a row each, as `points` takes it in a study file.",
)
@runs_option
def add(study: str | None, texts: tuple[str, ...], table: Path | None, runs: Path | None) -> None:
    """Add a trial for each point; N grows by as many.

    Tasks that are at work take them; without any, `sweep launch` goes on. Launching the study file
    again keeps them: they come on top of its `trials`.
    """
    if not texts and table is None:
        raise InputError("No point was given.", "Give --point lr=0.01,…, or --points FILE.csv.")
    where = get_runs(runs)
    opened = open_study(where, study)
    space = opened.study.space
    points = [add_points.parse_point(text, space) for text in texts]
    if table is not None:
        points += [dict(point) for point in read_points(table, space)]
    if not points:
        raise InputError(f"{table} has no point.", "Give a row for each configuration.")
    schedule = scheduler_for(opened.study)(opened.folder)
    added = add_points.add(opened, where, schedule, points)
    click.echo(
        f"study {opened.study.name}: added {name_trials(added.numbers)}; "
        f"it has {added.trials} trials now"
    )
    again = f"sweep launch {shlex.quote(opened.study.source or 'STUDY.yaml')}"
    if added.state.word != studies.RUNNING:
        click.echo(f"it is {added.state.word}: {again} goes on")
    elif not added.has_array:
        click.echo(f"no task is there to run them: {again} goes on")
    else:
        click.echo(f"its tasks take them; should none be left: {again}")
