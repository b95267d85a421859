"""Data classes read back from JSON, by their annotations."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping
from typing import Any

_kinds = functools.cache(typing.get_type_hints)  # evaluates a class's annotations, once


def build(kind: Any, data: Any, where: str = "it") -> Any:
    """Return what JSON data are as a field of that type.

    Args:
        where: The field's name.

    Raises:
        ValueError: They are of another shape. One number is as good as another.
    """
    outer, inner = typing.get_origin(kind), typing.get_args(kind)
    if outer is types.UnionType:
        if data is None and types.NoneType in inner:
            return None
        # Where several are left they are plain values.
        left = [one for one in inner if one is not types.NoneType]
        if len(left) == 1:
            return build(left[0], data, where)
        return _plain(tuple(left), data, where)
    if outer is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{where} is no list")
        return tuple([build(inner[0], item, where) for item in data])
    if outer is Mapping:
        return {name: build(inner[1], value, name) for name, value in _object(data, where).items()}
    if kind is Any:
        return data
    if not dataclasses.is_dataclass(kind):
        return _plain((kind,), data, where)
    kinds: dict[str, Any] = _kinds(kind)  # type: ignore[arg-type]
    unknown = set(_object(data, where)) - set(kinds)
    if unknown:
        raise ValueError(f"{where} has no {', '.join(sorted(unknown))}")
    made = {name: build(kinds[name], value, name) for name, value in data.items()}
    return kind(**made)  # type: ignore[operator]


def _object(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is no JSON object")
    return data


def _plain(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    is_number = isinstance(data, int | float)
    if not any(is_number if kind in (bool, int, float) else type(data) is kind for kind in kinds):
        raise ValueError(f"{where} is {json.dumps(data)[:40]}")
    return data
