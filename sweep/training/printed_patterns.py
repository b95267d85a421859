"""The group of a pattern that takes a printed number, and one that takes any number."""

from __future__ import annotations

import re

# What a group is written with that takes a number and nothing else.
_OF_A_NUMBER = re.compile(r"(?:\\[d.+-]|\[[0-9.,eE+\\d-]+\]|\(\?:|[0-9.,eE+*?|()-]|\{\d*,?\d*\})+")
_TAKES_DIGITS = re.compile(r"\\d|\[[^\]]*(?:0-9|\\d)[^\]]*\]")


def _groups(pattern: str) -> list[tuple[int, int, str]]:
    """Return the groups of a pattern that lie in no other one: where each begins and ends, and
    what it holds."""
    found: list[tuple[int, int, str]] = []
    opened: list[tuple[int, bool]] = []
    for token in re.finditer(r"\\.|\[\]?(?:\\.|[^\]\\])*\]|\((?:\?P<\w+>|\?)?|\)", pattern):
        text = token[0]
        if text.startswith("("):
            opened.append((token.start(), text != "(?"))
        elif text == ")" and opened:
            start, is_group = opened.pop()
            if is_group and not any(is_outer for _, is_outer in opened):
                inside = re.sub(r"\A\((?:\?P<\w+>)?", "", pattern[start : token.start()])
                found.append((start, token.end(), inside))
    return sorted(found)


def widen(pattern: str) -> str:
    """Return a pattern whose first group takes any number, with its sign and exponent; "" where
    it takes more than numbers, or where that is not clear."""
    found = _groups(pattern)
    if len(found) != 1 or "|" in pattern[: found[0][0]] + pattern[found[0][1] :]:
        return ""
    start, end, inside = found[0]
    if not _OF_A_NUMBER.fullmatch(inside) or not _TAKES_DIGITS.search(inside):
        return ""
    wide = f"{pattern[:start]}([-+\u2212]?[0-9.]+(?:[eE][-+]?[0-9]+)?){pattern[end:]}"
    try:
        re.compile(wide)
    except re.error:
        return ""
    return wide
