"""Views of a study that renew themselves: ``status --watch``, and the bar of ``launch --wait``.

Where there is no terminal they become one line whenever something has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sweep.core.errors import CouldNotAsk, DatabaseUnavailable
from sweep.results.plain_lines import is_plain
from sweep.results.running_table import SHOWN
from sweep.results.status import IDLE, Status
from sweep.results.terminal import line, printable, progress_lines, status_panel

LINE_EVERY_S = 5.0  # at most one line in so many seconds
POLL_S = 1.0
PATIENCE_S = 900.0  # while somebody waits for a study: a database may be away for long
IDLE_S = 15.0  # beyond what the scheduler's answer may be old: the finaliser may be at work
WAITED_UNSEEN_S = 10.0  # as a ``SchedulerView`` takes it while somebody waits


def until_over(
    get_status: Callable[[], Status],
    every_s: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock_s: Callable[[], float] = time.monotonic,
) -> Iterator[Status]:
    """Yield a study's status every second until it has ended, is held or stopped, or lies idle.

    It lies idle once nothing has been there to run it for as long as a finaliser may need.

    Args:
        every_s: How old what the scheduler says may be.
    """
    idle_since: float | None = None
    while True:
        status = get_status()
        yield status
        if status.is_over:
            return
        if status.state != IDLE:
            idle_since = None
        elif idle_since is None:
            idle_since = clock_s()
        elif clock_s() - idle_since > IDLE_S + every_s:
            return
        sleep(POLL_S)


def watch(
    get_status: Callable[[], Status],
    interval_s: float = 2.0,
    console: Any = None,
    sleep: Callable[[float], None] = time.sleep,
    shown: int | None = SHOWN,
) -> Status:
    """Show a study until it is over, with so many running trials; return its last status.

    A database or scheduler that does not answer is said below the last status, and asked again.
    """
    view = _View(console or Console())
    last: Status | None = None
    with view:
        while True:
            try:
                last = get_status()
                view.show(status_panel(last, shown), line(last))
                if last.is_over:
                    return last
            except (DatabaseUnavailable, CouldNotAsk) as error:
                text = Text(printable(error.message), style="yellow")
                view.show(Group(status_panel(last, shown), text) if last else text, error.message)
            sleep(interval_s)


class _View:
    """A place that shows the newest of something: redrawn on a terminal, lines elsewhere."""

    def __init__(self, console: Any, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.clock_s = clock_s
        self.printed = ""
        self.printed_at = -LINE_EVERY_S
        self.waiting = ""
        self.live: Any = None

    def __enter__(self) -> _View:
        if not is_plain(self.console):
            # The screen's height may not do; the end of the panel matters less than its top.
            self.live = Live(console=self.console, auto_refresh=False, vertical_overflow="crop")
            self.live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.live is not None:
            self.live.__exit__(*error)
        elif self.waiting and self.waiting != self.printed:
            self._print(self.waiting)

    def show(self, renderable: Any, text: str) -> None:
        if self.live is not None:
            self.live.update(renderable, refresh=True)
            return
        self.waiting = text
        if text != self.printed and self.clock_s() - self.printed_at >= LINE_EVERY_S:
            self._print(text)

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
        self.printed, self.printed_at = text, self.clock_s()


class Progress:
    """A progress bar over a study's trials, for a command that waits for it.

    Use it as a context manager; ``update`` with each new status, ``say`` for lines above it.
    """

    def __init__(self, console: Any, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self._view = _View(console, clock_s)

    def __enter__(self) -> Progress:
        self._view.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._view.__exit__(*error)

    def update(self, status: Status) -> None:
        self._view.show(progress_lines(status), line(status))

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def progress(console: Any = None) -> Progress:
    """Return a progress bar on standard error, so that ``--json`` stays clean."""
    return Progress(console or Console(stderr=True))
