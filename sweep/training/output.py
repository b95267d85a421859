"""The objectives in what training prints, as it prints it: logs, tables, progress bars.

A line that matches is a step. A bar that is drawn again with the value that it has shown is none;
nor is a new bar that still shows the last one's value, until it ends with it; nor is a line that
says once more what a bar has just shown.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

from sweep.core.study import Objective
from sweep.core.terminal_text import plain
from sweep.training import progress_bars
from sweep.training.printed_lines import heading_of
from sweep.training.printed_metric import PrintedMetric, SeenOfMetric

NEWLINE, RETURN, OPEN = "\n", "\r", ""  # what ended a piece of output
Value = tuple[str, int, float]  # metric, step, value
_LONGEST = 4096  # characters at each end of a line in which a pattern is looked for
_UP = re.compile(r"(?:\x1b\[|\x9b)(\d*)[AF]")  # the cursor goes up: lines are drawn again
_FIRST_COLUMN = re.compile(r"(?:\x1b\[|\x9b)[01]?G")  # as \r
_LAST_NUMBER = re.compile(r"[\d.,eE+-]{1,100}(?<!\.\.)\Z")  # none ends with "..."
# What is known of the place in the output, and what it is at its start.
_USUAL = {
    "epoch": "",
    "heading": "",
    "ended": NEWLINE,
    "is_others": False,
    "redrawn": 0,
    "is_traceback": False,
}
_TRACEBACK = "Traceback (most recent call last):"


class Output:
    """Reads objectives from pieces of output, each up to its ``\\n`` or ``\\r``.

    What it says follows from the pieces alone, whenever they are read.

    Args:
        objectives: Those with a pattern are read.
        first_step: Step of the first value, where steps are counted; asked when there is one.
        read: Returns what of a line may match, None for nothing of it: of several ranks the first
            one's lines count.
    """

    def __init__(
        self,
        objectives: Sequence[Objective],
        first_step: Callable[[], int] = int,
        read: Callable[[str], str | None] = lambda line: line,
    ) -> None:
        self._metrics = [PrintedMetric(o, first_step) for o in objectives if o.pattern]
        self._read = read
        self._bars = progress_bars.Bars()
        self._epoch = ""
        self._heading = ""  # a word: the next line sums up
        self._ended = NEWLINE  # the piece before
        self._is_others = False  # another rank's line
        self._is_traceback = False  # what is quoted there is source, and no number that was printed
        self._redrawn = 0  # lines that the cursor went up, and that are drawn again

    def __bool__(self) -> bool:
        return bool(self._metrics)

    def take(self, piece: str, ended: str) -> list[Value]:
        """Return the values in the next piece.

        Args:
            ended: What ended it: NEWLINE, RETURN, or OPEN: it is a part of a longer line.
        """
        values: list[Value] = []
        text = self._of_first(piece, ended)
        if text is not None:
            text = text.replace("\0", "")  # of UTF-16, text in ASCII is left
            self._redrawn += sum(int(up or 1) for up in _UP.findall(text))
            *before, last = _FIRST_COLUMN.split(text) if "\x1b" in text else [text]
            for part in before:
                values += self._text(part, RETURN)
            values += self._text(last, ended)
        if ended == NEWLINE:
            self._redrawn = max(0, self._redrawn - 1)
        return values

    def peek(self, piece: str) -> list[Value]:
        """Return the values in a piece whose end has not come, as if nothing more came."""
        if piece.endswith("\r"):
            return self._copy().take(piece[:-1], RETURN)
        is_drawn = self._ended == RETURN or progress_bars.is_bar(piece)
        is_drawn = is_drawn and not progress_bars.split_end(piece)[1]
        # What was written by halves may end in the middle of a number. A bar that is drawn whole
        # may end with one: then it is as long as the one before.
        last = _LAST_NUMBER.search(piece)
        if last and not (is_drawn and any(m.is_as_long(last[0]) for m in self._metrics)):
            return []
        return self._copy().take(piece, RETURN if is_drawn else OPEN)

    def end(self) -> list[Value]:
        """Return the values that stand once nothing more comes."""
        return [(metric.name, *value) for metric in self._metrics for value in metric.end()]

    def _copy(self) -> Output:
        other = copy.copy(self)
        other._metrics = [metric.copy() for metric in self._metrics]
        other._bars = progress_bars.Bars()
        other._bars.restore(self._bars.state())
        return other

    def _of_first(self, piece: str, ended: str) -> str | None:
        """Return a piece if it is the first rank's; what names a rank stands at a line's start."""
        if self._ended == NEWLINE:
            text = self._read(piece)
            self._is_others = text is None
        else:
            text = None if self._is_others else piece
        self._ended = ended
        return text

    def _text(self, text: str, ended: str) -> list[Value]:
        text = _typed(plain(text))
        if not text.strip():
            return []
        if len(text) > 2 * _LONGEST:
            text = text[:_LONGEST] + "\n" + text[-_LONGEST:]
        if self._quotes_source(text):
            return []
        values: list[Value] = []
        for metric in self._metrics:
            values += [(metric.name, *value) for value in metric.look_for_step(text)]
        is_sure = progress_bars.is_bar(text)
        bar, printed_behind = progress_bars.split_end(text) if is_sure else (text, "")
        is_drawn = is_sure or ended == RETURN or self._redrawn > 0
        values += self._drawing(bar) if is_drawn else self._line(bar)
        if printed_behind:
            values += self._line(printed_behind)
        return values

    def _quotes_source(self, text: str) -> bool:
        """Tell whether a line is within Python's traceback: its lines are indented."""
        if self._is_traceback and text[:1].isspace():
            return True
        self._is_traceback = text.rstrip().endswith(_TRACEBACK)
        return False

    def _line(self, text: str) -> list[Value]:
        self._epoch = progress_bars.epoch_at_start(text) or self._epoch
        values: list[Value] = []
        for metric in self._metrics:
            if found := metric.find(text, self._heading):
                metric.repeated.see(text, found[1])
                values += [(metric.name, *value) for value in metric.line(found[0])]
        self._heading = heading_of(text)
        return values

    def _drawing(self, text: str) -> list[Value]:
        found = [(metric, metric.find(text)) for metric in self._metrics]
        places = [match[1] for _, match in found if match]
        drawing = progress_bars.read(text, places[0] if places else None)
        if drawing.count is None and not places:
            return []  # no bar that could be told from others
        key, has_grown = self._bars.see(drawing, drawing.epoch or self._epoch)
        values: list[Value] = []
        for metric, match in found:
            if match:
                taken = metric.drawing(match[0], key, drawing, has_grown)
                values += [(metric.name, *value) for value in taken]
        return values

    def has_missed(self) -> bool:
        """Tell whether nothing matches so far, although lines came near."""
        return any(metric.comes_near for metric in self._metrics)

    def notes(self) -> list[str]:
        """Return, in sentences, what was odd about the lines."""
        return [note for metric in self._metrics for note in metric.notes()]

    def state(self) -> dict[str, Any]:
        """Return what is known so far, as JSON can hold it, for ``restore``."""
        metrics = {}
        for metric in self._metrics:
            changed = {
                name: value
                for name, value in vars(metric.seen).items()
                if name != "step" and value != vars(SeenOfMetric())[name]
            }
            metrics[metric.name] = {"step": metric.seen.step, **changed}
            if not metric.has_found and metric.near.count:
                metrics[metric.name]["near"] = metric.near.state()
            if repeated := metric.repeated.state():
                metrics[metric.name]["repeated"] = repeated
        found: dict[str, Any] = {"metrics": metrics}
        if bars := self._bars.state():
            found["bars"] = bars
        for name, usual in _USUAL.items():
            if (value := getattr(self, f"_{name}")) != usual:
                found[name] = value
        return found

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from where another had come to, on the same output."""
        for metric in self._metrics:
            known = dict(state.get("metrics", {}).get(metric.name, {}))
            if near := known.pop("near", None):
                metric.near.restore(near)
            metric.repeated.restore(known.pop("repeated", {}))
            for name, value in known.items():
                setattr(metric.seen, name, tuple(value) if isinstance(value, list) else value)
        self._bars.restore(state.get("bars", {}))
        for name, usual in _USUAL.items():
            setattr(self, f"_{name}", state.get(name, usual))


def _typed(text: str) -> str:
    """Return what backspaces leave of a text."""
    if "\b" not in text:
        return text
    letters: list[str] = []
    place = 0
    for letter in text:
        if letter == "\b":
            place = max(0, place - 1)
        elif place < len(letters):
            letters[place] = letter
            place += 1
        else:
            letters.append(letter)
            place += 1
    return "".join(letters)
