"""Designs without results: every point lies in the space, and the first N never change."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sweep.core.errors import InputError
from sweep.core.space import Parameter, Space, to_optuna
from sweep.core.study import Choice, Objective, Study
from sweep.search.design import fixed_design, spread_design
from sweep.search.draws import from_unit, random_point, unit_draw
from sweep.search.propose import laid_out, start_size

MIXED = Space(
    (
        Parameter("lr", "float", low=1e-5, high=1.0, log=True),
        Parameter("layers", "int", low=1, high=9, step=2),
        Parameter("drop", "float", low=0.0, high=0.5, step=0.1),
        Parameter("optimizer", "categorical", choices=("sgd", "adamw")),
        Parameter("momentum", "float", low=0.0, high=0.99, when={"optimizer": ("sgd",)}),
        Parameter("hidden", "categorical", choices=([512, 256], [], None)),
        Parameter("one", "float", low=2.0, high=2.0),
    )
)
GRID = Space(
    (
        Parameter("a", "int", low=1, high=3),
        Parameter("opt", "categorical", choices=("sgd", "adamw")),
        Parameter("m", "float", low=0.0, high=0.2, step=0.1, when={"opt": ("sgd",)}),
    )
)
POINTS: tuple[dict[str, Any], ...] = (
    {"optimizer": "adamw", "hidden": [512, 256]},
    {"lr": 1, "optimizer": "sgd"},
)


def make(sampler: str, space: Space = MIXED, trials: int = 40, **more: Any) -> Study:
    options = more.pop("options", {})
    return Study(
        name="s",
        command=("true",),
        objectives=(Objective("m"),),
        space=space,
        trials=trials,
        sampler=Choice(sampler, options),
        **more,
    )


FROM_UNIT = [
    (Parameter("x", "float", low=-1.0, high=3.0), 0.25, 0.0),
    (Parameter("x", "float", low=1e-4, high=1.0, log=True), 0.5, 0.01),
    (Parameter("x", "float", low=0.0, high=0.3, step=0.1), 0.999, 0.3),
    (Parameter("x", "float", low=0.0, high=0.3, step=0.1), 0.5, 0.2),
    (Parameter("x", "float", low=2.0, high=2.0), 0.9, 2.0),
    (Parameter("x", "int", low=1, high=4), 0.0, 1),
    (Parameter("x", "int", low=1, high=4), 0.74, 3),
    (Parameter("x", "int", low=1, high=4), 0.9999999, 4),
    (Parameter("x", "int", low=0, high=100, step=25), 0.5, 50),
    (Parameter("x", "int", low=1, high=1000, log=True), 0.0, 1),
    (Parameter("x", "int", low=1, high=1000, log=True), 0.9999999, 1000),
    (Parameter("x", "categorical", choices=("a", None, True)), 0.34, None),
]


@pytest.mark.parametrize(("parameter", "unit", "expected"), FROM_UNIT)
def test_from_unit(parameter: Parameter, unit: float, expected: Any) -> None:
    """A place in [0, 1) gives the value there."""
    got = from_unit(parameter, unit)
    assert got == pytest.approx(expected) if isinstance(expected, float) else got == expected
    assert type(got) is type(expected)


def test_log_int_is_even() -> None:
    """The ends of a logarithmic int are drawn as often as their width asks for."""
    parameter = Parameter("x", "int", low=1, high=2, log=True)
    ones = sum(from_unit(parameter, (i + 0.5) / 1000) == 1 for i in range(1000))
    # log(1.5/0.5) : log(2.5/1.5)
    assert ones == 683


@pytest.mark.parametrize("sampler", ["random", "qmc"])
def test_points_lie_in_the_space(sampler: str) -> None:
    """Each point holds exactly the parameters that exist beside its values, in declared order."""
    study = make(sampler, points=POINTS)
    rows = fixed_design(study)
    assert rows is not None and len(rows) == 40
    for row in rows:
        values = MIXED.from_optuna(row)
        active = [p for p in MIXED if p.is_active(values)]
        assert list(row) == [p.name for p in active]
        assert all(p.contains(values[p.name]) for p in active)
        for parameter in active:
            parameter.distribution().to_internal_repr(row[parameter.name])
    assert {row["optimizer"] for row in rows} == {"sgd", "adamw"}
    assert rows[0]["hidden"] == "[512, 256]" and rows[0]["optimizer"] == "adamw"
    assert rows[1]["lr"] == 1.0 and type(rows[1]["lr"]) is float
    assert "momentum" not in rows[0] and "momentum" in rows[1]


@pytest.mark.parametrize("sampler", ["random", "qmc", "grid"])
def test_first_trials_stay_when_more_are_asked_for(sampler: str) -> None:
    """A design of 5 is the beginning of the one of 12, and the same each time."""
    space = GRID if sampler == "grid" else MIXED
    few, many = (make(sampler, space, trials=n, seed=3) for n in (5, 12))
    assert fixed_design(few) == (fixed_design(many) or [])[:5]
    assert fixed_design(few) == fixed_design(few)
    assert fixed_design(dataclasses.replace(few, seed=4)) != fixed_design(few)


def test_random_draws_do_not_depend_on_other_parameters() -> None:
    """A parameter added to the space leaves the others' values alone."""
    fewer = Space(tuple(p for p in MIXED if p.name != "layers"))
    before = random_point(make("random", fewer), 7)
    after = random_point(make("random"), 7)
    assert before == {name: value for name, value in after.items() if name != "layers"}
    assert unit_draw(0, 7, "lr") != unit_draw(0, 8, "lr")


def test_qmc_spreads_better_than_random() -> None:
    """Of 32 Sobol' points in 2 dimensions, each 32nd of each axis holds exactly one."""
    space = Space(tuple(Parameter(name, "float", low=0.0, high=1.0) for name in ("x", "y")))
    rows = fixed_design(make("qmc", space, trials=32)) or []
    assert sorted(int(row["x"] * 32) for row in rows) == list(range(32))
    assert sorted(int(row["y"] * 32) for row in rows) == list(range(32))
    options = {"sequence": "halton", "scramble": False}
    plain = fixed_design(make("qmc", space, trials=4, options=options)) or []
    assert [row["x"] for row in plain] == [0.0, 0.5, 0.25, 0.75]


def test_a_start_is_spread() -> None:
    """Of a Latin hypercube each part of each axis holds one point; seeds and axes differ."""
    space = Space(tuple(Parameter(name, "float", low=0.0, high=1.0) for name in ("x", "y")))
    study = make("tpe", space, seed=1)
    rows = spread_design(study, 13)
    for name in ("x", "y"):
        assert sorted(int(row[name] * 13) for row in rows) == list(range(13))
    assert [row["x"] for row in rows] != [row["y"] for row in rows]
    assert rows == spread_design(study, 13) != spread_design(make("tpe", space, seed=2), 13)


def test_a_start_has_the_users_points_and_lies_in_the_space() -> None:
    """The user's points come first, completed; what does not exist beside others is left out."""
    rows = spread_design(make("tpe", points=POINTS), 40)
    assert rows[0]["hidden"] == "[512, 256]" and rows[0]["optimizer"] == "adamw"
    for row in rows:
        values = MIXED.from_optuna(row)
        assert list(row) == [p.name for p in MIXED if p.is_active(values)]
    assert {row["optimizer"] for row in rows} == {"sgd", "adamw"}


def test_a_start_without_twins() -> None:
    """With ``duplicates: resample`` no two points of a start are alike while there are others."""
    study = make("tpe", GRID, duplicates="resample")
    rows = spread_design(study, 10)
    assert len({repr(row) for row in rows}) == 10
    kept = spread_design(dataclasses.replace(study, duplicates="keep"), 10)
    assert len({repr(row) for row in kept}) < 10


SIZES: list[tuple[dict[str, Any], int, int]] = [
    # given, trials that are spread, and how many of them launch lays out
    ({"max_parallel": 20}, 20, 20),
    ({"max_parallel": 2}, 10, 2),
    ({}, 30, 30),
    ({"max_parallel": 400}, 300, 300),
    ({"trials": 7}, 7, 7),
    ({"trials": 7, "max_parallel": 2}, 7, 2),
    ({"points": ({},) * 50, "max_parallel": 20}, 50, 50),
    ({"points": ({},) * 4, "max_parallel": 2}, 10, 4),
    ({"points": ({},) * 3, "max_parallel": 20, "warm_start": "old"}, 3, 3),
]


@pytest.mark.parametrize(("given", "spread", "laid"), SIZES)
def test_start_size(given: dict[str, Any], spread: int, laid: int) -> None:
    """K trials start together, 10 know too little; without K it is a tenth."""
    study = make("tpe", **{"trials": 300, **given})
    assert start_size(study) == spread
    assert laid_out(study) == laid


def test_grid_is_every_combination_once() -> None:
    """A parameter that does not exist multiplies nothing."""
    rows = fixed_design(make("grid", GRID, trials=12)) or []
    expected = [{"a": a, "opt": "sgd", "m": m} for a in (1, 2, 3) for m in (0.0, 0.1, 0.2)] + [
        {"a": a, "opt": "adamw"} for a in (1, 2, 3)
    ]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))


def test_grid_after_the_users_points() -> None:
    """The user's points come before the whole grid."""
    study = make("grid", GRID, trials=13, points=({"a": 2, "opt": "adamw"},))
    rows = fixed_design(study) or []
    assert rows[0] == {"a": 2, "opt": "adamw"}
    assert sorted(map(repr, rows[1:])) == sorted(
        map(repr, fixed_design(make("grid", GRID, 12)) or [])
    )


BAD_GRIDS = [
    (MIXED, 1, "lr, momentum has no end"),
    (GRID, 13, "The grid has 12 points, and 13 trials"),
    (Space((Parameter("i", "int", low=1, high=100_001),)), 1, "more than 100000 points"),
]


@pytest.mark.parametrize(("space", "trials", "words"), BAD_GRIDS)
def test_bad_grids(space: Space, trials: int, words: str) -> None:
    """A grid must be finite, not too big, and big enough."""
    with pytest.raises(InputError, match=words):
        fixed_design(make("grid", space, trials=trials))


def test_adaptive_samplers_have_no_design() -> None:
    """What learns from results is not laid out beforehand."""
    for sampler in ("auto", "tpe", "gp", "cmaes", "nsgaii"):
        assert fixed_design(make(sampler)) is None


def test_lists_are_stored_as_json() -> None:
    """The stored form reads back as the choice."""
    for row in fixed_design(make("random")) or []:
        hidden = MIXED.from_optuna(row)["hidden"]
        assert row["hidden"] == to_optuna(hidden)
