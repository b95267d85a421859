"""Train a trial's values for a minute, and say what holds it back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from sweep.cli.common import (
    get_runs,
    json_option,
    open_study,
    patience_option,
    read_study_and_trial,
    runs_option,
    say_progress,
    scheduler_for,
    study_and_trial_argument,
)
from sweep.core.errors import EXIT_DONE, EXIT_FAILED
from sweep.core.masking import mask
from sweep.core.outcomes import FINISHED, INTERRUPTED, TIMEOUT
from sweep.core.sharing import share
from sweep.results.held_back import sentences
from sweep.tasks.side_runs import profile_run
from sweep.tasks.side_runs import shell as side_shell


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep profile                     the best trial's values, for a minute\n"
    "  sweep profile digits 7 --time 180\n"
    "  sweep profile --py-spy --torch    with a flame graph, and torch's profiler\n"
    "  sweep profile --nsys              with Nsight Systems, where it is installed\n"
    "  sweep profile --json"
)
@study_and_trial_argument
@click.option(
    "--time",
    "limit_s",
    type=click.IntRange(1, 86400),
    default=profile_run.LIMIT_S,
    show_default=True,
    metavar="SECONDS",
    help="End the training after so many seconds from its start.",
)
@click.option("--py-spy", "flames", is_flag=True, help="Also py-spy's flame graph.")
@click.option("--torch", is_flag=True, help="Also torch's profiler, over twenty steps.")
@click.option("--nsys", is_flag=True, help="Also Nsight Systems, of twenty seconds.")
@patience_option
@json_option
@runs_option
def profile(
    study_and_trial: tuple[str, ...],
    limit_s: int,
    flames: bool,
    torch: bool,
    nsys: bool,
    patience: int,
    as_json: bool,
    runs: Path | None,
) -> int:
    """Train a trial's values for a minute (the best trial's, or TRIAL's), and say what holds the
    training back: its loader, the file system, exchanges between ranks, memory, small operations.

    It runs where trials run, with the code as it is now, and is looked at from outside: processes,
    files and GPUs; with py-spy (pip install 'sweep-hpo[profile]') also what it waits for. Nothing
    of it counts as a trial; what was seen is kept in runs/<name>/profiles/, and on the page of
    sweep report. `profile: true` in a study file does the same for each of its trials.
    """
    name, number = read_study_and_trial(study_and_trial)
    opened = open_study(get_runs(runs), name)
    values = side_shell.choose_values(opened, number)
    wanted = profile_run.ProfileWanted(limit_s, flames, torch, nsys)
    study = profile_run.with_profilers(opened.study, wanted)
    opened.ledger.db.close()
    found = profile_run.run(
        study,
        values,
        wanted,
        opened.folder,
        scheduler_for(study),
        os.environ,
        say_progress,
        patience_s=float(patience),
    )
    share(opened.study, opened.folder, opened.folder.profiles)
    failed = found.outcome not in (FINISHED, INTERRUPTED, TIMEOUT) or not found.profile
    files = [str(path) for path in found.files]
    if as_json:
        data = {"trial": found.trial, "outcome": found.outcome, "reason": found.reason}
        click.echo(mask(json.dumps({**data, **found.profile, "files": files}, indent=1)))
        return EXIT_FAILED if failed else EXIT_DONE
    if failed:
        click.echo(f"trial {found.trial}: {found.outcome}: {found.reason}")
        click.echo(mask("\n".join(f"  | {line}" for line in found.tail)))
    if found.profile:
        lines = sentences(found.profile)
        click.echo(f"{opened.study.name}, trial {found.trial}: {lines[0]}")
        click.echo("\n".join(f"  {line}" for line in lines[1:]))
    for path in [*files, str(found.folder / "profile.json")]:
        click.echo(f"written: {path}", err=True)
    return EXIT_FAILED if failed else EXIT_DONE
