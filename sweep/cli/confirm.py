"""Run the best few with fresh seeds; say which is the honest one."""

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
)
from sweep.cli.waiting import wait_side_runs
from sweep.core.errors import EXIT_DONE, EXIT_FAILED
from sweep.tasks.side_runs import confirm as verb
from sweep.tasks.side_runs import rerun

if TYPE_CHECKING:
    from sweep.tasks.side_runs.confirm import Confirmed


@click.command(
    epilog="\b\nExamples:\n  sweep confirm --wait\n  sweep confirm digits --top 3 --seeds 10 --wait"
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
) -> int:
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
        return EXIT_DONE
    if live:
        again = "The same command reports later."
        wait_side_runs(opened, schedule, live, f"running {len(live)} trainings", again)
    found = verb.report(opened, chosen, fresh)
    click.echo(json.dumps(found.to_data(), indent=1) if as_json else say(found))
    return EXIT_FAILED if found.judgement is None else EXIT_DONE


def say(found: Confirmed) -> str:
    """Return the result in words."""
    name, metric = found.study.name, found.study.objective.metric
    data = found.to_data()
    if found.judgement is None:
        why = f"\nthe last of them: {found.why}" if found.why else ""
        return f"No run with a fresh seed gave a {metric}; see {name}'s reruns/*/log.txt.{why}"
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
