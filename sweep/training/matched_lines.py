"""Which lines of a training's output gave a metric's values: for people who check their pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.core.study import Objective
from sweep.training.output import Output
from sweep.training.tail import Position, Tail

_PIECES = 4000  # in one reading


@dataclass(frozen=True)
class Matched:
    """A value that was read from the output, and the piece of output that it was read from."""

    metric: str
    step: int
    value: float
    line: str


def find(
    log: Path,
    objectives: Sequence[Objective],
    read: Callable[[str], str | None] = lambda line: line,
) -> list[Matched]:
    """Return what the patterns of objectives find in a whole log, in its order.

    Args:
        read: As for ``Output``.
    """
    output = Output(objectives, read=read)
    if not output:
        return []
    found: list[Matched] = []
    tail = Tail(log, Position(), returns=True)
    try:
        while pieces := tail.pieces(_PIECES, final=True):
            for piece, ended in pieces:
                found += [Matched(*value, piece.strip()) for value in output.take(piece, ended)]
    finally:
        tail.close()
    return found
