"""Run another command of the study on the best trial's checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import suggest
from sweep.cli.common import (
    get_runs,
    json_option,
    open_study,
    runs_option,
    scheduler_for,
    study_argument,
)
from sweep.cli.waiting import wait_side_runs
from sweep.core.errors import EXIT_DONE, EXIT_FAILED, InputError
from sweep.tasks.side_runs import rerun, trial_command

if TYPE_CHECKING:
    from sweep.tasks.side_runs.trial_command import Outcome


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep run evaluate --wait\n"
    "  sweep run export digits --trial 7\n"
    "  sweep run evaluate --report --json"
)
@click.argument("name", metavar="NAME", shell_complete=suggest.study_commands)
@study_argument
@click.option(
    "--trial",
    type=int,
    shell_complete=suggest.trials,
    help="Use this trial's checkpoint instead of the best's.",
)
@click.option(
    "--checkpoint",
    "of",
    type=click.Choice(["best", "last"]),
    default="best",
    help="With objective.at: best that of the best step, where one was saved; or the newest.",
)
@click.option("--wait", is_flag=True, help="Wait for the result; else a later call reports it.")
@click.option("--report", is_flag=True, help="Start nothing: report the newest run again.")
@json_option
@runs_option
def run(
    name: str,
    study: str | None,
    trial: int | None,
    of: str,
    wait: bool,
    report: bool,
    as_json: bool,
    runs: Path | None,
) -> int:
    """Run one of the study's `commands` (evaluate, export, …) on the best trial's checkpoint.

    With the study's software, executor and resources, as a single process. What it reports and
    writes is kept beside the study's trials, in a folder of its own.
    """
    opened = open_study(get_runs(runs), study)
    command = trial_command.as_study(opened.study, name)
    schedule = scheduler_for(command)(opened.folder)
    number, trial_id, _ = rerun.choose_trial(opened, trial)
    if trial not in (None, number):
        click.echo(f"trial {trial} has the result of trial {number}, which counts here", err=True)
    rerun.refresh(opened, schedule)
    k = trial_command.newest(opened, name, number, untold=not report, of=of)
    if k is None and report:
        raise InputError(
            f"{name} has not been run on trial {number} yet.", f"Without --report it is: {name}."
        )
    if k is None:
        k = trial_command.request(
            opened,
            lambda one: scheduler_for(one)(opened.folder),
            os.environ,
            name,
            number,
            trial_id,
            of,
        )
        if not as_json:
            click.echo(f"{name} of trial {number} runs in {opened.folder.rerun(k).root}", err=True)
    if wait:
        again = f"`sweep run {name}` reports once it has ended."
        wait_side_runs(opened, schedule, [k], f"{name} runs", again)
    found = trial_command.read(opened, k)
    if as_json:
        click.echo(found.to_json())
    else:
        _show(found)
    return EXIT_FAILED if found.state == "failed" else EXIT_DONE


def _show(found: Outcome) -> None:
    if found.state is None:
        click.echo(f"it runs; `sweep run {found.command}` reports once it has ended (or: --wait)")
        return
    reason = f": {found.reason}" if found.reason else ""
    click.echo(f"{found.command} of trial {found.trial} of {found.study} {found.state}{reason}")
    rows: list[tuple[str, Any]] = [(n, f"{value:.6g}") for n, value in found.metrics.items()]
    rows += [("file", path) for path in found.files]
    rows += [("checkpoint", found.checkpoint)] if found.checkpoint else []
    rows += [("note", found.note)] if found.note else []
    rows += [("log", f"{found.folder}/log.txt")]
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        click.echo(f"  {label:<{width}}  {value}")
