"""Running trials as a table that fits its place, and the best value's way as a line of bars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from sweep.core.times import stopwatch
from sweep.results.running import RunningLine
from sweep.results.running_text import ends, progress, shown_value, where

SHOWN = 8
BARS = "▁▂▃▄▅▆▇█"

# What is left out first where there is no room.
_DISPENSABLE = ("best", "where", "attempt", "ends", "time", "training")


class RunningTable:
    """One row a running trial; columns that find no room are left out, the least needed first.

    Args:
        now: For when they are expected to end.
        shown: How many at most; how many more there are is said.
    """

    def __init__(
        self, lines: Sequence[RunningLine], now: datetime | None = None, shown: int | None = SHOWN
    ) -> None:
        self.lines = lines[:shown]
        self.left_out = len(lines) - len(self.lines)
        self.now = now or datetime.now(timezone.utc)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        columns = self._columns()
        for name in _DISPENSABLE:
            if _needed(columns) <= options.max_width:
                break
            columns.pop(name, None)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for name in columns:
            left = name == "where"
            table.add_column(name, justify="left" if left else "right", no_wrap=True)
        for cells in zip(*columns.values(), strict=True):
            table.add_row(*(Text(cell) for cell in cells))
        yield table
        for line in self.lines:
            if line.waits:
                yield Text(f"trial {line.trial}: {line.waits}", style="yellow")
        if self.left_out:
            yield Text(f"and {self.left_out} more: sweep status --all", style="dim")

    def __rich_measure__(self, console: Any, options: Any) -> Any:
        return Measurement(10, options.max_width)

    def _columns(self) -> dict[str, list[str]]:
        lines = self.lines
        found = {
            "trial": [str(line.trial) for line in lines],
            "training": [str(line.replicate) for line in lines],
            "attempt": [str(line.attempt) for line in lines],
            "where": [where(line) for line in lines],
            "step": [progress(line) for line in lines],
            "last": [shown_value(line.last) for line in lines],
            "best": [shown_value(line.best) for line in lines],
            "time": [stopwatch(line.elapsed_s) for line in lines],
            "ends": [ends(line, self.now) for line in lines],
        }
        if all(line.replicate == 1 for line in lines):
            del found["training"]
        if all(line.attempt == line.replicate for line in lines):
            del found["attempt"]
        if found["best"] == found["last"]:
            del found["best"]
        return {name: cells for name, cells in found.items() if name == "trial" or any(cells)}


def _needed(columns: dict[str, list[str]]) -> int:
    return sum(max(map(len, (name, *cells))) + 2 for name, cells in columns.items()) - 2


class Sparkline:
    """Values as bars of eight heights, the last ones where there is no room; none in ASCII."""

    def __init__(self, values: Sequence[float], text: str = "") -> None:
        self.values = values
        self.text = text

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        if not options.ascii_only:
            room = max(options.max_width - len(self.text) - 1, 1)
            yield Text(f"{bars(self.values[-room:])} {self.text}", no_wrap=True, overflow="crop")

    def __rich_measure__(self, console: Any, options: Any) -> Any:
        return Measurement(10, options.max_width)


def bars(values: Sequence[float]) -> str:
    """Return a bar for each value, from the least (lowest) to the greatest."""
    least, greatest = min(values), max(values)
    spread = greatest - least
    if not math.isfinite(spread) or spread <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[round((v - least) / spread * (len(BARS) - 1))] for v in values)
