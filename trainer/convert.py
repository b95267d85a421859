"""Values of parameters: from text to the right kind, within their bounds, or a clear message."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|min|h)\s*")
_SECONDS = {"s": 1, "min": 60, "h": 3600}


class Every:
    """The kind of a parameter that is a number of epochs (``1``) or a time (``90s``, ``5min``)."""


def split_interval(value: int | str) -> tuple[int, float]:
    """Return an interval as (epochs, seconds), of which one is 0; both where there is none."""
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found:
        return 0, float(found[1]) * _SECONDS[found[2]]
    return int(value), 0.0


def _interval(value: Any) -> int | str:
    if isinstance(value, str) and _TIME.fullmatch(value):
        return value.strip()
    epochs = _whole(value)
    if epochs < 0:
        raise ValueError(value)
    return epochs


def convert(rules: Mapping[str, Any], value: Any, where: str, problems: list[str]) -> Any:
    """Return the value as the parameter's kind; what is wrong is added to the problems.

    Args:
        rules: ``kind`` and, where they apply, ``choices``, ``low``, ``above``, ``high``, ``below``.
        value: As it was read from a file or the command line.
        where: What the message begins with.
        problems: Gets one text for each thing that is wrong.
    """
    kind = rules["kind"]
    got = json.dumps(value) if isinstance(value, (dict, list)) else str(value)
    try:
        converted = _AS[kind](value)
    except (TypeError, ValueError, OverflowError):
        problems.append(f"{where}: must be {_CALLED[kind]} (got {got}).")
        return None
    wanted = []
    if "choices" in rules and converted not in rules["choices"]:
        hint = get_close_matches(got, rules["choices"], n=1)
        also = f". Did you mean {hint[0]}" if hint else ""
        problems.append(f"{where}: must be one of {', '.join(rules['choices'])} (got {got}){also}.")
        return None
    for rule, sign, holds in _BOUNDS:
        if rule in rules:
            wanted.append((f"{sign} {rules[rule]}", holds(converted, rules[rule])))
    if not all(holds for _, holds in wanted):
        said = " and ".join(text for text, _ in wanted)
        problems.append(f"{where}: must be {said} (got {got}).")
    return converted


def _whole(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value):
        return int(value)
    number = _real(value)
    if number != int(number):
        raise ValueError(value)
    return value if isinstance(value, int) else int(number)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(value)
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _truth(value: Any) -> bool:
    words = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }
    if str(value).lower() not in words:
        raise ValueError(value)
    return words[str(value).lower()]


_AS = {int: _whole, float: _real, str: _text, bool: _truth, Every: _interval}
_CALLED = {
    int: "a whole number",
    float: "a number",
    str: "a word",
    bool: "true or false",
    Every: "a whole number of epochs, or a time such as 90s, 5min or 1h",
}
_BOUNDS = (
    ("low", ">=", lambda value, bound: bound <= value < float("inf")),
    ("above", ">", lambda value, bound: bound < value < float("inf")),
    ("high", "<=", lambda value, bound: value <= bound),
    ("below", "<", lambda value, bound: value < bound),
)
