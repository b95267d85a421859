"""One objective in the output: which texts hold its value, and which values are steps."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sweep.core.study import Objective
from sweep.training.near_lines import ENOUGH, NearLines
from sweep.training.printed_lines import PART, label_of, summary_of
from sweep.training.printed_numbers import (
    FOR_PATTERNS,
    Printed,
    blank_not_finite,
    is_more_exact,
    is_same,
    read_not_finite,
    read_number,
)
from sweep.training.printed_patterns import widen
from sweep.training.printed_steps import find_step
from sweep.training.progress_bars import Drawing
from sweep.training.repeated_lines import RepeatedLines

_FIRST_GROUP = re.compile(r"(?<!\\)\((?!\?)|\(\?P<")
_NAME = r"[\w./-]"
# Where a pattern lets its first word begin within another one.
_LOOSE = re.compile(r"(^(?:\(\?[aiLmsux]+\))?|(?<!\\)\.[*+]\??)(?=[A-Za-z_])")
_ROW = re.compile(r"\s*[|│┃].*[|│┃]\s*\Z")  # of a table, of which a row below may be the step
_LONG = 60  # characters of a match that are shown
_MOST_BARS = 8  # of which is known what they showed


@dataclass
class SeenOfMetric:
    """What was read of one metric so far.

    Attributes:
        step: How many were read.
        start: Where counting them began; -1 before that was asked.
        at: The step that was printed last; -1 where none was.
        told: The step of the last value.
        held_at: ``at`` when the value was held.
        is_row: Whether the line is one of a table.
        has_step: Whether the step was printed in that table.
        row: The value, as text, that a table has shown before its step; "" for none.
        odd_step: The first that was printed for a step and is no whole number.
        value: The last step's, as text; "" before it.
        bar: The bar that has shown it last; "" where a line said it.
        shown: What each bar has shown last, of some that were drawn lately.
        is_unsaid: Only a bar has shown it: a line may still say it.
        held: Whether ``bar`` is another than the last step's and shows the same value: a step once
            it ends with it.
        is_whole: Whether that bar was seen from its start to its end.
        is_begun: Whether it has come further than its start, as far as it shows that.
        own: How the metric is printed where it stands by itself; "" before that was seen.
        longer: The longer name that the pattern has matched; "" for none.
        longer_steps: How many steps came from it.
        parts: Which of train, val, test, … the names that matched begin with.
        twice: Two numbers of one line that both match, in words.
        cut: The first number that was cut short, in words.
        odd: The first "nan", … that stood where the pattern has a number.
        skipped: Lines that were skipped for the word with which they begin, and the first word.
        no_number: Lines whose group holds no number, and the first one's.
        unread: Lines with a number that the pattern's group does not take, and the first one.
    """

    step: int = 0
    start: int = -1
    at: int = -1
    told: int = -1
    held_at: int = -1
    is_row: bool = False
    has_step: bool = False
    row: str = ""
    odd_step: str = ""
    value: str = ""
    bar: str = ""
    shown: dict[str, str] = field(default_factory=dict)
    is_unsaid: bool = False
    held: bool = False
    is_whole: bool = False
    is_begun: bool = False
    own: str = ""
    longer: str = ""
    longer_steps: int = 0
    parts: tuple[str, ...] = ()
    twice: str = ""
    cut: str = ""
    odd: str = ""
    skipped: tuple[int, str] = (0, "")
    no_number: tuple[int, str] = (0, "")
    unread: tuple[int, str] = (0, "")


class PrintedMetric:
    """One objective's pattern, and what was read by it."""

    def __init__(self, objective: Objective, first_step: Callable[[], int]) -> None:
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
        wide = widen(self.pattern)
        self._wide = _compile_strict(wide) or re.compile(wide) if wide else None
        self._first_step = first_step
        self._step = re.compile(objective.step_pattern) if objective.step_pattern else None
        self.seen = SeenOfMetric()
        self.near = NearLines(self.name, self.pattern)
        self.repeated = RepeatedLines()

    def copy(self) -> PrintedMetric:
        other = copy.copy(self)
        other.seen = replace(self.seen, shown=dict(self.seen.shown))
        other.near = NearLines(self.name, self.pattern)
        other.repeated = RepeatedLines()  # it only peeks
        return other

    def _search(self, regex: re.Pattern[str], text: str) -> re.Match[str] | None:
        return regex.match(text) if self._anchored else regex.search(text)

    def find(self, text: str, heading: str = "") -> tuple[Printed, tuple[int, int]] | None:
        """Return the metric's number in a text, and where it stands; None for nothing.

        Args:
            heading: The word of the line before that says what this one sums up; "" for none.
        """
        blanked, places = blank_not_finite(text)
        found = self._match(blanked)
        if found is None and places:
            found, places = self._match(text), []
        if found is None and (wide := self._match_wide(blanked)):
            start, end = _span(wide)
            self.seen.odd = self.seen.odd or text[start:end]
            # A digit in the place of the sign: the pattern as it is may match.
            signed = f"{blanked[:start]}0{blanked[start + 1 :]}"
            again = self._match(signed)
            is_same_place = again is not None and _span(again)[0] == start
            found, blanked, places = (again, signed, []) if is_same_place else (wide, "", [])
        if found is None:
            if self.seen.value == "":
                self.near.see(text)
            return None
        if word := summary_of(text, heading, self.pattern):
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
        if blanked and found and not self._is_by_its_name(text, blanked, found):
            return None
        if printed.is_cut and not self.seen.cut:
            self.seen.cut = f"{text[start:end]!r} of {printed.whole!r}"
        return printed, found.span()

    def _match_wide(self, text: str) -> re.Match[str] | None:
        """Return a match where only the number's sign is not in the pattern's group; note other
        numbers that the group does not take, such as 1 for ``0\\.\\d+``, once there were values."""
        wide = self._search(self._wide, text) if self._wide else None
        if wide is None or text[_span(wide)[0]] in "-+\u2212":
            return wide
        if self.seen.value:
            count, first = self.seen.unread
            self.seen.unread = (count + 1, first or wide[0].strip()[:_LONG])
        return None

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
        name = label_of(text, start)
        if self._strict and self._search(self._strict, blanked) is None:
            seen.longer = seen.longer or name
            if seen.own:
                return False
            seen.longer_steps += 1
            return True
        seen.own = seen.own or name or self.name
        parts = tuple(part.lower() for part in PART.findall(name)[:1])
        seen.parts = tuple(dict.fromkeys((*seen.parts, *parts)))[:3]
        if not seen.twice and not self._anchored:
            second = (self._strict or self._loose).search(blanked, found.end())
            if second is not None:
                other = label_of(text, _span(second)[0])
                if other != name and name and other:
                    seen.twice = f"{name!r} and {other!r}"
                elif other != name or self._number(text, second) != self._number(text, found):
                    seen.twice = f"{found[0].strip()[:_LONG]!r} and {second[0].strip()[:_LONG]!r}"
        return True

    def _number(self, text: str, found: re.Match[str]) -> Printed | None:
        return read_number(text, *_span(found), self._before_group)

    def look_for_step(self, text: str) -> list[tuple[int, float]]:
        """Look for the step that holds from here on, where the study says how it is printed.

        It holds for all of a table, in which it may be the last row: what was held is returned.
        """
        seen = self.seen
        if self._step is None:
            return []
        is_row = _ROW.match(text) is not None
        values = [] if is_row else self._take_row()
        seen.is_row, seen.has_step = is_row, is_row and seen.has_step
        step, taken = find_step(self._step, text)
        if step is not None:
            seen.at, seen.has_step = step, is_row
            values += self._take_row()
        elif taken:
            seen.odd_step = seen.odd_step or taken[:40]
        return values

    def _take_row(self) -> list[tuple[int, float]]:
        row, self.seen.row = self.seen.row, ""
        return self._take(Printed(row, float(row), row), "", self.seen.at) if row else []

    def line(self, printed: Printed) -> list[tuple[int, float]]:
        """Take a value that a line says."""
        seen = self.seen
        if seen.is_row and not seen.has_step:
            values = self._take_row()
            seen.row = printed.text
            return values
        if seen.is_unsaid and not seen.held and is_same(seen.value, printed.text):
            seen.is_unsaid = False
            if not is_more_exact(printed.text, seen.value):
                return []
            seen.value = printed.text
            return [(seen.told, printed.value)]
        return self._take(printed, "", seen.at)

    def drawing(
        self, printed: Printed, bar: str, drawing: Drawing, has_grown: bool
    ) -> list[tuple[int, float]]:
        """Take a value that a bar shows.

        Args:
            bar: Its key.
            has_grown: Whether it was seen when it had not come so far.
        """
        seen = self.seen
        shown = seen.shown.pop(bar, "")
        seen.shown[bar] = printed.text
        if len(seen.shown) > _MOST_BARS:
            del seen.shown[next(iter(seen.shown))]
        if shown and is_same(shown, printed.text):  # drawn again
            if bar == seen.bar:
                self._note_progress(drawing, has_grown)
            return []
        values = self._pass_to(bar)
        if not seen.value or not is_same(seen.value, printed.text):
            return [*values, *self._take(printed, bar, seen.at)]
        # A new one shows the last step's value, or this one what a line has just said.
        if not shown and (seen.bar or not drawing.is_complete):
            seen.bar, seen.held, seen.held_at = bar, True, seen.at
            self._note_progress(drawing, has_grown)
        return values

    def _note_progress(self, drawing: Drawing, has_grown: bool) -> None:
        self.seen.is_whole = has_grown and drawing.is_complete
        self.seen.is_begun = drawing.count != 0

    def _pass_to(self, bar: str) -> list[tuple[int, float]]:
        """Take what the bar before has ended with, now that another one is drawn.

        One that was only set back to its start has ended with nothing.
        """
        seen = self.seen
        if not seen.held or bar == seen.bar:
            return []
        seen.held = False
        if not seen.is_begun:
            return []
        printed = Printed(seen.value, float(seen.value), seen.value)
        return self._take(printed, seen.bar, seen.held_at)

    def is_as_long(self, number: str) -> bool:
        """Tell whether a number is printed with as many characters as the last value, if any.

        The first one is taken as it is: should it go on, its step is told again.
        """
        return len(number) >= len(self.seen.value)

    def end(self) -> list[tuple[int, float]]:
        """Take what the last bar has ended with, if it came to its end, or the last table."""
        if not self.seen.held or not self.seen.is_whole:
            return self._take_row()
        return self._pass_to("")

    def _take(self, printed: Printed, bar: str, at: int) -> list[tuple[int, float]]:
        seen = self.seen
        if at < 0 and seen.start < 0:
            seen.start = self._first_step()
        seen.told = at if at >= 0 else seen.start + seen.step
        seen.step, seen.value, seen.bar = seen.step + 1, printed.text, bar
        seen.is_unsaid, seen.held = bool(bar), False
        return [(seen.told, printed.value)]

    @property
    def has_found(self) -> bool:
        return self.seen.step > 0

    def notes(self) -> list[str]:
        """Return, in sentences, what was odd about the lines."""
        seen = self.seen
        found = [self._name_note(), self._part_note()]
        if not self.has_found and (missed := self.missed()):
            found.append(f"no line so far matches {self.pattern!r}: {missed}")
        if seen.cut:
            found.append(
                f"its pattern takes {seen.cut}; the number is read whole. A group for all of it: "
                f"{FOR_PATTERNS}"
            )
        if seen.odd_step:
            found.append(
                f"the pattern of its step takes {seen.odd_step!r}, which is no whole number; the "
                "step before it holds"
            )
        if seen.odd:
            found.append(f"{seen.odd!r} was printed where its pattern has a number, and is read")
        if seen.unread[0]:
            found.append(
                f"{_count(seen.unread[0], 'line')} with a number that the group of its pattern "
                f"does not take, such as {seen.unread[1]!r}: not read. A group for all of them: "
                f"{FOR_PATTERNS}"
            )
        if often := self.repeated.note():
            found.append(often)
        return [f"{self.name}: {text}" for text in found if text]

    def _name_note(self) -> str:
        """Return which longer name the pattern has matched, and what became of it."""
        seen = self.seen
        if not seen.longer:
            return ""
        if not seen.own:
            return (
                f"{self.pattern!r} matches within a longer name, {seen.longer!r}, and reads that. "
                "Write the whole name"
            )
        many = _count(seen.longer_steps, "step")
        before = f" since {seen.own!r} came; {many} before are of it" if seen.longer_steps else ""
        return (
            f"{self.pattern!r} also matches in {seen.longer!r}, which is skipped{before}. "
            "Put \\b before the name"
        )

    def _part_note(self) -> str:
        """Return what else the pattern has matched under names of their own."""
        seen = self.seen
        if len(seen.parts) > 1:
            return (
                f"{self.pattern!r} matches lines of {' and '.join(seen.parts)}, and each is a "
                "step. Write more of the name"
            )
        if seen.twice:
            return (
                f"{self.pattern!r} matches more than once in a line ({seen.twice}), and the first "
                "counts. Write more of the name, or print each on a line of its own"
            )
        return ""

    def missed(self) -> str:
        """Return why nothing was found, as far as the lines tell; "" where they do not."""
        (skipped, word), (odd, taken) = self.seen.skipped, self.seen.no_number
        if skipped:
            return (
                f"{_count(skipped, 'line')} that begin with {word!r} match and are skipped; name "
                "that word in the pattern to read them"
            )
        if odd:
            return f"of {_count(odd, 'line')} its group takes what is no number, such as {taken!r}"
        return self.near.text()

    @property
    def comes_near(self) -> bool:
        """Whether nothing matches so far, although lines came near."""
        seen = self.seen
        near = self.near.count >= ENOUGH or seen.skipped[0] or seen.no_number[0]
        return bool(near) and not self.has_found


def why_missed(metric: str, pattern: str, notes: Sequence[str]) -> str:
    """Return of an attempt's notes why no line has matched a metric's pattern; "" for none."""
    begins = f"{metric}: no line so far matches {pattern!r}: "
    return next((note.removeprefix(begins) for note in notes if note.startswith(begins)), "")


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
    strict = _LOOSE.sub(lambda found: f"{found[1]}(?<!{_NAME})", pattern)
    if strict == pattern:
        return None
    try:
        return re.compile(strict)
    except re.error:
        return None
