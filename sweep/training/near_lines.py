"""Lines that come near to what a pattern should find: for whoever wrote one that finds nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sweep.training.near_tables import NearTable
from sweep.training.printed_numbers import FOR_PATTERNS

ENOUGH = 3  # lines that came near, for a note while training still runs
_MOST = 1000  # near lines that are looked at
_SHOWN = 2
_WIDTH = 120  # characters of a line that are shown
_KEPT = 200  # characters of a line, for whoever reads on
_LONGEST = 2000  # characters of a line that are looked at
_WORD = re.compile(r"[A-Za-z]{2,}")
_COMMON = {"epoch", "step", "iter", "train", "val", "valid", "validation", "eval", "test", "dev"}
# From a name to its number, which is none that belongs to a word: ``float32(0.5)``, ``@5: 0.5``.
_TO_A_NUMBER = r"(?P<between>(?:[A-Za-z_@#^/]\w*|[^\w@#^/]){1,20}?)(?<![\w@#^/])(?=[-+]?\.?\d)"
_DIGITS = re.compile(r"\d+(?:\.\d+)?")


def reading_advice(metric: str, lines: Iterable[str]) -> str:
    """Return what has a metric read that lines of output call by its name, in words; "" where none
    does, or where that is not clear."""
    near = NearLines(metric, "")
    for line in lines:
        near.see(line)
    shown, pattern = near.naming()
    quoted = pattern.replace("'", "''")
    reads = f"objective.from: {{stdout: '{quoted}'}} reads it"
    return f"{shown!r} names {metric}: {reads}" if pattern else ""


class NearLines:
    """Keeps the lines that name the metric, as long as none has matched."""

    def __init__(self, metric: str, pattern: str) -> None:
        literal = re.sub(r"\\.|\(\?[a-zA-Z:<=!]+|\[[^\]]*\]", " ", pattern)
        words = [word.lower() for word in _WORD.findall(f"{metric} {literal}")]
        self._metric = metric
        self._words = [word for word in dict.fromkeys(words) if word not in _COMMON] or words
        self._found: list[tuple[int, str]] = []
        self._table = NearTable(metric)
        self.count = 0

    def see(self, line: str) -> None:
        """Look at a line that did not match."""
        if self.count >= _MOST:
            return
        line = line[:_LONGEST]
        if self._table.see(line):
            self.count += 1
            return
        low = line.lower()
        if not any(word in low for word in self._words) or not _DIGITS.search(line):
            return
        self.count += 1
        score = sum(word in low for word in self._words) + 2 * (self._metric.lower() in low)
        kind = _DIGITS.sub("#", line).strip()
        same = [
            place
            for place, (_, kept) in enumerate(self._found)
            if _DIGITS.sub("#", kept).strip() == kind
        ]
        if same:
            self._found[same[0]] = (score, line)
        else:
            self._found.append((score, line))
            self._found.sort(key=lambda pair: -pair[0])
            del self._found[_SHOWN:]

    def text(self) -> str:
        """Return them in words, with a pattern for the nearest; "" where none came near."""
        if self._table.pattern:
            return self._table.text()
        if not self._found:
            return ""
        lines = [line.strip() for _, line in self._found]
        shown = " and ".join(repr(_short(line)) for line in lines)
        pattern = self._propose(lines[0])
        return f"near it came {shown}" + (f"; {pattern!r} would find it" if pattern else "")

    def naming(self) -> tuple[str, str]:
        """Return the line that has the metric's whole name, or heads its column, and a pattern for
        it; "" twice where there is none."""
        if self._table.pattern:
            return _short(self._table.heading), self._table.pattern
        line = self._found[0][1].strip() if self._found else ""
        pattern = self._propose(line) if self._metric.lower() in line.lower() else ""
        return (_short(line), pattern) if pattern else ("", "")

    def _propose(self, line: str) -> str:
        """Return a pattern that finds the metric's number in a line; "" where that is not clear."""
        for name in (self._metric, *reversed(self._words)):
            found = re.search(re.escape(name) + _TO_A_NUMBER, line, re.IGNORECASE)
            if found is None:
                continue
            begin = found.start()
            while begin and (line[begin - 1].isalpha() or line[begin - 1] in "_./-"):
                begin -= 1  # the name as it is printed
            if begin and line[begin - 1].isdecimal():
                begin = found.start()  # in the next line there may be another number before it
            escaped = re.escape(line[begin : found.end("between")])
            return escaped.replace(r"\ ", " ").replace(r"\-", "-") + FOR_PATTERNS
        return ""

    def state(self) -> list[object]:
        """Return what was kept, for ``restore``."""
        return [self.count, *([score, line[:_KEPT]] for score, line in self._found)]

    def restore(self, state: list[object]) -> None:
        """Go on from where another had come to."""
        count, *found = state
        self.count = int(str(count))
        self._found = [(int(pair[0]), str(pair[1])) for pair in found]  # type: ignore[index]


def _short(line: str) -> str:
    return f"{line[:_WIDTH]}…" if len(line) > _WIDTH else line
