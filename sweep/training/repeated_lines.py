"""Lines that say once more what one said of the same epoch: several processes print into one log.

Ranks that mp.spawn or Lightning starts write into the same output, and nothing says whose a line
is. What a single process prints tells its lines apart by a number (epoch, batch); where each such
number comes as often as there may be ranks on a node, each line is a step all the same, and that is
said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_MOST_RANKS = 8
_ENOUGH = 2  # numbers that came as often as each other
_KEPT = 6
_LONGEST = 300
_WIDTH = 60
# 0.5, 1e-3, 12:00:01, 2024-05-01, 3ms, 80%, which rank it is: all other numbers count something.
_MEASURED = re.compile(
    r"\d+(?:[.:]\d+)+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d{2,4}[-/]\d\d[-/]\d+|"
    r"\d+\s?(?:%|[A-Za-z])\S*|\brank\W{0,3}\d+",
    re.IGNORECASE,
)
_WHOLE = re.compile(r"(?<![\w.])(\d+)\.0+(?![\d.])")  # 'epoch': 3.0
_COUNT = re.compile(r"(?<![\w.])\d+(?![\w.])")


class RepeatedLines:
    """Counts the lines that hold the metric by what else they say."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._noted: list[object] = []  # how often, and the first that came so

    def see(self, line: str, place: tuple[int, int]) -> None:
        """Look at a line.

        Args:
            place: Where the metric stands in it.
        """
        if self._noted:
            return
        rest = f"{line[: place[0]]}…{line[place[1] :]}"[:_LONGEST]
        rest = _MEASURED.sub("…", _WHOLE.sub(r"\1", rest))
        if not _COUNT.search(rest):
            return  # nothing tells its lines apart
        kind = re.sub(r"\s+", " ", rest).strip()
        if kind not in self._counts:
            self._conclude()
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if len(self._counts) > _KEPT:
            del self._counts[next(iter(self._counts))]

    def _conclude(self) -> None:
        """Note it, where the last numbers came as often as each other."""
        often = list(self._counts.values())[-_ENOUGH:]
        if len(often) == _ENOUGH and len(set(often)) == 1 and 1 < often[0] <= _MOST_RANKS:
            first = list(self._counts)[-_ENOUGH].strip("… ,;|:-")
            self._noted = [often[0], first[:_WIDTH]]

    def note(self) -> str:
        """Return it in words; "" where no line came again."""
        if not self._noted:
            self._conclude()
        if not self._noted:
            return ""
        often, first = self._noted
        return (
            f"lines came {often} times, such as {first!r}, and each is a step. If several "
            "processes print (mp.spawn, Lightning's ddp), let rank 0 alone print it"
        )

    def state(self) -> dict[str, object]:
        """Return what was seen, for ``restore``."""
        counts = {kind: count for kind, count in self._counts.items() if not self._noted}
        return {name: v for name, v in (("counts", counts), ("noted", self._noted)) if v}

    def restore(self, state: Mapping[str, object]) -> None:
        """Go on from where another had come to."""
        counts, noted = state.get("counts", {}), state.get("noted", [])
        assert isinstance(counts, dict) and isinstance(noted, list)
        self._counts, self._noted = dict(counts), list(noted)
