"""The lines of a file that somebody else appends to, and now and then cuts or replaces.

The file stays open between two looks, so that a look costs no more than asking for its size. Its
path is looked at again every few seconds: another file may be there by then.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 1 << 20  # a longer one is passed over, and said to be
QUIET_S = 0.5  # without growth, after which a line without its end is looked at
PATH_EVERY_S = 5.0  # between two looks at which file the path names
_KNOWN_BYTES = 64  # of what was read last, by which a file that was written anew is known


@dataclass(frozen=True)
class Position:
    """Up to where a file was read.

    Attributes:
        inode: Of the file, 0 where there was none.
        offset: Bytes from its start, after a whole line.
    """

    inode: int = 0
    offset: int = 0


class Tail:
    """Hands out the lines that are new, each once.

    Args:
        path: There may be no such file yet.
        start: Where an earlier reader of the same file had come to.
        returns: It is a terminal's output: ``\\r`` ends a piece of a line as well, and a line
            that is too long comes in several.

    Attributes:
        notes: What happened to the file, in sentences for people.
    """

    def __init__(self, path: Path, start: Position = Position(), returns: bool = False) -> None:
        self.path = path
        self._returns = returns
        self.notes: list[str] = []
        self._start = start
        self._file: int | None = None
        self._inode = start.inode
        self._read = start.offset  # bytes of the file so far
        self._handed = start.offset  # of these, up to the end of the last line handed out
        self._known = b""  # the last bytes read
        self._rest = b""  # of a line whose end is not there yet
        self._passing = False  # over the rest of a line that is too long
        # With the length in the file, and what has ended them.
        self._lines: deque[tuple[int, bytes, str]] = deque()
        self._grown = 0.0  # when something was read
        self._next_path_look = 0.0

    def position(self) -> Position:
        """Return up to where lines were handed out."""
        return Position(self._inode, self._handed)

    def size(self) -> int:
        """Return the size of the open file in bytes, 0 where there is none."""
        try:
            return os.fstat(self._file).st_size if self._file is not None else 0
        except OSError:
            return 0

    def lines(self, most: int, *, final: bool = False) -> list[str]:
        """Return up to so many new lines, without their ends.

        Args:
            final: Nobody writes any more: a last line without an end counts, and the file is closed
                once there is nothing left.
        """
        return [text for text, _ in self.pieces(most, final=final)]

    def pieces(self, most: int, *, final: bool = False) -> list[tuple[str, str]]:
        """Return lines, or with ``returns`` their pieces, and what has ended each.

        That is ``\\n``, also for ``\\r\\n`` and at the end of the file, ``\\r``, or "" within a
        line that is too long.
        """
        found: list[tuple[str, str]] = []
        while len(found) < most:
            if not self._lines and not self._fill(final):
                break
            length, line, ended = self._lines.popleft()
            self._handed += length
            found.append((line.decode("utf-8", "replace"), ended))
        if final and not self._lines and len(found) < most:
            self.close()
        return found

    def unfinished(self) -> str:
        """Return what was written of a line whose end does not come; "" while more may come.

        Nothing of it is handed out by that. A last ``\\r`` may be half of ``\\r\\n``.
        """
        if not self._rest or self._lines or time.monotonic() - self._grown < QUIET_S:
            return ""
        return self._rest.decode("utf-8", "replace")

    def close(self) -> None:
        """Close the file; the next look opens it again, where this one has ended."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _fill(self, final: bool) -> bool:
        """Read on until there are lines to hand out; return whether there are."""
        try:
            while True:
                if self._file is None and not self._open():
                    return False
                if self._read_chunk():
                    if self._lines:
                        return True
                elif not self._is_replaced(final):
                    return final and self._end_line()
        except OSError as error:
            self._note(f"cannot be read: {error.strerror or error}")
            self.close()
            return False

    def _open(self) -> bool:
        try:
            # Not to wait for a writer, should somebody have put a FIFO there.
            file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            os.close(file)
            self._note("is no regular file, and is not read")
            return False
        if self._inode and found.st_ino != self._inode:
            self._begin_anew("was replaced by another file")
        self._file, self._inode = file, found.st_ino
        self._next_path_look = time.monotonic() + PATH_EVERY_S
        return True

    def _read_chunk(self) -> bool:
        """Take in what was appended; return whether there was something."""
        assert self._file is not None
        size = os.fstat(self._file).st_size
        if size < self._read:
            self._begin_anew(f"was cut from {self._read:,} to {size:,} bytes")
        if size == self._read:
            return False
        start = max(0, self._read - len(self._known))
        data = os.pread(self._file, CHUNK_BYTES, start)
        if not data.startswith(self._known):
            self._begin_anew("was written anew")
            return True  # read it in the next look
        new = data[len(self._known) :]
        if not new:
            return False
        self._read += len(new)
        self._grown = time.monotonic()
        self._known = data[-_KNOWN_BYTES:]
        self._split(new)
        return True

    def _split(self, data: bytes) -> None:
        if self._returns:
            parts = data.splitlines(keepends=True)
            if self._rest.endswith(b"\r") and not data.startswith(b"\n"):
                parts.insert(0, b"")  # it has ended a piece
        else:
            *whole, rest = data.split(b"\n")
            parts = [line + b"\n" for line in whole] + [rest] * bool(rest)
        parts[0] = self._rest + parts[0]
        self._rest = b"" if parts[-1].endswith(b"\n") else parts.pop()
        for part in parts:
            if self._passing:  # its beginning was handed out as it was
                self._passing = False
                self._lines.append((len(part), b"", "\n"))
            elif part.endswith(b"\n"):
                self._lines.append(
                    (len(part), part.rstrip(b"\r\n") if self._returns else part[:-1], "\n")
                )
            else:
                self._lines.append((len(part), part[:-1], "\r"))
        if len(self._rest) > LONGEST_LINE_BYTES:
            if self._returns:
                self._lines.append((len(self._rest), self._rest, ""))
            else:
                if not self._passing:
                    self._note(f"has a line of more than {LONGEST_LINE_BYTES:,} bytes, not read")
                self._passing = True
                self._lines.append((len(self._rest), b"", "\n"))
            self._rest = b""

    def _end_line(self) -> bool:
        """Take what is there of the last line for a whole one."""
        if not self._rest or self._passing:
            return False
        text, ended = self._rest, "\n"
        if self._returns and text.endswith(b"\r"):
            text, ended = text[:-1], "\r"
        self._lines.append((len(self._rest), text, ended))
        self._rest = b""
        return True

    def _is_replaced(self, now: bool) -> bool:
        """Tell whether the path names another file by now; then that one is read from its start."""
        if not now and time.monotonic() < self._next_path_look:
            return False
        self._next_path_look = time.monotonic() + PATH_EVERY_S
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return False
        assert self._file is not None
        mine = os.fstat(self._file)
        if (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino):
            return False
        self.close()
        return True

    def _begin_anew(self, what: str) -> None:
        lost = len(self._rest)
        half = f"; an unfinished line of {lost:,} bytes is lost" if lost else ""
        kept = "" if self._read else ", and nothing of it had been read"
        self._note(f"{what}{kept}{half}: it is read from its start, and what was read before stays")
        self._read = self._handed = 0
        self._known, self._rest, self._passing = b"", b"", False

    def _note(self, what: str) -> None:
        sentence = f"{self.path.name} {what}"
        if sentence not in self.notes:
            self.notes.append(sentence)
