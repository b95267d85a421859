"""Hydra's override grammar: values written as overrides, and sweep expressions read.

Source: hydra.cc/docs/advanced/override_grammar (Hydra 1.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Strings that need no quotes; narrower than what Hydra takes, and so never wrong.
_BARE = r"[A-Za-z_/][A-Za-z0-9_./-]*"
# Numbers of the grammar; 012 is none, and so a string.
_INT = r"(?:0|[1-9](?:_?\d)*)"
_POINT = rf"(?:{_INT}\.|{_INT}?\.\d(?:_?\d)*)"
_WORDS = {"null", "true", "false", "inf", "nan"}


def write_override(name: str, value: Any) -> str:
    """Return ``name=value`` as one argument for a Hydra application. Raises as ``write_value``."""
    return f"{name}={write_value(value)}"


def write_value(value: Any) -> str:
    """Return a value in Hydra's grammar: ``null``, ``true``, ``[a,b]``, quotes where needed.

    Raises:
        TypeError: A value that the grammar does not know.
        ValueError: A mapping's key that the grammar cannot hold.
    """
    if isinstance(value, bool | None):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return value if _is_bare(value) else _quote(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(write_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        for key in value:
            if not _is_bare(str(key)):
                raise ValueError(f"Hydra's overrides cannot hold the key {key!r}")
        return "{" + ",".join(f"{key}:{write_value(item)}" for key, item in value.items()) + "}"
    raise TypeError(f"no Hydra form for a {type(value).__name__}: {value!r}")


def _is_bare(text: str) -> bool:
    return bool(re.fullmatch(_BARE, text)) and text.lower() not in _WORDS


def _quote(text: str) -> str:
    # OmegaConf would resolve "${…}" inside a string; a backslash keeps it literal, and backslashes
    # in front of that one are doubled.
    text = re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + "\\${", text)
    # In quotes only backslashes right before a quote, the closing one too, count; they are doubled.
    text = re.sub(r"(\\*)'", lambda found: found[1] * 2 + "\\'", text)
    text = re.sub(r"(\\+)$", lambda found: found[1] * 2, text)
    return f"'{text}'"


@dataclass(frozen=True)
class Call:
    """A function of the grammar: ``interval(0, 1)``, ``tag(log, …)``, ``int(…)``.

    Attributes:
        is_bare: It is a choice that was written with commas alone.
    """

    name: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    is_bare: bool = False


def read_value(text: str) -> Any:
    """Read the right side of an override; ``a,b`` outside brackets reads as ``choice(a, b)``.

    Returns:
        None, a bool, int, float, string, list, dict or Call.

    Raises:
        ValueError: Not of the grammar.
    """
    reader = _Reader(text)
    items = reader.items("")
    if not items:
        return ""
    return items[0] if len(items) == 1 else Call("choice", tuple(items), is_bare=True)


def _read_word(word: str) -> Any:
    """Read what stands unquoted: null, a boolean, a number, else a string."""
    lowered = word.lower()
    if lowered in ("null", "true", "false"):
        return {"null": None, "true": True, "false": False}[lowered]
    if re.fullmatch(rf"[+-]?{_INT}", word) and len(word) < 400:
        return int(word)
    if re.fullmatch(rf"[+-]?(?:{_POINT}|(?:{_POINT}|{_INT})e[+-]?\d(?:_?\d)*|inf|nan)", lowered):
        return float(word)
    return word


class _Reader:
    """One pass over the text, by recursive descent."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.text[self.at : self.at + 1]

    def items(self, closing: str) -> list[Any]:
        """Read values up to a closing bracket, or to the end; ``key: value`` and ``key=value``
        come as pairs."""
        found: list[Any] = []
        while self.peek() != closing:
            if not self.peek():
                raise ValueError(f"{closing!r} is missing in {self.text!r}")
            found.append(self.item())
            if self.peek() == ",":
                self.at += 1
            elif self.peek() != closing:
                raise ValueError(f"unexpected {self.peek()!r} at {self.at} of {self.text!r}")
        self.at += len(closing)
        return found

    def item(self) -> Any:
        value = self.value()
        if self.peek() == "=":
            self.at += 1
            return _Pair(value, self.value())
        return value

    def value(self) -> Any:
        first = self.peek()
        if first in ("'", '"'):
            return self.quoted(first)
        if first == "[":
            self.at += 1
            return self.items("]")
        if first == "{":
            self.at += 1
            return self.mapping()
        start = self.at
        while self.at < len(self.text) and (
            self.text[self.at] not in ",()[]{}='\"" or self.text.startswith("${", self.at)
        ):
            if self.text.startswith("${", self.at):
                self.at = max(self.at, self.text.find("}", self.at))
            elif self.text.startswith("\\", self.at):
                self.at += 1
            self.at += 1
        word = self.text[start : self.at].strip()
        if not word:
            raise ValueError(f"a value is missing at {start} of {self.text!r}")
        if self.peek() == "(":
            self.at += 1
            return _call(word, self.items(")"))
        return _read_word(re.sub(r"\\(.)", r"\1", word))

    def mapping(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.peek() != "}":
            start = self.at
            end = self.text.find(":", start)
            if end < 0:
                raise ValueError(f"'}}' is missing in {self.text!r}")
            self.at = end + 1
            found[self.text[start:end].strip()] = self.value()
            if self.peek() == ",":
                self.at += 1
            elif self.peek() != "}":
                raise ValueError(f"unexpected {self.peek()!r} at {self.at} of {self.text!r}")
        self.at += 1
        return found

    def quoted(self, quote: str) -> str:
        match = re.compile(rf"{quote}((?:\\.|[^\\{quote}])*){quote}", re.S).match(
            self.text, self.at
        )
        if not match:
            raise ValueError(f"{quote} is not closed in {self.text!r}")
        self.at = match.end()
        return re.sub(rf"(\\+)({quote}|$)", lambda f: "\\" * (len(f[1]) // 2) + f[2], match[1])


@dataclass(frozen=True)
class _Pair:
    name: str
    value: Any


def _call(name: str, items: list[Any]) -> Call:
    return Call(
        name,
        tuple(item for item in items if not isinstance(item, _Pair)),
        {item.name: item.value for item in items if isinstance(item, _Pair)},
    )
