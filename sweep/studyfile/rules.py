"""The kinds of values that a study file holds: each reads a node, reports what is wrong with it,
and gives the JSON Schema of what it accepts. ``sections`` puts them together.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sweep.core.errors import Problem, closest
from sweep.studyfile.tree import Node


class _Invalid:
    def __repr__(self) -> str:
        return "INVALID"

    def __bool__(self) -> bool:
        return False


INVALID: Any = _Invalid()  # what a rule returns after it reported a problem


class Reader:
    """Collects the problems of one study file.

    Attributes:
        fixed: Names under ``fixed``, for advice about parameters.
    """

    def __init__(self, fixed: Collection[str] = ()) -> None:
        self.fixed = fixed
        self.problems: list[Problem] = []

    def report(
        self, node: Node, path: str, rule: str, advice: str = "", got: str | None = None
    ) -> Any:
        """Note a problem and return INVALID; ``got`` is the node's value unless given."""
        shown = node.shown() if got is None else got
        self.problems.append(Problem(node.file, node.line, path, rule, shown, advice))
        return INVALID


class Rule(Protocol):
    """What a key's value must be."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        """Return the value, or INVALID after reporting what is wrong."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what ``read`` accepts, as far as a schema can say it."""


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
    lines: bool = False

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if not isinstance(node.value, str):
            advice = self.advice
            if node.kind == "scalar":
                advice = f'Put it in quotes: "{node.text}".'
            return reader.report(node, path, self.rule, advice)
        if not self.lines and re.search(r"[\n\r\t]", node.value):
            return reader.report(node, path, "must be text on one line", self.advice)
        if len(node.value) > self.max_length:
            return reader.report(
                node,
                path,
                f"must not be longer than {self.max_length} characters",
                self.advice,
                str(len(node.value)),
            )
        if not re.fullmatch(self.pattern, node.value, re.DOTALL):
            return reader.report(node, path, self.rule, self.advice)
        return node.value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$", "maxLength": self.max_length}


@dataclass(frozen=True)
class Word:
    """One of some words. ``meant`` maps what people write instead to the word."""

    words: tuple[str, ...]
    meant: Mapping[str, str] = field(default_factory=dict)

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if node.kind == "scalar" and node.value in self.words:
            return node.value
        advice = ""
        if node.kind == "scalar":
            written = node.text.lower()
            near = self.meant.get(written) or closest(written, self.words)
            advice = f"Did you mean {near}?" if near else ""
        listed = ", ".join(self.words[:-1]) + " or " + self.words[-1]
        return reader.report(node, path, f"must be {listed}", advice)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


@dataclass(frozen=True)
class Whole:
    """A whole number, or one of some words (with the value that each stands for)."""

    low: int | None = None
    high: int | None = None
    words: Mapping[str, Any] = field(default_factory=dict)

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = node.value
        if isinstance(value, str) and value in self.words:
            return self.words[value]
        rule = f"must be a whole number{shown_range(self.low, self.high)}"
        rule += "".join(f", or {word}" for word in self.words)
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            return reader.report(node, path, rule, f"Write {int(value)}.")
        if not isinstance(value, int) or isinstance(value, bool):
            return reader.report(node, path, rule, number_advice(node))
        if self.high is not None and value > self.high >= 10**9:
            return reader.report(node, path, f"must not be above {self.high}", "Use less.")
        if self.low is not None and value < self.low <= -(10**9):
            return reader.report(node, path, f"must not be below {self.low}", "Use more.")
        if _outside(value, self.low, self.high):
            return reader.report(node, path, rule)
        return value

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "integer"}
        if self.low is not None:
            schema["minimum"] = self.low
        if self.high is not None:
            schema["maximum"] = self.high
        return {"anyOf": [schema, {"enum": list(self.words)}]} if self.words else schema


@dataclass(frozen=True)
class Real:
    """A finite number; ``above`` makes the lower limit exclusive."""

    low: float | None = None
    high: float | None = None
    above: float | None = None

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        rule = f"must be a number{shown_range(self.low, self.high)}"
        if self.above is not None:
            rule = f"must be a number above {shown_number(self.above)}"
        if not is_number(node.value):
            return reader.report(node, path, rule, number_advice(node))
        value = _as_float(node.value)
        if not math.isfinite(value):
            return reader.report(node, path, "must be finite", "Write a number with an end.")
        if _outside(value, self.low, self.high) or (self.above is not None and value <= self.above):
            return reader.report(node, path, rule)
        return value

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "number"}
        limits = {"minimum": self.low, "maximum": self.high, "exclusiveMinimum": self.above}
        return schema | {name: limit for name, limit in limits.items() if limit is not None}


@dataclass(frozen=True)
class Flag:
    """true or false."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if isinstance(node.value, bool):
            return node.value
        meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}
        near = meant.get(node.text.lower(), "")
        return reader.report(node, path, "must be true or false", near and f"Write {near}.")

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class TextList:
    """A list of texts; one text stands for a list of it."""

    item: Text | Word = Text()

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if isinstance(node.value, str):
            value = self.item.read(node, path, reader)
            return value if value is INVALID else (value,)
        if node.kind != "list":
            return reader.report(node, path, "must be a list of texts")
        values = []
        for i, item in enumerate(node.items):
            first = len(reader.problems)
            values.append(self.item.read(item, f"{path}[{i}]", reader))
            add_advice(reader, first, f"{path}[{i}]", "Write one line of text.")
        return INVALID if INVALID in values else tuple(values)

    def schema(self) -> dict[str, Any]:
        item = self.item.schema()
        return {"anyOf": [item, {"type": "array", "items": item}]}


def add_advice(reader: Reader, first: int, path: str, advice: str) -> None:
    """Give the problems of a path, from the first-th on, an advice where they have none."""
    for i, problem in enumerate(reader.problems[first:], first):
        if problem.path == path and not problem.advice:
            reader.problems[i] = dataclasses.replace(problem, advice=advice)


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


def either(values: Sequence[Any]) -> dict[str, Any]:
    """Return the JSON Schema of any of some schemas."""
    return {"anyOf": list(values)}
