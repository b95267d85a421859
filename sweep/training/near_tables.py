"""A metric that is printed as a column: its name in a heading, its numbers in the rows below."""

from __future__ import annotations

import re

from sweep.training.printed_numbers import FOR_PATTERNS

_RULE = re.compile(r"[\s|+:=─━┼│┃-]*")  # a line that only divides
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?%?")
_SPACES = r"\s+"
# What stands between columns, and what is in one.
_TABLES = (("[|│┃]", "[^|│┃]*"), (",", "[^,]*"), (";", "[^;]*"), (_SPACES, r"\S+"))
_MOST_COLUMNS = 50


class NearTable:
    """Looks for a heading that names a metric and a row of numbers below it.

    Attributes:
        pattern: One that finds the metric in such a row; "" before a row was seen.
        heading: The line that names the metric; "" before it was seen.
    """

    def __init__(self, metric: str) -> None:
        self.pattern = ""
        self._metric = metric.lower()
        self.heading = ""
        self._row = ""

    def see(self, line: str) -> bool:
        """Look at a line that did not match; tell whether it is a row below the heading."""
        low = line.lower()
        if self._metric in low and self._metric in re.split(r"[\s|│┃,;]+", low):
            self.heading = line.strip()
            return False
        if not self.heading or _RULE.fullmatch(line):
            return False
        pattern = self._of_row(line.strip())
        if pattern:
            self.pattern, self._row = pattern, line.strip()
        return bool(pattern)

    def _of_row(self, row: str) -> str:
        for apart, inner in _TABLES:
            names, values = _cells(apart, self.heading), _cells(apart, row)
            if not 1 < len(names) == len(values) <= _MOST_COLUMNS:
                continue
            at = next((i for i, name in enumerate(names) if name.lower() == self._metric), None)
            if at is None or not _NUMBER.fullmatch(values[at]):
                continue
            if _count(values) < 2 or _count(names):
                continue
            # Spaces are of the line where they are between columns, else of the cell.
            outer, within = (r"\s*", "") if apart == _SPACES else ("", r"\s*")
            number = f"{within}{FOR_PATTERNS}%?{within}"
            rest = len(values) - at - 1
            before = f"(?:{inner}{apart}){{{at}}}" if at else ""
            after = f"(?:{apart}{inner}){{{rest}}}" if rest else ""
            return f"^{outer}{before}{number}{after}{outer}$"
        return ""

    def text(self) -> str:
        """Return in words what was found."""
        return (
            f"its name heads a column: {self.heading[:120]!r}, and {self._row[:120]!r} is a row "
            f"below it; {self.pattern!r} would find it"
        )


def _cells(apart: str, line: str) -> list[str]:
    return [cell.strip() for cell in re.split(apart, line)]


def _count(texts: list[str]) -> int:
    """Return how many of some texts are numbers."""
    return sum(_NUMBER.fullmatch(text) is not None for text in texts)
