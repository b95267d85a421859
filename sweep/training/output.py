"""The objectives in what training prints, as it prints it: logs, tables, progress bars.

A line that matches is a step. A bar that is drawn again with the value that it has shown is none;
nor is a new bar that still shows the last one's value, until it ends with it; nor is a line that
says once more what a bar has just shown.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweep.core.study import Objective
from sweep.core.terminal_text import plain
from sweep.training import progress_bars
from sweep.training.near_lines import ENOUGH, NearLines
from sweep.training.printed_numbers import (
    FOR_PATTERNS,
    Printed,
    blank_not_finite,
    is_more_exact,
    is_same,
    read_not_finite,
    read_number,
)

NEWLINE, RETURN, OPEN = "\n", "\r", ""  # what ended a piece of output
Value = tuple[str, int, float]  # metric, step, value

_LONGEST = 4096  # characters at each end of a line in which a pattern is looked for
_UP = re.compile(r"(?:\x1b\[|\x9b)(\d*)[AF]")  # the cursor goes up: lines are drawn again
_FIRST_COLUMN = re.compile(r"(?:\x1b\[|\x9b)[01]?G")  # as \r
_FIRST_GROUP = re.compile(r"(?<!\\)\((?!\?)|\(\?P<")
# Where a pattern lets its first word begin within another one.
_LOOSE = re.compile(r"(^(?:\(\?[aiLmsux]+\))?|(?<!\\)\.[*+]\??)(?=[A-Za-z_])")
_NAME = r"[\w./-]"
_LABEL = re.compile(
    r"((?:(?:train|training|val|valid|validation|eval|dev|test) )?"
    rf"{_NAME}*[A-Za-z_]{_NAME}*)[^\w.]*$",
    re.IGNORECASE,
)
_PART = re.compile(r"(?<![A-Za-z])(train|val|eval|dev|test)", re.IGNORECASE)
_LABEL_WIDTH = 80
# What sums up, at the end, behind what loggers put before it.
_SUMMARY = re.compile(r"[\W_]*(best|final|test)(?:ly|ing|ed|s)?(?![A-Za-z])", re.IGNORECASE)
_LOGGED = re.compile(
    r"[\s>*=#|:,;.–—-]*(?:\[?(?:\d{2,4}[-:/.]\d\d[-:/.]\d\d|\d\d:\d\d)[\d:.,TZ+-]*\]?"
    r"|\[?(?:debug|info|warn(?:ing)?|error|critical|root|__main__)\b\]?)",
    re.IGNORECASE,
)
_WITHIN = frozenset("0123456789.,eE+-")  # a number
# What is known of the place in the output, and what it is at its start.
_USUAL = {"epoch": "", "ended": NEWLINE, "is_others": False, "redrawn": 0}
_MOST_BARS = 8  # of which is known what they showed
_MOST_LOGGED = 6  # parts of such a prefix


@dataclass
class _Seen:
    """What was read of one metric so far.

    Attributes:
        step: The next one.
        value: The last step's, as text; "" before it.
        bar: The bar that has shown it last; "" where a line said it.
        shown: What each bar has shown last, of some that were drawn lately.
        is_unsaid: Only a bar has shown it: a line may still say it.
        held: Whether ``bar`` is another than the last step's and shows the same value: a step once
            it ends with it.
        is_whole: Whether that bar was seen from its start to its end.
        own: How the metric is printed where it stands by itself; "" before that was seen.
        longer: The longer name that the pattern has matched; "" for none.
        longer_steps: How many steps came from it.
        parts: Which of train, val, test, … the names that matched begin with.
        twice: Two numbers of one line that both match, in words.
        cut: The first number that was cut short, in words.
        odd: The first "nan", … that stood where the pattern has a number.
        skipped: Lines that were skipped for the word with which they begin, and the first word.
        no_number: Lines whose group holds no number, and the first one's.
    """

    step: int
    value: str = ""
    bar: str = ""
    shown: dict[str, str] = field(default_factory=dict)
    is_unsaid: bool = False
    held: bool = False
    is_whole: bool = False
    own: str = ""
    longer: str = ""
    longer_steps: int = 0
    parts: tuple[str, ...] = ()
    twice: str = ""
    cut: str = ""
    odd: str = ""
    skipped: tuple[int, str] = (0, "")
    no_number: tuple[int, str] = (0, "")


class _Metric:
    """One objective's pattern, and what was read by it."""

    def __init__(self, objective: Objective, first_step: int) -> None:
        assert objective.pattern is not None
        self.name = objective.metric
        self.pattern = objective.pattern
        self._loose = re.compile(self.pattern)
        self._strict = _compile_strict(self.pattern)
        # What begins with ".*" matches from the start of a line or nowhere: tried at each place, a
        # long line would cost its square.
        self._anchored = self.pattern.startswith(".*") and "|" not in self.pattern
        group = _FIRST_GROUP.search(self.pattern)
        self._before_group = self.pattern[: group.start()] if group else ""
        self.first_step = first_step
        self.seen = _Seen(first_step)
        self.near = NearLines(self.name, self.pattern)

    def copy(self) -> _Metric:
        other = copy.copy(self)
        other.seen = replace(self.seen, shown=dict(self.seen.shown))
        other.near = NearLines(self.name, self.pattern)
        return other

    def _search(self, regex: re.Pattern[str], text: str) -> re.Match[str] | None:
        return regex.match(text) if self._anchored else regex.search(text)

    def find(self, text: str) -> tuple[Printed, tuple[int, int]] | None:
        """Return the metric's number in a text, and where it stands; None for nothing."""
        blanked, places = blank_not_finite(text)
        found = self._match(blanked)
        if found is None and places:
            found, places = self._match(text), []
        if found is None:
            if self.seen.value == "":
                self.near.see(text)
            return None
        if word := self._summary(text):
            count, first = self.seen.skipped
            self.seen.skipped = (count + 1, first or word)
            return None
        start, end = _span(found)
        odd = [place for place in places if place[0] < end and start < place[1]]
        if odd:
            printed: Printed | None = read_not_finite(text[slice(*odd[0])])
            if self._match(text) is None:
                self.seen.odd = self.seen.odd or text[slice(*odd[0])]
        else:
            printed = read_number(text, start, end, self._before_group)
        if printed is None:
            count, first = self.seen.no_number
            self.seen.no_number = (count + 1, first or text[start:end][:40])
            return None
        if not self._is_by_its_name(text, blanked, found):
            return None
        if printed.is_cut and not self.seen.cut:
            self.seen.cut = f"{text[start:end]!r} of {printed.whole!r}"
        return printed, found.span()

    def _match(self, text: str) -> re.Match[str] | None:
        """Return the match that begins with a whole name, else any."""
        found = self._search(self._strict, text) if self._strict else None
        return found or self._search(self._loose, text)

    def _is_by_its_name(self, text: str, blanked: str, found: re.Match[str]) -> bool:
        """Note under which name a number stands; tell whether it counts.

        A longer name (val_loss for ``loss=``) counts as long as the name has not stood by itself.
        """
        seen = self.seen
        start = _span(found)[0]
        label = _LABEL.search(text, max(0, start - _LABEL_WIDTH), start)
        name = label[1] if label else ""
        if self._strict and self._search(self._strict, blanked) is None:
            seen.longer = seen.longer or name
            if seen.own:
                return False
            seen.longer_steps += 1
            return True
        seen.own = seen.own or name or self.name
        parts = tuple(part.lower() for part in _PART.findall(name)[:1])
        seen.parts = tuple(dict.fromkeys((*seen.parts, *parts)))[:3]
        if not seen.twice and not self._anchored:
            second = (self._strict or self._loose).search(blanked, found.end())
            if second is not None:
                other = _LABEL.search(text, found.end(), _span(second)[0])
                if other and other[1] != name:
                    seen.twice = f"{found[0].strip()!r} and {second[0].strip()!r}"
                    if name and other[1]:
                        seen.twice = f"{name!r} and {other[1]!r}"
        return True

    def _summary(self, text: str) -> str:
        """Return the word for which a line is skipped, or ""."""
        place = 0
        for _ in range(_MOST_LOGGED):
            prefix = _LOGGED.match(text, place)
            if prefix is None:
                break
            place = prefix.end()
        found = _SUMMARY.match(text, place)
        if found is None or re.search(found[1], self.pattern, re.IGNORECASE):
            return ""
        return found[1].lower()

    def line(self, printed: Printed) -> list[tuple[int, float]]:
        """Take a value that a line says."""
        seen = self.seen
        if seen.is_unsaid and not seen.held and is_same(seen.value, printed.text):
            seen.is_unsaid = False
            if not is_more_exact(printed.text, seen.value):
                return []
            seen.value = printed.text
            return [(seen.step - 1, printed.value)]
        return self._take(printed, "")

    def drawing(
        self, printed: Printed, bar: str, is_complete: bool, has_grown: bool
    ) -> list[tuple[int, float]]:
        """Take a value that a bar shows.

        Args:
            bar: Its key.
            is_complete: Whether it has come to its end.
            has_grown: Whether it was seen from an earlier place on.
        """
        is_whole = is_complete and has_grown
        seen = self.seen
        shown = seen.shown.pop(bar, "")
        seen.shown[bar] = printed.text
        if len(seen.shown) > _MOST_BARS:
            del seen.shown[next(iter(seen.shown))]
        if shown and is_same(shown, printed.text):  # drawn again
            if bar == seen.bar:
                seen.is_whole = is_whole
            return []
        values = self.pass_to(bar)
        if not seen.value or not is_same(seen.value, printed.text):
            return [*values, *self._take(printed, bar)]
        # A new one shows the last step's value, or this one what a line has just said.
        if not shown and (seen.bar or not is_complete):
            seen.bar, seen.held = bar, True
            seen.is_whole = is_whole
        return values

    def pass_to(self, bar: str) -> list[tuple[int, float]]:
        """Take what the bar before has ended with, now that another one is drawn."""
        seen = self.seen
        if not seen.held or bar == seen.bar:
            return []
        return self._take(Printed(seen.value, float(seen.value), seen.value), seen.bar)

    def end(self) -> list[tuple[int, float]]:
        """Take what the last bar has ended with, if it came to its end."""
        if not self.seen.held or not self.seen.is_whole:
            return []
        return self.pass_to("")

    def _take(self, printed: Printed, bar: str) -> list[tuple[int, float]]:
        seen = self.seen
        step = seen.step
        seen.step, seen.value, seen.bar = step + 1, printed.text, bar
        seen.is_unsaid, seen.held = bool(bar), False
        return [(step, printed.value)]

    @property
    def has_found(self) -> bool:
        return self.seen.step > self.first_step

    def notes(self) -> list[str]:
        """Return, in sentences, what was odd about the lines."""
        seen, found = self.seen, []
        if not self.has_found:
            found = [text for text in (self.missed(),) if text]
            found = [f"{self.name}: no line so far matches {self.pattern!r}: {t}" for t in found]
        if seen.longer and seen.own:
            text = f"{self.pattern!r} also matches in {seen.longer!r}, which is skipped"
            if seen.longer_steps:
                text += f" since {seen.own!r} came; {_count(seen.longer_steps, 'step')} before are of it"
            found.append(f"{self.name}: {text}. Put \\b before the name")
        elif seen.longer:
            found.append(
                f"{self.name}: {self.pattern!r} matches within a longer name, {seen.longer!r}, and "
                "reads that. Write the whole name"
            )
        if len(seen.parts) > 1:
            shown = " and ".join(seen.parts)
            found.append(
                f"{self.name}: {self.pattern!r} matches lines of {shown}, and each is a step. Write "
                "more of the name"
            )
        elif seen.twice:
            found.append(
                f"{self.name}: {self.pattern!r} matches more than once in a line ({seen.twice}); the "
                "first counts. Write more of the name"
            )
        if seen.cut:
            found.append(
                f"{self.name}: its pattern takes {seen.cut}; the number is read whole. A group that "
                f"takes all of it: {FOR_PATTERNS}"
            )
        if seen.odd:
            found.append(
                f"{self.name}: {seen.odd!r} was printed where its pattern has a number, and is read"
            )
        return found

    def missed(self) -> str:
        """Return why nothing was found, as far as the lines tell; "" where they do not."""
        seen = self.seen
        if seen.skipped[0]:
            return (
                f"{_count(seen.skipped[0], 'line')} that begin with {seen.skipped[1]!r} match and are "
                "skipped; name that word in the pattern to read them"
            )
        if seen.no_number[0]:
            return (
                f"{_count(seen.no_number[0], 'line')} match, and what the group takes is no number, "
                f"such as {seen.no_number[1]!r}"
            )
        return self.near.text()


class Output:
    """Reads objectives from pieces of output, each up to its ``\\n`` or ``\\r``.

    What it says follows from the pieces alone, whenever they are read.

    Args:
        objectives: Those with a pattern are read.
        first_step: Step of the first value.
        read: Returns what of a line may match, None for nothing of it: of several ranks the first
            one's lines count.
    """

    def __init__(
        self,
        objectives: Sequence[Objective],
        first_step: int = 0,
        read: Callable[[str], str | None] = lambda line: line,
    ) -> None:
        self._metrics = [_Metric(o, first_step) for o in objectives if o.pattern]
        self._read = read
        self._bars = progress_bars.Bars()
        self._epoch = ""
        self._ended = NEWLINE  # the piece before
        self._is_others = False  # another rank's line
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
        if self._ended == RETURN or progress_bars.is_bar(piece):
            return self._copy().take(piece, RETURN)
        # A line that was written by halves may end in the middle of a number.
        return [] if piece[-1:] in _WITHIN else self._copy().take(piece, OPEN)

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
        is_sure = progress_bars.is_bar(text)
        bar, printed_behind = progress_bars.split_end(text) if is_sure else (text, "")
        is_drawn = is_sure or ended == RETURN or self._redrawn > 0
        values = self._drawing(bar) if is_drawn else self._line(bar)
        if printed_behind:
            values += self._line(printed_behind)
        return values

    def _line(self, text: str) -> list[Value]:
        self._epoch = progress_bars.epoch_at_start(text) or self._epoch
        values: list[Value] = []
        for metric in self._metrics:
            if found := metric.find(text):
                values += [(metric.name, *value) for value in metric.line(found[0])]
        return values

    def _drawing(self, text: str) -> list[Value]:
        found = [(metric, metric.find(text)) for metric in self._metrics]
        places = [match[1] for _, match in found if match]
        drawing = progress_bars.read(text, places[0] if places else None)
        if drawing.count is None and not places:
            return []  # no bar that could be told from others
        epoch = progress_bars.epoch_of(text) or self._epoch
        key, has_grown = self._bars.see(drawing, epoch)
        values: list[Value] = []
        for metric, match in found:
            if match:
                taken = metric.drawing(match[0], key, drawing.is_complete, has_grown)
                values += [(metric.name, *value) for value in taken]
        return values

    def has_missed(self) -> bool:
        """Tell whether nothing matches so far, although lines came near."""
        return any(
            not metric.has_found
            and (metric.near.count >= ENOUGH or metric.seen.skipped[0] or metric.seen.no_number[0])
            for metric in self._metrics
        )

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
                if name != "step" and value != vars(_Seen(0))[name]
            }
            metrics[metric.name] = {"step": metric.seen.step, **changed}
            if not metric.has_found and metric.near.count:
                metrics[metric.name]["near"] = metric.near.state()
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
            for name, value in known.items():
                setattr(metric.seen, name, tuple(value) if isinstance(value, list) else value)
        self._bars.restore(state.get("bars", {}))
        for name, usual in _USUAL.items():
            setattr(self, f"_{name}", state.get(name, usual))


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count > 1 else ''}"


def _span(found: re.Match[str]) -> tuple[int, int]:
    """Return where the first group stands that took part, or all of the match."""
    for number in range(1, (found.re.groups or 0) + 1):
        if found[number] is not None:
            return found.span(number)
    return found.span()


def _compile_strict(pattern: str) -> re.Pattern[str] | None:
    """Compile a pattern whose first word does not begin within another; None where all is said."""
    strict = _LOOSE.sub(rf"\1(?<!{_NAME})", pattern)
    if strict == pattern:
        return None
    try:
        return re.compile(strict)
    except re.error:
        return None


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
