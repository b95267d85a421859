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
    """Return what of a line is rank 0's or the launcher's own, without labels; None for nothing.

    torchrun puts its label before whatever it has read of a rank by then: a line that a rank has
    written by halves bears several, and those of other ranks between.
    """
    if labels == SRUN:
        rank, text = split(line, labels)
        return text if rank in (None, 0) else None
    if labels == BOTH:
        line = _SRUN.sub("", line, count=1) if _SRUN.match(line) else line
    own, *parts = _TORCHRUN.split(line)
    ours = [text for rank, text in zip(parts[::2], parts[1::2], strict=True) if int(rank) == 0]
    return own + "".join(ours) if own or ours or not line else None
