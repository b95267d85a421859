"""What a command starts in the end, seen through the programs that only wrap it.

``uv run env A=1 nice -n 5 python -u train.py`` is Python with train.py; ``conda run -n x torchrun
…`` and ``python -m torch.distributed.run …`` are launchers, which start ranks themselves. Only the
words are read: what lies in a shell script, ``shell_text`` tells.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sweep.core.shell_text import split_words
from sweep.core.wrappers import LAUNCHERS, MODULES, MPI, SHELLS, WRAPPERS, Wrapper

# What kind of program a command is.
PYTHON, LAUNCHER, SHELL, OTHER = "python", "launcher", "shell", "other"

INTERPRETER = re.compile(r"python(\d+(\.\d+)?)?")
_RUNS_MODULE, _RUNS_SCRIPT = ("-m", "--module"), ("-s", "--script")  # of uv run
_PYTHON_VALUED = frozenset(["-W", "-X", "--check-hash-based-pycs"])
_SHELL_VALUED = frozenset(["-o", "-O", "+o", "+O", "--rcfile", "--init-file"])
_ASSIGNMENT = r"[A-Za-z_]\w*="


@dataclass(frozen=True)
class Program:
    """What a command starts in the end.

    Attributes:
        kind: PYTHON, LAUNCHER, SHELL or OTHER.
        name: How it is called: ``python3``, ``torchrun``, ``torch.distributed.run``, ``train.py``.
        before: The words that wrap it.
        prefix: What stands before its first word in the same word: ``env:`` of ``hatch run env:x``.
        words: Its own, itself first; of ``uv run train.py`` with the word ``python``.
        is_elsewhere: Whether a wrapper brings programs that are not on PATH.
        has_moved: Whether a wrapper starts it in another folder.
        code: Of ``bash -c``.
        script: Of Python or a shell, as it is named.
    """

    kind: str
    name: str
    before: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    prefix: str = ""
    is_elsewhere: bool = False
    has_moved: bool = False
    code: str | None = None
    script: str | None = None

    def wrap(self, words: Sequence[str]) -> list[str]:
        """Return other words in the place of its own, wrapped alike."""
        return [*self.before, self.prefix + words[0], *words[1:]]


def interpreter(command: Sequence[str], otherwise: str = "python") -> str:
    """Return the Python that a command names, also within what wraps it; else another word."""
    found = read_program(command)
    word = found.words[0] if found.words else ""
    return word if INTERPRETER.fullmatch(os.path.basename(word)) else otherwise


def read_program(command: Sequence[str]) -> Program:
    """Return what a command starts in the end; of an empty one, nothing of kind OTHER."""
    words, before, prefix = list(command), list[str](), ""
    is_elsewhere = has_moved = runs_python = False
    while words:
        name = os.path.basename(words[0])
        wrapper = WRAPPERS.get(name)
        end = _own_words(wrapper, words) if wrapper else None
        if wrapper is None or end is None:
            break
        own, rest = words[:end], words[end:]
        if name == "env" and (split := _split_string(own)):
            words = ["env", *split, *rest]  # as env does: one argument holds several
            continue
        if not rest:
            break
        if found := re.match(wrapper.prefix, rest[0]) if wrapper.prefix else None:
            prefix, rest = found[0], [rest[0][found.end() :], *rest[1:]]
        is_elsewhere = is_elsewhere or wrapper.brings
        has_moved = has_moved or any(word.split("=")[0] in wrapper.moves for word in own)
        runs_python = wrapper.runs_python
        before += own
        words = rest
    return replace(
        _read_plain(words, runs_python=runs_python),
        before=tuple(before),
        prefix=prefix,
        is_elsewhere=is_elsewhere,
        has_moved=has_moved,
    )


def _own_words(wrapper: Wrapper, words: Sequence[str]) -> int | None:
    """Return how many words are a wrapper's own; None where it wraps no command."""
    verbs = wrapper.verb.split("|") if wrapper.verb else []
    at, operands = 1, wrapper.operands
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            if not verbs:
                break
        elif not verbs and wrapper.runs_python and word in _RUNS_MODULE + _RUNS_SCRIPT:
            break
        elif wrapper.prefix and not verbs and re.fullmatch(r"[+-][\w.=,-]+", word):
            at += 1  # hatch's choice of environments
        elif word.startswith("-") and word != "-":
            at += 2 if _takes_next(word, wrapper.valued) else 1
        elif verbs and word == "tool":
            at += 1  # uv tool run
        elif verbs:
            if word not in verbs:
                return None
            verbs = []
            at += 1
        elif wrapper.assigns and re.match(_ASSIGNMENT, word):
            at += 1
        elif operands:
            operands -= 1
            at += 1
        else:
            break
    return None if verbs else at


def _split_string(own: Sequence[str]) -> list[str]:
    """Return env's own words with those of ``env -S "A=1 python"`` split; none without them."""
    for at, word in enumerate(own[1:], 1):
        if word in ("-S", "--split-string") and at + 1 < len(own):
            text, after = own[at + 1], at + 2
        elif word.startswith("--split-string="):
            text, after = word.partition("=")[2], at + 1
        elif word.startswith("-S") and len(word) > 2:
            text, after = word[2:], at + 1
        else:
            continue
        try:
            return [*own[1:at], *split_words(text), *own[after:]]
        except ValueError:
            return []
    return []


def _takes_next(option: str, valued: frozenset[str]) -> bool:
    """Tell whether an option's value is the next word: of ``-n 5`` or ``-vn 5``, not ``-n5``."""
    if option.startswith("--"):
        return option in valued
    for place, letter in enumerate(option[1:], 2):
        if f"-{letter}" in valued:
            return place == len(option)
    return option in valued


def _read_plain(words: Sequence[str], *, runs_python: bool) -> Program:
    """Return what a command without wrappers starts."""
    if not words:
        return Program(OTHER, "")
    name, own = os.path.basename(words[0]), tuple(words)
    if runs_python:  # what it is given is Python's
        if words[0] in _RUNS_MODULE:
            return _read_python(("python", "-m", *own[1:]))
        if words[0] in _RUNS_SCRIPT:
            return _read_python(("python", *own[1:]))
        if name.endswith((".py", ".pyw")):
            return _read_python(("python", *own))
    if INTERPRETER.fullmatch(name):
        return _read_python(own)
    if name in LAUNCHERS or re.fullmatch(MPI, name):
        return Program(LAUNCHER, name, words=own)
    if name in SHELLS:
        return _read_shell(own)
    if name.endswith((".py", ".pyz")):
        return Program(PYTHON, name, words=own, script=words[0])
    if name.endswith((".sh", ".bash")):
        return Program(SHELL, name, words=own, script=words[0])
    return Program(OTHER, name, words=own)


def _read_python(words: tuple[str, ...]) -> Program:
    """Return what Python starts: a module or a script that is a launcher, or itself."""
    name, at = os.path.basename(words[0]), 1
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            break
        cluster = "" if word.startswith("--") else word[1:]
        stop = next((letter for letter in cluster if letter in "mcWX"), "")
        if stop == "m":
            after = cluster[cluster.index("m") + 1 :]
            module = after or (words[at + 1] if at + 1 < len(words) else "")
            kind = LAUNCHER if re.fullmatch(MODULES, module) else PYTHON
            return Program(kind, module if kind == LAUNCHER else name, words=words)
        if stop == "c":
            return Program(PYTHON, name, words=words)
        at += 2 if _takes_next(word, _PYTHON_VALUED) else 1
    script = next((word for word in words[at : at + 2] if word), None)
    called = os.path.basename(script or "")
    if called in LAUNCHERS or re.fullmatch(MPI, called):
        return Program(LAUNCHER, called, words=words)
    return Program(PYTHON, name, words=words, script=script)


def _read_shell(own: tuple[str, ...]) -> Program:
    name, at, takes_code = os.path.basename(own[0]), 1, False
    while at < len(own) and own[at][:1] in ("-", "+") and own[at] not in ("-", "--"):
        word = own[at]
        takes_code = takes_code or (word.startswith("-") and word[1:2] != "-" and "c" in word)
        at += 2 if word in _SHELL_VALUED else 1
    if at < len(own) and own[at] == "--":
        at += 1
    given = own[at] if at < len(own) else None
    if takes_code:
        return Program(SHELL, name, words=own, code=given)
    return Program(SHELL, name, words=own, script=given)
