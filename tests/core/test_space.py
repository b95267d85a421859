"""Declared ranges: what they hold, how many values they have, and Optuna's view of them."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.core.space import Parameter, Space, same_value, to_optuna, whole_steps

FLOAT = Parameter("x", "float", low=0.0, high=1.0)
TENTHS = Parameter("t", "float", low=0.0, high=0.3, step=0.1)
INT = Parameter("n", "int", low=2, high=10, step=4)
OPT = Parameter("opt", "categorical", choices=("sgd", "adam", None, [1, 2]))
MOMENTUM = Parameter("m", "float", low=0.0, high=1.0, when={"opt": ("sgd", None)})


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (FLOAT, 0, True),
        (FLOAT, 1.0, True),
        (FLOAT, 1.1, False),
        (FLOAT, True, False),
        (FLOAT, "0.5", False),
        (FLOAT, float("nan"), False),
        (TENTHS, 0.3, True),
        (TENTHS, 0.15, False),
        (INT, 6, True),
        (INT, 7, False),
        (INT, 6.0, False),
        (INT, 14, False),
        (OPT, None, True),
        (OPT, [1, 2], True),
        (OPT, "[1, 2]", False),
        (OPT, "SGD", False),
    ],
)
def test_contains(parameter: Parameter, value: Any, expected: bool) -> None:
    """A range holds its ends and its steps; a choice is matched with its type."""
    assert parameter.contains(value) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1 + 0.2, 0.3),  # 0.30000000000000004
        (0.3, 0.3),
        (0.25, 0.25),
        (0.30001, 0.30001),
        (float("inf"), float("inf")),
        (True, True),
        ("0.3", "0.3"),
    ],
)
def test_a_step_is_as_it_is_written(value: Any, expected: Any) -> None:
    """What floats make of it is moved back; nothing else is."""
    assert TENTHS.exact(value) == expected and type(TENTHS.exact(value)) is type(expected)
    assert TENTHS.contains(value) is (value == 0.1 + 0.2 or value == 0.3)
    if expected == 0.3:
        assert (TENTHS.converted(value), TENTHS.to_internal(value)) == (0.3, 0.3)
    assert INT.exact(value) is value


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        (TENTHS, [0.0, 0.1, 0.2, 0.3]),
        (INT, [2, 6, 10]),
        (Parameter("k", "int", low=1, high=3), [1, 2, 3]),
        (Parameter("f", "float", low=0.5, high=0.5), [0.5]),
        (OPT, ["sgd", "adam", None, [1, 2]]),
    ],
)
def test_values(parameter: Parameter, values: list[Any]) -> None:
    """Separate values are counted and listed exactly."""
    assert parameter.count() == len(values)
    assert parameter.values() == values
    assert all(parameter.contains(value) for value in values)


def test_endless_values() -> None:
    """A continuous range has no number of values."""
    assert FLOAT.count() is None
    with pytest.raises(ValueError, match="step"):
        FLOAT.values()


@pytest.mark.parametrize(
    ("values", "expected"),
    [({"opt": "sgd"}, True), ({"opt": None}, True), ({"opt": "adam"}, False), ({}, False)],
)
def test_is_active(values: dict[str, Any], expected: bool) -> None:
    """A conditional parameter exists where its parent does and has an allowed value."""
    assert MOMENTUM.is_active(values) is expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [(1, 1.0, True), (1, True, False), (True, True, True), ("1", 1, False), ([1], [1], True)],
)
def test_same_value(a: Any, b: Any, expected: bool) -> None:
    """Numbers are compared by value, booleans are no numbers."""
    assert same_value(a, b) is expected


@pytest.mark.parametrize(
    ("parameter", "given", "expected"),
    [
        (Parameter("n", "int", low=1, high=9), 3.0, 3),
        (Parameter("n", "int", low=1, high=9), 3.5, 3.5),
        (Parameter("n", "int", low=0, high=9), True, True),  # no number, for all that Python says
        (Parameter("x", "float", low=0.0, high=9.0), 3, 3.0),
        (Parameter("x", "float", low=0.0, high=9.0), "3", "3"),
        (Parameter("x", "float", low=0.0, high=9.0), None, None),
        (Parameter("c", "categorical", choices=(1, "1", True, None)), 1.0, 1),
        (Parameter("c", "categorical", choices=(1, "1", True, None)), True, True),
        (Parameter("c", "categorical", choices=("a", "b")), "z", "z"),
    ],
)
def test_a_value_of_another_study(parameter: Parameter, given: Any, expected: Any) -> None:
    """In this parameter's type; what has none stays as it is, and nothing is rounded."""
    found = parameter.converted(given)
    assert found == expected and type(found) is type(expected)


def test_through_optuna() -> None:
    """Lists are stored as JSON text and come back as lists; the rest as it is."""
    distribution = OPT.distribution()
    for choice in OPT.choices:
        stored = to_optuna(choice)
        index = distribution.to_internal_repr(stored)
        assert OPT.from_optuna(distribution.to_external_repr(index)) == choice


@pytest.mark.parametrize(
    "parameter",
    [
        FLOAT,
        TENTHS,
        INT,
        OPT,
        Parameter("lr", "float", low=1e-5, high=1, log=True),
        Parameter("q", "float", low=0, high=1, step=0.3),
        Parameter("n", "int", low=1, high=8),
        Parameter("u", "int", low=0, high=10, step=3),
        Parameter("w", "int", low=1, high=9, log=True),
        Parameter("c", "categorical", choices=(True, 2, 0.5, "é", {"a": [1]}, None)),
    ],
    ids=lambda parameter: parameter.name,
)
def test_the_same_in_optunas_tables_without_optuna(parameter: Parameter) -> None:
    """Text of the distribution and numbers of values are what Optuna itself writes."""
    import warnings

    from optuna.distributions import distribution_to_json

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a range does not end at a step
        made = parameter.distribution()
    assert parameter.distribution_json() == distribution_to_json(made)
    for value in parameter.choices or (parameter.low, parameter.high):
        stored = to_optuna(value)
        assert parameter.to_internal(stored) == made.to_internal_repr(stored)


def test_no_number_for_what_is_no_value() -> None:
    for parameter, value in ((OPT, "SGD"), (FLOAT, float("nan"))):
        with pytest.raises(ValueError, match="is no"):
            parameter.to_internal(value)
    both = Parameter("b", "categorical", choices=(1, True, "1"))
    assert [both.to_internal(value) for value in both.choices] == [0.0, 1.0, 2.0]


def test_distributions() -> None:
    """Ranges become Optuna's own with the same ends."""
    from optuna.distributions import FloatDistribution, IntDistribution

    assert TENTHS.distribution() == FloatDistribution(0.0, 0.3, step=0.1)
    assert INT.distribution() == IntDistribution(2, 10, step=4)
    log = Parameter("l", "float", low=1e-4, high=0.1, log=True)
    assert log.distribution() == FloatDistribution(1e-4, 0.1, log=True)


def choice(name: str, count: int, **when: tuple[Any, ...]) -> Parameter:
    return Parameter(name, "categorical", choices=tuple(range(count)), when=when)


@pytest.mark.parametrize(
    ("parameters", "size"),
    [
        ((), 1),
        ((choice("a", 3), choice("b", 4)), 12),
        ((choice("a", 3), FLOAT), None),
        ((choice("a", 2), choice("b", 5, a=(1,))), 6),
        ((choice("a", 2), choice("b", 2, a=(1,)), choice("c", 3, b=(0,))), 5),
        ((choice("a", 2), choice("b", 2), choice("c", 3, a=(0,), b=(0,)), choice("d", 7)), 42),
        (tuple(choice(f"p{i}", 10) for i in range(30)), 10**30),
    ],
)
def test_grid_size(parameters: tuple[Parameter, ...], size: int | None) -> None:
    """A grid counts different configurations, each conditional one only where it exists."""
    assert Space(parameters).grid_size() == size


def test_grid_size_ends() -> None:
    """Counting stops above the limit where conditions force going through combinations."""
    parents = tuple(choice(f"p{i}", 10) for i in range(12))
    children = tuple(choice(f"c{i}", 2, **{f"p{i}": (0,)}) for i in range(12))
    size = Space(parents + children).grid_size(limit=1000)
    assert size is not None and size > 1000


@pytest.mark.parametrize(
    ("low", "high", "step", "expected"),
    [
        (0, 0.3, 0.1, (3, True)),
        (0, 1, 0.3, (3, False)),
        (1, 10, 3, (3, True)),
        (0.1, 0.7, 0.2, (3, True)),
        (1, 2, 5, (0, False)),
    ],
)
def test_whole_steps(low: float, high: float, step: float, expected: tuple[int, bool]) -> None:
    """Steps are counted exactly for decimal numbers."""
    assert whole_steps(low, high, step) == expected
