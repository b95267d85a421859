"""What trackers were told of and have not taken to its end, so that it can be sent again.

A tracker's process may be killed with its task, or its server may be away until the task has ended.
What it was told of attempts is therefore kept, and which of them it was handed over whole: in two
kinds of files in the study's ``tracking`` folder, one of each kind a node, so that a network file
system has nothing to order.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sweep.core.errors import SweepError
from sweep.core.files import make_private, open_private, take_lock
from sweep.core.paths import StudyFolder
from sweep.core.study import Study

TOLD, SENT = ".told", ".sent"
BEGIN, END = "begin", "end"
WORK = ".work"  # locked, by all who share it, while a tracker's process is at work on this machine

LOCK_TRIES = 100

Key = tuple[int, int]  # trial and attempt
Messages = dict[Key, dict[str, dict[str, Any]]]  # BEGIN, and END unless its task was killed


def note_told(folder: StudyFolder, message: Mapping[str, Any]) -> None:
    """Keep what trackers are told.

    Raises:
        OSError: It cannot be written.
    """
    _append(folder, socket.gethostname() + TOLD, json.dumps(message))


def note_sent(folder: StudyFolder, name: str, trial: int, attempt: int) -> None:
    """Note that a tracker has taken an attempt, its end included.

    Raises:
        OSError: It cannot be written; the attempt will be sent again, which doubles nothing.
    """
    _append(folder, f"{name}.{socket.gethostname()}{SENT}", json.dumps([trial, attempt]))


def read_told(folder: StudyFolder) -> Messages:
    """Return what trackers were told, by trial and attempt in order."""
    found: Messages = {}
    for message in _lines(folder, "*" + TOLD):
        with suppress(KeyError, TypeError, ValueError):
            key = (int(message["trial"]), int(message["attempt"]))
            found.setdefault(key, {})[str(message["event"])] = message
    return {key: found[key] for key in sorted(found) if BEGIN in found[key]}


def missing(folder: StudyFolder, name: str, told: Messages) -> list[int]:
    """Return the trials of which a tracker lacks something, in order.

    Args:
        told: As ``read_told`` returns it.
    """
    sent = set()
    for line in _lines(folder, f"{name}.*{SENT}"):
        with suppress(TypeError, ValueError):
            trial, attempt = line
            sent.add((int(trial), int(attempt)))
    return sorted({trial for trial, attempt in told if (trial, attempt) not in sent})


def begin_work(folder: StudyFolder, name: str) -> int | None:
    """Say that a process of a tracker is at work here; return what ``end_work`` takes."""
    with suppress(OSError, SweepError):  # without locks nobody is told
        path = make_private(folder.tracking) / f"{name}{WORK}"
        for _ in range(LOCK_TRIES):  # somebody asks just now
            lock = take_lock(path, shared=True)
            if lock is not None:
                return lock
            time.sleep(0.05)
    return None


def end_work(lock: int | None) -> None:
    """Say that it is not, any more; so does its end."""
    if lock is not None:
        os.close(lock)


def is_at_work(folder: StudyFolder, name: str) -> bool:
    """Tell whether a process of a tracker is at work on this machine."""
    path = folder.tracking / f"{name}{WORK}"
    with suppress(OSError, SweepError):
        lock = take_lock(path) if path.exists() else -1
        if lock is None:
            return True
        if lock >= 0:
            os.close(lock)
    return False


def notes(folder: StudyFolder, study: Study) -> list[str]:
    """Return a sentence on each tracker that lacks trials of a study of which nothing runs."""
    names = [name for name in dict.fromkeys(study.track) if not is_at_work(folder, name)]
    told = read_told(folder) if names else {}
    return [
        f"tracker {name} lacks {describe(lacking)}: sweep resend {study.name} sends it again"
        for name in names
        if (lacking := missing(folder, name, told))
    ]


def describe(trials: Sequence[int]) -> str:
    """Return which trials these are, in words."""
    shown = ", ".join(str(number) for number in trials[:5])
    more = f" and {len(trials) - 5} more" if len(trials) > 5 else ""
    return f"what trial{'s' if len(trials) > 1 else ''} {shown}{more} reported, or a part of it"


def _append(folder: StudyFolder, name: str, line: str) -> None:
    path = make_private(folder.tracking) / name
    descriptor = open_private(str(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    try:
        # One write a line: processes of a node share the file. A line that was cut short by a full
        # disk stands by itself.
        os.write(descriptor, f"\n{line}\n".encode())
    finally:
        os.close(descriptor)


def _lines(folder: StudyFolder, pattern: str) -> Iterator[Any]:
    for path in sorted(folder.tracking.glob(pattern)):
        with suppress(OSError):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError):
                    yield json.loads(line)
