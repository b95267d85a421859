"""What a printed line says of the number in it: its name, the part of the data, that it sums up."""

from __future__ import annotations

import re

# The part of the data that a line, or what follows in it, is of: "[valid] loss=1, acc=0.5".
_PART_BEFORE = re.compile(
    r"(?<![A-Za-z_])(?:train|training|val|valid|validation|eval|evaluation|dev|test|testing)"
    r"(?![A-Za-z_]|\.[A-Za-z])",
    re.IGNORECASE,
)
PART = re.compile(r"(?<![A-Za-z])(train|val|eval|dev|test)", re.IGNORECASE)
_LABEL_WIDTH = 80
_PART_WIDTH = 300  # characters before a name in which the part of the data is looked for
# As LightGBM says it: "Early stopping, best iteration is:".
_HEADING = re.compile(r"\b(best|final)\b[^:]{0,100}:\s*\Z", re.IGNORECASE)
# What sums up, at the end, behind what loggers put before it; also CatBoost's bestTest, and what
# wandb prints of a run.
_SUMMARY = re.compile(
    r"[\W_]*(best|final|test|wandb)(?:ly|ing|ed|s)?(?!(?-i:[a-z])|(?-i:[A-Z]{2}))", re.IGNORECASE
)
_LOGGED = re.compile(
    r"[\s>*=#|:,;.–—-]*(?:\[?(?:\d{2,4}[-:/.]\d\d[-:/.]\d\d|\d\d:\d\d)[\d:.,TZ+-]*\]?"
    r"|\[?(?:debug|info|warn(?:ing)?|error|critical|root|__main__)\b\]?)",
    re.IGNORECASE,
)
_MOST_LOGGED = 6  # parts of such a prefix


def label_of(text: str, end: int) -> str:
    """Return the name that stands before a number, with the part of the data that it is of."""
    first = max(0, end - _LABEL_WIDTH)
    while end > first and not (text[end - 1].isalnum() or text[end - 1] == "_"):
        end -= 1
    begin = end
    while begin > first and (text[begin - 1].isalnum() or text[begin - 1] in "_./-"):
        begin -= 1
    name = text[begin:end]
    if not any(letter.isalpha() for letter in name):
        return ""
    if PART.match(name):
        return name
    *_, part = [None, *_PART_BEFORE.finditer(text, max(0, begin - _PART_WIDTH), begin)]
    return f"{part[0]} {name}" if part else name


def heading_of(line: str) -> str:
    """Return the word of a line that says of the next one that it sums up; "" for none."""
    found = _HEADING.search(line) if line.rstrip().endswith(":") else None
    return found[1].lower() if found else ""


def summary_of(text: str, heading: str, pattern: str) -> str:
    """Return the word for which a line is skipped, or "": best, final, test, where the pattern does
    not name it.

    Args:
        heading: The word of the line before that says what this one sums up.
    """
    place = 0
    for _ in range(_MOST_LOGGED):
        prefix = _LOGGED.match(text, place)
        if prefix is None:
            break
        place = prefix.end()
    found = _SUMMARY.match(text, place)
    words = [found[1].lower()] if found else []
    for word in (*words, heading):
        if word and not re.search(word, pattern, re.IGNORECASE):
            return word
    return ""
