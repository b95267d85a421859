"""Numbers as programs print them: ``1,000.6``, ``3e-4``, ``0,58``, ``tensor(0.5)``, ``nan``, ``∞``.

A pattern says where a number is; how far it reaches is read from the text. So one that the pattern
cuts short (``1`` of ``1,000.6``, ``8`` of ``0.98``) is read whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

FOR_PATTERNS = "([-+0-9.eE]+)"  # a group that takes a number
_SIGN = "-+\u2212"  # with the minus of typesetters
_SPACES = "\u00a0\u2009\u202f"  # that do not break, between thousands
_NUMBER = re.compile(
    rf"""
    (?P<sign>(?<![\w.)\]])[{_SIGN}])?
    (?:
        (?P<points>[1-9]\d{{0,2}}(?:\.\d{{3}})+,\d+)(?!\d|[.,]\d)      # 1.000,6
      | (?P<thousands>
            [1-9]\d{{0,2}}(?P<by>[,'’_{_SPACES}])\d{{3}}(?:(?P=by)\d{{3}})*(?!\d)(?:\.\d+)?
        )
      | (?P<comma>\d+,\d+)(?!\d|[.,]\d)                                  # 0,58
      | (?P<plain>\d+(?:\.\d*)?|\.\d+)
    )
    (?P<exponent>[eE][{_SIGN}]?\d+)?
    """,
    re.VERBOSE,
)
_NOT_FINITE = re.compile(rf"(?<![\w.])[{_SIGN}]?(?:nan|inf(?:inity)?|∞)(?!\w)", re.IGNORECASE)
_PARTS = frozenset(f"0123456789.,'’_eE{_SIGN}{_SPACES}")
# What may stand in a group before its number: brackets, and the call that Python prints around it.
_BEFORE = re.compile(r"\W*(?:[A-Za-z_][\w.]*\(\W*)*")
_LONGEST = 100  # characters of a number
_FEWEST_DIGITS = 2  # of a number, for a longer one to be the same


@dataclass(frozen=True)
class Printed:
    """A number that was found in a text.

    Attributes:
        text: The number as Python reads it.
        value: The number.
        whole: As it is printed.
        is_cut: Whether the pattern had taken another number, a part of it.
    """

    text: str
    value: float
    whole: str
    is_cut: bool = False


def blank_not_finite(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text of the same length with digits for each "nan", "inf" and "∞", and where.

    Patterns are written with numbers in mind: this one would not match where training diverged.
    """
    low = text.lower()
    if "nan" not in low and "inf" not in low and "∞" not in low:
        return text, []
    places = [found.span() for found in _NOT_FINITE.finditer(text)]
    for start, end in places:
        text = text[:start] + "0" * (end - start) + text[end:]
    return text, places


def read_not_finite(text: str) -> Printed:
    """Read a text that ``blank_not_finite`` has found."""
    word = text.lower().replace("\u2212", "-").replace("∞", "inf")
    return Printed(word, float(word), text)


def read_number(text: str, start: int, end: int, before_group: str = "") -> Printed | None:
    """Read the number whose beginning, or a part of it, a pattern's group has taken.

    Args:
        text: The line.
        start, end: What the group took of it.
        before_group: The pattern up to its group: a sign or a separator that it names itself is
            none of the number's.

    Returns:
        None where there is no number.
    """
    end = min(end, start + _LONGEST)
    group = text[start:end]
    odd = _NOT_FINITE.search(group)
    if odd and _BEFORE.fullmatch(group, 0, odd.start()):
        return read_not_finite(odd[0])
    before = _BEFORE.match(text, start, end)
    digit = before.end() if before else start
    if digit == end or not text[digit].isdecimal():
        return None
    found = _token_at(text, start, digit)
    if found is None:
        return None
    if found.start() < start and _is_named(text[found.start() : start], before_group):
        found = _NUMBER.match(text, start)
        if found is None:
            return None
    value = _normal(found)
    is_part = found.start() < start or found.end() > end
    return Printed(value, float(value), found[0], is_part and _float(group) != float(value))


def _token_at(text: str, start: int, digit: int) -> re.Match[str] | None:
    """Return the number of which a digit is a part."""
    first = min(start, digit)
    while first > 0 and start - first < _LONGEST and text[first - 1] in _PARTS:
        first -= 1
    for found in _NUMBER.finditer(text, first, digit + _LONGEST):
        if found.start() <= digit < found.end():
            return found
    return None


def _is_named(left: str, before_group: str) -> bool:
    """Tell whether what stands left of a group is the pattern's own: a sign, a separator."""
    if left[-1].isdecimal() or left[-1] == ".":
        return False  # a cut through the digits
    written = re.sub(r"\\s[*+?]*|[\[\]()?*+\\ ]*$", "", before_group)
    return written.endswith(left[-1]) or (left[-1] in _SIGN and written.endswith(("-", "+")))


def _normal(found: re.Match[str]) -> str:
    if found["points"]:
        number = found["points"].replace(".", "").replace(",", ".")
    elif found["thousands"]:
        number = found["thousands"].replace(found["by"], "")
    else:
        number = (found["comma"] or found["plain"]).replace(",", ".")
    text = (found["sign"] or "") + number + (found["exponent"] or "")
    return text.replace("\u2212", "-")


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def is_same(one: str, other: str) -> bool:
    """Tell whether two numbers are one, of which one may be printed with fewer digits."""
    if one == other:
        return True
    a, b = Decimal(one), Decimal(other)
    if not (a.is_finite() and b.is_finite()):
        return a.is_nan() and b.is_nan()
    if a == b:
        return True
    a, b = sorted((a, b), key=lambda number: -int(number.as_tuple().exponent))
    if len(a.as_tuple().digits) < _FEWEST_DIGITS:
        return False
    place = int(a.as_tuple().exponent)
    return place != b.as_tuple().exponent and abs(a - b) <= Decimal((0, (5,), place - 1))


def is_more_exact(one: str, other: str) -> bool:
    """Tell whether the first of two texts of a number has more digits."""
    a, b = Decimal(one), Decimal(other)
    if not (a.is_finite() and b.is_finite()):
        return False
    return int(a.as_tuple().exponent) < int(b.as_tuple().exponent)
