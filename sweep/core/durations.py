"""Durations as text."""

from __future__ import annotations


def format_time(seconds: int) -> str:
    """Return a duration as study files and sbatch take it: ``HH:MM:SS``, or ``D-HH:MM:SS``."""
    if seconds < 0:
        raise ValueError(f"a negative duration: {seconds}")
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{days}-{clock}" if days else clock
