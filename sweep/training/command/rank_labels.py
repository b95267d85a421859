"""Lines of output with the rank that printed them: torchrun's ``[rank1]: …``, srun's ``1: …``."""

from __future__ import annotations

import re
from collections.abc import Iterable

TORCHRUN = "torchrun"
SRUN = "srun"
BOTH = "both"  # srun numbers the nodes' torchruns, and these name the ranks

_TORCHRUN = re.compile(r"\[rank(\d+)\]: ?")
_SRUN = re.compile(r"(\d+): ?")


def split(line: str, labels: str) -> tuple[int | None, str]:
    """Return the rank that a line of a launcher's output is of (None: its own), and the line.

    Args:
        labels: TORCHRUN, SRUN or BOTH.
    """
    rank = None
    if labels != TORCHRUN and (found := _SRUN.match(line)):
        line = line[found.end() :]
        rank = int(found[1]) if labels == SRUN else None
    if labels != SRUN and (found := _TORCHRUN.match(line)):
        line, rank = line[found.end() :], int(found[1])
    return rank, line


def of_rank(lines: Iterable[str], rank: int, labels: str) -> list[str]:
    """Return the lines of one rank, without what its launcher put before them."""
    return [text for each, text in (split(line, labels) for line in lines) if each == rank]


def of_first(line: str, labels: str) -> str | None:
    """Return a line of rank 0's or of a launcher's own without its label; None for the others'."""
    rank, text = split(line, labels)
    return text if rank in (None, 0) else None
