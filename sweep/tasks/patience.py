"""How long a task waits for a database that is away: long between trials, not once it has to go."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sweep.core.errors import DatabaseUnavailable
from sweep.storage.connection import Database
from sweep.training.leave import Leave

T = TypeVar("T")

PATIENCE_S = 3600.0  # for a database that is away between two trials
LEAVE_PATIENCE_S = 10.0  # once this task has to go
_LONGEST_PAUSE_S = 5.0  # between two tries


class Patience:
    """Asks the database with a task's patience.

    Args:
        leave: Requests to leave, with which patience ends.
        say: Prints a line into the task's log.
    """

    def __init__(self, db: Database, leave: Leave, say: Callable[[str], None]) -> None:
        self.db = db
        self.leave = leave
        self.say = say

    def ask(self, work: Callable[[Database], T], *, transaction: bool = True) -> T:
        """Do some work in a transaction of its own, again while the database is away."""
        return self.db.retry(
            work, patience_s=self._left_s(), on_wait=self._report, transaction=transaction
        )

    def repeat(self, work: Callable[[], T]) -> T:
        """Do what opens its own transactions, again while the database is away."""
        start, pause_s = time.monotonic(), 0.1
        while True:
            try:
                return work()
            except DatabaseUnavailable as error:
                waited_s = time.monotonic() - start
                if waited_s > self._left_s():
                    raise
                self._report(waited_s, error)
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _left_s(self) -> float:
        return LEAVE_PATIENCE_S if self.leave.wanted else PATIENCE_S

    def _report(self, waited_s: float, error: DatabaseUnavailable) -> None:
        if self.leave.wanted and waited_s > LEAVE_PATIENCE_S:
            raise error
        self.say(f"waiting for the database ({waited_s:.0f} s): {error.message}")
