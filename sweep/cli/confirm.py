"""Commands that say how far a result can be trusted: confirm, diff."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.common import (
    get_runs,
    json_option,
    open_study,
    runs_option,
    scheduler_for,
    study_argument,
    wait_side_runs,
)
from sweep.core.errors import EXIT_FAILED
from sweep.tasks.side_runs import confirm as verb
from sweep.tasks.side_runs import rerun
from sweep.tasks.side_runs.compare import compare, find

if TYPE_CHECKING:
    from sweep.tasks.side_runs.compare import Comparison
    from sweep.tasks.side_runs.confirm import Confirmed


@click.command(
    short_help="Run the best few with fresh seeds; say which is the honest choice.",
    epilog="\b\nExamples:\n"
    "  sweep confirm --wait\n"
    "  sweep confirm digits --top 3 --seeds 10 --wait",
)
@study_argument
@click.option(
    "--top",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="How many of the best trials.",
)
@click.option(
    "--seeds",
    type=click.IntRange(2, 1000),
    default=5,
    show_default=True,
    help="How many fresh seeds each.",
)
@click.option("--wait", is_flag=True, help="Wait for the result; else a later call reports it.")
@json_option
@runs_option
def confirm(
    study: str | None, top: int, seeds: int, wait: bool, as_json: bool, runs: Path | None
) -> None:
    """Run the best few trials with fresh seeds, and say which is the honest choice.

    The best of many noisy results is lucky as well as good. Seeds that had no part in the search
    tell luck from quality: trials are ranked by their mean, with a 95 % confidence interval, and a
    paired test says whether the winner can be told from the second. Asked for more seeds later,
    only the further ones run.
    """
    opened = open_study(get_runs(runs), study)
    schedule = scheduler_for(opened.study)(opened.folder)
    chosen = verb.choose(opened, top)
    fresh = verb.fresh_seeds(opened.study, seeds)
    rerun.refresh(opened, schedule)
    made = verb.request(opened, schedule, os.environ, chosen, fresh)
    if made and not as_json:
        where = opened.folder.root / "reruns"
        click.echo(f"{made} trainings with fresh seeds run in {where}", err=True)
    live = [run.k for run in verb.read(opened, chosen, fresh) if run.outcome is None]
    if live and not wait:
        if as_json:
            click.echo(json.dumps({"study": opened.study.name, "running": len(live)}))
        else:
            click.echo(f"{len(live)} still run; the same command reports later (or: --wait)")
        return
    if live:
        again = "The same command reports later."
        wait_side_runs(opened, schedule, live, f"running {len(live)} trainings", again)
    found = verb.report(opened, chosen, fresh)
    click.echo(json.dumps(found.to_data(), indent=1) if as_json else say(found))
    if found.judgement is None:
        raise click.exceptions.Exit(EXIT_FAILED)


def say(found: Confirmed) -> str:
    """Return the result in words."""
    name, metric = found.study.name, found.study.objective.metric
    data = found.to_data()
    if found.judgement is None:
        return f"No run with a fresh seed gave a {metric}; see {name}'s reruns/*/log.txt."
    lines = [f"{name}: {metric} over {len(found.seeds)} fresh seeds, with 95 % intervals"]
    lines.append("  rank  trial  in the search        mean   interval")
    for entry in data["trials"]:
        interval = "none: needs two values"
        if entry["low"] is not None:
            interval = f"{entry['low']:.6g} to {entry['high']:.6g}"
        failed = f"  ({entry['failed']} failed)" if entry["failed"] else ""
        lines.append(
            f"  {entry['rank']:>4}  {entry['trial']:>5}  {entry['search_value']:>13.6g}  "
            f"{entry['mean']:>10.6g}   {interval}{failed}"
        )
    lines += [f"  trial {trial} gave no value under any fresh seed" for trial in found.no_value]
    choice, second, p_value = data["choice"], data["second"], data["p_value"]
    if second is not None and p_value is not None:
        told = "is better than" if data["distinguishable"] else "cannot be told from"
        lines.append(
            f"trial {choice} {told} the second, trial {second} (paired test, p = {p_value:.2g})"
        )
    if data["seeds_needed"]:
        lines.append(
            f"  about {data['seeds_needed']} seeds would tell them apart: "
            f"--seeds {data['seeds_needed']}"
        )
    if data["as_good"]:
        others = ", ".join(map(str, data["as_good"]))
        lines.append(f"as good, as far as these runs tell: {others}")
    low, high = data["choice_interval"]
    quoted = (
        ""
        if low is None
        else (
            f", {low:.6g} to {high:.6g} allowing for its having been picked from "
            f"{len(data['trials'])}"
        )
    )
    lines.append(
        f"the honest choice: trial {choice}, {metric} {data['trials'][0]['mean']:.6g}{quoted}"
    )
    if found.seed_is_ignored:
        lines.append("every seed gave the same values: does the command use the seed ({seed})?")
    return "\n".join(lines)


@click.command(
    short_help="Compare two trials, re-runs or studies.",
    epilog="\b\nExamples:\n"
    "  sweep diff 7 12              two trials of the study last launched\n"
    "  sweep diff digits:7 digits:r1    a trial and its re-run\n"
    "  sweep diff digits digits-2",
)
@click.argument("a")
@click.argument("b")
@json_option
@runs_option
def diff(a: str, b: str, as_json: bool, runs: Path | None) -> None:
    """Compare two trials, re-runs or studies: values, what made them, metrics and curves.

    A number is a trial, r and a number a re-run, anything else a study; STUDY:7 and STUDY:r2 name
    the study too.
    """
    where = get_runs(runs)
    sides = [find(name, lambda study: open_study(where, study)) for name in (a, b)]
    found = compare(*sides)
    click.echo(found.to_json() if as_json else say_comparison(found))


def say_comparison(found: Comparison) -> str:
    """Return a comparison in words."""
    lines = [f"a: {found.a}", f"b: {found.b}"]
    width = max((len(name) for name in found.values), default=0)
    if found.values:
        lines.append("values that differ")
        lines += [
            f"  {name:<{width}}  {_text(x)}  |  {_text(y)}" for name, (x, y) in found.values.items()
        ]
    for title, sentences in (("study", found.study), ("what made them", found.axes)):
        if sentences:
            lines += [f"{title}", *(f"  {sentence}" for sentence in sentences)]
    if found.curves:
        lines.append("curves")
    for name, curve in found.curves.items():
        steps = "{} and {} steps".format(*curve["steps"])
        if curve["first_difference"] is not None:
            gap = curve["greatest_difference"]
            most = "" if gap is None else f", by {gap:.3g} at most"
            lines.append(f"  {name}: {steps}; apart from step {curve['first_difference']}{most}")
        else:
            lines.append(f"  {name}: {steps}; equal in the {curve['common']} common steps")
    if not (found.values or found.study or found.axes):
        lines.append("nothing else differs, as far as it was recorded")
    return "\n".join(lines)


def _text(value: object) -> str:
    return "-" if value is None else json.dumps(value)
