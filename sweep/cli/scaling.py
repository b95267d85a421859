"""Measure how the training speeds up with more GPUs."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import suggest
from sweep.cli.common import get_runs, json_option, open_study, runs_option, study_argument
from sweep.core import executors
from sweep.core.errors import EXIT_DONE, EXIT_FAILED, InputError
from sweep.core.files import write_atomic
from sweep.core.masking import hide_arguments, mask
from sweep.core.shell_text import show_command
from sweep.provenance.code import capture_code
from sweep.schedulers.choose import resolve, scheduler_of
from sweep.studyfile import load
from sweep.studyfile.overrides import parse_setting
from sweep.tasks.side_runs import rerun, scaling_report
from sweep.tasks.side_runs import scaling as measured
from sweep.tasks.side_runs import scaling_figures as figures
from sweep.tasks.side_runs.scaling import default_params
from sweep.tasks.side_runs.side_run import params_of

if TYPE_CHECKING:
    from sweep.core.paths import Runs
    from sweep.core.study import Study


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep scaling study.yaml --gpus 1,2,4\n"
    "  sweep scaling study.yaml --gpus 1,2 --mode weak --param batch_size=256 --param epochs=3\n"
    "  sweep scaling study.yaml --ranks 1,2 --executor local\n"
    "  sweep scaling digits --gpus 4,8,16 --per-node 4\n"
    "  sweep scaling digits --gpus 1,2,4 --repeats 3    how far apart, how many fail"
)
@study_argument
@click.option("--gpus", metavar="N,N,…", help="Numbers of GPUs, one process on each.")
@click.option("--ranks", metavar="N,N,…", help="Numbers of processes on CPUs instead.")
@click.option(
    "--mode",
    type=click.Choice(["strong", "weak"]),
    default="strong",
    show_default=True,
    help="strong: the same global batch for all; weak: the same batch for each process.",
)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value for the training. Others: of the best trial (or --trial) of a study that has "
    "run; else of the first of `points`.",
)
@click.option(
    "--batch",
    default="batch_size",
    show_default=True,
    metavar="NAME",
    help="The parameter that is the batch of all processes together.",
)
@click.option(
    "--trial", type=int, shell_complete=suggest.trials, help="Take the values of this trial."
)
@click.option("--per-node", type=click.IntRange(1), help="Most processes on one node.")
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Train so often with each number, and say how far apart they lie and how many failed.",
)
@click.option("--executor", type=click.Choice(executors.words()), help="Where the trainings run.")
@json_option
@runs_option
def scaling(
    study: str | None,
    gpus: str | None,
    ranks: str | None,
    mode: str,
    params: tuple[str, ...],
    batch: str,
    trial: int | None,
    per_node: int | None,
    repeats: int,
    executor: str | None,
    as_json: bool,
    runs: Path | None,
) -> int:
    """Measure how the study's training speeds up with more GPUs, and what holds it back.

    Runs the training once for each number, one after another, and compares what it reports with
    SWEEP_PROFILE=1 set: examples a second, shares of compute, communication and data, memory.
    A table, a sentence on the bottleneck, and results/scaling-MODE.md: a short report of
    commands, environment, table, picture (.png) and conclusion; .json has the figures.
    Interrupted, it shows those that had ended.
    """
    if bool(gpus) == bool(ranks):
        raise InputError("Give --gpus or --ranks.", "For example --gpus 1,2,4.")
    where = get_runs(runs)
    found, values = _subject(where, study, trial, executor)
    values = {**values, **dict(parse_setting(each, "--param", "epochs=3") for each in params)}
    cases = measured.plan(
        found,
        _parse_counts(gpus or ranks or ""),
        values,
        on_gpus=bool(gpus),
        mode=mode,
        batch=batch,
        per_node=per_node,
    )
    folder = where.study(found.name)
    unit = "GPU" if gpus else "process"
    report: dict[str, Any] = {}
    counts = iter([case.ranks for case in cases] * repeats)
    try:
        click.echo(f"… {next(counts)} of {cases[-1].ranks}", err=True)
        trained = measured.run_all(
            cases, found.name, mode, unit, folder, scheduler_of, os.environ, repeats
        )
        for report in trained:  # noqa: B007 (the last one is shown)
            if (following := next(counts, None)) is not None:
                click.echo(f"… {following} of {cases[-1].ranks}", err=True)
    finally:
        # Also of an interrupted one: each training that has ended took its time.
        if report:
            path = measured.report_path(folder, mode)
            _show_scaling(report, path, _about(found, where), as_json)
    return EXIT_FAILED if any(row["failed"] for row in report["rows"]) else EXIT_DONE


def _about(study: Study, where: Runs) -> dict[str, Any]:
    """Return what a report says beside the figures: how it was made, of which code."""
    code, _ = capture_code(study.command, Path(study.workdir), where.root)
    return {
        "called": shlex.join(hide_arguments(["sweep", *sys.argv[1:]])),
        "command": show_command(hide_arguments(study.command)),
        "code": code,
        "made": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
    }


def _show_scaling(report: dict[str, Any], path: Path, about: dict[str, Any], as_json: bool) -> None:
    rows, unit, picture = report["rows"], report["unit"], path.with_suffix(".png")
    title = f"{report['study']}: {report['mode']} scaling"
    why_not = figures.draw(rows, title, unit, picture)
    if as_json:
        click.echo(json.dumps(report, indent=1))
    else:
        click.echo(figures.table(rows))
        for row in rows:
            for reason in dict.fromkeys(row["reasons"]):
                many = f"{row['reasons'].count(reason)} of {row['runs']} failed: "
                said = f"{row['ranks']}: {many if row['runs'] > 1 else ''}{reason}"
                click.echo(f"{said} (log: {row['folder']}/log.txt)")
        click.echo(" ".join(filter(None, (report["bottleneck"], report["repeated"]))))
    page = path.with_suffix(".md")
    text = scaling_report.markdown({**report, **about}, "" if why_not else picture.name)
    write_atomic(page, mask(text))
    click.echo(f"report: {page}", err=True)
    click.echo(f"written: {path}", err=True)
    click.echo(why_not or f"plot: {picture}", err=True)


def _subject(
    where: Runs, name: str | None, trial: int | None, executor: str | None
) -> tuple[Study, dict[str, Any]]:
    """Return the study that is meant and the values to train with."""
    if name and name.endswith((".yaml", ".yml")) and trial is None:
        study = resolve(load(Path(name), (f"executor={executor}",) if executor else ()))
        return study, default_params(study)
    opened = open_study(where, name)
    study = opened.study
    if executor:
        study = resolve(dataclasses.replace(study, executor=executor))
    _, trial_id, _ = rerun.choose_trial(opened, trial)
    return study, params_of(opened.ledger, trial_id)


def _parse_counts(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"{text!r} must be numbers above 0 with commas.", "For example 1,2,4.")
    return [int(part) for part in parts]
