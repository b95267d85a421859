"""Node names as Slurm writes them: ``n[1-3,7]``."""

from __future__ import annotations

import re


def expand_nodes(text: str) -> tuple[str, ...]:
    """Return the nodes of a host list such as ``n[1-3,07],login,r[1-2]c[3-4]``.

    Raises:
        ValueError: the brackets do not match.
    """
    nodes: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        names = [""]
        for piece in re.findall(r"\[[^\]]*\]|[^\[\]]+", part):
            choices = _expand_range(piece[1:-1]) if piece.startswith("[") else [piece]
            names = [name + choice for name in names for choice in choices]
        nodes += names
    if text.count("[") != text.count("]"):
        raise ValueError(f"not a host list: {text!r}")
    return tuple(node for node in nodes if node not in ("(null)", "N/A"))


def _expand_range(text: str) -> list[str]:
    choices = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not dash:
            choices.append(low)
            continue
        if not (low.isdigit() and high.isdigit()):
            raise ValueError(f"not a range of hosts: {text!r}")
        choices += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return choices


def _element(job: str, index: int | None) -> str:
    return job if index is None else f"{job}_{index}"
