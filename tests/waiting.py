"""How tests wait: for events, never for seconds; a limit is there for what never comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# Far beyond what any of it takes on a busy machine.
PATIENCE_S = 180.0


def wait_for(
    check: Callable[[], T], what: str, limit_s: float = PATIENCE_S, pause_s: float = 0.05
) -> T:
    """Return what ``check`` returns once that is something true.

    Args:
        what: What is waited for, for the message of a test that fails.
    """
    deadline = time.monotonic() + limit_s
    while True:
        began = time.monotonic()  # taken first: one slow check is no reason to give up
        found = check()
        if found:
            return found
        assert began <= deadline, f"waited {limit_s:.0f} s for {what}"
        # A look that costs, such as a command, is not made all the time: what is waited for needs
        # the processor as well.
        time.sleep(max(pause_s, time.monotonic() - began))


def text_of(path: Path) -> str:
    """Return what a file says so far, "" where there is none yet, or none any more.

    It is for what another process writes: a wait may ask before that has begun. And for /proc,
    where a process may end while it is read.
    """
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def returns(call: Callable[[], T], limit_s: float = PATIENCE_S) -> T:
    """Return what ``call`` returns or raise what it raises; fail where it hangs.

    It runs in a thread of its own, so that what hangs for ever fails the test and not the session.
    """
    ended: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            ended.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    assert not thread.is_alive(), f"it has not returned within {limit_s:.0f} s"
    if raised:
        raise raised[0]
    return ended[0]
