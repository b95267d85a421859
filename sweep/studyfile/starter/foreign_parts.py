"""What the converters of NNI's, Determined's and seml's files share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweep.core import shell_text
from sweep.core.placeholders import EDIT, escape
from sweep.studyfile.starter.draft import Draft

_MOST_VALUES = 1000
Convert = Callable[[str, Any, list[str]], dict[str, Any]]


def try_add(draft: Draft, name: str, given: Any, convert: Convert, lost: list[str]) -> None:
    """Add a parameter as ``convert`` has it: to space, or to fixed as {"value": …}; say in
    ``lost`` what it refuses."""
    try:
        found = convert(name, given, lost)
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        lost.append(f"{name}: {why}")
        return
    if "value" in found:
        draft.fixed[name] = found["value"]
    else:
        draft.space[name] = found


def whole(value: Any) -> int | None:
    """Return a whole number above 0, or None for anything else."""
    is_whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if is_whole else None


def spaced(low: float, high: float, count: int, *, log: bool) -> list[float]:
    """Return so many values from low to high, evenly on their scale."""
    ratio, width = (high / low) ** (1 / (count - 1)) if log else 1.0, (high - low) / (count - 1)
    values = [low * ratio**i if log else low + width * i for i in range(min(count, _MOST_VALUES))]
    return [float(f"{value:.6g}") for value in values]


def split_words(text: Any) -> list[str]:
    """Return a command's words, for a study's command."""
    try:
        return [escape(word) for word in shell_text.split_words(str(text))]
    except ValueError:
        return [EDIT]
