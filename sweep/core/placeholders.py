"""Placeholders in the user's command, such as ``{seed}``; ``{{`` and ``}}`` are literal braces.

Only the reading of them: the study file is checked with it before anything runs, and ``command``
puts the values in.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

# What stands in the place of several arguments, and therefore must be an argument of its own.
SPREAD = ("params", "params: ", "params:flags", "overrides", "overrides:+", "overrides:++")
# All parameters and fixed values in one argument: the path of a file, or a text.
CONFIG_JSON = "config:json"
PARAMS_JSON = "params:json"
TOGETHER = ("config", CONFIG_JSON, PARAMS_JSON)
RESERVED = (*TOGETHER, "trial_dir", "seed", "checkpoint_dir", "resume", *SPREAD)
# A trial's newest checkpoint, in the study's further commands.
CHECKPOINT = "checkpoint"
# What ``sweep init`` leaves for the user to replace.
EDIT = "EDIT_ME"


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
    text = ""
    at = 0
    while at < len(element):
        two, one = element[at : at + 2], element[at]
        if two in ("{{", "}}"):
            text += one
            at += 2
        elif one == "{":
            end = element.find("}", at)
            name = element[at + 1 : end]
            if end < 0 or "{" in name:
                raise ValueError(f"'{{' without its '}}' in {element!r}; write {{{{ for a brace")
            if not name.strip():
                raise ValueError(f"empty placeholder in {element!r}; write {{{{}}}} for braces")
            if text:
                pieces.append(text)
            pieces.append(Placeholder(name if name in SPREAD else name.strip()))
            text = ""
            at = end + 1
        elif one == "}":
            raise ValueError(f"'}}' without its '{{' in {element!r}; write }}}} for a brace")
        else:
            text += one
            at += 1
    return [*pieces, text] if text else pieces


def split(command: str) -> list[str]:
    """Split a command as a shell would, with the one placeholder that has a space kept whole.

    Raises:
        ValueError: A quote is never closed, or nothing follows the last backslash.
    """
    mark = "\x1f"  # no text of YAML holds it
    words = shlex.split(command.replace("{params: }", f"{{params:{mark}}}"))
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
