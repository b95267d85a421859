"""Run the best trial again and say whether it reproduced."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

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
from sweep.core.errors import EXIT_DIFFERS, EXIT_DONE, EXIT_FAILED, InputError
from sweep.core.files import write_output
from sweep.core.sharing import share
from sweep.provenance import manifest
from sweep.provenance.lock import write_lock
from sweep.storage import reruns
from sweep.tasks.side_runs import rerun
from sweep.tasks.side_runs.reproduction import (
    DIFFERS,
    FAILED,
    curves,
    judge,
    parse_tolerance,
    to_json,
)
from sweep.tasks.side_runs.rerun_plot import plot_rerun
from sweep.tasks.side_runs.side_run import ask

if TYPE_CHECKING:
    from sweep.control.open_study import Opened
    from sweep.tasks.side_runs.reproduction import Verdict


@click.command(
    name="rerun-best",
    epilog="\b\nExamples:\n"
    "  sweep rerun-best --wait\n"
    "  sweep rerun-best digits --trial 7 --tolerance 0.5%\n"
    "  sweep rerun-best --top 3 --wait        the best three, one verdict each\n"
    "  sweep rerun-best --repeats 3 --wait    the noise floor: how far repeats lie apart\n"
    "  sweep rerun-best --seeds 5 --wait      and with five other seeds\n"
    "  sweep rerun-best --lock best.txt       its packages, for pip install -r best.txt",
)
@study_argument
@click.option(
    "--trial",
    type=int,
    shell_complete=suggest.trials,
    help="Run this trial again instead of the best.",
)
@click.option("--top", type=click.IntRange(1, 1000), help="Run so many of the best again.")
@click.option("--wait", is_flag=True, help="Wait for the result; else a later call reports it.")
@click.option("--seeds", type=click.IntRange(0, 1000), default=0, help="Also so many other seeds.")
@click.option(
    "--repeats",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="So many times with the same seed.",
)
@click.option("--report", is_flag=True, help="Start nothing: report the newest re-run again.")
@click.option(
    "--anyway", is_flag=True, help="Run even where the trial's code, image or data are gone."
)
@click.option(
    "--lock",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Start nothing: write the packages that the trial ran with, as pip install -r takes them.",
)
@click.option("--tolerance", default="1%", show_default=True, help="What still counts as equal.")
@json_option
@runs_option
def rerun_best(
    study: str | None,
    trial: int | None,
    top: int | None,
    wait: bool,
    seeds: int,
    repeats: int,
    report: bool,
    anyway: bool,
    lock: Path | None,
    tolerance: str,
    as_json: bool,
    runs: Path | None,
) -> int:
    """Run the best trial again, from the start, and say whether it reproduced.

    A trial of several replicates is repeated with each of its seeds, and the means are compared.
    Same parameters, seed, code and image; without any checkpoint; it must report as many steps. The
    verdict is "reproduced", "explained" (it differs, and so does something that makes a run) or
    "differs". Exit code 3 when it differs. Refused where the trial's code, image or data are gone.
    """
    allowed = parse_tolerance(tolerance)
    if trial is not None and top is not None:
        raise InputError("--trial and --top both say which trials.", "Give one of them.")
    if lock is not None and (wait or report or seeds or repeats > 1 or top):
        raise InputError(
            "--lock starts and reports nothing.", "Give it alone, or with --trial N: --lock FILE."
        )
    opened = open_study(get_runs(runs), study)
    if lock is not None:
        _write_lock(opened, trial, lock, as_json=as_json)
        return EXIT_DONE
    schedule = scheduler_for(opened.study)(opened.folder)
    chosen = rerun.choose_trials(opened, trial, top or 1)
    if trial is not None and chosen[0][0] != trial:
        other = chosen[0][0]
        click.echo(f"trial {trial} has the result of trial {other}, which runs again", err=True)
    rerun.refresh(opened, schedule)
    known = {number: rerun.newest(opened, number, untold=not report) for number, *_ in chosen}
    new = [each for each in chosen if not known[each[0]]]
    if report and new:
        raise InputError(
            f"Trial {new[0][0]} has not been run again yet.", "Without --report it is: rerun-best."
        )
    numbers = {number: found[0].k for number, found in known.items() if found}
    waited = [run.k for found in known.values() for run in found]
    if new:
        plan: list[tuple[int, str, int]] = []
        for number, trial_id, _ in new:
            numbers[number] = len(plan)  # its place; the first run's number is added below
            plan += rerun.plan(opened.ledger, number, trial_id, seeds=seeds, repeats=repeats)
        made = rerun.submit(
            opened, schedule, os.environ, plan, [number for number, *_ in new], anyway=anyway
        )
        waited += made
        for number, trial_id, value in new:
            numbers[number] = made[numbers[number]]
            where = opened.folder.rerun(numbers[number]).root
            count = sum((trial_id, reruns.SAME_SEED) == each[:2] for each in plan)
            times = f" {count} times, from {where} on" if count > 1 else f" in {where}"
            metric = opened.study.objective.metric
            if not as_json:
                whose = f"trial {number} ({metric} {value:.6g})"
                click.echo(f"{whose} runs again{times}", err=True)
    if wait:
        again = "`sweep rerun-best` reports once it has ended."
        wait_side_runs(opened, schedule, waited, f"running {len(waited)} trainings again", again)
    elif new or any(run.outcome is None for found in known.values() for run in found):
        if as_json:
            waiting = [{"trial": n, "k": k, "verdict": None} for n, k in numbers.items()]
            click.echo(json.dumps(waiting if top else waiting[0]))
        else:
            click.echo("it runs; `sweep rerun-best` reports once it has ended (or: --wait)")
        return EXIT_DONE
    verdicts = [_draw(opened, judge(opened, numbers[number], allowed)) for number, *_ in chosen]
    if as_json:
        click.echo(to_json(verdicts, as_list=bool(top)))
    else:
        for verdict in verdicts:
            show(verdict)
    said = {verdict.verdict for verdict in verdicts}
    if DIFFERS in said:
        return EXIT_DIFFERS
    return EXIT_FAILED if FAILED in said else EXIT_DONE


def _write_lock(opened: Opened, trial: int | None, path: Path, *, as_json: bool) -> None:
    """Write the requirements of a trial's environment into a file."""
    number, *_ = rerun.choose_trial(opened, trial)
    record = manifest.of_trial(opened.folder, number)["environment"]
    made = write_lock(record, f"Packages of trial {number} of {opened.study.name}")
    write_output(path, made.text, "Give another place: --lock FILE.")
    if as_json:
        said = {"trial": number, "lock": str(path), "notes": list(made.notes)}
        click.echo(json.dumps(said, ensure_ascii=False))
        return
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"wrote {path}: packages of trial {number}, for pip install -r {path}", err=True)


def _draw(opened: Opened, verdict: Verdict) -> Verdict:
    """Draw both learning curves, and return the verdict with their picture."""
    run = ask(opened.ledger, reruns.read, verdict.k)
    path = opened.folder.rerun(verdict.k).root / "curves.png"
    if run is None or not path.parent.is_dir():
        return verdict
    why = plot_rerun(opened.study, verdict, curves(opened, run), path)
    share(opened.study, opened.folder, path)
    return verdict if why else dataclasses.replace(verdict, picture=str(path))


def show(verdict: Verdict) -> None:
    """Print a verdict in words."""
    click.echo(f"trial {verdict.trial} of {verdict.study}, {verdict.metric}")
    click.echo(f"  original             {verdict.original!r} ({verdict.steps[0]} steps)")
    if verdict.rerun is not None:
        click.echo(f"  again                {verdict.rerun!r} ({verdict.steps[1]} steps)")
    if verdict.relative_difference is not None:
        click.echo(
            f"  relative difference  {verdict.relative_difference:.3g} "
            f"(tolerance {verdict.tolerance:g})"
        )
    if verdict.replicates:
        click.echo(f"  means of             {len(verdict.replicates)} trainings")
        for one in verdict.replicates:
            click.echo(f"    seed {one['seed']:<12} {one['original']!r} → {one['rerun']!r}")
    if verdict.apart_from is not None:
        click.echo(f"  curves               apart from step {verdict.apart_from}")
    if verdict.noise is not None:
        noise = verdict.noise
        click.echo(
            f"  noise floor          {noise.relative:.3g}: {noise.runs} runs with the same seed "
            f"gave {noise.low:.6g} to {noise.high:.6g}"
        )
    others = [value for value in verdict.other_seeds if value is not None]
    if others:
        mean = sum(others) / len(others)
        click.echo(
            f"  other seeds          mean {mean:.6g}, {min(others):.6g} to {max(others):.6g} "
            f"({len(others)} runs)"
        )
    click.echo(f"  verdict              {verdict.verdict}")
    if verdict.axes:
        click.echo(f"  what differs         {', '.join(verdict.axes)}")
    for sentence in verdict.differences:
        click.echo(f"    {sentence}")
    if verdict.causes:
        click.echo("  nothing that was recorded differs. Such trainings differ by")
        for sentence in verdict.causes:
            click.echo(f"    - {sentence}")
        if verdict.noise is None:
            click.echo(
                "  how far repeats lie apart: sweep rerun-best "
                f"{verdict.study} --trial {verdict.trial} --repeats 3 --wait"
            )
    if verdict.picture:
        click.echo(f"  picture              {verdict.picture}")
    if verdict.verdict == "failed" and Path(verdict.folder, "log.txt").exists():
        click.echo(f"  log                  {verdict.folder}/log.txt")
