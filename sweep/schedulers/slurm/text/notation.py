"""Slurm's notations: times (``D-HH:MM:SS``) and array indices (``0,3-9%4``)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sweep.core.errors import CouldNotAsk
from sweep.core.hostlist import expand_nodes

_ENDLESS = {"UNLIMITED", "INFINITE"}
_ABSENT = {"", "NONE", "N/A", "INVALID", "NOT_SET", "PARTITION_LIMIT", "UNKNOWN", "(NULL)"}
_TIME = r"(?:(?P<days>[0-9]{1,9})-)?(?P<rest>[0-9]{1,9}(?::[0-9]{1,9}){0,2})(?:\.[0-9]{1,9})?"
MOST_INDICES = 4_000_001  # Slurm's own limit of MaxArraySize


def parse_time(text: str) -> int | None:
    """Return a duration that Slurm printed, in seconds.

    The forms are those of sbatch(1): minutes, minutes:seconds, hours:minutes:seconds,
    days-hours, days-hours:minutes and days-hours:minutes:seconds.

    Returns:
        Seconds; None where there is no limit (UNLIMITED) or nothing is known (INVALID, N/A).

    Raises:
        ValueError: it is no duration.
    """
    word = text.strip()
    if word.upper() in _ENDLESS | _ABSENT:
        return None
    found = re.fullmatch(_TIME, word)
    if not found:
        raise ValueError(f"not a Slurm duration: {text[:60]!r}")
    numbers = [int(number) for number in found["rest"].split(":")]
    if found["days"] is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return ((int(found["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(numbers) == 1:
        return numbers[0] * 60
    if len(numbers) == 2:
        return numbers[0] * 60 + numbers[1]
    return (numbers[0] * 60 + numbers[1]) * 60 + numbers[2]


def expand_indices(text: str) -> tuple[int, ...] | None:
    """Return the array indices that ``0,3-9:2%4`` names (the cap is no part of them).

    Returns:
        The indices; None where Slurm shortened its list with dots, so that some are unknown.

    Raises:
        ValueError: it is no list of indices, or one of more than an array can have.
    """
    body = text.strip().strip("[]").partition("%")[0]
    if "..." in body:
        return None
    indices: list[int] = []
    for part in body.split(","):
        found = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?", part)
        if not found:
            raise ValueError(f"not a list of array indices: {text[:60]!r}")
        first, last, step = found[1], found[2] or found[1], found[3] or "1"
        if int(step) == 0:
            raise ValueError(f"not a list of array indices: {text[:60]!r}")
        more = range(int(first), int(last) + 1, int(step))
        if len(indices) + len(more) > MOST_INDICES:
            raise ValueError(f"more array indices than Slurm has: {text[:60]!r}")
        indices.extend(more)
    return tuple(indices)


def read_nodes(text: str) -> tuple[str, ...]:
    """Return the nodes of a host list that Slurm printed.

    Raises:
        CouldNotAsk: it is none, or one of more nodes than any cluster has.
    """
    try:
        return expand_nodes(text)
    except ValueError as error:
        raise CouldNotAsk(f"Slurm's list of nodes cannot be read: {error}.") from None


def compress_indices(indices: Iterable[int]) -> str:
    """Return indices as Slurm writes them, ``1,3,7-9``."""
    parts: list[list[int]] = []
    for index in sorted(set(indices)):
        if parts and index == parts[-1][1] + 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
