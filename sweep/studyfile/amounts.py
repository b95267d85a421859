"""Amounts with a unit: times and memory."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from sweep.studyfile.rules import Entry

DURATION_ADVICE = 'Write 90s, 30min or 1h30m, or Slurm\'s way in quotes, "00:30:00".'
_UNIT_SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
}
_UNIT = "|".join(sorted(_UNIT_SECONDS, key=len, reverse=True))
_UNITS = rf"(?:\d+(?:\.\d+)?\s*(?:{_UNIT})\s*)+"
_CLOCK = r"\d+-\d{1,2}(?::\d{2}){0,2}|\d+:\d{2}(?::\d{2})?"
_MEMORY = r"(\d+(?:\.\d+)?)\s*([KMGTkmgt])(?:i?[Bb])?"


@dataclass(frozen=True)
class Duration:
    """A time: 90s, 30min, 1h30m, 2d, or Slurm's D-HH:MM:SS. Read as whole seconds.

    A bare number is refused: it is minutes for Slurm and seconds for nearly everything else.
    """

    low_s: int = 1

    in_words = "time"

    def read(self, at: Entry) -> Any:
        value = at.node.value
        seconds = parse_duration(value) if isinstance(value, str) else None
        if seconds is None:
            advice = DURATION_ADVICE
            if isinstance(value, int) and not isinstance(value, bool):
                advice = f"Write a unit: {value}min or {value}s."
            return at.report("must be a time with a unit", advice)
        if not self.low_s <= seconds <= 366 * 86400:
            return at.report(f"must be from {self.low_s} s to 366 days")
        return seconds

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^(?:{_UNITS}|{_CLOCK})$"}


@dataclass(frozen=True)
class Memory:
    """An amount of memory: 512M, 8G, 8GiB, 1.5T. Read as whole MiB, as Slurm counts."""

    in_words = "memory"

    def read(self, at: Entry) -> Any:
        value = at.node.value
        memory_mb = parse_memory(value) if isinstance(value, str) else None
        if memory_mb is None:
            advice = "Write 512M, 8G or 8GiB."
            if isinstance(value, int) and not isinstance(value, bool):
                advice = f"Write a unit: {value}M."
                if value < 1024:
                    advice = f"Write a unit: {value}G or {value}M."
            return at.report("must be an amount of memory with a unit", advice)
        if not 1 <= memory_mb <= 1024**3:
            return at.report("must be from 1M to 1024T")
        return memory_mb

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{_MEMORY}$"}


def parse_memory(text: str) -> int | None:
    """Return the whole MiB of "512M", "8G" or "8GiB"; else None."""
    found = re.fullmatch(_MEMORY, text)
    if found is None:
        return None
    scale = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}[found[2].upper()]
    return math.ceil(float(found[1]) * scale)


def parse_duration(text: str) -> int | None:
    """Return the seconds of "1h30m", "90s", "D-HH:MM:SS", "HH:MM:SS" or "MM:SS"; else None."""
    text = text.strip()
    if len(text) > 40:
        return None
    if re.fullmatch(_UNITS, text):
        parts = re.findall(rf"(\d+(?:\.\d+)?)\s*({_UNIT})", text)
        return math.ceil(sum(float(amount) * _UNIT_SECONDS[unit] for amount, unit in parts))
    if not re.fullmatch(_CLOCK, text):
        return None
    days, dash, clock = text.rpartition("-")
    fields = [int(part) for part in clock.split(":")]
    if dash:  # D-HH[:MM[:SS]]
        fields += [0] * (3 - len(fields))
    elif len(fields) == 2:  # MM:SS
        fields = [0, *fields]
    hours, minutes, seconds = fields
    is_minutes = len(clock.split(":")) == 2 and not dash
    if (minutes > 59 and not is_minutes) or seconds > 59 or (dash and hours > 23):
        return None
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
