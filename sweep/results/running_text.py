"""The words and numbers that are said of one running trial."""

from __future__ import annotations

from datetime import datetime

from sweep.core.times import clock, span
from sweep.results.running import RunningLine

SOON_S = 600.0
VALUE_DIGITS = 6


def where(line: RunningLine) -> str:
    """Return a running trial's machine, and which of its GPUs it has."""
    node = line.node.partition(".")[0]
    return f"{node} GPU {line.gpu}" if line.gpu else node


def progress(line: RunningLine) -> str:
    """Return how far a running trial has come: "30", or "30 (60 %)"; "" before its first report."""
    if line.step is None:
        return ""
    return f"{line.step}" if line.share is None else f"{line.step} ({100 * line.share:.0f} %)"


def shown_value(number: float | None) -> str:
    """Return a metric's value with few digits; "" of None."""
    return "" if number is None else f"{number:.{VALUE_DIGITS}g}"


def ends(line: RunningLine, now: datetime) -> str:
    """Return when a running trial is expected to end: "in 40 s", "at 18:45"; "" if unknown."""
    moment = line.ends(now)
    if moment is None or line.left_s is None:
        return ""
    if line.left_s < SOON_S:
        return f"in {span(line.left_s, rough=True)}"
    return f"at {clock(moment, now)}"
