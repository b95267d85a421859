"""Which trials a user means: by number, by range, by what became of them; ``3,7-9,failed``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweep.core.errors import InputError, closest

_NUMBERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MOST_UNKNOWN = 5  # that are named


@dataclass(frozen=True)
class TrialChoice:
    """Trials that a user has named.

    Attributes:
        words: What became of them.
        ranges: First and last number of each range.
    """

    words: tuple[str, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()

    def numbers(self, known: Iterable[int]) -> list[int]:
        """Return the trials that are named by number, in their order.

        Args:
            known: Numbers of all trials of the study.

        Raises:
            InputError: One is named that the study does not have.
        """
        there = sorted(set(known))
        found: set[int] = set()
        missing: list[int] = []
        for first, last in self.ranges:
            found.update(number for number in there if first <= number <= last)
            missing += [end for end in dict.fromkeys((first, last)) if end not in there]
        if missing:
            named = ", ".join(map(str, missing[:_MOST_UNKNOWN]))
            have = f"0 to {there[-1]}" if there else "none"
            raise InputError(f"The study has no trial {named}.", f"Its trials: {have}.")
        return sorted(found)


def parse(texts: Sequence[str], option: str, words: Mapping[str, str] | None = None) -> TrialChoice:
    """Return the trials that an option names, which may be given several times.

    Args:
        option: Its name, for messages.
        words: What may be said instead of numbers, with what each means; None for numbers alone.

    Raises:
        InputError: Something is neither a number, a range nor such a word.
    """
    known = words or {}
    said: list[str] = []
    ranges: list[tuple[int, int]] = []
    for part in (part.strip() for text in texts for part in text.split(",")):
        match = _NUMBERS.fullmatch(part)
        if match:
            first = int(match[1])
            last = int(match[2]) if match[2] else first
            if last < first:
                raise InputError(
                    f"{option} {part}: the range ends before it begins.", f"Write {last}-{first}."
                )
            ranges.append((first, last))
        elif part in known:
            said.append(part)
        else:
            near = closest(part, list(known))
            meant = f" Did you mean {near}?" if near else ""
            also = f"; or: {', '.join(known)}" if known else ""
            raise InputError(
                f"{option} {part[:60]!r}: no trial's number, and no range of such.{meant}"
                if not known
                else f"{option} {part[:60]!r} says no trials.{meant}",
                f"Give numbers (3,7 or 3-7){also}.",
            )
    return TrialChoice(tuple(dict.fromkeys(said)), tuple(dict.fromkeys(ranges)))
