"""Commands that look at a study: status, collect, logs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from sweep.cli.common import (
    Queue,
    get_runs,
    json_option,
    leave,
    look_after,
    open_study,
    runs_option,
    scheduler_for,
    study_argument,
)
from sweep.core import outcomes
from sweep.core.errors import EXIT_FAILED, InputError
from sweep.results.columns import long_columns
from sweep.results.exports import export, format_of, write
from sweep.results.live import watch as watch_view
from sweep.results.plots import draw
from sweep.results.ranking import nothing_complete, parse_by, parse_wanted, rows, shown_for
from sweep.results.status import snapshot
from sweep.results.terminal import status_panel, trials_table
from sweep.storage import records, series

if TYPE_CHECKING:
    from sweep.control.open_study import Opened
    from sweep.core.study import Objective
    from sweep.results.ranking import Wanted

ASK_EVERY_S = 2.0  # local: reading a small file; a cluster's queue is asked less often


@click.command(
    short_help="Show where a study stands.",
    epilog="\b\nExamples:\n  sweep status\n  sweep status digits --watch\n",
)
@study_argument
@click.option("--watch", is_flag=True, help="Stay and renew the view until the study has ended.")
@json_option
@runs_option
def status(study: str | None, watch: bool, as_json: bool, runs: Path | None) -> None:
    """Show where a study stands: counts, best, tasks, failures, expected end."""
    opened = open_study(get_runs(runs), study)
    schedule = scheduler_for(opened.study)(opened.folder)

    queue = Queue(opened, schedule)

    def look() -> object:
        return snapshot(opened.ledger, opened.folder, **queue.ask())

    if as_json:
        click.echo(look().to_json())  # type: ignore[attr-defined]
    elif watch:
        last = watch_view(look, ASK_EVERY_S)  # type: ignore[arg-type]
        if last is None or not last.is_over:
            leave("sweep status", opened.study.name)
    else:
        Console().print(status_panel(look()))  # type: ignore[arg-type]


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep collect --top 5\n"
    "  sweep collect digits --format csv -o digits.csv\n"
    "  sweep collect --metric train_loss:min --metric val_accuracy:best\n"
    "  sweep collect --long -o steps.parquet\n"
    "  sweep collect --state failed"
)
@study_argument
@click.option("--top", type=click.IntRange(1), help="The best so many [default: all results].")
@click.option(
    "--format",
    "format_",
    metavar="FORMAT",
    help="table, json, csv, parquet, markdown or latex [default: by FILE's ending, else table].",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write into a file.")
@click.option("--state", "states", multiple=True, help="Only trials in this state; repeatable.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME[:last|min|max|best]",
    help="Show this metric, by default its last value; repeatable.",
)
@click.option(
    "--long",
    "long_",
    is_flag=True,
    help="One row for each reported value: trial, attempt, step, metric, value, logged.",
)
@click.option(
    "--by",
    metavar="METRIC[:minimize|maximize]",
    help="Rank by the best value of another metric than the objective; it is shown.",
)
@click.option("--minimize/--maximize", "minimize", default=None, help="Direction for --by.")
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
    by: str | None,
    minimize: bool | None,
    plots: bool | None,
    runs: Path | None,
) -> None:
    """Rank the trials; print, export and plot them.

    As a pandas frame in Python: sweep.load("digits").trials(), and .metrics() for all steps.
    """
    format_ = format_of(output, format_)
    for state in states:
        if state not in outcomes.STATES:
            raise InputError(
                f"--state: there is no state {state!r}.", f"One of {', '.join(outcomes.STATES)}."
            )
    opened = open_study(get_runs(runs), study)
    look_after(opened, scheduler_for(opened.study)(opened.folder), 120.0)
    as_table = format_ == "table" and output is None and not long_
    wants_plots = plots if plots is not None else as_table
    wanted = [parse_wanted(text, opened.study) for text in metrics] or None
    direction = None if minimize is None else "minimize" if minimize else "maximize"
    if direction and not by:
        raise InputError(f"--{direction} says how to rank --by a metric.", "Give --by METRIC.")
    ranking = parse_by(by, direction, opened.study) if by else None
    ledger = opened.ledger
    found = ledger.db.retry(
        lambda db: records.read_trials(
            db, ledger.study_id, opened.study, metrics=bool(by or wanted) or wants_plots
        ),
        patience_s=60.0,
    )
    chosen = rows(
        found,
        opened.study,
        top,
        states=states or None,
        by=ranking,
        folder=opened.folder,
        wanted=wanted,
    )
    if long_:
        steps = _read_long(opened, [row["trial"] for row in chosen], wanted)
        write(export(steps, format_, opened.study, shape=long_columns), output, sys.stdout)
    elif as_table and wanted is None:
        _print_table(chosen, opened, nothing_complete(records.count(found)), ranking)
    else:
        write(export(chosen, format_, opened.study), output, sys.stdout)
    if wants_plots:
        paths, note = draw(found, opened.study, opened.folder.results)
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
            lambda db: series.read_series(db, opened.ledger.study_id, numbers=trials, names=names),
            patience_s=60.0,
        )
    )


def _print_table(
    chosen: list[dict[str, object]], opened: Opened, otherwise: str, by: Objective | None
) -> None:
    if not chosen:
        click.echo(otherwise)
        return
    also = shown_for(by, opened.study)
    Console().print(trials_table(chosen, opened.study, by=also.label if also else None))


@click.command(
    epilog="\b\nExamples:\n  sweep logs 7\n  sweep logs digits 7 --attempt 1\n  sweep logs 7 -f"
)
@click.argument("study_and_trial", metavar="[STUDY] TRIAL", nargs=-1, required=True)
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt only [default: all].")
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows, into later attempts.")
@runs_option
def logs(
    study_and_trial: tuple[str, ...], attempt: int | None, follow: bool, runs: Path | None
) -> None:
    """Print what a trial's training printed, attempt after attempt."""
    if len(study_and_trial) > 2:
        raise click.UsageError("Give a trial's number, with the study's name before it if need be.")
    *names, number = study_and_trial
    if not number.isdigit():
        raise click.UsageError(f"TRIAL must be a trial's number (got {number!r}).")
    where = get_runs(runs)
    name = names[0] if names else None
    opened = open_study(where, name)
    ledger = opened.ledger
    trial = int(number)
    rows = ledger.db.retry(
        lambda db: db.execute(
            "SELECT trial_id, state::text FROM trials WHERE study_id = %s AND number = %s",
            (ledger.study_id, trial),
        ),
        patience_s=60.0,
    )
    if not rows:
        raise InputError(
            f"{opened.study.name} has no trial {trial}.",
            f"Its trials are 0 to {opened.study.trials - 1}.",
        )
    trial_id = int(rows[0][0])

    def attempts() -> list[tuple[int, str | None, str]]:
        found = ledger.db.retry(lambda _: ledger.attempts(trial_id), patience_s=60.0)
        return [(a.number, a.outcome, a.reason) for a in found if attempt in (None, a.number)]

    if not attempts():
        click.echo(f"trial {trial} has not started", err=True)
        if not follow:
            raise click.exceptions.Exit(EXIT_FAILED)
    for text in _log_text(opened, trial, attempts, follow):
        sys.stdout.write(text)
        sys.stdout.flush()


def _log_text(opened: object, trial: int, attempts: object, follow: bool) -> Iterator[str]:
    shown = 0
    while True:
        for number, outcome, reason in attempts():  # type: ignore[operator]
            if number <= shown:
                continue
            path = opened.folder.attempt(trial, number).log  # type: ignore[attr-defined]
            yield f"--- trial {trial}, attempt {number}\n"
            yield from _file_text(path, number, attempts, follow)
            latest = {n: (o, r) for n, o, r in attempts()}  # type: ignore[operator]
            outcome, reason = latest.get(number, (outcome, reason))
            if outcome:
                yield f"--- attempt {number}: {outcome}{': ' + reason if reason else ''}\n"
            shown = number
        if not follow or _is_final(opened, trial):
            return
        time.sleep(1.0)


def _file_text(path: Path, number: int, attempts: object, follow: bool) -> Iterator[str]:
    offset = 0
    while True:
        live = follow and {n: o for n, o, _ in attempts()}.get(number) is None  # type: ignore[operator]
        if path.exists():
            with path.open("r", encoding="utf-8", errors="replace", newline="") as stream:
                stream.seek(offset)
                while text := stream.read(65536):
                    yield text
                offset = stream.tell()
        if not live:
            return
        time.sleep(0.5)


def _is_final(opened: object, trial: int) -> bool:
    ledger = opened.ledger  # type: ignore[attr-defined]
    rows = ledger.db.execute(
        "SELECT state IN ('COMPLETE', 'PRUNED', 'FAIL') FROM trials "
        "WHERE study_id = %s AND number = %s",
        (ledger.study_id, trial),
    )
    return bool(rows and rows[0][0])
