"""Show what is free where a study runs, and what stands before it."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import click

from sweep.cli.common import (
    get_runs,
    json_option,
    open_study,
    runs_option,
    scheduler_for,
    study_argument,
)
from sweep.core.site_view import SiteView
from sweep.results.site_lines import site_lines
from sweep.storage import studies

EVERY_S = 10.0  # a cluster's queue belongs to everybody


@click.command(
    epilog="\b\nExamples:\n  sweep top\n  sweep top digits --watch\n"
    "  sweep top --json | jq '.waiting | length'"
)
@study_argument
@click.option("--watch", is_flag=True, help="Look again every ten seconds, until Ctrl-C.")
@json_option
@runs_option
def top(study: str | None, watch: bool, as_json: bool, runs: Path | None) -> None:
    """Show which GPUs, shards and CPUs are free where a study runs, and what waits before it.

    On Slurm: the nodes of the study's partition (one sinfo), everybody's jobs that wait there in
    the order of their priority (one squeue), why the study's own wait, and when Slurm expects them
    to start. Elsewhere: this machine.
    """
    opened = open_study(get_runs(runs), study)
    schedule = scheduler_for(opened.study)(opened.folder)
    db, study_id = opened.ledger.db, opened.ledger.study_id
    while True:
        view = schedule.site_view()
        waves = db.retry(lambda _: studies.read_waves(db, study_id, live_only=True))
        mine = {wave.job for wave in waves if wave.job}
        click.echo(_json(view, mine) if as_json else "\n".join(site_lines(view, mine)))
        if not watch:
            return
        click.echo("")
        time.sleep(EVERY_S)


def _json(view: SiteView, mine: set[str]) -> str:
    return json.dumps({**dataclasses.asdict(view), "mine": sorted(mine)}, ensure_ascii=False)
