"""A task's hold on the process that prepares the study's proposals (``sweep.tasks.proposer``)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from functools import partial

from sweep.core.errors import SweepError
from sweep.core.paths import StudyFolder
from sweep.core.system import processes
from sweep.search.propose import prepares
from sweep.storage import proposals
from sweep.storage.ledger import Ledger

ASK_EVERY_S = 10.0  # between two questions whether another task has one
MOST_FAILURES = 3  # of its own that a task stands: killed, or the database was away as it began
MODULE = "sweep.tasks.proposer"


class Proposer:
    """Starts and ends it.

    Args:
        ledger: Of the task.
        folder: The study's.
    """

    def __init__(self, ledger: Ledger, folder: StudyFolder) -> None:
        self.ledger = ledger
        self.folder = folder
        self.is_wanted = prepares(ledger.study)
        self._token = os.urandom(8).hex()
        self._child: subprocess.Popen[bytes] | None = None
        self._next_ask = 0.0
        self._failures = 0

    def tend(self) -> None:
        """Start it where nobody else has one and trials wait; again where it has failed.

        Raises:
            DatabaseUnavailable: The database does not answer.
        """
        if not self.is_wanted or time.monotonic() < self._next_ask:
            return
        self._next_ask = time.monotonic() + ASK_EVERY_S
        if self._child is not None:
            if not processes.has_ended(self._child):
                return
            self._failures += processes.has_failed(self._child)
            self._child.wait()
            self._child = None
            if self._failures >= MOST_FAILURES:
                self.is_wanted = False
                return
        db, study_id = self.ledger.db, self.ledger.study_id
        ask = partial(proposals.lease, study_id=study_id, token=self._token, starts=True)
        if db.retry(ask, patience_s=0.0):
            self._child = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(self.folder.root), self._token],
                stdin=subprocess.DEVNULL,
                preexec_fn=processes.die_with(os.getpid()),
            )

    def close(self) -> None:
        """End it; another task's may begin."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        db, study_id = self.ledger.db, self.ledger.study_id
        with contextlib.suppress(SweepError):  # else it ends by itself
            db.retry(lambda _: proposals.end_lease(db, study_id, self._token), patience_s=0.0)
