"""The small files in an attempt's folder by which worker and training tell each other."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sweep.core.files import make_private, move_aside, read_json, write_atomic
from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.core.trial import Attempt

_MOST_ANSWER = 4096  # characters: a word or two, and that it is done


def make_folder(folder: AttemptFolder, token: str, *, later_too: bool = True) -> list[Path]:
    """Make an attempt's folder, with a mark that says whose it is; never enter one that is there.

    Where the database was restored or removed, the folder of a forgotten attempt may stand in its
    place: it is moved aside, and nobody takes it for this one's.

    Args:
        later_too: Then move those with higher numbers as well: this is the trial's last attempt.

    Returns:
        Where something was moved.
    """
    moved = []
    make_private(folder.root.parent)
    if os.path.lexists(folder.root):
        old = [folder.root, *(_later(folder) if later_too else ())]
        moved = [move_aside(path, folder.root.parent / "aside") for path in old]
    folder.root.mkdir(mode=0o700)
    write_atomic(folder.mark, json.dumps({"token": token}) + "\n")
    folder.checkpoints.mkdir(mode=0o700)
    return moved


def folder_of(folder: StudyFolder, attempt: Attempt) -> AttemptFolder:
    """Return the folder that an attempt has made.

    Where it died before it could, and a forgotten one's stands there, it is one that does not
    exist.
    """
    made = folder.attempt(attempt.trial, attempt.number)
    return made if _is_own(made, attempt) else AttemptFolder(made.root / "unmade")


def _is_own(folder: AttemptFolder, attempt: Attempt) -> bool:
    try:
        mark = read_json(folder.mark)
    except (OSError, ValueError):
        mark = None
    if not isinstance(mark, dict):
        return attempt.group is not None  # it has trained; an earlier version left no mark
    return mark.get("token") == attempt.token


def _later(folder: AttemptFolder) -> list[Path]:
    numbers = [int(path.name) for path in folder.root.parent.iterdir() if path.name.isdecimal()]
    own = int(folder.root.name)
    return [folder.root.parent / str(number) for number in sorted(numbers) if number > own]


def tell(folder: AttemptFolder, stop: str | None) -> None:
    """Tell training to stop ("pruned" or "checkpoint"); None takes it back."""
    if stop is None:
        folder.control.unlink(missing_ok=True)
    else:
        write_atomic(folder.control, json.dumps({"stop": stop}) + "\n")


@dataclass(frozen=True)
class Reply:
    """What training made of what it was told, as far as it says so itself.

    Attributes:
        saw: Whether it has read the word.
        done: Whether it has finished all the same.
    """

    saw: bool = False
    done: bool = False


def read_answer(folder: AttemptFolder) -> Reply | None:
    """Return what the reporter noted; None where nothing in training notes such a thing."""
    try:
        if not folder.answer.is_file():
            return None
        with folder.answer.open(encoding="utf-8", errors="replace") as stream:
            lines = stream.read(_MOST_ANSWER).splitlines()
    except OSError:
        return None
    notes: dict[str, object] = {}
    for line in lines:
        with contextlib.suppress(ValueError, TypeError):
            notes.update(json.loads(line))
    return Reply(bool(notes.get("saw")), notes.get("done") is True)


def write_exit(
    folder: AttemptFolder,
    exit_code: int | None,
    signal: int | None,
    told: str,
    suspended_s: float = 0.0,
) -> None:
    """Note how the training's process ended, before the database hears of it.

    What it was told is part of that; the files about that go, as files are counted.
    """
    note = {"exit_code": exit_code, "signal": signal, "told": told, "time": time.time()}
    if suspended_s:
        note["suspended_s"] = suspended_s
    write_atomic(folder.exit, json.dumps(note) + "\n")
    for path in (folder.control, folder.answer):
        with contextlib.suppress(OSError):
            path.unlink()


def read_exit(folder: AttemptFolder) -> dict[str, object] | None:
    """Return what ``write_exit`` noted, or None."""
    found = read_json(folder.exit)
    return dict(found) if found else None


def read_suspended_s(folder: AttemptFolder) -> float:
    """Return for how many seconds of an ended attempt its training did not run, as was noted."""
    found = (read_exit(folder) or {}).get("suspended_s")
    return float(found) if isinstance(found, (int, float)) else 0.0


def last_sign(folder: AttemptFolder) -> float:
    """Return when an attempt's files last changed, in epoch seconds; 0 where there are none."""
    return last_change((folder.metrics, folder.log, folder.exit))


def last_change(paths: Iterable[Path]) -> float:
    found = 0.0
    for path in paths:
        with contextlib.suppress(OSError):  # there may be none, or a link to none
            found = max(found, path.stat().st_mtime)
    return found
