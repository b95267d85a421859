"""Whole numbers in text that others wrote, read in bounded time.

Python's own ``int`` also takes ``١٢``, ``1_000`` and spaces, ``str.isdigit`` also ``²``, and beyond
4,300 digits it raises ValueError.
"""

from __future__ import annotations

import re

_DIGITS = re.compile(r"[0-9]{1,18}")


def whole(text: str) -> int | None:
    """Return the number that the text is, of at most 18 digits; None where it is no such number."""
    return int(text) if _DIGITS.fullmatch(text) else None


def is_whole(text: str) -> bool:
    """Tell whether the text is a number of at most 18 digits, and nothing else."""
    return _DIGITS.fullmatch(text) is not None
