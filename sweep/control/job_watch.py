"""One job that is waited for: what the scheduler says of it, asked now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from sweep.core.scheduler import ENDED, Scheduler, TaskState


class JobWatch:
    """Asks after a job.

    Args:
        every_s, first_s: Between two questions, and before the first.
        now_s: A clock that only goes on.

    Attributes:
        state: The scheduler's last word; None where it knew no such job, or was not asked yet.
    """

    def __init__(
        self,
        schedule: Scheduler,
        job: str,
        every_s: float,
        first_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state: TaskState | None = None
        self._schedule, self._job, self._every_s = schedule, job, every_s
        self._now_s = now_s
        self._ask_at = now_s() + first_s
        self._ended_at: float | None = None

    def look(self) -> bool:
        """Ask where it is time to; return whether there was an answer.

        Raises:
            CouldNotAsk: It did not answer; what it said before stands.
        """
        now = self._now_s()
        if now < self._ask_at:
            return False
        self._ask_at = now + self._every_s
        self.state = self._schedule.poll([self._job]).get((self._job, 0))
        if self.state is not None and self.state.state != ENDED:
            self._ended_at = None  # requeued, perhaps
        elif self._ended_at is None:
            self._ended_at = now
        return True

    def ended_for_s(self) -> float | None:
        """Return for how long it has been seen ended; None while it is not."""
        return None if self._ended_at is None else self._now_s() - self._ended_at
