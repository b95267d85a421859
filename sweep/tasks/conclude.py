"""``--finalise TOKEN``: what follows an array that has ended. The next wave, or the study's end."""

from __future__ import annotations

import os
from functools import partial

from sweep.control import tracker_gaps
from sweep.control.finaliser import finalise
from sweep.control.notifying import tell
from sweep.control.open_study import Opened
from sweep.control.place import training_environ
from sweep.control.reconcile import settle_wave
from sweep.control.slurm_energy import note_tasks
from sweep.core.errors import EXIT_DONE, SchedulerError, SweepError
from sweep.core.masking import mask
from sweep.core.paths import StudyFolder
from sweep.core.sharing import share
from sweep.results.page.write import at_the_end
from sweep.storage.ledger import Ledger
from sweep.tasks.job_study import AWAY_PATIENCE_S, find_ledger
from sweep.tasks.tracking.resend import final_states, resend

TRACK_S, TRACK_BUSY_S = 60.0, 300.0  # for a tracker that is sent again what it has missed


def run(folder: StudyFolder, options: list[str]) -> int:
    """Settle the wave with this token, and submit the next one or write the report."""
    _, token = options
    ledger, schedule = find_ledger(folder)
    ledger.db.patience_s = AWAY_PATIENCE_S
    settle_wave(ledger, folder, schedule, token)
    try:
        _say(finalise(ledger, folder, schedule, token))
    except SchedulerError as error:
        tell(ledger, folder, _say, stuck=f"the next wave was not submitted: {error.message}")
        raise
    if not ledger.db.retry(lambda _: ledger.unfinished()):
        note_tasks(ledger, schedule)
        at_the_end(Opened(folder, ledger.study, ledger), _say)
    tell(ledger, folder, _say)
    if not ledger.db.retry(lambda _: ledger.unfinished()):
        _send_again(ledger, folder)
    share(ledger.study, folder)
    return EXIT_DONE


def _send_again(ledger: Ledger, folder: StudyFolder) -> None:
    """Send what trackers have missed. What they still lack, status says."""
    try:
        environ = training_environ(folder, os.environ)
        states_of = partial(final_states, ledger)
        found = resend(states_of, folder, environ, _say, wait_s=TRACK_S, busy_s=TRACK_BUSY_S)
        for one in found:
            if one.lacking:
                lacks = tracker_gaps.describe(one.lacking)
                _say(f"{one.name} lacks {lacks}: {one.why}")
    except (SweepError, OSError) as error:
        _say(f"trackers: {error}")


def _say(text: str) -> None:
    print(mask(text), flush=True)
