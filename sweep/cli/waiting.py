"""Waiting for what goes on without the user: a study, and runs beside one.

Shown by rich, which `launch` that does not wait starts without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console

from sweep.cli.common import leaving, leaving_study, scheduler_view
from sweep.core.terminal_text import visible
from sweep.results.counts import counted
from sweep.results.live import PATIENCE_S, WAITED_UNSEEN_S, progress, until_over
from sweep.results.status import Status, snapshot
from sweep.tasks.side_runs import rerun

if TYPE_CHECKING:
    from sweep.control.open_study import Opened
    from sweep.core.scheduler import Scheduler


def wait_for_study(opened: Opened, *, quiet: bool = False) -> Status:
    """Show the progress until the study has ended, is held or stopped, or nothing runs it."""
    view = scheduler_view(opened, unseen_s=WAITED_UNSEEN_S)

    def look() -> Status:
        return snapshot(opened.ledger, opened.folder, **view.ask(), shown=0)

    left = leaving_study(opened, f"sweep status {opened.study.name} --watch")
    patient = opened.ledger.db.patient(PATIENCE_S)
    with left, patient, progress(Console(stderr=True, quiet=quiet)) as bar:
        for status in until_over(look, view.every_s):
            bar.update(status)
    if not quiet:
        _show_end(status)
    return status


def _show_end(status: Status) -> None:
    click.echo(f"study {status.name}: {status.state}: {counted(status.counts)}")
    if status.reason and status.reason not in [failure.reason for failure in status.failures]:
        click.echo(f"  {visible(status.reason)}")
    for failure in status.failures:
        where = f" (sweep logs {status.name} {failure.trial})" if failure.log else ""
        click.echo(f"  {failure.count} failed: {visible(failure.reason)}{where}")
        if status.state == "held":
            for line in failure.tail:
                click.echo(f"    | {line}")
    for note in status.notes:
        click.echo(f"  note: {visible(note)}")
    if status.state == "held":
        click.echo(visible(status.next_step))
    elif status.state == "finished":
        top = "see: sweep collect --top 5; sweep report"
        click.echo(top if status.counts["complete"] else "no trial is complete: see sweep logs")
    else:
        click.echo("`sweep launch` goes on")


def wait_side_runs(
    opened: Opened, schedule: Scheduler, numbers: Sequence[int], what: str, again: str
) -> None:
    """Wait for re-runs and their like, showing how many are left; Ctrl-C leaves them running.

    Args:
        what: What is shown.
        again: A sentence on how the result is had after Ctrl-C.
    """

    def show(live: int) -> None:
        shown.update(what if len(numbers) == 1 else f"{what}: {live} of {len(numbers)} left")

    with leaving(f"You left; it goes on. {again}"), Console(stderr=True).status(what) as shown:
        rerun.wait(opened, schedule, numbers, show)
