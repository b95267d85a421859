"""What everyone who has to do with a study does now and then: look after it.

Its tasks come here, and the commands that look at it. Most looks find nothing to do, and what would
do it is not imported then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from sweep.control.finaliser import tend
from sweep.control.reconcile import EVERY_S, UNSEEN_S, Reconciled, reconcile
from sweep.core.errors import CouldNotAsk
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.storage.ledger import Ledger


def look_after(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler,
    say: Callable[[str], None] = lambda _: None,
    *,
    unseen_s: float = UNSEEN_S,
    every_s: float = EVERY_S,
    host: str | None = None,
) -> Reconciled | None:
    """Reconcile, and see to the study's jobs where it is our turn; arguments as reconcile's."""
    found = reconcile(ledger, folder, schedule, unseen_s=unseen_s, every_s=every_s, host=host)
    if found:  # it was our turn to look
        with contextlib.suppress(CouldNotAsk):
            tend(ledger, folder, schedule, say)
    return found
