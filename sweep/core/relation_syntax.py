"""The language of ``where``: text in, a small tree out. Nothing in it can call or reach anything.

Numbers, texts in quotes, true, false and null; names of parameters, in backticks where they hold
other signs than letters, digits, _ and dots; comparisons, which may be chained; and, or, not;
+ - * / // % and **; min, max, log and abs. It binds as Python does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sweep.core.errors import closest

MOST_CHARACTERS = 500
MOST_PARTS = 200  # numbers, names and signs: a tree of so many is walked without harm
DEEPEST = 40  # brackets, signs and powers within each other
FUNCTIONS = {"min": (2, MOST_PARTS), "max": (2, MOST_PARTS), "log": (1, 1), "abs": (1, 1)}
COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")
_VALUES = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_WORDS = ("and", "or", "not", *_VALUES)
_PLAIN = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
    | (?P<quoted>`[^`]+`)
    | (?P<text>"[^"\\]*"|'[^'\\]*')
    | (?P<sign>\*\*|//|==|!=|<=|>=|[-+*/%<>(),])
    )""",
    re.VERBOSE,
)
_ADVICE = {
    "=": "Write == to compare.",
    "&": "Write and.",
    "|": "Write or.",
    "!": "Write not.",
    "^": "Write ** for a power.",
    "[": "Write a == 1 or a == 2 for one of several values.",
    "`": "Close the backticks around a name.",
    '"': 'Texts stand in quotes, without \\ within: optimizer == "sgd".',
    "'": "Texts stand in quotes, without \\ within: optimizer == 'sgd'.",
}
_FOREIGN = {
    "in": "Write a == 1 or a == 2 for one of several values.",
    "is": "Write ==.",
    "if": 'Write not a or b for "if a, then b".',
    "AND": "Write and.",
    "OR": "Write or.",
    "NOT": "Write not.",
}


class RelationError(ValueError):
    """A text that is no relation: what is wrong, and in ``advice`` what to do."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.advice = advice


@dataclass(frozen=True)
class Part:
    """A part of a relation.

    Attributes:
        kind: "value", "name", "not", "and", "or", "compare", "call", or an operator's sign; unary
            minus and plus are "-" and "+" of one part.
        parts: What it is made of.
        value: Of a value: int, Fraction, text, True, False or None; of a name or a call: the name;
            of a comparison: its signs.
        text: As it is written.
    """

    kind: str
    parts: tuple[Part, ...] = ()
    value: Any = None
    text: str = ""

    def walk(self) -> Iterator[Part]:
        """Yield this part and all within it."""
        yield self
        for part in self.parts:
            yield from part.walk()


def quote_name(name: str) -> str:
    """Return a parameter's name as one writes it in a relation."""
    plain = re.fullmatch(_PLAIN, name) and name not in _WORDS and name not in _FOREIGN
    return name if plain else f"`{name}`"


def parse(text: str) -> Part:
    """Return the tree of a relation. Raises: RelationError."""
    if len(text) > MOST_CHARACTERS:
        raise RelationError(
            f"must not be longer than {MOST_CHARACTERS} characters", "Write it as several clauses."
        )
    return _Parser(text).whole()


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            rest = text[place:].strip()
            raise RelationError(f"cannot be read from {rest[:20]!r} on", _advice(rest))
        kind = match.lastgroup
        found.append(_Token(kind, match[kind], match.start(kind), match.end(kind)))
        place = match.end()
    if len(found) > MOST_PARTS:
        raise RelationError(
            f"must not have more than {MOST_PARTS} parts", "Write it as several clauses."
        )
    return found


def _advice(rest: str) -> str:
    if rest[0].isdecimal():
        return "A name that begins with a digit stands in backticks."
    return _ADVICE.get(rest[0], "A name with other signs stands in backticks: `model/width`.")


class _Parser:
    """Reads one relation, from the weakest operator to the strongest."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0

    def whole(self) -> Part:
        if not self.tokens:
            raise RelationError("is empty", "For example hidden % heads == 0.")
        found = self._or()
        if self.at < len(self.tokens):
            self._refuse(self.tokens[self.at])
        return found

    def _refuse(self, token: _Token) -> None:
        rest = self.text[token.start :]
        advice = _FOREIGN.get(token.text, "")
        if not advice and token.kind in ("name", "quoted", "number", "text"):
            advice = "An operator is missing before it: + - * / // % **, a comparison, and, or."
        raise RelationError(f"cannot be read from {rest[:20]!r} on", advice)

    def _next(self) -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is None or token.kind in ("quoted", "text"):
            return ""
        return token.text

    def _take(self, *wanted: str) -> str:
        """Take the next token where it is one of these; return it, else ""."""
        found = self._next()
        if found not in wanted:
            return ""
        self.at += 1
        return found

    def _made(self, start: int, kind: str, parts: tuple[Part, ...] = (), value: Any = None) -> Part:
        first, last = self.tokens[start], self.tokens[self.at - 1]
        return Part(kind, parts, value, self.text[first.start : last.end])

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise RelationError(
                f"must not be nested deeper than {DEEPEST}", "Write it as several clauses."
            )

    def _or(self) -> Part:
        start, parts = self.at, [self._and()]
        while self._take("or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else self._made(start, "or", tuple(parts))

    def _and(self) -> Part:
        start, parts = self.at, [self._not()]
        while self._take("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else self._made(start, "and", tuple(parts))

    def _not(self) -> Part:
        start = self.at
        if not self._take("not"):
            return self._comparison()
        self._deeper()
        part = self._not()
        self.depth -= 1
        return self._made(start, "not", (part,))

    def _comparison(self) -> Part:
        start, parts, signs = self.at, [self._sum()], []
        while sign := self._take(*COMPARISONS):
            signs.append(sign)
            parts.append(self._sum())
        return self._made(start, "compare", tuple(parts), tuple(signs)) if signs else parts[0]

    def _sum(self) -> Part:
        start, found = self.at, self._product()
        while sign := self._take("+", "-"):
            right = self._product()
            found = self._made(start, sign, (found, right))
        return found

    def _product(self) -> Part:
        start, found = self.at, self._signed()
        while sign := self._take("*", "/", "//", "%"):
            right = self._signed()
            found = self._made(start, sign, (found, right))
        return found

    def _signed(self) -> Part:
        start, sign = self.at, self._take("-", "+")
        if not sign:
            return self._power()
        self._deeper()
        part = self._signed()
        self.depth -= 1
        return self._made(start, sign, (part,))

    def _power(self) -> Part:
        start, base = self.at, self._atom()
        if not self._take("**"):
            return base
        self._deeper()
        exponent = self._signed()
        self.depth -= 1
        return self._made(start, "**", (base, exponent))

    def _atom(self) -> Part:
        if self.at >= len(self.tokens):
            raise RelationError("ends too early", "Write what follows, or close the brackets.")
        start, token = self.at, self.tokens[self.at]
        self.at += 1
        if token.kind == "number":
            return self._made(start, "value", value=_number(token.text))
        if token.kind == "text":
            return self._made(start, "value", value=token.text[1:-1])
        if token.kind == "quoted":
            return self._made(start, "name", value=token.text[1:-1])
        if token.text == "(":
            return self._inside(start)
        if token.kind == "sign" or token.text in ("and", "or", "not"):
            self._refuse(token)
        if token.text in _VALUES:
            return self._made(start, "value", value=_VALUES[token.text])
        if self._next() == "(":
            return self._call(start, token.text)
        return self._made(start, "name", value=token.text)

    def _inside(self, start: int) -> Part:
        self._deeper()
        found = self._or()
        if not self._take(")"):
            self._refuse_end("a bracket is not closed")
        self.depth -= 1
        return Part(found.kind, found.parts, found.value, self._made(start, "").text)

    def _call(self, start: int, name: str) -> Part:
        if name not in FUNCTIONS:
            near = closest(name, list(FUNCTIONS))
            advice = f"Did you mean {near}?" if near else f"There are {', '.join(FUNCTIONS)}."
            if name in ("log2", "log10", "ln"):
                base = name.removeprefix("log")
                advice = "Write log(x)." if name == "ln" else f"Write log(x) / log({base})."
            raise RelationError(f"has no function {name}", advice)
        self._deeper()
        self._take("(")
        parts = [] if self._next() == ")" else [self._or()]
        while self._take(","):
            parts.append(self._or())
        if not self._take(")"):
            self._refuse_end(f"the bracket of {name} is not closed")
        self.depth -= 1
        least, most = FUNCTIONS[name]
        if not least <= len(parts) <= most:
            wanted = "one value" if most == 1 else "two values or more"
            raise RelationError(f"{name} takes {wanted}, and has {len(parts)}")
        return self._made(start, "call", tuple(parts), name)

    def _refuse_end(self, what: str) -> None:
        if self.at < len(self.tokens):
            self._refuse(self.tokens[self.at])
        raise RelationError(what, "Write ) where it ends.")


def _number(text: str) -> int | Fraction:
    """Return a number exactly as it is written."""
    _, _, exponent = text.lower().partition("e")
    if len(text) > 50 or len(exponent.lstrip("+-")) > 3 or abs(int(exponent or 0)) > 400:
        raise RelationError(f"has a number that is too long or too large, {text[:20]}")
    return int(text) if text.isdecimal() else Fraction(text)
