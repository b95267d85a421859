"""``sweep check --on-node``: the table of what a node says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from sweep.cli.common import get_runs, scheduler_for
from sweep.control.check import FAILED, NOT_ASKED, OK, WARNING, has_failed, table
from sweep.control.check.on_node import check
from sweep.core.errors import EXIT_FAILED
from sweep.schedulers.choose import resolve
from sweep.studyfile import load
from sweep.training import build


def check_on_node(
    study_file: Path,
    executor: str | None,
    overrides: tuple[str, ...],
    patience_s: int,
    as_json: bool,
    runs: Path | None,
) -> None:
    """Ask on a node, and print the table; leaves with 1 where a line has failed."""
    if executor:
        overrides = (*overrides, f"executor={executor}")

    def say(text: str) -> None:
        click.echo(f"… {text}", err=True)

    place = get_runs(runs)
    # As launch does it: what is asked is what trials would start.
    study, _ = build.ensure(resolve(load(study_file, overrides)), place, os.environ, say)
    lines = check(study, place, scheduler_for(study), os.environ, say, float(patience_s))
    failed = has_failed(lines)
    if as_json:
        data = {"study": study.name, "ok": not failed, "lines": [one.to_data() for one in lines]}
        click.echo(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        click.echo(table(lines))
        counts = [
            (sum(line.state == state for line in lines), state)
            for state in (FAILED, WARNING, OK, NOT_ASKED)
        ]
        found = ", ".join(f"{count} {state}" for count, state in counts if count)
        click.echo(f"{study.name}: {found}")
    if failed:
        raise click.exceptions.Exit(EXIT_FAILED)
