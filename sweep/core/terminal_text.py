"""Output as a terminal would show it: escape sequences gone, a redrawn line as it looked last."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import re
import sys

# ECMA-48: sequences with parameters (colours, cursor), strings up to their end (titles, links), and
# those of two characters. What follows a string that never ends is text.
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[PX^_\]][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
    r"|\x1b"
)


def plain(text: str) -> str:
    """Return text without a terminal's escape sequences."""
    if "\x1b" not in text and "\x9b" not in text:
        return text
    return _ESCAPE.sub("", text)


def visible(line: str) -> str:
    """Return what a terminal shows of one line, with tabs; nothing in it acts on a terminal.

    Of a line that was redrawn (``\\r``) that is what was drawn last.
    """
    line = plain(line)
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    if line.isprintable():
        return line
    return "".join(letter for letter in line if letter.isprintable() or letter == "\t")


def visible_lines(text: str) -> list[str]:
    """Return the lines of a text as a terminal shows them."""
    *whole, rest = text.split("\n")
    return [visible(line) for line in (whole if not rest else [*whole, rest])]


class VisibleText:
    """Output that comes in parts, cut anywhere, as a terminal shows it: line by line.

    Args:
        live: The reader is a terminal: a line whose end is not there yet is shown as well, and
            drawn anew as it grows.
    """

    LONGEST = 1 << 16  # characters of a line; what is longer is handed out in pieces

    def __init__(self, live: bool = False, columns: int = 80) -> None:
        self._rest = ""
        self._live = live
        self._columns = columns
        self._drawn = ""

    def add(self, text: str) -> str:
        """Return what can be shown with this further part."""
        *whole, rest = (self._rest + text).split("\n")
        if len(rest) > self.LONGEST and "\r" in rest[:-1]:
            # What was drawn over is not shown; the last \r may be half of an end of line.
            rest = rest[rest.rindex("\r", 0, -1) + 1 :]
        if len(rest) > self.LONGEST:
            whole.append(rest)
            rest = ""
        self._rest = rest
        shown = "".join(visible(line) + "\n" for line in whole)
        return self._erase(shown) if shown else ""

    def pause(self) -> str:
        """Return what a terminal is to show of the line whose end is not there yet."""
        text = visible(self._rest).expandtabs()[: self._columns - 1] if self._live else ""
        if text == self._drawn:
            return ""
        shown = self._erase(text)
        self._drawn = text
        return shown

    def end(self) -> str:
        """Return the last line, where it lacks its end."""
        last = visible(self._rest)
        self._rest = ""
        return self._erase(last + "\n" if last else "")

    def _erase(self, text: str) -> str:
        before, self._drawn = self._drawn, ""
        return "\r\x1b[K" + text if before else text


def print_all_characters() -> None:
    """Have standard output and error take what their encoding lacks, as JSON writes it: \\u00e9."""
    codecs.register_error("sweep", _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # of an odd kind: it stays as it is
                stream.reconfigure(errors="sweep")


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
