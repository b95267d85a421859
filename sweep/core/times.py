"""Lengths of time and moments, as people and programs read them."""

from __future__ import annotations

from datetime import datetime, timezone


def span(seconds: float, *, rough: bool = False) -> str:
    """Return a length of time in at most two units; a rough one has no odd seconds."""
    whole = round(seconds)
    if rough and whole < 115:
        return f"{max(5 * round(seconds / 5), 5)} s"
    if rough and whole < 3570:
        return f"{round(seconds / 60)} min"
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    minutes, rest_s = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {rest_s} s" if minutes < 10 and rest_s else "")
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} d {hours} h"


def exact_span(seconds: int) -> str:
    """Return a length of time to the second, as for a limit that somebody has set."""
    hours, rest_s = divmod(seconds, 3600)
    minutes, rest_s = divmod(rest_s, 60)
    parts = ((hours, "h"), (minutes, "min"), (rest_s, "s"))
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount)


def stopwatch(seconds: float) -> str:
    """Return a length of time as in a column of results: 0.6 s, 0:17, 12:34, 1:02:03."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest_s:02d}" if hours else f"{minutes}:{rest_s:02d}"


def clock(moment: datetime, now: datetime | None = None) -> str:
    """Return a moment in local time: the hour where it is today, else with its day."""
    local, today = moment.astimezone(), (now or datetime.now(timezone.utc)).astimezone().date()
    return local.strftime("%H:%M" if local.date() == today else "%a %d %b, %H:%M")


def iso_utc(moment: datetime | None) -> str | None:
    """Return a moment in UTC as ISO 8601 has it; None of None."""
    return moment.astimezone(timezone.utc).isoformat() if moment is not None else None
