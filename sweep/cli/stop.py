"""Stop a study, or cancel single trials of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import suggest
from sweep.cli.common import get_runs, open_study, runs_option, scheduler_for, study_argument
from sweep.control import cancel_trials
from sweep.control.waves import stop_study
from sweep.core import trial_choice
from sweep.core.errors import InputError
from sweep.results.counts import count_trials
from sweep.tasks.side_runs import side_run

if TYPE_CHECKING:
    from sweep.control.open_study import Opened


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep stop\n"
    "  sweep stop digits --drain\n"
    "  sweep stop --trial 7\n"
    "  sweep stop digits --trial 3,7-9"
)
@study_argument
@click.option("--drain", is_flag=True, help="Let the running trials end; pull no further ones.")
@click.option("--now", is_flag=True, help="Without `grace`: they are ended within seconds.")
@click.option(
    "--trial",
    "trials",
    multiple=True,
    metavar="TRIALS",
    shell_complete=suggest.trial_list(),
    help="Cancel only these, by number (7, or 3,7-9); the study goes on.",
)
@runs_option
def stop(
    study: str | None, drain: bool, now: bool, trials: tuple[str, ...], runs: Path | None
) -> None:
    """Stop a study: its running trials save a checkpoint and leave, and no further one starts.

    They are told within ten seconds, and have `grace` to leave. `sweep launch` takes the study up
    again; nothing is lost. Re-runs and other commands of the study are ended too, but not with
    --drain. Only this study's tasks are touched.

    With --trial single trials are cancelled, and the study goes on: one that waits at once, one
    that runs once it has left. That is final; `sweep launch STUDY.yaml --retry 7` gives it back.
    What its task runs beside it, or next, is not touched.
    """
    if drain and now:
        raise InputError("--drain lets the running trials end, and --now does not: give one.")
    if drain and trials:
        raise InputError("--drain stops the whole study, and --trial single trials: give one.")
    choice = trial_choice.parse(trials, "--trial")
    opened = open_study(get_runs(runs), study)
    if trials:
        _cancel(opened, choice, now)
        return
    schedule = scheduler_for(opened.study)(opened.folder)
    left = stop_study(opened.ledger, schedule, "by `sweep stop`", drain=drain, now=now)
    beside = 0 if drain else side_run.stop_all(opened, schedule)
    if beside:
        which = "re-run or other command is" if beside == 1 else "re-runs or other commands are"
        click.echo(f"study {opened.study.name}: {beside} {which} told to end")
    if not left:
        if not beside:
            click.echo(f"study {opened.study.name}: all its trials have ended; nothing to stop")
        return
    if drain:
        click.echo(f"study {opened.study.name}: no further trial starts; those that run may end")
    else:
        click.echo(f"study {opened.study.name}: stopped; {count_trials(left, 'is', 'are')} left")
    click.echo("`sweep launch` takes it up again")


def _cancel(opened: Opened, choice: trial_choice.TrialChoice, now: bool) -> None:
    schedule = scheduler_for(opened.study)(opened.folder)
    for number, said in cancel_trials.cancel(opened, schedule, choice, now=now):
        click.echo(f"trial {number}: {said}")
