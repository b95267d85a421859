"""Launch a study, or go on with it."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli import suggest
from sweep.cli.common import (
    cpu_option,
    get_runs,
    json_option,
    open_study,
    overrides_option,
    runs_option,
    say_progress,
    scheduler_for,
)
from sweep.control import retrying
from sweep.control.check import quick
from sweep.control.launch import launch as launch_study
from sweep.control.retrying import WORDS
from sweep.core import executors, trial_choice
from sweep.core.durations import format_time
from sweep.core.errors import EXIT_DONE, EXIT_FAILED, InputError
from sweep.core.masking import hide_arguments
from sweep.core.scheduler import Wave
from sweep.provenance import shared_output
from sweep.provenance import snapshot as code_snapshot
from sweep.results.counts import count_trials
from sweep.schedulers.arrays import (
    array_job,
    array_size,
    level_of,
    name_token,
    task_argv,
    throttle_of,
)
from sweep.schedulers.choose import resolve
from sweep.search.propose import check_design
from sweep.search.valid import check_where
from sweep.storage.access import choose_url
from sweep.studyfile import load
from sweep.training.command import own_ranks

if TYPE_CHECKING:
    from sweep.control.launch import Launched
    from sweep.core.scheduler import Limits


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep launch study.yaml\n"
    "  sweep launch study.yaml --wait\n"
    "  sweep launch study.yaml --set trials=200 --set max_parallel=20\n"
    "  sweep launch study.yaml --dry-run\n"
    "  sweep launch study.yaml --cpu --set trials=4      a GPU study, tried on a laptop\n"
    "  sweep launch study.yaml --retry failed\n"
    "  sweep launch study.yaml --retry oom --set resources.memory=32G\n"
    "  sweep launch study.yaml --retry 3,7-9 --resume"
)
@click.argument("study_file", metavar="STUDY.yaml", type=click.Path(path_type=Path))
@click.option("--wait", is_flag=True, help="Stay and show the progress until the study has ended.")
@click.option("--dry-run", is_flag=True, help="Show what would run; make and submit nothing.")
@click.option(
    "--no-check", is_flag=True, help="Launch also where the look beforehand finds what would fail."
)
@click.option("--executor", type=click.Choice(executors.words()), help="Where the tasks run.")
@overrides_option
@cpu_option
@click.option(
    "--set-aside",
    is_flag=True,
    help="Where this study's folder is one that the database does not know (it was removed, or the "
    "storage was changed), move it to .aside/ in the runs folder and begin anew.",
)
@click.option("--hash-data", is_flag=True, help="Hash all of `data` byte by byte, however large.")
@click.option(
    "--retry",
    multiple=True,
    metavar="TRIALS",
    shell_complete=suggest.trial_list(WORDS),
    help="Give trials that have ended back: numbers (3,7-9) or what became of them "
    f"({', '.join(WORDS)}). They keep their number and begin from nothing, with the code as it is.",
)
@click.option("--resume", is_flag=True, help="With --retry: go on from their newest checkpoint.")
@click.option(
    "--force",
    is_flag=True,
    help="With --retry: also trials with a result, and those that ran out of memory at this size.",
)
@json_option
@runs_option
def launch(
    study_file: Path,
    wait: bool,
    dry_run: bool,
    no_check: bool,
    executor: str | None,
    overrides: tuple[str, ...],
    cpu: bool,
    hash_data: bool,
    set_aside: bool,
    retry: tuple[str, ...],
    resume: bool,
    force: bool,
    as_json: bool,
    runs: Path | None,
) -> int:
    """Launch a study, or go on with it.

    Writes the trials into the database and submits a capped array of tasks that pull them; then
    returns. Launching again is safe: it takes up what was interrupted, adds trials where `trials`
    was raised, and does nothing where nothing is left. What has ended stays so, but for --retry.
    """
    wish = _read_wish(retry, resume, force, dry_run)
    if executor:
        overrides = (*overrides, f"executor={executor}")
    undecided = load(study_file, overrides, cpu=cpu)
    study = resolve(undecided)
    if dry_run:
        _show_plan(study, runs)
        return EXIT_DONE
    where = get_runs(runs)
    schedule_for = scheduler_for(study)
    launched = launch_study(
        study,
        where,
        schedule_for,
        os.environ,
        say_progress,
        undecided=undecided,
        check_first=not no_check,
        hash_data=hash_data,
        set_aside=set_aside,
        retry=wish,
    )
    if not (as_json and wait):
        _show_launched(launched, as_json, where.study(study.name).root, wait)
    if not wait:
        return EXIT_DONE
    from sweep.cli.waiting import wait_for_study

    status = wait_for_study(open_study(where, study.name), quiet=as_json)
    said = launched.notes
    for sentence in shared_output.notes(study, where.study(study.name), None):
        if sentence not in said:  # known only now that trials have run
            click.echo(f"note: {sentence}", err=True)
    if as_json:
        click.echo(status.to_json())
    # A study of which no trial has a result has failed, even if it came to its end.
    is_done = status.state == "finished" and status.counts["complete"]
    return EXIT_DONE if is_done else EXIT_FAILED


def _read_wish(
    retry: tuple[str, ...], resume: bool, force: bool, dry_run: bool
) -> retrying.Wish | None:
    if not retry:
        if resume or force:
            flag = "--resume" if resume else "--force"
            raise InputError(f"{flag} belongs to --retry.", "Give both, or neither.")
        return None
    if dry_run:
        raise InputError(
            "--dry-run shows a launch, and not what --retry would give back.",
            "See it with: sweep collect --state failed",
        )
    return retrying.Wish(trial_choice.parse(retry, "--retry", WORDS), resume, force)


def _show_launched(launched: Launched, as_json: bool, root: Path, wait: bool) -> None:
    if as_json:
        click.echo(json.dumps(asdict(launched), indent=2))
        return
    for sentence in launched.settled:
        click.echo(sentence)
    for sentence in launched.changed:
        click.echo(f"changed: {sentence}")
    for sentence in launched.notes:
        click.echo(f"note: {sentence}")
    if launched.given_back:
        what = count_trials(launched.given_back, "that had failed is", "that had failed are")
        click.echo(f"{what} tried again")
    if launched.retried:
        which = retrying.name_trials(launched.retried)
        click.echo(
            f"retried: {which}, as {'its' if len(launched.retried) == 1 else 'their'} next "
            f"attempt{'' if len(launched.retried) == 1 else 's'}"
        )
    if launched.created:
        click.echo(f"study {launched.name}: {count_trials(launched.added)}, in {root}")
    elif launched.added:
        click.echo(f"study {launched.name}: {count_trials(launched.added)} added")
    if launched.reopened:
        click.echo(f"{count_trials(launched.reopened)} that its end had cancelled: taken up again")
    if launched.ended:
        click.echo(f"study {launched.name}: it has ended early: {launched.ended}")
        click.echo("raise or remove that limit, and `sweep launch` goes on; or see: sweep collect")
        return
    if launched.wave is None:
        click.echo(f"study {launched.name}: all trials have ended; see: sweep collect")
        return
    verb = "submitted" if launched.submitted else "runs already:"
    click.echo(
        f"{verb} {launched.wave.job} (--array=0-{launched.wave.size - 1}%{launched.wave.throttle}, "
        f"{launched.wave.executor}); {count_trials(launched.left, 'is', 'are')} left"
    )
    if not wait:
        click.echo("see: sweep status --watch")


def _show_plan(study: Any, runs: Path | None) -> None:

    quick.check_startable(study, os.environ)
    few = check_where(study)
    check_design(study)
    folder = get_runs(runs).study(study.name)
    schedule = scheduler_for(study)(folder)
    limits = schedule.limits()
    size = array_size(study, study.trials, limits)
    throttle = throttle_of(study, size, executors.slots_of(study), level_of(study, folder))
    click.echo(
        f"study      {study.name}, {study.trials} trials, sampler {study.sampler.type}, "
        f"pruner {study.pruner.type}"
    )
    click.echo(f"command    {' '.join(hide_arguments(study.command))}")
    click.echo(f"workdir    {study.workdir}")
    for clause in study.where:
        click.echo(f"where      {clause}")
    for sentence in filter(None, (few, *own_ranks.notes(study))):
        click.echo(f"note       {sentence}")
    code = code_snapshot.plan(study, get_runs(runs).root, os.environ)
    if code is not None:
        click.echo(f"code       {len(code.tree.files)} files of {code.tree.root} are frozen")
        where = get_runs(runs).study(study.name)
        for sentence in (*code_snapshot.notes(code), *shared_output.notes(study, where, code.tree)):
            click.echo(f"note       {sentence}")
    count = executors.slots_of(study)
    slots = f", {count} trials at once in each task" if count > 1 else ""
    if executors.is_packed(study):
        slots = f", trials share the {'GPU' if count == 1 else f'{count} GPUs'} of each task"
    click.echo(f"array      --array=0-{size - 1}%{throttle} ({schedule.name}{slots})")
    click.echo(f"each task  {shlex.join(task_argv(folder))}")
    in_job = schedule.keeps_database_in_job(study)
    schedule.check_site(embedded=in_job and choose_url(study) is None)
    wave = Wave(name_token(study.name), size, throttle, schedule.name, 0.0, slots=count)
    script, commands = schedule.show(array_job(study, folder, wave))
    if commands:
        click.echo(f"limits     {_limits_line(limits)}")
        for label, argv in zip(("submit", "finaliser"), commands, strict=False):
            click.echo(f"{label:<10} {shlex.join(argv)}")
        click.echo(f"script     {folder.script}")
        for line in script.splitlines():
            click.echo(f"  | {line}")
    if study.resources.time_limit_s:
        most_s = float(study.trials * study.resources.time_limit_s)
        of_gpus = study.resources.gpu_hours(most_s)
        what = f"{of_gpus:.1f} GPU-hours" if of_gpus else f"{most_s / 3600:.1f} hours of tasks"
        click.echo(f"at most    {what}")
    click.echo("nothing was made or submitted")


def _limits_line(limits: Limits) -> str:
    parts = [
        f"{name} {'none' if limit is None else limit}"
        for name, limit in (
            ("tasks in an array:", limits.array_size),
            ("jobs queued:", limits.submitted),
            ("jobs running:", limits.running),
            ("time:", None if limits.time_s is None else format_time(limits.time_s)),
        )
    ]
    return ", ".join(parts)
