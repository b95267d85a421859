"""The commands in a shell script's text, as far as they can be told without running it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Words after which a command begins, and those that open and close what may never run.
_OPENS = frozenset({"if", "case", "while", "until", "for", "select", "{"})
_CLOSES = frozenset({"fi", "esac", "done", "}"})
_BEFORE = frozenset({"then", "elif", "else", "do", "time", "!"}) | _OPENS | _CLOSES
_ENDS = r"[;&|()\n]+"
_ASSIGNMENT = r"[A-Za-z_]\w*\+?="
# Beyond it the splitting takes seconds, and the system takes no argument that is longer.
MOST_CHARACTERS = 128 * 1024 - 1
_HEREDOC = r"<<-?\s*(['\"]?)(\w+)\1"


@dataclass(frozen=True)
class ScriptCommand:
    """A command of a script.

    Attributes:
        words: Without the variables that are set before it; unexpanded.
        line: Its number, from 1.
        is_certain: Whether it stands in no condition, loop or function.
    """

    words: tuple[str, ...]
    line: int
    is_certain: bool


class TooLong(ValueError):
    """A text that is longer than any argument can be."""


def split_words(text: str, *, comments: bool = False, posix: bool = True) -> list[str]:
    """Split a text into words as a shell would (``shlex.split``).

    Raises:
        TooLong: It has more than MOST_CHARACTERS.
        ValueError: A quote is never closed, or nothing follows the last backslash.
    """
    if len(text) > MOST_CHARACTERS:
        raise TooLong(f"{len(text):,} characters")
    return shlex.split(text, comments=comments, posix=posix)


def list_commands(text: str) -> Iterator[ScriptCommand]:
    """Yield the commands of a script's text in their order; lines nobody can split are left out.

    So are those of more than MOST_CHARACTERS.
    """
    depth = 0
    for number, line in _join_lines(text):
        for words in _split(line):
            certain = depth == 0
            while words and words[0] in _BEFORE:
                depth += (words[0] in _OPENS) - (words[0] in _CLOSES)
                certain = certain and depth == 0
                opened = words.pop(0)
                if opened in ("for", "case", "select"):
                    words = []
            while words and re.match(_ASSIGNMENT, words[0]):
                words.pop(0)
            if words:
                yield ScriptCommand(tuple(words), number, certain)


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield a script's lines with the number of each; continued ones in one, no here-documents."""
    parts: list[str] = []
    first, until = 1, ""
    for number, line in enumerate(text.splitlines(), 1):
        if until:
            until = "" if line.strip() == until else until
            continue
        if not parts:
            first = number
        if line.endswith("\\"):
            parts.append(line[:-1])
            continue
        whole = " ".join([*parts, line])
        parts = []
        if found := re.search(_HEREDOC, whole):
            until = found[2]
        yield first, whole
    if parts:
        yield first, " ".join(parts)


def _split(line: str) -> Iterator[list[str]]:
    if len(line) > MOST_CHARACTERS:
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    try:
        for word in lexer:
            if re.fullmatch(_ENDS, word):
                yield words
                words = []
                continue
            words.append(word)
    except ValueError:  # a quote that goes on in the next line
        words = []
    yield words


def show_command(words: Iterable[str]) -> str:
    """Return a command as a study file has it: a placeholder needs no quotes."""
    return " ".join(w if re.fullmatch(r"[\w@%+=:,./{}-]+", w) else shlex.quote(w) for w in words)
