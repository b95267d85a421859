"""What a tracker is: the protocol that the feeder writes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sweep.core.trial import Report


@dataclass(frozen=True)
class Described:
    """An attempt, as a tracker names and describes it.

    Attributes:
        params: The trial's values, the fixed ones and the seed too.
        system: Where and from what it runs: host, GPUs, commit and the like, as text.
        files: What is kept with it, once it has ended.
        replicate: Which of the trial's trainings it belongs to, from 1.
        again: It is sent again, all attempts of its trial in order: the tool may hold a part of it.
        earlier: Reads the trial's earlier attempts that count: their numbers and reports.
        taken_back: Reads those that count no more, since the trial was given back and began anew.
    """

    study: str
    trial: int
    attempt: int
    params: Mapping[str, Any]
    system: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[Path] = ()
    replicate: int = 1
    again: bool = False
    earlier: Callable[[], Sequence[tuple[int, Sequence[Report]]]] = tuple
    taken_back: Callable[[], Sequence[tuple[int, Sequence[Report]]]] = tuple


class Tracker(Protocol):
    """One tool. A call may raise anything, and is repeated later then; it may hang."""

    def begin(self, described: Described) -> None:
        """Begin an attempt. The trial's earlier attempts may be known already."""
        ...

    def cut(self, described: Described, first: int) -> None:
        """Take away what earlier attempts reported from a step on: a later one's first report."""
        ...

    def restore(self, described: Described, reports: Sequence[Report]) -> None:
        """Write what earlier attempts have reported, and still counts: each of it comes once.

        Of a metric it comes before the attempt's own first report of that, or at the end.
        """
        ...

    def log(self, described: Described, reports: Sequence[Report]) -> None:
        """Write reports in order."""
        ...

    def end(self, described: Described, state: str) -> None:
        """End an attempt; the state is its trial's, or the attempt's outcome if it goes on."""
        ...

    def close(self) -> None:
        """Write what is still held back."""
        ...

    def trouble(self) -> str:
        """Return what hinders it at present though nothing was raised; "" where nothing does."""
        ...
