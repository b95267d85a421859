"""Data classes of ours behave as the standard ones do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from sweep import plain


def shapes(module: Any) -> dict[str, Any]:
    """Define the same classes by a module's decorator."""
    dataclass, field = module.dataclass, module.field

    @dataclass(frozen=True)
    class Point:
        """A point."""

        x: int
        y: int = 2
        names: dict[str, int] = field(default_factory=dict)

        @property
        def sum(self) -> int:
            return self.x + self.y

    @dataclass(frozen=True)
    class Named(Point):
        name: str = "a"

    @dataclass
    class Open:
        x: int
        point: Any = Point(1)

        def __post_init__(self) -> None:
            self.x += 1

    @dataclass(frozen=True, order=True)
    class Line:
        number: int
        text: str = ""

    return {cls.__name__: cls for cls in (Point, Named, Open, Line)}


@pytest.fixture(params=[plain, dataclasses], ids=["ours", "standard"])
def kinds(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The classes, made in both ways: every test here holds for both."""
    return shapes(request.param)


def test_making(kinds: dict[str, Any]) -> None:
    point = kinds["Point"](1, names={"a": 1})
    assert (point.x, point.y, point.names, point.sum) == (1, 2, {"a": 1}, 3)
    assert kinds["Point"](1).names is not kinds["Point"](1).names
    assert kinds["Named"](1, name="b").name == "b"
    assert kinds["Open"](1).x == 2


@pytest.mark.parametrize(
    ("args", "given"),
    [((), {}), ((1, 2, {}, 4), {}), ((1,), {"x": 1}), ((1,), {"z": 1})],
    ids=["too few", "too many", "twice", "unknown"],
)
def test_wrong_arguments(
    kinds: dict[str, Any], args: tuple[Any, ...], given: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        kinds["Point"](*args, **given)


def test_equality_order_and_hash(kinds: dict[str, Any]) -> None:
    point, named, line = kinds["Point"], kinds["Named"], kinds["Line"]
    assert point(1) == point(1) != point(2)
    assert point(1) != named(1)
    assert hash(line(1)) == hash(line(1))
    assert sorted([line(2), line(1, "b"), line(1, "a")]) == [line(1, "a"), line(1, "b"), line(2)]
    with pytest.raises(TypeError):
        hash(kinds["Open"](1))


def test_frozen(kinds: dict[str, Any]) -> None:
    point = kinds["Point"](1)
    for change in (lambda: setattr(point, "x", 2), lambda: delattr(point, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    opened = kinds["Open"](1)
    opened.x = 5
    assert opened.x == 5


def test_what_the_standard_module_does(kinds: dict[str, Any]) -> None:
    point = kinds["Point"](1, names={"a": 1})
    assert dataclasses.is_dataclass(point)
    assert [part.name for part in dataclasses.fields(kinds["Named"])] == ["x", "y", "names", "name"]
    assert [part.type for part in dataclasses.fields(point)][:2] == ["int", "int"]
    assert dataclasses.replace(point, x=3) == kinds["Point"](3, names={"a": 1})
    assert dataclasses.asdict(point) == {"x": 1, "y": 2, "names": {"a": 1}}
    assert dataclasses.asdict(kinds["Open"](1))["point"] == {"x": 1, "y": 2, "names": {}}
    match point:
        case object(x=x):
            assert x == 1
    assert repr(kinds["Line"](1)).endswith("Line(number=1, text='')")
    assert copy.deepcopy(point) == point


def test_ours() -> None:
    kinds = shapes(plain)
    assert plain.replace(kinds["Named"](1), y=5) == kinds["Named"](1, 5)
    assert plain.field_kinds(kinds["Named"])["name"] == "str"
    assert plain.field_kinds(dict) is None


def test_it_can_be_pickled() -> None:
    from sweep.trial import End

    assert pickle.loads(pickle.dumps(End("finished", signal=9))) == End("finished", signal=9)
