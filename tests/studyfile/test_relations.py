"""``where`` and bounds that are other parameters, as a study file has them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sweep.core.study import Study
from sweep.studyfile import changes, loads
from sweep.studyfile.keys import STUDY

BASE = "name: s\ncommand: t {config}\nobjective: {metric: a, direction: maximize}\n"


def read(text: str, *overrides: str) -> Study:
    return loads(BASE + text, "s.yaml", overrides)


A = "a: {type: int, low: 1, high: 9}\n"

BOUNDS: list[tuple[str, dict[str, tuple[Any, Any]], tuple[str, ...]]] = [
    (f"{A}  b: {{type: int, low: 1, high: a}}", {"b": (1, 9)}, ("b <= a",)),
    (f"{A}  b: {{type: int, low: a, high: 99}}", {"b": (1, 99)}, ("b >= a",)),
    (  # one after the other
        "a: {type: int, low: 1, high: b}\n  b: {type: int, low: 1, high: c}\n"
        "  c: {type: categorical, choices: [8, 64, 16]}",
        {"a": (1, 64), "b": (1, 64)},
        ("a <= b", "b <= c"),
    ),
    (  # a fixed value is a number
        "a: {type: float, low: 0, high: cap}\nfixed: {cap: 2.5}",
        {"a": (0.0, 2.5)},
        (),
    ),
    (  # whole numbers end where the others' fractions do
        "a: {type: float, low: 0.5, high: 7.5}\n  b: {type: int, low: a, high: a}",
        {"b": (1, 7)},
        ("b >= a", "b <= a"),
    ),
    (  # steps as far as they reach
        "a: {type: int, low: 1, high: 30}\n  b: {type: int, low: 8, high: a, step: 8}",
        {"b": (8, 24)},
        ("b <= a",),
    ),
]


def test_a_bound_with_other_signs() -> None:
    study = read(f"trials: 4\nspace:\n  a/x{A[1:]}  b: {{type: int, low: 1, high: a/x}}\n")
    assert study.where == ("b <= `a/x`",)


@pytest.mark.parametrize(("space", "ends", "where"), BOUNDS)
def test_bounds(space: str, ends: dict[str, Any], where: tuple[str, ...]) -> None:
    study = read(f"trials: 4\nspace:\n  {space}\n")
    assert {name: (study.space.get(name).low, study.space.get(name).high) for name in ends} == ends
    assert study.where == where
    assert Study.from_json(study.to_json()) == study


def test_bounds_come_before_clauses_and_once() -> None:
    space = "trials: 4\nspace: {a: {type: int, low: 1, high: 9}, b: {type: int, low: 1, high: a}}\n"
    study = read(space + 'where: ["b <= a", "a > 2"]\n')
    assert study.where == ("b <= a", "a > 2")
    assert read(space, "where=a > 3", "space.a.high=20").where == ("b <= a", "a > 3")
    assert read(space, "space.a.high=20").space.get("b").high == 20
    one = "trials: 4\nspace: {a: {type: int, low: 1, high: 9}}\nwhere: a != 3\n"
    assert read(one).where == ("a != 3",)


def test_the_grid_counts_what_is_valid() -> None:
    grid = (
        "sampler: grid\nspace: {a: {type: int, low: 1, high: 4}, b: {type: int, low: 1, high: a}}\n"
    )
    assert read(grid).trials == 10
    assert read(grid + "points: [{a: 4}]\nwhere: a * b > k\nfixed: {k: 8}\n").trials == 1 + 3


def test_a_changed_relation_is_another_question() -> None:
    before = read("trials: 4\nspace: {a: {type: int, low: 1, high: 9}}\nwhere: a != 3\n")
    after = dataclasses.replace(before, where=("a != 4",), trials=9)
    allowed, refused = changes(before, after)
    assert allowed == ["trials was 4 and is now 9."]
    assert refused == ['where was ["a != 3"] and is now ["a != 4"].']
    assert changes(before, before) == ([], [])


def test_the_schema_has_both() -> None:
    schema = STUDY.schema()["properties"]
    assert {"type": "string", "minLength": 1, "maxLength": 500} in schema["where"]["anyOf"]
    kinds = schema["space"]["additionalProperties"]["anyOf"]
    assert {"type": "string", "minLength": 1} in kinds[0]["properties"]["high"]["anyOf"]
