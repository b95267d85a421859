"""Rank the trials; print, export and plot them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from sweep.cli import suggest
from sweep.cli.common import (
    get_runs,
    look_once,
    open_study,
    runs_option,
    scheduler_for,
    study_argument,
)
from sweep.control.slurm_energy import note_tasks
from sweep.core import outcomes
from sweep.core.errors import InputError
from sweep.core.sharing import share
from sweep.results import cost_text, mixed_code
from sweep.results.columns import long_columns
from sweep.results.cost_to_solution import cost
from sweep.results.exports import FORMATS, export, format_of, write
from sweep.results.feasibility import none_feasible_of
from sweep.results.page import source
from sweep.results.paper import best_cells, with_ranking
from sweep.results.plots import draw
from sweep.results.ranking import (
    nothing_complete,
    of_one_training,
    parse_by,
    parse_wanted,
    rows,
    shown_for,
)
from sweep.results.terminal import trials_table
from sweep.storage import proposals, records, series
from sweep.tasks.side_runs import confirm

if TYPE_CHECKING:
    from sweep.control.open_study import Opened
    from sweep.core.study import Objective
    from sweep.results.ranking import Wanted


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep collect --top 5\n"
    "  sweep collect digits --format csv -o digits.csv\n"
    "  sweep collect --metric train_loss:min --metric val_accuracy:best\n"
    "  sweep collect --long -o steps.parquet\n"
    "  sweep collect --state failed\n"
    "  sweep collect --cost                   time, GPU-hours and energy to each quality level\n"
    "  sweep collect --top 5 --columns rank,lr,val_accuracy,mean --digits 3 --format latex"
)
@study_argument
@click.option("--top", type=click.IntRange(1), help="The best so many [default: all results].")
@click.option(
    "--format",
    "format_",
    metavar="FORMAT",
    shell_complete=suggest.words(lambda: FORMATS),
    help="table, json, csv, parquet, markdown or latex [default: by FILE's ending, else table].",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write into a file.")
@click.option(
    "--state",
    "states",
    multiple=True,
    shell_complete=suggest.words(lambda: outcomes.STATES),
    help="Only trials in this state; repeatable.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME[:last|min|max|best]",
    shell_complete=suggest.metrics,
    help="Show this metric, by default its last value; repeatable.",
)
@click.option(
    "--long",
    "long_",
    is_flag=True,
    help="One row for each reported value: trial, attempt, step, metric, value, logged.",
)
@click.option(
    "--cost",
    "as_cost",
    is_flag=True,
    help="What each quality level cost, what was lost and saved; as a table or JSON.",
)
@click.option(
    "--by",
    metavar="METRIC[:minimize|maximize]",
    shell_complete=suggest.metrics,
    help="Rank by the best value of another metric than the objective; it is shown.",
)
@click.option("--minimize/--maximize", "minimize", default=None, help="Direction for --by.")
@click.option(
    "--columns",
    metavar="NAME,NAME,…",
    shell_complete=suggest.columns,
    help="Only these columns, in this order: as --format csv names them, or without their group.",
)
@click.option(
    "--digits",
    type=click.IntRange(1, 17),
    help="Significant digits, in a table, Markdown and LaTeX [default: all; 6 in a table].",
)
@click.option(
    "--plots/--no-plots",
    default=None,
    help="Draw pictures into runs/<name>/results/ [default: beside a table].",
)
@runs_option
def collect(
    study: str | None,
    top: int | None,
    format_: str | None,
    output: Path | None,
    states: tuple[str, ...],
    metrics: tuple[str, ...],
    long_: bool,
    as_cost: bool,
    by: str | None,
    minimize: bool | None,
    columns: str | None,
    digits: int | None,
    plots: bool | None,
    runs: Path | None,
) -> None:
    """Rank the trials; print, export and plot them.

    Markdown and LaTeX are fit to paste: the best is bold, and where `sweep confirm` has run, `mean`
    is the mean over its fresh seeds ± half its 95 % interval.

    As a pandas frame in Python: sweep.load("digits").trials(), and .metrics() for all steps.
    """
    format_ = format_of(output, format_)
    for state in states:
        if state not in outcomes.STATES:
            raise InputError(
                f"--state: there is no state {state!r}.", f"One of {', '.join(outcomes.STATES)}."
            )
    opened = open_study(get_runs(runs), study)
    schedule = scheduler_for(opened.study)(opened.folder)
    look_once(opened, schedule)
    if as_cost:
        if long_ or top or states or metrics or by or columns or format_ not in ("table", "json"):
            raise InputError(
                "--cost is of the whole study, as a table or JSON.",
                "Give it alone, or with --format json and -o.",
            )
        note_tasks(opened.ledger, schedule)
        found_cost = cost(source.read(opened))
        data = json.dumps(found_cost.to_data(), indent=1)
        whole = data if format_ == "json" else cost_text.text(found_cost)
        write(f"{whole}\n", output, sys.stdout)
        return
    names = [name.strip() for name in columns.split(",")] if columns is not None else []
    if digits is not None and format_ in ("json", "csv", "parquet"):
        raise InputError(
            f"--digits: {format_} is read by programs, and keeps all of them.",
            "Leave it out, or choose --format markdown, latex or table.",
        )
    as_table = format_ == "table" and output is None and not long_
    wants_plots = plots if plots is not None else as_table
    wanted = [parse_wanted(text, opened.study) for text in metrics] or None
    direction = None if minimize is None else "minimize" if minimize else "maximize"
    if direction and not by:
        raise InputError(f"--{direction} says how to rank --by a metric.", "Give --by METRIC.")
    ranking = parse_by(by, direction, opened.study) if by else None
    if not long_ and format_ not in ("json", "csv", "parquet"):
        names = with_ranking(names, ranking, opened.study)
    ledger = opened.ledger
    found = ledger.db.retry(
        lambda db: records.read_trials(
            db, ledger.study_id, opened.study, metrics=bool(by or wanted or names) or wants_plots
        )
    )
    confirmed = confirm.estimates(opened)
    mixed = mixed_code.read(opened.folder, opened.study, found)
    chosen = rows(
        found,
        opened.study,
        top,
        states=states or None,
        by=ranking,
        folder=opened.folder,
        wanted=wanted,
        codes=mixed.ids,
    )
    noted = ledger.db.retry(lambda db: proposals.read_noted(db, ledger.study_id))
    for row in chosen:
        if row["trial"] in noted:
            row["proposal"] = noted[row["trial"]]
        if (found_mean := confirmed.get(row["trial"])) is not None:
            row["confirmed"] = {
                "mean": found_mean.mean,
                "low": found_mean.low,
                "high": found_mean.high,
                "seeds": len(found_mean.values),
            }
    one_of_several = of_one_training(opened.study, wanted or (), ranking, names)
    sentences = (none_feasible_of(opened.study, found), mixed.sentence, one_of_several)
    said = [text for text in sentences if text]
    for_people = as_table and not names and digits is None
    for sentence in () if for_people else said:
        click.echo(sentence, err=True)
    if long_:
        steps = _read_long(opened, [row["trial"] for row in chosen], wanted)
        write(
            export(steps, format_, opened.study, shape=long_columns, names=names),
            output,
            sys.stdout,
        )
    elif for_people:
        _print_table(chosen, opened, nothing_complete(records.count(found)), ranking, wanted or ())
        for sentence in said:
            click.echo(sentence)
    else:
        best = best_cells(chosen, opened.study, ranking)
        text = export(chosen, format_, opened.study, digits=digits, names=names, best=best)
        write(text, output, sys.stdout)
    if wants_plots:
        paths, note = draw(found, opened.study, opened.folder.results)
        share(opened.study, opened.folder, opened.folder.results)
        for path in paths:
            click.echo(f"plot: {path}", err=True)
        if note:
            click.echo(note, err=True)


def _read_long(
    opened: Opened, trials: list[int], wanted: list[Wanted] | None
) -> list[dict[str, Any]]:
    names = [metric.name for metric in wanted] if wanted else None
    return series.as_rows(
        opened.ledger.db.retry(
            lambda db: series.read_series(db, opened.ledger.study_id, numbers=trials, names=names)
        )
    )


def _print_table(
    chosen: list[dict[str, object]],
    opened: Opened,
    otherwise: str,
    by: Objective | None,
    wanted: Sequence[Wanted],
) -> None:
    if not chosen:
        click.echo(otherwise)
        return
    also = shown_for(by, opened.study)
    labels = dict.fromkeys(one.label for one in (*([also] if also else ()), *wanted))
    Console().print(trials_table(chosen, opened.study, metrics=list(labels)))
