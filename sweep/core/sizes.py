"""Amounts as people read them."""

from __future__ import annotations


def byte_text(count: int) -> str:
    """Return a number of bytes in a unit that fits: 812 B, 4.2 MB, 31 GB."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5 or unit == "TB":
            break
        amount /= 1000
    digits = 0 if unit == "B" or amount >= 99.5 else 1
    return f"{amount:.{digits}f} {unit}"
