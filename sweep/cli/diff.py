"""Compare two trials, re-runs or studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli import suggest
from sweep.cli.common import get_runs, json_option, open_study, runs_option
from sweep.results import cost_text
from sweep.tasks.side_runs.diff import compare, find

if TYPE_CHECKING:
    from sweep.tasks.side_runs.diff import Comparison


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep diff 7 12                  two trials of the study last launched\n"
    "  sweep diff digits:7 digits:r1    a trial and its re-run\n"
    "  sweep diff digits digits-2       two studies, and what the same quality cost in each"
)
@click.argument("a", shell_complete=suggest.sides)
@click.argument("b", shell_complete=suggest.sides)
@json_option
@runs_option
def diff(a: str, b: str, as_json: bool, runs: Path | None) -> None:
    """Compare two trials, re-runs or studies: values, what made them, metrics and curves; of two
    studies also what each quality level cost: time, GPU-hours, energy.

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
            f"  {name:<{width}}  {_text(found, name, 'a', x)}  |  {_text(found, name, 'b', y)}"
            for name, (x, y) in found.values.items()
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
    if found.costs:
        lines += ["cost", *_cost_lines(found)]
    return "\n".join(lines)


def _cost_lines(found: Comparison) -> list[str]:
    """Return what both studies took, side by side: in all, and to each quality level."""
    assert found.costs is not None
    a, b = (dict(cost_text.facts(one)) for one in found.costs)
    rows = [["", "a", "b"], *([name, a.get(name, "-"), b.get(name, "-")] for name in {**a, **b})]
    lines = cost_text.aligned(rows)
    if found.levels:
        lines += ["", *cost_text.aligned(cost_text.common_cells(found.levels, *found.costs))]
    elif found.costs[0].metric != found.costs[1].metric:
        lines.append("their objectives differ: quality levels cannot be compared")
    return [f"  {line}".rstrip() for line in lines]


def _text(found: Comparison, name: str, side: str, value: object) -> str:
    """Return a value as JSON; "-" where the side has none, which is another thing than null."""
    is_there = found.only_in.get(name, side) == side
    return json.dumps(value, ensure_ascii=False) if is_there else "-"
