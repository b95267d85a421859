"""Node names as Slurm writes them: ``n[1-3,7]``."""

from __future__ import annotations

import re

from sweep.core.numbers import is_whole

MOST_NODES = 100_000  # of one list: the largest clusters have a tenth of it


def expand_nodes(text: str) -> tuple[str, ...]:
    """Return the nodes of a host list such as ``n[1-3,07],login,r[1-2]c[3-4]``.

    Raises:
        ValueError: the brackets do not match, or it names more than MOST_NODES.
    """
    nodes: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        names = [""]
        for piece in re.findall(r"\[[^\]]*\]|[^\[\]]+", part):
            choices = _expand_range(piece[1:-1]) if piece.startswith("[") else [piece]
            if len(nodes) + len(names) * len(choices) > MOST_NODES:
                raise ValueError(f"more than {MOST_NODES:,} hosts: {text[:60]!r}")
            names = [name + choice for name in names for choice in choices]
        nodes += names
    if text.count("[") != text.count("]"):
        raise ValueError(f"not a host list: {text[:60]!r}")
    return tuple(node for node in nodes if node not in ("(null)", "N/A"))


def _expand_range(text: str) -> list[str]:
    choices = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not dash:
            choices.append(low)
            continue
        if not (is_whole(low) and is_whole(high)):
            raise ValueError(f"not a range of hosts: {text[:60]!r}")
        if len(choices) + int(high) - int(low) > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES:,} hosts: {text[:60]!r}")
        choices += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return choices


def _element(job: str, index: int | None) -> str:
    return job if index is None else f"{job}_{index}"
