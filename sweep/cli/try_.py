"""Train the first point for a minute, and say what came of it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import click

from sweep.cli.common import (
    cpu_option,
    get_runs,
    json_option,
    overrides_option,
    patience_option,
    runs_option,
    say_progress,
    scheduler_for,
)
from sweep.control.check import FAILED, WARNING, Line, has_failed, table
from sweep.core import executors
from sweep.core.errors import EXIT_DONE, EXIT_FAILED
from sweep.core.masking import mask
from sweep.schedulers.choose import resolve
from sweep.studyfile import load
from sweep.tasks.side_runs import trying
from sweep.tasks.side_runs.judge_try import judge


@click.command(
    name="try",
    epilog="\b\nExamples:\n"
    "  sweep try study.yaml                  a minute on this machine\n"
    "  sweep try study.yaml --on-node        where trials would run\n"
    "  sweep try study.yaml --time 300 --set fixed.epochs=1\n"
    "  sweep try study.yaml --cpu            a study of GPUs, on a laptop\n"
    "  sweep try study.yaml --json",
)
@click.argument("study_file", metavar="STUDY.yaml", type=click.Path(path_type=Path))
@click.option(
    "--time",
    "limit_s",
    type=click.IntRange(1, 3600),
    default=trying.LIMIT_S,
    show_default=True,
    metavar="SECONDS",
    help="End the training after so many seconds from its start.",
)
@click.option(
    "--on-node",
    is_flag=True,
    help="Train in a short job with the study's resources, where its trials would run.",
)
@patience_option
@overrides_option
@cpu_option
@json_option
@runs_option
def try_(
    study_file: Path,
    limit_s: int,
    on_node: bool,
    patience: int,
    overrides: tuple[str, ...],
    cpu: bool,
    as_json: bool,
    runs: Path | None,
) -> int:
    """Train the first point for a minute, and say what came of it.

    Shows the command, what was reported or matched in the output and how steps were counted, lines
    that came near a pattern that matched nothing, and the checkpoint that a resumed trial would be
    given. No database and no trial: all that it makes is in a folder that is removed at the end,
    also after Ctrl-C. Ten seconds before the limit training is asked to save and to leave, as
    before a trial's time limit. The exit code is 1 where a trial would fail.
    """
    return try_study(
        study_file,
        limit_s=limit_s,
        on_node=on_node,
        patience_s=patience,
        overrides=overrides,
        cpu=cpu,
        as_json=as_json,
        runs=runs,
    )


def try_study(
    study_file: Path,
    *,
    limit_s: int = trying.LIMIT_S,
    on_node: bool = False,
    patience_s: int = 1800,
    overrides: tuple[str, ...] = (),
    cpu: bool = False,
    as_json: bool = False,
    runs: Path | None = None,
) -> int:
    """Try a study, print what was seen, and return the exit code; see ``try_``."""

    study = load(study_file, overrides, cpu=cpu)
    if not on_node:
        study = dataclasses.replace(study, executor=executors.choose_here())
    study, place = resolve(study), get_runs(runs)
    ready = trying.check(study, place, os.environ)
    tried = trying.run(
        ready,
        place,
        scheduler_for(ready),
        os.environ,
        say_progress,
        patience_s=float(patience_s),
        limit_s=limit_s,
    )
    lines = judge(ready, tried)
    failed = has_failed(lines)
    if as_json:
        click.echo(mask(trying.to_json(tried, lines)))
        return EXIT_FAILED if failed else EXIT_DONE
    click.echo(mask(table(lines)))
    if failed and tried.tail:
        click.echo("\nits output ended with:")
        click.echo(mask("\n".join(f"  | {line}" for line in tried.tail)))
    where = f"on {tried.host}" if on_node else "here"
    verdict = _verdict(lines, study_file, cpu=cpu)
    click.echo(f"\n{study.name}: tried {where}; nothing of it was kept. {verdict}")
    return EXIT_FAILED if failed else EXIT_DONE


def _verdict(lines: list[Line], study_file: Path, *, cpu: bool) -> str:
    counts = [(sum(line.state == state for line in lines), state) for state in (FAILED, WARNING)]
    found = ", ".join(f"{count} {state}" for count, state in counts if count)
    if has_failed(lines):
        return f"A trial would fail: {found}."
    return f"{found or 'All is well'}. Next: sweep launch {study_file} --wait{' --cpu' * cpu}"
