"""Progress bars in the output: which bar a text is of, and how far that has come.

A bar is drawn again and again, with the newest values beside it; each drawing is no step of its
own. Two drawings are of one bar where their description is the same and the count did not fall.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Drawn by tqdm, rich, Keras, alive-progress: what no other output looks like, also where
# each drawing has a line of its own (torchrun makes lines of them, Keras does without a terminal).
_BAR = re.compile(
    r"\d%\||\d(?:it|\?it)? \[[\d:]+<|\d+it \[|[━╸╺█▉▊▋▌▍▎▏▐░▒▓⣿]{2}|\[=*[>.][.]*\]|\[={5,}\]"
)
_PERCENT = re.compile(r"(?<![=\d.])\b(\d{1,3}(?:\.\d+)?) ?%")
_COUNT = re.compile(r"(?<![=\d./])\b(\d[\d.,]*)([kKMG]?) ?/ ?(\d[\d.,]*[kKMG]?|\?)(?![\d/])")
_ITEMS = re.compile(r"\b(\d+)it\b")
_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_DIGITS = re.compile(r"[-+]?\d[\d.,:]*(?:e[-+]?\d+)?")
# Where a description ends: at the bar, or at the numbers beside it.
_GLYPHS = re.compile(r"[|\[━╸╺█▉▊▋▌▍▎▏▐░▒▓⣿#]|=>|={3}")
_EPOCH = re.compile(r"\bep(?:och)?\b\W{0,4}(\d+)(?![\d.]*\s*%)", re.IGNORECASE)
_EPOCH_FIRST = re.compile(r"\W*" + _EPOCH.pattern, re.IGNORECASE)
# The end of tqdm's bar, where a print that knows nothing of it has gone on behind it.
_END = re.compile(r"(?:\d/\S+|\dit) \[\d+:[^\[\]]*\](?=\S)")
_LONGEST = 1000  # characters in which a bar shows what it is


@dataclass(frozen=True)
class Drawing:
    """One drawing of a bar.

    Attributes:
        description: What stands before the bar, without its numbers; and the total.
        epoch: The epoch that it names before the bar; "" where it names none.
        count: How far it has come, or None where that is not shown.
        is_complete: Whether it has come to its end.
    """

    description: str
    epoch: str = ""
    count: float | None = None
    is_complete: bool = False


def is_bar(text: str) -> bool:
    """Tell whether a text is a drawing of a bar for certain."""
    return _BAR.search(text, 0, _LONGEST) is not None


def split_end(text: str) -> tuple[str, str]:
    """Return a bar, and what was printed behind it on the same line; "" for nothing."""
    found = _END.search(text, 0, _LONGEST)
    return (text[: found.end()], text[found.end() :]) if found else (text, "")


def epoch_at_start(line: str) -> str:
    """Return the epoch with which a line begins; "" where it begins with none."""
    found = _EPOCH_FIRST.match(line)
    return found[1] if found else ""


def read(text: str, value: tuple[int, int] | None = None) -> Drawing:
    """Read a drawing.

    Args:
        value: Where the metric stands in it: a percentage there says nothing of the bar.
    """
    text = text[:_LONGEST]
    head = text
    if value is not None:
        head = text[: value[0]]
        text = head + " " * (value[1] - value[0]) + text[value[1] :]
    percent, count, items = _PERCENT.search(text), _COUNT.search(text), _ITEMS.search(text)
    total = ""
    reached: float | None = None
    complete = False
    if count is not None:
        total = count[3]
        reached = float(count[1].replace(",", "").rstrip(".") or 0) * _SCALE[count[2]]
        complete = count[1] + count[2] == total
    if percent is not None:
        reached = float(percent[1])
        complete = reached >= 100
    elif count is None and items is not None:
        reached = float(items[1])
    glyphs = _GLYPHS.search(head)
    epoch = _EPOCH.search(head, 0, glyphs.start() if glyphs else len(head))
    marks = [found.start() for found in (percent, count, items, glyphs) if found]
    head = head[: min(marks)] if marks else head
    description = f"{_DIGITS.sub('#', head).strip()}/{total}"
    return Drawing(description, epoch[1] if epoch else "", reached, complete)


class Bars:
    """Tells the bars of one output apart."""

    MOST = 32  # descriptions that are remembered

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float, int]] = {}  # last count, first count, which bar

    def see(self, drawing: Drawing, epoch: str) -> tuple[str, bool]:
        """Return the key of the bar that was drawn, and whether it has grown since it was first."""
        name = f"{drawing.description}@{epoch}"
        last, first, number = self._seen.pop(name, (-1.0, -1.0, 0))
        count = drawing.count
        if count is None:
            count = first = last
        elif count < last or last < 0:
            first, number = count, number + 1
        self._seen[name] = (count, first, number)
        while len(self._seen) > self.MOST:
            del self._seen[next(iter(self._seen))]
        return f"{name}#{number}", 0 <= first < count

    def state(self) -> dict[str, list[float]]:
        """Return what is known, for ``restore``."""
        return {name: list(seen) for name, seen in self._seen.items()}

    def restore(self, state: dict[str, list[float]]) -> None:
        """Go on from where others were."""
        self._seen = {
            name: (last, first, int(number)) for name, (last, first, number) in state.items()
        }
