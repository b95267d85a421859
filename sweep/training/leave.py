"""A request to a training to leave: by which signal it came, until when, and for what."""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import dataclass

from sweep.core.paths import AttemptFolder
from sweep.training.attempt_files import tell

LIMIT_MARGIN_S = 2.0  # before it, to write down how training ended
LIMIT_SLACK_S = 90.0  # Slurm may send a limit's signal a minute early


@dataclass
class Leave:
    """A request to leave, from a signal to this process.

    The handler writes the control file itself: the main loop may be waiting for the database.

    Attributes:
        term_wait_s: Seconds between TERM and KILL where this process runs.
        grace_s: Seconds between USR1 and the end of the time limit.
        end_time_s: When that limit is reached, on the wall clock, or None.
        term_follows: Whoever sends USR1 sends TERM once the time is over that it leaves, which is
            its to know (a preemption's GraceTime): nothing is killed before.
        deadline: When training must have left, on the monotonic clock; None while nobody knows.
        ask_after_s: After so many seconds of training it is asked by itself, as by USR1; or None.
        asked_s: When it was first asked to leave, on the wall clock.
        hurry: Somebody wants it to look now what the study wants of it (USR2).
        continued: This process was stopped, and runs again (CONT).
    """

    term_wait_s: float
    grace_s: float
    end_time_s: float | None = None
    term_follows: bool = False
    ask_after_s: float | None = None
    deadline: float | None = None
    asked_s: float | None = None
    terminated: bool = False
    hurry: bool = False
    continued: bool = False
    folder: AttemptFolder | None = None

    def listen(self) -> None:
        """Take this process's TERM, USR1 and USR2 as requests; only in its main thread."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self.on_signal)
        signal.signal(signal.SIGUSR2, self._on_hurry)
        signal.signal(signal.SIGCONT, self._on_continued)

    def _on_hurry(self, _number: int, _frame: object) -> None:
        self.hurry = True

    def _on_continued(self, _number: int, _frame: object) -> None:
        self.continued = True

    def on_signal(self, number: int, _frame: object) -> None:
        """Handle TERM and USR1; several in a row are one request."""
        self.terminated = self.terminated or number == signal.SIGTERM
        self.asked_s = self.asked_s or time.time()
        wait_s = self.term_wait_s if number == signal.SIGTERM else self._left_s()
        if wait_s is not None:
            deadline = time.monotonic() + wait_s
            self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)
        if self.folder is not None:
            # An error must not come up wherever the main loop is; it tries again by itself.
            with contextlib.suppress(OSError):
                tell(self.folder, "checkpoint")

    def _left_s(self) -> float | None:
        """Return the seconds that USR1 leaves; None where only the TERM behind it says."""
        if not self.term_follows:
            return self.grace_s
        now = time.time()
        if self.end_time_s is None or not now < self.end_time_s or not self.is_for_limit:
            return None
        # Slurm may send it a minute early: training has all of that.
        return max(1.0, self.end_time_s - now - LIMIT_MARGIN_S)

    @property
    def wanted(self) -> bool:
        return self.asked_s is not None

    @property
    def is_for_limit(self) -> bool:
        """Whether it was asked because its time limit is near, as far as that can be told."""
        if self.asked_s is None:
            return False
        if self.end_time_s is None:
            return not self.terminated
        return self.end_time_s - self.asked_s < self.grace_s + LIMIT_SLACK_S
