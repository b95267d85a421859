"""Stop a study; `sweep launch` takes it up again."""

from __future__ import annotations

from pathlib import Path

import click

from sweep.cli.common import get_runs, open_study, runs_option, scheduler_for, study_argument
from sweep.control.waves import stop_waves
from sweep.core.errors import InputError
from sweep.results.terminal import count_trials
from sweep.storage import studies
from sweep.storage.studies import StudyState


@click.command(epilog="\b\nExamples:\n  sweep stop\n  sweep stop digits --drain\n")
@study_argument
@click.option("--drain", is_flag=True, help="Let the running trials end; pull no further ones.")
@click.option("--now", is_flag=True, help="Without `grace`: they are ended within seconds.")
@runs_option
def stop(study: str | None, drain: bool, now: bool, runs: Path | None) -> None:
    """Stop a study: its running trials save a checkpoint and leave, and no further one starts.

    They are told within ten seconds, and have `grace` to leave. `sweep launch` takes the study up
    again; nothing is lost. Only this study's tasks are touched.
    """
    if drain and now:
        raise InputError("--drain lets the running trials end, and --now does not: give one.")
    opened = open_study(get_runs(runs), study)
    ledger = opened.ledger
    word = studies.DRAINING if drain else studies.STOPPED
    state = StudyState(word, "by `sweep stop`")
    left = ledger.db.retry(lambda _: ledger.unfinished())
    if left:  # else it keeps the reason for which it has ended
        ledger.db.retry(lambda db: studies.write_state(db, ledger.study_id, state))
    stop_waves(ledger, scheduler_for(opened.study)(opened.folder), running=not drain, now=now)
    left = ledger.db.retry(lambda _: ledger.unfinished())
    if not left:
        click.echo(f"study {opened.study.name}: all its trials have ended; nothing to stop")
        return
    if drain:
        click.echo(f"study {opened.study.name}: no further trial starts; those that run may end")
    else:
        click.echo(f"study {opened.study.name}: stopped; {count_trials(left, 'is', 'are')} left")
    click.echo("`sweep launch` takes it up again")
