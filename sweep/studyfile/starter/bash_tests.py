"""What bash's tests say, and what ``read`` and ``mapfile`` set."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from sweep.studyfile.starter.bash_state import BashState, NotKnown, known
from sweep.studyfile.starter.bash_words import (
    calculate,
    expand_pattern,
    expand_text,
    expand_words,
    raw_words,
    split_fields,
)

READ = re.compile(
    r"(?:IFS=(\$?'[^']*'|\"[^\"]*\"|\S*)\s+)?read((?:\s+-[ra]+)*)((?:\s+[A-Za-z_]\w*)*)\s*"
)


def holds_test(text: str, variables: BashState) -> bool:
    """Tell whether ``[ … ]``, ``[[ … ]]`` or ``(( … ))`` holds. Raises: NotKnown."""
    if text.startswith("(("):
        return calculate(text.strip().removeprefix("((").removesuffix("))"), variables) != 0
    inner = re.fullmatch(r"(?:\[\[|\[|test)\s(.*?)(?:\s\]\]?)?", text, re.S)
    if inner is None:
        raise NotKnown(text)
    if text.startswith("[["):  # what is not in quotes may be empty, and is a word still
        raw = raw_words(inner[1])
        words = [known(expand_text(word, variables)) for word in raw]
        if len(words) == 3 and "=" in words[1]:
            expand_pattern(raw[2], variables)
    else:
        words = [known(word) for word in expand_words(inner[1], variables)]
    if len(words) == 2 and words[0] in ("-n", "-z"):
        return (words[0] == "-n") == bool(words[1])
    if len(words) == 1:
        return bool(words[0])
    if len(words) != 3:
        raise NotKnown(text)
    left, sign, right = words
    if sign in ("==", "=", "!="):
        same = fnmatchcase(left, right) if text.startswith("[[") else left == right
        return same == (sign != "!=")
    compare = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
    if sign not in compare:
        raise NotKnown(text)
    return calculate(f"({left}) {compare[sign]} ({right})", variables) != 0


def set_fields(command: str, line: str, variables: BashState) -> None:
    """Set what ``read`` makes of a line. Raises: NotKnown."""
    found = READ.fullmatch(command)
    if found is None or ("\\" in line and "r" not in found[2]):
        raise NotKnown(command)
    signs = variables.texts.get("IFS", " \t\n")
    if found[1] is not None:
        signs = known(expand_text(found[1], variables))
    names = found[3].split()
    if "a" in found[2]:
        row = split_fields(line, signs)
        variables.arrays[names[0]] = {str(i): word for i, word in enumerate(row)}
        return
    row = split_fields(line, signs, len(names)) if names else [line]
    for i, name in enumerate(names or ["REPLY"]):
        variables.put(name, row[i] if i < len(row) else "")


def set_lines(command: str, text: str, variables: BashState) -> None:
    """Set what ``mapfile`` makes of a text. Raises: NotKnown."""
    found = re.fullmatch(r"\w+(\s+-t)?\s+([A-Za-z_]\w*)", command)
    if found is None:
        raise NotKnown(command)
    values = text.split("\n")
    if not found[1]:
        values = [f"{value}\n" for value in values[:-1]] + values[-1:]
    values = values if values[-1] else values[:-1]
    variables.arrays[found[2]] = {str(i): value for i, value in enumerate(values)}
