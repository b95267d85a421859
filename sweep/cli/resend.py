"""Send again what trackers (W&B, MLflow, …) have missed."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial
from pathlib import Path

import click

from sweep.cli.common import get_runs, open_study, runs_option, say_progress, study_argument
from sweep.control import tracker_gaps
from sweep.control.place import training_environ
from sweep.core.errors import EXIT_DONE, EXIT_FAILED
from sweep.tasks.tracking.resend import final_states
from sweep.tasks.tracking.resend import resend as send

WAIT_S, BUSY_S = 600.0, 24 * 3600.0  # of one that waits for its server, and one that computes


@click.command(
    epilog="\b\nExamples:\n  sweep resend\n  sweep resend digits      # when W&B or MLflow is back"
)
@study_argument
@runs_option
def resend(study: str | None, runs: Path | None) -> int:
    """Send again what the trackers of `track:` have missed: a tracker's process was killed with its
    task, or its server was away until the study had ended.

    A study does so once by itself when it ends, and `sweep status` says what is still missing.
    Nothing comes twice. Trials that are not over wait for a later call.
    """
    opened = open_study(get_runs(runs), study)
    with closing(opened.ledger.db):
        environ = training_environ(opened.folder, os.environ)
        states_of = partial(final_states, opened.ledger)
        found = send(states_of, opened.folder, environ, say_progress, wait_s=WAIT_S, busy_s=BUSY_S)
    if not found:
        names = " and ".join(opened.study.track)
        click.echo(f"{opened.study.name}: nothing is missing" + (f" in {names}." if names else "."))
    for one in found:
        if one.trials:
            many = f"{len(one.trials)} trial{'s' if len(one.trials) > 1 else ''}"
            click.echo(f"{one.name}: has everything of {many} that it lacked.")
        if one.lacking:
            click.echo(f"{one.name} lacks {tracker_gaps.describe(one.lacking)}: {one.why}")
    return EXIT_FAILED if any(one.lacking for one in found) else EXIT_DONE
