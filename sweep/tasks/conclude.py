"""``--finalise TOKEN``: what follows an array that has ended. The next wave, or the study's end."""

from __future__ import annotations

from sweep.control.finaliser import finalise
from sweep.control.notifying import tell
from sweep.control.open_study import Opened
from sweep.control.reconcile import settle_wave
from sweep.control.slurm_energy import note_tasks
from sweep.core.errors import EXIT_DONE, SchedulerError
from sweep.core.masking import mask
from sweep.core.paths import StudyFolder
from sweep.core.sharing import share
from sweep.results.page.write import at_the_end
from sweep.tasks.job_study import AWAY_PATIENCE_S, find_ledger


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
    share(ledger.study, folder)
    return EXIT_DONE


def _say(text: str) -> None:
    print(mask(text), flush=True)
