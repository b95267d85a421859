"""One line of a check: what was looked at, how it stands, and what to do about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OK, WARNING, FAILED, NOT_ASKED = "ok", "warning", "failed", "not asked"


@dataclass(frozen=True)
class Line:
    """One line of a check.

    Attributes:
        name: What was looked at, in a word or two.
        state: OK, WARNING, FAILED or NOT_ASKED.
        text: What was found, or why it was not asked.
        advice: What to do; never empty for a warning or a failure.
    """

    name: str
    state: str
    text: str
    advice: str = ""

    def __post_init__(self) -> None:
        if self.state in (WARNING, FAILED) and not self.advice:
            raise ValueError(f"{self.name}: a line that is {self.state} says what to do")

    def to_data(self) -> dict[str, str]:
        return dataclasses.asdict(self)


Fact = Mapping[str, Any]


def judged(name: str, fact: Fact | None, judge: Callable[[Fact], Line], missing: str) -> Line:
    """Return the line of a fact: the judge's, or why nothing was asked.

    Args:
        fact: As a probe returned it; None where it did not run. ``{"not_asked": why}`` is a probe's
            own word for that.
        missing: Why it did not run.
    """
    if fact is None:
        return Line(name, NOT_ASKED, missing)
    if "not_asked" in fact:
        return Line(name, NOT_ASKED, fact["not_asked"])
    return judge(fact)


def has_failed(lines: Sequence[Line]) -> bool:
    return any(line.state == FAILED for line in lines)


def table(lines: Sequence[Line]) -> str:
    """Return the lines as a table in plain text; advice stands below its line."""
    width = max((len(line.name) for line in lines), default=0)
    rows = []
    for line in lines:
        text = line.text.replace("\n", "\n" + " " * (width + 13))
        rows.append(f"{line.name:<{width}}  {line.state:<9}  {text}")
        if line.advice:
            rows.append(" " * (width + 13) + f"→ {line.advice}")
    return "\n".join(rows)


def size(count: float) -> str:
    """Return a number of bytes as people write it: 1.4 TiB, 830 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
