"""The kinds of values that a study file holds: each reads a node, reports what is wrong with it,
and gives the JSON Schema of what it accepts. ``sections`` puts them together.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from sweep.core.errors import Problem, closest
from sweep.core.masking import hide_value
from sweep.studyfile.tree import Node


class _Invalid:
    def __repr__(self) -> str:
        return "INVALID"

    def __bool__(self) -> bool:
        return False


INVALID: Any = _Invalid()  # what a rule returns after it reported a problem


@dataclass
class Reader:
    """What goes with a file while it is read.

    Attributes:
        fixed: Names under ``fixed``, for advice about parameters.
        problems: What is wrong, so far.
    """

    fixed: Collection[str] = ()
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class Entry:
    """A value of a file and where it stands: what rules read, and where they find fault.

    Attributes:
        path: Dotted, as in the study file; empty for the whole of it.
    """

    node: Node
    path: str
    reader: Reader

    def __getitem__(self, key: str | int) -> Entry:
        """Return the place of an entry, or of a list's item."""
        if isinstance(key, int):
            return Entry(self.node.items[key], f"{self.path}[{key}]", self.reader)
        return Entry(self.node.entries[key], join(self.path, key), self.reader)

    def __contains__(self, name: str) -> bool:
        return name in self.node.entries

    def entries(self) -> dict[str, Entry]:
        return {name: self[name] for name in self.node.entries}

    def items(self) -> list[Entry]:
        return [self[i] for i in range(len(self.node.items))]

    def report(self, rule: str, advice: str = "", got: str | None = None) -> Any:
        """Note a problem and return INVALID; ``got`` is the value unless given."""
        shown = hide_value(self.path, self.node.shown()) if got is None else got
        problem = Problem(self.node.file, self.node.line, self.path, rule, shown, advice)
        self.reader.problems.append(problem)
        return INVALID

    def report_missing(self, name: str, advice: str, why: str = "") -> Any:
        """Note that an entry is missing, and return INVALID."""
        absent = Entry(self.node, join(self.path, name), self.reader)
        return absent.report(f"is missing{why}", advice, "")

    @contextmanager
    def advising(self, advice: str) -> Iterator[None]:
        """Give the problems that are found here meanwhile an advice where they have none."""
        problems = self.reader.problems
        first = len(problems)
        yield
        for i, problem in enumerate(problems[first:], first):
            if problem.path == self.path and not problem.advice:
                problems[i] = dataclasses.replace(problem, advice=advice)

    def read_each(self, read: Callable[[str, Entry], Any]) -> Any:
        """Return {name: what was read} of all entries, or INVALID where one of them is."""
        found = {name: read(name, entry) for name, entry in self.entries().items()}
        return INVALID if INVALID in found.values() else found


class Rule(Protocol):
    """What a key's value must be."""

    def read(self, at: Entry) -> Any:
        """Return the value, or INVALID after reporting what is wrong."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what ``read`` accepts, as far as a schema can say it."""

    @property
    def in_words(self) -> str:
        """What the value is, in a few words of Markdown."""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown_number(value: float) -> str:
    """Return a number as one writes it: 3, 0.1, 1e-06."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)


def number_advice(node: Node) -> str:
    """Return what to do with text that was meant as a number, or an empty string."""
    text = node.value if isinstance(node.value, str) else ""
    if re.fullmatch(r"[+-]?[\d._]*\d(e[+-]?\d+)?", text, re.IGNORECASE):
        return f"Write {text} without quotes."
    if re.fullmatch(r"[+-]?\d+,\d+", text):
        return f"Write {text.replace(',', '.')}, with a decimal point."
    return ""


@dataclass(frozen=True)
class Text:
    """Text on one line."""

    pattern: str = r".+"
    rule: str = "must be text"
    advice: str = ""
    max_length: int = 512

    in_words = "text"

    def read(self, at: Entry) -> Any:
        value = at.node.value
        if not isinstance(value, str):
            quoted = f'Put it in quotes: "{at.node.text}".'
            return at.report(self.rule, quoted if at.node.kind == "scalar" else self.advice)
        if re.search(r"[\n\r\t]", value):
            return at.report("must be text on one line", self.advice)
        if len(value) > self.max_length:
            rule = f"must not be longer than {self.max_length} characters"
            return at.report(rule, self.advice, str(len(value)))
        if not re.fullmatch(self.pattern, value, re.DOTALL):
            return at.report(self.rule, self.advice)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$", "maxLength": self.max_length}


@dataclass(frozen=True)
class Word:
    """One of some words. ``meant`` maps what people write instead to the word.

    Args:
        known: The words, or what returns those that there are by now.
    """

    known: tuple[str, ...] | Callable[[], tuple[str, ...]]
    meant: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, ...]:
        return self.known() if callable(self.known) else self.known

    def read(self, at: Entry) -> Any:
        near = ""
        if at.node.kind == "scalar":
            if at.node.value in self.words:
                return at.node.value
            written = at.node.text.lower()
            near = self.meant.get(written) or closest(written, self.words)
        *others, last = self.words
        listed = f"{', '.join(others)} or {last}" if others else last
        return at.report(f"must be {listed}", f"Did you mean {near}?" if near else "")

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}

    @property
    def in_words(self) -> str:
        return " or ".join(f"`{word}`" for word in self.words)


def meaning(**written: str) -> dict[str, str]:
    """Return ``meant`` of a Word from {word: what people write instead, between spaces}."""
    return {text: word for word, texts in written.items() for text in texts.split()}


@dataclass(frozen=True)
class Whole:
    """A whole number, or one of some words (with the value that each stands for)."""

    low: int | None = None
    high: int | None = None
    words: Mapping[str, Any] = field(default_factory=dict)

    def read(self, at: Entry) -> Any:
        value = at.node.value
        if isinstance(value, str) and value in self.words:
            return self.words[value]
        rule = f"must be a whole number{shown_range(self.low, self.high)}"
        rule += "".join(f", or {word}" for word in self.words)
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            return at.report(rule, f"Write {int(value)}.")
        if not isinstance(value, int) or isinstance(value, bool):
            return at.report(rule, number_advice(at.node))
        if self.high is not None and value > self.high >= 10**9:
            return at.report(f"must not be above {self.high}", "Use less.")
        if self.low is not None and value < self.low <= -(10**9):
            return at.report(f"must not be below {self.low}", "Use more.")
        return at.report(rule) if _outside(value, self.low, self.high) else value

    def schema(self) -> dict[str, Any]:
        limits = {"minimum": self.low, "maximum": self.high}
        schema = {"type": "integer"} | _given(limits)
        return either([schema, {"enum": list(self.words)}]) if self.words else schema

    @property
    def in_words(self) -> str:
        number = f"whole number{shown_range(self.low, self.high)}"
        return " or ".join([number, *(f"`{word}`" for word in self.words)])


@dataclass(frozen=True)
class Real:
    """A finite number; ``above`` makes the lower limit exclusive."""

    low: float | None = None
    high: float | None = None
    above: float | None = None

    def read(self, at: Entry) -> Any:
        rule = f"must be a {self.in_words}"
        if not is_number(at.node.value):
            return at.report(rule, number_advice(at.node))
        value = _as_float(at.node.value)
        if not math.isfinite(value):
            return at.report("must be finite", "Write a number with an end.")
        if _outside(value, self.low, self.high) or (self.above is not None and value <= self.above):
            return at.report(rule)
        return value

    def schema(self) -> dict[str, Any]:
        limits = {"minimum": self.low, "maximum": self.high, "exclusiveMinimum": self.above}
        return {"type": "number"} | _given(limits)

    @property
    def in_words(self) -> str:
        if self.above is not None:
            return f"number above {shown_number(self.above)}"
        return f"number{shown_range(self.low, self.high)}"


@dataclass(frozen=True)
class Boolean:
    """true or false."""

    in_words = "true or false"

    def read(self, at: Entry) -> Any:
        if isinstance(at.node.value, bool):
            return at.node.value
        meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}
        near = meant.get(at.node.text.lower(), "")
        return at.report("must be true or false", near and f"Write {near}.")

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class TextList:
    """A list of texts; one text stands for a list of it."""

    item: Text | Word = Text()

    in_words = "texts: one or a list"

    def read(self, at: Entry) -> Any:
        if isinstance(at.node.value, str):
            value = self.item.read(at)
            return value if value is INVALID else (value,)
        if at.node.kind != "list":
            return at.report("must be a list of texts")
        values = []
        for item in at.items():
            with item.advising("Write one line of text."):
                values.append(self.item.read(item))
        return INVALID if INVALID in values else tuple(values)

    def schema(self) -> dict[str, Any]:
        item = self.item.schema()
        return either([item, {"type": "array", "items": item}])


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def shown_range(low: float | None, high: float | None) -> str:
    """Return the limits of a number in words, with a space before them; "" where none matters."""
    # Limits that nobody meets would only clutter the sentence.
    low = None if low is not None and low <= -(10**9) else low
    high = None if high is not None and high >= 10**9 else high
    if low is not None and high is not None:
        return f" from {shown_number(low)} to {shown_number(high)}"
    if low is not None:
        return f" of at least {shown_number(low)}"
    return f" of at most {shown_number(high)}" if high is not None else ""


def _outside(value: float, low: float | None, high: float | None) -> bool:
    return (low is not None and value < low) or (high is not None and value > high)


def _given(limits: Mapping[str, Any]) -> dict[str, Any]:
    return {name: limit for name, limit in limits.items() if limit is not None}


def either(values: Sequence[Any]) -> dict[str, Any]:
    """Return the JSON Schema of any of some schemas."""
    return {"anyOf": list(values)}
