"""Open a shell in the study's environment, with a trial's values."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from sweep.cli.common import (
    get_runs,
    open_study,
    read_study_and_trial,
    runs_option,
    say_progress,
    scheduler_for,
    study_and_trial_argument,
)
from sweep.tasks.side_runs import shell as side_shell


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep shell                       with the best trial's values\n"
    "  sweep shell digits 7\n"
    "  sweep shell 7 -c 'python train.py --config $SWEEP_CONFIG'\n"
    "  sweep shell --write --root        install into the container that environment.name names"
)
@study_and_trial_argument
@click.option("-c", "line", metavar="COMMAND", help="Run this line of shell, and leave.")
@click.option("--write", is_flag=True, help="Keep what is changed within the container.")
@click.option("--root", is_flag=True, help="Be root within the container.")
@runs_option
def shell(
    study_and_trial: tuple[str, ...], line: str | None, write: bool, root: bool, runs: Path | None
) -> int:
    """Open a shell in the study's environment, with a trial's values: the best trial's, or TRIAL's.

    On a cluster it runs on a node, with what a trial gets; else here. It begins in the study's
    working folder, with the variables that a trial has ($SWEEP_CONFIG is the file of its values);
    what it reports and saves goes to a folder that is removed at the end. Its exit code is the
    shell's.
    """
    name, number = read_study_and_trial(study_and_trial)
    where = get_runs(runs)
    opened = open_study(where, name)
    values = side_shell.choose_values(opened, number)
    study = side_shell.as_study(opened.study, line, write=write, root=root)
    opened.ledger.db.close()
    return side_shell.run(
        study,
        values,
        where,
        scheduler_for(study),
        os.environ,
        say_progress,
        training=opened.study.command,
        is_terminal=line is None and sys.stdin.isatty(),
    )
