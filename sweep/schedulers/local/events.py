"""What happened in a local array: JSON lines, written by its runner and read by everybody."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class ArrayEvents:
    """What events.jsonl tells.

    Attributes:
        started: Index to (pid, start time), of elements that have not ended.
        ran: Elements that have started, also those that have ended since.
        ended: Index to the event that ended it.
        waiting: Why elements wait, if not for the throttle.
        seen: How many bytes of control.jsonl the runner has dealt with.
    """

    started: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    ran: set[int] = field(default_factory=set)
    ended: dict[int, dict[str, Any]] = field(default_factory=dict)
    waiting: str = ""
    seen: int = 0

    def add(self, events: Iterable[dict[str, Any]]) -> ArrayEvents:
        for event in events:
            kind = event["event"]
            if kind == "start":
                self.started[event["index"]] = (event["pid"], event["start"])
                self.ran.add(event["index"])
                self.waiting = ""
            elif kind == "end":
                for index in event["indices"]:
                    self.started.pop(index, None)
                    self.ended[index] = event
            elif kind == "wait":
                self.waiting = event["reason"]
            elif kind == "seen":
                self.seen = event["offset"]
        return self


def read_lines(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the objects of a file of JSON lines from an offset on, and the offset after them.

    A last line without its end is left for later; a line that cannot be read (its writer died or
    met a full disk) is passed over.
    """
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            content = stream.read()
    except FileNotFoundError:
        return [], offset
    whole = content[: content.rfind(b"\n") + 1]
    lines = whole.splitlines()
    try:  # in one go: thousands of lines a call
        found = json.loads(b"[" + b",".join(lines) + b"]")
        if all(isinstance(one, dict) for one in found):
            return found, offset + len(whole)
    except (ValueError, RecursionError):
        pass
    objects = []
    for line in lines:
        try:
            objects.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return [found for found in objects if isinstance(found, dict)], offset + len(whole)


def append_line(path: Path, content: dict[str, Any]) -> int:
    """Append one JSON line and return the file's size after it.

    The caller holds the lock of the root.

    Raises:
        OSError: The disk is full, say.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
        line = b"\n" * bool(torn) + json.dumps(content).encode() + b"\n"
        end = size + len(line)
        while line:
            line = line[os.write(descriptor, line) :]
        return end
    finally:
        os.close(descriptor)


class EventLog:
    """The array's history, appended line by line; a full disk delays it, and loses nothing.

    Args:
        write: Writes bytes and returns how many, as ``os.write`` does.
    """

    def __init__(self, write: Callable[[bytes], int]) -> None:
        self.write = write
        self.unwritten = b""

    def add(self, event: str, **content: Any) -> None:
        """Append one event, now or when there is space again."""
        line = json.dumps({"event": event, **content, "time": round(time.time(), 3)})
        self.unwritten += line.encode() + b"\n"
        self.flush()

    def flush(self) -> bool:
        """Write what has not been written yet; return whether all is."""
        try:
            while self.unwritten:
                self.unwritten = self.unwritten[self.write(self.unwritten) :]
        except OSError:  # no space, quota, a network file system away: tried again later
            return False
        return True
