"""Which processes wrote an attempt's metrics: two at once are noticed, named, and not mixed.

The reporter says with each line who writes it, and sets those values apart ("beside") whose metric
another live process reports. Where a file system has no locks, two at once are known by their
turns: one that comes back after another has written lives. What other languages append names no
process: there it is told that a step came again with another value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LONGEST = 80  # characters of what a line says of itself


class Writers:
    """The processes that wrote so far, and what is odd about them.

    Args:
        known: What an earlier reader of the same file had found (``state``).
    """

    def __init__(self, known: Mapping[str, Any] = {}) -> None:
        self._found: dict[str, Any] = dict(known)
        self._seen: dict[str, list[str]] = {}  # by metric: who reported it, in that order
        self._latest: dict[str, tuple[str, int, Any]] = {}  # of whose values count: who, what
        self._at_once: set[str] = set()  # metrics that two report in turns

    def counted(
        self, step: int, record: Mapping[str, Any], given: dict[str, Any]
    ) -> dict[str, Any]:
        """Return which values of a line count.

        All of the process that has the metric; of another one's those at steps to which the first
        has not come. When it does, its values are the last word.

        Args:
            record: The whole line.
            given: Its metrics.
        """
        by, beside = record.get("by"), record.get("beside")
        if not isinstance(by, str):
            self._look_for_repeats(step, given)
            return given
        by = _short(by)
        others = dict(beside) if isinstance(beside, dict) else {}
        counted = {}
        for name, value in given.items():
            if self._has(name, by):
                self._latest[name] = (by, step, value)
                counted[name] = value
            else:
                others[name] = value
        for name, value in others.items():
            holder, reached, _ = self._latest.get(name, ("", -1, None))
            self._note("beside", f"{_named(by)} reported {_short(name)} beside {_named(holder)}")
            if step > reached:
                counted.setdefault(name, value)
        return counted

    def _has(self, name: str, by: str) -> bool:
        """Tell whether a process's values of a metric count: one after the other's do."""
        seen = self._seen.setdefault(name, [])
        if by not in seen:
            seen.append(by)
        elif self._latest[name][0] != by and name not in self._at_once:
            self._at_once.add(name)
            self._latest[name] = (seen[0], -1, None)
        return name not in self._at_once or by == seen[0]

    def _look_for_repeats(self, step: int, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
            _, last, before = self._latest.get(name, ("", -1, None))
            if step <= last and value != before:
                self._note("again", f"{_short(name)} at step {step} after step {last}")
            self._latest[name] = ("", step, value)

    def _note(self, kind: str, first: str) -> None:
        count, said = self._found.get(kind, (0, first))
        self._found[kind] = [count + 1, said]

    def state(self) -> dict[str, Any]:
        """Return what is to be known to who reads on."""
        return self._found

    def notes(self) -> list[str]:
        """Return it in sentences."""
        found = []
        if beside := self._found.get("beside"):
            found.append(
                f"Two processes wrote metrics at once: {beside[1]} ({beside[0]:,} values). At "
                "steps that both report the latter's count. Report from one process alone "
                "(rank 0), or under another name."
            )
        if again := self._found.get("again"):
            found.append(
                f"Steps did not go up ({again[0]:,} values), at first {again[1]}; the last word "
                "counts. If several processes report, let one of them do it."
            )
        return found


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _named(by: str) -> str:
    host, _, pid = by.rpartition(":")
    if not by:
        return "another process"
    return f"process {pid} on {host}" if host else f"process {by}"
