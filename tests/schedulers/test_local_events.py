"""The history of a local array survives full disks and torn lines."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from sweep.schedulers.local.events import ArrayEvents, EventLog, append_line, read_lines


class Disk:
    """Something to write to that holds only so many bytes."""

    def __init__(self, space: int) -> None:
        self.space = space
        self.content = b""

    def write(self, data: bytes) -> int:
        if not self.space:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = data[: self.space]
        self.space -= len(taken)
        self.content += taken
        return len(taken)


@pytest.mark.parametrize("space", [0, 1, 30, 60, 1000])
def test_a_full_disk_delays_events_and_loses_none(space: int) -> None:
    """Events that found no room, or half of it, are there in order once there is space."""
    disk = Disk(space)
    log = EventLog(disk.write)
    for index in range(3):
        log.add("start", index=index)
    assert log.flush() == (space == 1000)
    disk.space = 10_000
    assert log.flush()
    lines = [json.loads(line) for line in disk.content.splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 2]


@pytest.mark.parametrize(
    ("content", "objects", "offset"),
    [
        (b"", [], 0),
        (b'{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}], 18),
        (b'{"a": 1}\n{"a": ', [{"a": 1}], 9),
        (b'{"a": 1}\n{"a\n{"a": 2}\n', [{"a": 1}, {"a": 2}], 22),
        (b'{"a": 1}\n\n{"a": 2}\n', [{"a": 1}, {"a": 2}], 19),
        (b"\xff\xfe\n[1]\n", [], 7),
    ],
)
def test_lines_are_read_past_torn_ones(
    tmp_path: Path, content: bytes, objects: list[dict[str, int]], offset: int
) -> None:
    """Whole lines are read, torn ones passed over, and an unfinished one left for later."""
    path = tmp_path / "lines"
    path.write_bytes(content)
    assert read_lines(path) == (objects, offset)


def test_reading_goes_on_from_an_offset(tmp_path: Path) -> None:
    """A second reading sees only what has come since; a missing file has no lines."""
    path = tmp_path / "lines"
    assert read_lines(path) == ([], 0)
    first = append_line(path, {"a": 1})
    assert read_lines(path) == ([{"a": 1}], first)
    second = append_line(path, {"a": 2})
    assert read_lines(path, first) == ([{"a": 2}], second)


def test_appending_after_a_torn_line_starts_a_new_one(tmp_path: Path) -> None:
    """A line that a full disk cut short does not swallow the next."""
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1, "b')
    append_line(path, {"a": 2})
    assert read_lines(path)[0] == [{"a": 2}]


def test_history_follows_the_events() -> None:
    """An element is started until an event ends it; a start clears the reason for waiting."""
    history = ArrayEvents().add(
        [
            {"event": "wait", "reason": "no GPU"},
            {"event": "start", "index": 0, "pid": 10, "start": 5},
            {"event": "start", "index": 1, "pid": 11, "start": 6},
            {"event": "end", "indices": [0, 2], "word": "CANCELLED", "reason": ""},
            {"event": "seen", "offset": 40},
        ]
    )
    assert history.started == {1: (11, 6)}
    assert sorted(history.ended) == [0, 2]
    assert (history.waiting, history.seen) == ("", 40)
