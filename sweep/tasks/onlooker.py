"""A task's eye on the study's other tasks: it looks after them beside its own work.

To ask a busy cluster takes minutes at times. A task asks in a thread of its own, and pulls its next
trial meanwhile: no GPU waits for the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from sweep.core.errors import SweepError


class Onlooker:
    """Looks after the others, one look at a time.

    Args:
        look: Does it, and tells whether it has found something to settle.
        say: Prints a line into the task's log.
        beside: Look in a thread; else each look is waited for.
    """

    def __init__(
        self, look: Callable[[], bool], say: Callable[[str], None], *, beside: bool
    ) -> None:
        self._look = look
        self._say = say
        self._beside = beside
        self._thread: threading.Thread | None = None
        self._found = False
        self._fault: Exception | None = None

    def begin(self) -> None:
        """Begin a look, unless one is under way."""
        if not self._beside:
            self._found = self._look()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="look", daemon=True)
            self._thread.start()

    def result(self, wait_s: float) -> bool | None:
        """Return whether the look that was begun last has settled something, once.

        Args:
            wait_s: How long to wait for it.

        Returns:
            None while it is under way.

        Raises:
            Exception: A fault of sweep's own in it.
        """
        if self._thread is not None:
            self._thread.join(wait_s)
            if self._thread.is_alive():
                return None
            self._thread = None
        if self._fault is not None:
            raise self._fault
        found, self._found = self._found, False
        return found

    def _run(self) -> None:
        try:
            self._found = self._look()
        except SweepError as error:  # the database is away: the next look comes
            self._say(f"the other tasks could not be looked after: {error.message}")
        except Exception as error:
            self._fault = error
