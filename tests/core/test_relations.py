"""The language of ``where``: what each text says, what is refused, and that nothing is harmed."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from sweep.core.relation_syntax import MOST_CHARACTERS, RelationError, parse, quote_name
from sweep.core.relations import breaches, read_relation, read_relations

HOLDS: list[tuple[str, dict[str, Any], bool]] = [
    ("hidden % heads == 0", {"hidden": 64, "heads": 4}, True),
    ("hidden % heads == 0", {"hidden": 64, "heads": 3}, False),
    ("batch * accumulate <= 4096", {"batch": 64, "accumulate": 64}, True),
    ("batch * accumulate <= 4096", {"batch": 64, "accumulate": 65}, False),
    ("1 < a < b <= 4", {"a": 2, "b": 4}, True),
    ("1 < a < b <= 4", {"a": 4, "b": 4}, False),
    ("1 < 2 < 3 != 4 > 0", {}, True),
    # As they are written, not as binary fractions.
    ("a + b == 0.3", {"a": 0.1, "b": 0.2}, True),
    ("a % 0.1 == 0", {"a": 0.3}, True),
    ("a == 1e-5", {"a": 0.00001}, True),
    # It binds as Python does.
    ("-2 ** 2 == -4", {}, True),
    ("2 ** 3 ** 2 == 512", {}, True),
    ("2 ** -1 == .5", {}, True),
    ("2 + 3 * 4 == 14 and (2 + 3) * 4 == 20", {}, True),
    ("7 // 2 == 3 and -7 // 2 == -4 and 7 / 2 == 3.5 and -7 % 3 == 2", {}, True),
    ("8 - 4 - 2 == 2 and 8 / 4 / 2 == 1", {}, True),
    ("not a == 1 or b == 1", {"a": 1, "b": 1}, True),
    ("a == 1 or b == 1 and a == 2", {"a": 1, "b": 3}, True),
    ("--1 == +1", {}, True),
    ("min(a, 3, b) == 1 and max(a, 2) == 2", {"a": 1, "b": 9}, True),
    ("log(a) > 4.6 and log(a) < 4.61", {"a": 100}, True),
    ("abs(a - 3) <= 1", {"a": 2}, True),
    ("a ** 0.5 == 2", {"a": 4}, True),
    ("a ** 100 > 0.01", {"a": 0.98123456789}, True),
    ("log(a) < -700", {"a": 1e-308}, True),
    # Categories, truth and null.
    ('opt == "sgd" or lr < 0.1', {"opt": "adam", "lr": 0.2}, False),
    ("opt != 'sgd'", {"opt": "adam"}, True),
    ("nesterov", {"nesterov": True}, True),
    ("not nesterov", {"nesterov": True}, False),
    ("nesterov == true and cap == null", {"nesterov": True, "cap": None}, True),
    ("a == true", {"a": 1}, False),
    ("a == '1'", {"a": 1}, False),
    ("a == 1.0", {"a": 1}, True),
    ("a == b", {"a": [1, 2], "b": [1, 2]}, True),
    # Names.
    (
        "`model/width` + model.depth > `1 or 2`",
        {"model/width": 1, "model.depth": 1, "1 or 2": 1},
        True,
    ),
    ("min >= 1", {"min": 1}, True),
    ("größe == 1", {"größe": 1}, True),
    # What a conditional parameter is about holds where that does not exist.
    ("momentum < 0.5", {}, True),
    ("a == 1 and momentum < 0.5", {"a": 2}, True),
    # What decides it already is not looked beyond.
    ("heads == 0 or hidden % heads == 0", {"heads": 0, "hidden": 8}, True),
]


@pytest.mark.parametrize(("text", "values", "expected"), HOLDS)
def test_holds(text: str, values: dict[str, Any], expected: bool) -> None:
    assert (read_relation(text).breach(values) is None) is expected


WHY = [
    ("hidden % heads == 0", {"hidden": 64, "heads": 3}, "hidden is 64 and heads is 3"),
    (
        "hidden % heads == 0",
        {"hidden": 64, "heads": 0},
        "hidden % heads divides by zero, where hidden is 64 and heads is 0",
    ),
    ("a // 0 == 1", {"a": 1}, "a // 0 divides by zero, where a is 1"),
    ("0 ** -a == 1", {"a": 1}, "0 ** -a divides by zero, where a is 1"),
    ("log(a) > 0", {"a": -1.5}, "log(a): there is no log of a negative number, where a is -1.5"),
    ("log(a - 1) > 0", {"a": 1}, "log(a - 1): there is no log of 0, where a is 1"),
    ("(0 - a) ** 0.5 > 0", {"a": 2}, "(0 - a) ** 0.5: a negative number has no such power, where a is 2"),  # noqa: E501
    ("9**9**9 > a", {"a": 1}, "9**9**9 is too large, where a is 1"),
    ("a * 2 > 1", {"a": "x"}, 'a is "x", no number, where a is "x"'),
    ("a * 2 > 1", {"a": True}, "a is true, no number, where a is true"),
    ("a or b == 1", {"a": 3, "b": 1}, "a is 3, neither true nor false, where a is 3 and b is 1"),
    ("a == b == `c d`", {"a": 1, "b": 2, "c d": 3}, "a is 1, b is 2 and `c d` is 3"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "values", "why"), WHY)
def test_why_not(text: str, values: dict[str, Any], why: str) -> None:
    """What cannot be computed does not hold, and that is said."""
    assert read_relation(text).breach(values) == why


REFUSED = [
    ("", "is empty"),
    ("   ", "is empty"),
    ("a b", "cannot be read from 'b' on"),
    ("a = 1", "cannot be read from '= 1' on"),
    ("a ==", "ends too early"),
    ("not", "ends too early"),
    ("(a == 1", "a bracket is not closed"),
    ("a == 1)", "cannot be read from ')' on"),
    ("min(a, 1", "the bracket of min is not closed"),
    ("min(a) > 1", "min takes two values or more, and has 1"),
    ("log() > 1", "log takes one value, and has 0"),
    ("log(a, 2) > 1", "log takes one value, and has 2"),
    ("log2(a) == 1", "has no function log2"),
    ("a in [1, 2]", "cannot be read from '[1, 2]' on"),
    ("a && b", "cannot be read from '&& b' on"),
    ("a ^ 2 == 1", "cannot be read from '^ 2 == 1' on"),
    ("a if b else c", "cannot be read from 'if b else c' on"),
    ("lambda: 1", "cannot be read from ': 1' on"),
    ("a[0] == 1", "cannot be read from '[0] == 1' on"),
    ("a := 1", "cannot be read from ':= 1' on"),
    ("__import__('os').system('id')", "cannot be read from \".system('id')\" on"),
    ("__import__('os')", "has no function __import__"),
    ("eval('1')", "has no function eval"),
    ("().__class__ == 1", "cannot be read from '.__class__ == 1' on"),
    ("a.__class__() == 1", "has no function a.__class__"),
    ("f'{a}' == 'x'", "cannot be read from \"'{a}' == 'x'\" on"),
    ('a == "x', "cannot be read from '\"x' on"),
    ('a == "\\x41"', "cannot be read from '\"\\\\x41\"' on"),
    ("`a == 1", "cannot be read from '`a == 1' on"),
    ("1a == 1", "cannot be read from '1a == 1' on"),
    ("0x10 == a", "cannot be read from '0x10 == a' on"),
    ("1e999 > a", "has a number that is too long or too large, 1e999"),
    ("9" * 60 + " > a", f"has a number that is too long or too large, {'9' * 20}"),
    ("(" * 60 + "a" + ")" * 60, "must not be nested deeper than 40"),
    ("not " * 60 + "a", "must not be nested deeper than 40"),
    ("-" * 60 + "1 > a", "must not be nested deeper than 40"),
    ("2**" * 60 + "2 > a", "must not be nested deeper than 40"),
    ("1+" * 150 + "1 > a", "must not have more than 200 parts"),
    ("a" * (MOST_CHARACTERS + 1), "must not be longer than 500 characters"),
    ("a\x00 == 1", "cannot be read from '\\x00 == 1' on"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(RelationError) as caught:
        parse(text)
    assert str(caught.value) == message


HOSTILE = [
    "9**9**9 > a",
    "a**9999999999999 > 1",
    "(9**400)**400 > a",
    " * ".join(["1e300"] * 60) + " > a",
    " * ".join(["(1e-300 + 1)"] * 30) + " > a",
    "a ** -(9**9**9) > 1",
    "(-1) ** 99999999999999999999 == a",
    "(1e300 ** 1e300) % a == 0",
    "1 / 1e-300 ** 9 > a",
    "max(" + ", ".join(["9**9**9"] * 20) + ") > a",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("value", [0, 1, -1, 3, 10**15, 1e308, 5e-324, -2.5, "x", None, True, [1]])
def test_every_computation_ends(text: str, value: Any) -> None:
    """However large it is written: it holds, or it is said why not."""
    why = read_relation(text).breach({"a": value})
    assert why is None or why


def _written(rng: random.Random, depth: int) -> str:
    """Return a random number's expression of both this language and Python."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(["a", "b", "c", str(rng.randint(0, 20)), f"{rng.randint(1, 9)}.5"])
    one, two = _written(rng, depth - 1), _written(rng, depth - 1)
    shape = rng.choice(
        ["{0} + {1}", "{0} - {1}", "{0} * {1}", "({0}) / ({1})", "({0}) // ({1})", "({0}) % ({1})",
         "-{0}", "({0})", "min({0}, {1})", "max({0}, {1})", "abs({0})", "({0}) ** 2"]
    )  # fmt: skip
    return shape.format(one, two)


def _stated(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.3:
        sign = rng.choice(["==", "!=", "<", "<=", ">", ">="])
        return f"{_written(rng, 3)} {sign} {_written(rng, 3)}"
    one, two = _stated(rng, depth - 1), _stated(rng, depth - 1)
    return rng.choice(["{0} and {1}", "{0} or {1}", "not ({0})", "({0}) and ({1})"]).format(
        one, two
    )


@pytest.mark.parametrize("seed", range(300))
def test_as_python_says(seed: int) -> None:
    """Random expressions over halves, which floats hold exactly: the same answer as Python's."""
    rng = random.Random(seed)
    text = _stated(rng, 2)
    values = {name: rng.choice([rng.randint(-9, 9), rng.randint(-9, 9) / 2]) for name in "abc"}
    try:
        parse(text)
    except RelationError as error:
        assert "must not" in str(error)
        return
    exact = {name: Fraction(value) for name, value in values.items()}
    allowed = {"min": min, "max": max, "abs": abs, "__builtins__": {}}
    halves = {f"{n}.5": Fraction(2 * n + 1, 2) for n in range(10)}
    source = text
    for written in halves:
        source = source.replace(written, f"H('{written}')")
    try:
        expected = eval(source, {**allowed, "H": Fraction, **exact})
    except ZeroDivisionError:
        expected = False
    why = read_relation(text).breach(values)
    assert (why is None) is bool(expected), (text, values, why)


@pytest.mark.parametrize(
    "name", ["a", "model.lr", "a/b", "1a", "and", "true", "in", "größe", "a b", "x-y"]
)
def test_a_quoted_name_is_that_name(name: str) -> None:
    relation = read_relation(f"{quote_name(name)} <= 3")
    assert relation.names == (name,)
    assert relation.breach({name: 4}) == f"{quote_name(name)} is 4"


def test_all_that_is_broken_is_told() -> None:
    relations = read_relations(("a > 1", "b > 1", "a == b"))
    assert breaches(relations, {"a": 1, "b": 1}) == [("a > 1", "a is 1"), ("b > 1", "b is 1")]
