"""Placeholders in the user's command, such as ``{seed}``; ``{{`` and ``}}`` are literal braces.

Only the reading of them: the study file is checked with it before anything runs, and ``command``
puts the values in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sweep.core.shell_text import split_words

# What stands in the place of several arguments, and therefore must be an argument of its own.
SPREAD = ("params", "params: ", "params:flags", "overrides", "overrides:+", "overrides:++")
# All parameters and fixed values in one argument: the path of a file, or a text.
CONFIG_JSON = "config:json"
PARAMS_JSON = "params:json"
TOGETHER = ("config", CONFIG_JSON, PARAMS_JSON)
RESERVED = (*TOGETHER, "trial_dir", "seed", "checkpoint_dir", "resume", *SPREAD)
# A trial's newest checkpoint, in the study's further commands.
CHECKPOINT = "checkpoint"
# Before the name of a data set.
DATA = "data."
# What ``sweep init`` leaves for the user to replace.
EDIT = "EDIT_ME"

_BRACE = re.compile("[{}]")


@dataclass(frozen=True)
class Placeholder:
    """A place for a value: one of RESERVED, or the name of a parameter."""

    name: str


def parse(element: str) -> list[str | Placeholder]:
    """Split one argument of the command into literal text and placeholders.

    Returns:
        Pieces in order; neighbouring text is one piece, and there are no empty ones.

    Raises:
        ValueError: A brace has no partner, or nothing stands between two.
    """
    pieces: list[str | Placeholder] = []
    text: list[str] = []
    at = 0
    while brace := _BRACE.search(element, at):
        text.append(element[at : brace.start()])
        at = brace.start()
        if element[at : at + 2] in ("{{", "}}"):
            text.append(brace[0])
            at += 2
        elif brace[0] == "{":
            end = element.find("}", at)
            name = element[at + 1 : end]
            if end < 0 or "{" in name:
                raise ValueError(f"'{{' without its '}}' in {element!r}; write {{{{ for a brace")
            if not name.strip():
                raise ValueError(f"empty placeholder in {element!r}; write {{{{}}}} for braces")
            pieces.append("".join(text))
            pieces.append(Placeholder(name if name in SPREAD else name.strip()))
            text = []
            at = end + 1
        else:
            raise ValueError(f"'}}' without its '{{' in {element!r}; write }}}} for a brace")
    pieces.append("".join([*text, element[at:]]))
    return [piece for piece in pieces if piece]


def split(command: str) -> list[str]:
    """Split a command as a shell would, with the one placeholder that has a space kept whole.

    Raises:
        TooLong: No argument can be so long.
        ValueError: A quote is never closed, or nothing follows the last backslash.
    """
    mark = "\x1f"  # no text of YAML holds it
    words = split_words(command.replace("{params: }", f"{{params:{mark}}}"))
    return [word.replace(f"{{params:{mark}}}", "{params: }") for word in words]


def names(element: str) -> set[str]:
    """Return the placeholders of one argument; none where its braces are odd."""
    try:
        pieces = parse(element)
    except ValueError:
        return set()
    return {piece.name for piece in pieces if isinstance(piece, Placeholder)}


def escape(text: str) -> str:
    """Return text as a command must hold it so that no brace is taken for a placeholder."""
    return text.replace("{", "{{").replace("}", "}}")
