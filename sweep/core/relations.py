"""Relations between parameters (``where``): whether a configuration keeps to them, and if not why.

Numbers are taken as they are written, not as the nearest binary fraction: 0.3 % 0.1 == 0 holds.
A relation that names a parameter which does not exist beside the others' values holds. One that
cannot be computed (a division by zero) does not hold.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sweep.core.relation_syntax import Part, parse, quote_name
from sweep.core.space import Value, same_value

Number = int | Fraction
_EXACT_BITS = 4096  # larger numbers are rounded, and none is larger than a float


class Undefined(ArithmeticError):
    """What cannot be computed, and why."""


@dataclass(frozen=True)
class Relation:
    """One clause of ``where``.

    Attributes:
        text: As it is written.
        tree: What it says.
        names: The parameters and fixed values that it names.
    """

    text: str
    tree: Part
    names: tuple[str, ...]

    def breach(self, values: Mapping[str, Value]) -> str | None:
        """Return why values do not keep to it, in words; None where they do.

        Args:
            values: As training gets them, with the fixed ones.
        """
        if any(name not in values for name in self.names):
            return None
        try:
            holds = _evaluate(self.tree, values)
        except Undefined as error:
            return f"{error}, where {self._shown(values)}"
        if holds is True:
            return None
        return self._shown(values)

    def _shown(self, values: Mapping[str, Value]) -> str:
        pairs = [f"{quote_name(name)} is {_text(values[name])}" for name in self.names]
        if len(pairs) > 2:
            return f"{', '.join(pairs[:-1])} and {pairs[-1]}"
        return " and ".join(pairs)


@functools.lru_cache(maxsize=1000)
def read_relation(text: str) -> Relation:
    """Return a clause of ``where``. Raises: RelationError."""
    tree = parse(text)
    names = dict.fromkeys(node.value for node in tree.walk() if node.kind == "name")
    return Relation(text, tree, tuple(names))


@functools.lru_cache(maxsize=100)
def read_relations(texts: tuple[str, ...]) -> tuple[Relation, ...]:
    """Return the clauses of a study's ``where``. Raises: RelationError."""
    return tuple(map(read_relation, texts))


def breaches(relations: Sequence[Relation], values: Mapping[str, Value]) -> list[tuple[str, str]]:
    """Return the clauses that values do not keep to: each one's text, and why."""
    found = ((relation.text, relation.breach(values)) for relation in relations)
    return [(text, why) for text, why in found if why is not None]


def keeps_to(relations: Sequence[Relation], values: Mapping[str, Value]) -> bool:
    """Tell whether values keep to all clauses."""
    return all(relation.breach(values) is None for relation in relations)


def _text(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f'"{value}"' if isinstance(value, str) else str(value)


def _evaluate(node: Part, values: Mapping[str, Value]) -> Any:
    kind, parts = node.kind, node.parts
    if kind == "value":
        return node.value
    if kind == "name":
        return values[node.value]
    if kind == "not":
        return not _truth(parts[0], values)
    if kind == "and":
        return all(_truth(part, values) for part in parts)
    if kind == "or":
        return any(_truth(part, values) for part in parts)
    if kind == "compare":
        return _compare(node, values)
    numbers = [_number(part, _evaluate(part, values)) for part in parts]
    try:
        return _fit(_compute(kind if kind != "call" else node.value, numbers))
    except ZeroDivisionError:
        raise Undefined(f"{node.text} divides by zero") from None
    except OverflowError:
        raise Undefined(f"{node.text} is too large") from None
    except ValueError as error:
        raise Undefined(f"{node.text}: {error}") from None


def _truth(node: Part, values: Mapping[str, Value]) -> bool:
    found = _evaluate(node, values)
    if not isinstance(found, bool):
        raise Undefined(f"{node.text} is {_text(found)}, neither true nor false")
    return found


def _number(node: Part, value: Any) -> Number:
    if isinstance(value, Fraction | int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(repr(value))
    raise Undefined(f"{node.text} is {_text(value)}, no number")


def _compare(node: Part, values: Mapping[str, Value]) -> bool:
    left = _evaluate(node.parts[0], values)
    for place, sign in enumerate(node.value):
        right = _evaluate(node.parts[place + 1], values)
        if sign in ("==", "!="):
            holds = _same(left, right) == (sign == "==")
        else:
            a, b = _number(node.parts[place], left), _number(node.parts[place + 1], right)
            holds = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]
        if not holds:
            return False
        left = right
    return True


def _same(a: Any, b: Any) -> bool:
    exact = [Fraction(repr(x)) if isinstance(x, float) and math.isfinite(x) else x for x in (a, b)]
    return same_value(*exact)


def _compute(what: str, numbers: list[Number]) -> Number | float:
    if what in ("min", "max"):
        return sorted(numbers)[0 if what == "min" else -1]
    if what == "abs":
        return -numbers[0] if numbers[0] < 0 else numbers[0]
    if what == "log":
        return _logarithm(numbers[0])
    if len(numbers) == 1:
        return -numbers[0] if what == "-" else numbers[0]
    a, b = numbers
    if what == "+":
        return a + b
    if what == "-":
        return a - b
    if what == "*":
        return a * b
    if what == "/":
        return Fraction(a) / Fraction(b)
    if what == "//":
        return a // b
    if what == "%":
        return a % b
    return _power(a, b)


def _logarithm(number: Number) -> float:
    if number <= 0:
        raise ValueError(f"there is no log of {'0' if number == 0 else 'a negative number'}")
    if isinstance(number, Fraction):
        near = float(number)  # 0 below all floats
        return math.log(near or number.numerator) - (0 if near else math.log(number.denominator))
    return math.log(number)


def _power(base: Number, exponent: Number) -> Number | float:
    if exponent == int(exponent):
        whole = int(exponent)
        if base == 0 and whole < 0:
            raise ZeroDivisionError
        if base in (-1, 0, 1):
            return base ** abs(whole)  # however large: 1 / -1 is -1
        if _bits(base) * abs(whole) <= _EXACT_BITS:
            return Fraction(base) ** whole
    elif base < 0:
        raise ValueError("a negative number has no such power")
    return float(base) ** float(exponent)


def _bits(number: Number) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def _fit(number: Number | float) -> Number:
    """Return a result as an exact number of bounded size. Raises: OverflowError."""
    if not isinstance(number, float):
        if _bits(number) <= _EXACT_BITS:
            return number
        number = float(number)
    if not math.isfinite(number):
        raise OverflowError
    return Fraction(repr(number))
