"""What a trial's training has printed, in parts, as a page asks for it."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sweep.core.files import open_regular
from sweep.core.masking import mask
from sweep.core.paths import StudyFolder
from sweep.core.terminal_text import visible

PART = 128 * 1024  # bytes in one answer
FROM_END = -1  # as an offset: the last part
LONGEST_LINE = 64 * 1024  # bytes; a longer one is handed out in pieces


@dataclass(frozen=True)
class LogPart:
    """A part of one attempt's log.

    Attributes:
        attempts: The numbers of all attempts of the trial that have a folder.
        attempt: Whose this is; 0 where there is none.
        text: Whole lines as a terminal shows them, secrets masked.
        rest: The line behind them whose end has not been written yet.
        offset: Where the next part begins, in bytes.
        more: Whether there is more already.
        note: What else there is to say.
    """

    attempts: list[int]
    attempt: int = 0
    text: str = ""
    rest: str = ""
    offset: int = 0
    more: bool = False
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def attempts_of(folder: StudyFolder, trial: int) -> list[int]:
    """Return the numbers of a trial's attempts that have a folder, oldest first."""
    try:
        names = os.listdir(folder.trial(trial) / "attempts")
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def read_part(folder: StudyFolder, trial: int, attempt: int, offset: int) -> LogPart:
    """Return a part of a log.

    Args:
        attempt: Its number; 0: the newest.
        offset: From here on, in bytes; FROM_END: about the last PART bytes.
    """
    attempts = attempts_of(folder, trial)
    chosen = attempt if attempt in attempts else (attempts[-1] if attempts else 0)
    if not chosen:
        return LogPart(attempts, note="This trial has not started: it has no log.")
    note = ""
    if attempts[-1] != chosen:
        note = "This attempt is over; a later one follows it."
    path = folder.attempt(trial, chosen).log
    try:
        size, start, found = _read(path, offset)
    except FileNotFoundError:
        return LogPart(attempts, chosen, note="Nothing was printed yet.")
    except OSError as error:
        return LogPart(attempts, chosen, note=f"It cannot be read: {error.strerror or error}.")
    if offset == FROM_END and start:
        first = found.find(b"\n") + 1
        start, found = start + first, found[first:]
        note = f"The end of it; all of it: sweep logs {folder.root.name} {trial}. {note}".strip()
    whole = found.rfind(b"\n") + 1
    if not whole and len(found) >= LONGEST_LINE:
        whole = len(found)
    return LogPart(
        attempts,
        chosen,
        _shown(found[:whole]),
        _shown(found[whole:]).rstrip("\n"),
        start + whole,
        start + len(found) < size and whole > 0,
        note,
    )


def _read(path: Path, offset: int) -> tuple[int, int, bytes]:
    """Return a file's size, where was read from, and what stands there."""
    with os.fdopen(open_regular(path), "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        start = max(0, size - PART) if offset == FROM_END else min(max(0, offset), size)
        stream.seek(start)
        return size, start, stream.read(PART)


def _shown(found: bytes) -> str:
    lines = found.decode("utf-8", "replace").split("\n")
    ends_whole = lines[-1] == ""
    shown = [visible(line) for line in (lines[:-1] if ends_whole else lines)]
    return mask("\n".join(shown)) + ("\n" if ends_whole and shown else "")
