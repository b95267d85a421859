"""The small files in an attempt's folder by which worker and training tell each other."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sweep.core.files import make_folders, move_aside, open_regular, read_record, write_atomic
from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.core.trial import Attempt

_MOST_ANSWER = 1 << 15  # characters: a word or two, that it is done, and what memory has grown to
_MOST_CODE = 2**31 - 1  # no system has a higher one


def make_folder(folder: AttemptFolder, token: str, *, later_too: bool = True) -> list[Path]:
    """Make an attempt's folder, with a mark that says whose it is; never enter one that is there.

    Where the database was restored or removed, the folder of a forgotten attempt may stand in its
    place: it is moved aside, and nobody takes it for this one's.

    Args:
        later_too: Then move those with higher numbers as well: this is the trial's last attempt.

    Returns:
        Where something was moved.
    """
    moved: list[Path] = []
    make_folders(folder.root.parent)
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
    token = _token_in(folder.mark) or _token_in(folder.exit)
    if token is None:
        return attempt.group is not None  # it has trained; an earlier version left no mark
    return token == attempt.token


def _token_in(path: Path) -> str | None:
    """Return the token that a file names, or None where it cannot be read or names none."""
    found, _ = read_record(path)
    token = (found or {}).get("token")
    return token if isinstance(token, str) else None


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
        resumed: Whether it has asked for the checkpoint that it was given.
        gpu_bytes: The most of the GPU's memory that its allocator has reserved; None where it
            says nothing.
    """

    saw: bool = False
    done: bool = False
    resumed: bool = False
    gpu_bytes: int | None = None


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
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            notes.update(json.loads(line))
    held = notes.get("gpu_bytes")
    return Reply(
        bool(notes.get("saw")),
        notes.get("done") is True,
        notes.get("resumed") is True,
        held if type(held) is int and held > 0 else None,
    )


def has_resumed(folder: AttemptFolder) -> bool:
    """Tell whether an attempt's training has asked for its checkpoint, also once it has ended."""
    answer = read_answer(folder)
    if answer is not None:
        return answer.resumed
    return (read_exit(folder) or {}).get("resumed") is True


def write_exit(
    folder: AttemptFolder,
    exit_code: int | None,
    signal: int | None,
    told: str,
    suspended_s: float = 0.0,
) -> None:
    """Note how the training's process ended, before the database hears of it.

    What it was told, and whose the folder is, are part of that; the files about them go, as files
    are counted.
    """
    note = {"exit_code": exit_code, "signal": signal, "told": told, "time": time.time()}
    if suspended_s:
        note["suspended_s"] = suspended_s
    if has_resumed(folder):
        note["resumed"] = True
    if (token := _token_in(folder.mark)) is not None:
        note["token"] = token
    write_atomic(folder.exit, json.dumps(note) + "\n")
    for path in (folder.mark, folder.control, folder.answer):
        with contextlib.suppress(OSError):
            path.unlink()


def read_exit(folder: AttemptFolder) -> dict[str, object] | None:
    """Return what ``write_exit`` noted, or None; see ``odd_files``."""
    found, _ = read_record(folder.exit)
    if not found:
        return None
    for name in ("exit_code", "signal"):
        code = found.get(name)
        found[name] = code if isinstance(code, int) and abs(code) <= _MOST_CODE else None
    return found


def odd_files(folder: AttemptFolder) -> list[str]:
    """Return, in sentences, which of an attempt's files cannot be read.

    ``metrics.jsonl`` is not among them: whoever reads it says so.
    """
    found = []
    for path in (folder.mark, folder.exit, folder.control):
        _, wrong = read_record(path)
        if wrong:
            found.append(f"{path.name} {wrong}")
    for path, look in ((folder.log, _open_and_close), (folder.checkpoints, os.listdir)):
        try:
            look(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            found.append(f"{path.name} cannot be read: {error.strerror or error}")
    return found


def _open_and_close(path: Path) -> None:
    os.close(open_regular(path))


_MOST_SUSPENDED_S = 1e9  # thirty years


def read_suspended_s(folder: AttemptFolder) -> float:
    """Return for how many seconds of an ended attempt its training did not run, as was noted."""
    found = (read_exit(folder) or {}).get("suspended_s")
    if not isinstance(found, (int, float)) or not 0 <= found <= _MOST_SUSPENDED_S:
        return 0.0  # nor NaN, nor what training has made up
    return float(found)


def last_sign(folder: AttemptFolder) -> float:
    """Return when an attempt's files last changed, in epoch seconds; 0 where there are none."""
    return last_change((folder.metrics, folder.log, folder.exit))


def last_change(paths: Iterable[Path]) -> float:
    found = 0.0
    for path in paths:
        with contextlib.suppress(OSError):  # there may be none, or a link to none
            found = max(found, path.stat().st_mtime)
    return found
