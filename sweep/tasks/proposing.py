"""A task's hold on the process that prepares the study's proposals (``sweep.tasks.proposer``)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from sweep.core.errors import SweepError
from sweep.core.paths import StudyFolder
from sweep.core.system import processes
from sweep.search.propose import prepares
from sweep.search.samplers import takes_long
from sweep.storage import proposals
from sweep.storage.ledger import Ledger

ASK_EVERY_S = 2.0  # at least, between two questions whether another task has one
AGAIN_S = 10.0  # before it is started again where it has ended by itself
MOST_FAILURES = 3  # of its own that a task stands: killed, or the database was away as it began
MODULE = "sweep.tasks.proposer"


class Proposer:
    """Starts and ends it.

    Args:
        ledger: Of the task.
        folder: The study's.

    Attributes:
        is_wanted: Whether it may be started (again).
        has_failed: Whether it has ended by itself, by a failure, and was not started again since.
    """

    def __init__(
        self, ledger: Ledger, folder: StudyFolder, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.ledger = ledger
        self.folder = folder
        self.is_wanted = prepares(ledger.study)
        self.has_failed = False
        self.stands_by = takes_long(ledger.study)  # until it is the one that prepares
        self._token = os.urandom(8).hex()
        self._child: subprocess.Popen[bytes] | None = None
        self._next_ask = 0.0
        self._failures = 0
        self._clock = clock

    def mend(self) -> None:
        """Start it again at once where this task's was killed. Asks nobody while it lives.

        Raises:
            DatabaseUnavailable: The database does not answer.
        """
        child = self._child
        if child is None or not processes.has_ended(child):
            return
        has_failed = processes.has_failed(child)
        was_killed = child.wait() < 0
        self.has_failed = has_failed and not was_killed
        self._failures += has_failed
        self._child = None
        self._end_lease()  # one that stands by comes first
        self._next_ask = self._clock() + (0.0 if was_killed else AGAIN_S)
        if self._failures >= MOST_FAILURES:
            self.is_wanted = False
        elif was_killed:
            self.tend()

    def tend(self) -> None:
        """Start it where nobody else has one and trials wait; again where it has failed. Where its
        sampler takes long to bring in, a second one stands by.

        Raises:
            DatabaseUnavailable: The database does not answer.
        """
        self.mend()
        if not self.is_wanted or self._child is not None or self._clock() < self._next_ask:
            return
        self._next_ask = self._clock() + ASK_EVERY_S
        db, study_id = self.ledger.db, self.ledger.study_id
        ask = partial(
            proposals.lease,
            study_id=study_id,
            token=self._token,
            starts=True,
            stands_by=self.stands_by,
        )
        if db.retry(ask, patience_s=0.0):
            self.has_failed = False
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
        self._end_lease()

    def _end_lease(self) -> None:
        db, study_id = self.ledger.db, self.ledger.study_id
        with contextlib.suppress(SweepError):  # else it ends by itself
            for stands_by in (False, True):
                end = partial(
                    proposals.end_lease, study_id=study_id, token=self._token, stands_by=stands_by
                )
                db.retry(end, patience_s=0.0)
