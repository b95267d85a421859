"""``where``: relations between parameters, and whether each can be true and false at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.core.errors import closest
from sweep.core.relation_syntax import Part, RelationError
from sweep.core.relations import Relation, read_relation
from sweep.core.space import Parameter, Space, same_value
from sweep.studyfile.conditions import describe_values
from sweep.studyfile.rules import INVALID, Entry, either

_EXAMPLE = 'For example where: ["hidden % heads == 0"].'
_NUMBER, _TRUTH = "a number", "true or false"


@dataclass(frozen=True)
class Relations:
    """Relations as text, one or a list. Read as a tuple of texts that can be parsed."""

    in_words = "texts: one or a list"

    def read(self, at: Entry) -> Any:
        items = at.items() if at.node.kind == "list" else [at]
        if not items:
            return at.report("must be a list of relations", _EXAMPLE)
        found = [self._read_one(item) for item in items]
        return INVALID if INVALID in found else tuple(found)

    def _read_one(self, at: Entry) -> Any:
        text = at.node.value
        if not isinstance(text, str):
            return at.report("must be a relation between parameters, as text", _EXAMPLE)
        try:
            read_relation(text)
        except RelationError as error:
            return at.report(str(error), error.advice or _EXAMPLE)
        return text

    def schema(self) -> dict[str, Any]:
        one = {"type": "string", "minLength": 1, "maxLength": 500}
        return either([one, {"type": "array", "items": one, "minItems": 1}])


class _Fault(Exception):
    """What is wrong with a relation in this space, and what to do."""


def check_relation(relation: Relation, space: Space, fixed: Mapping[str, Any], at: Entry) -> None:
    """Report what is wrong with a relation: a name that is none, a text that is reckoned with, or a
    value that a parameter never has.
    """
    unknown = [n for n in relation.names if n not in space.names() and n not in fixed]
    for name in unknown:
        near = closest(name, [*space.names(), *fixed])
        advice = f"Did you mean {near}?" if near else "A text stands in quotes."
        at.report(f"names {name}, which is no parameter and not under fixed", advice)
    if unknown:
        return
    if not set(relation.names) & set(space.names()):
        at.report("names no parameter of the space: it is always true, or never", "Remove it.")
        return
    try:
        if _TRUTH not in _kinds(relation.tree, space, fixed):
            example = "Compare it: hidden % heads == 0, for example."
            raise _Fault("must be a comparison, which is true or false", example)
    except _Fault as fault:
        at.report(*fault.args)


def _kinds(node: Part, space: Space, fixed: Mapping[str, Any]) -> set[str]:
    """Return the kinds of values that a part can have. Raises: _Fault."""
    if node.kind == "value":
        return {_kind(node.value)}
    if node.kind == "name":
        return {_kind(value) for value in _samples(node.value, space, fixed)}
    kinds = [_kinds(part, space, fixed) for part in node.parts]
    if node.kind == "compare":
        for place, sign in enumerate(node.value):
            pair = slice(place, place + 2)
            _check_pair(sign, node.parts[pair], kinds[pair], space, fixed)
        return {_TRUTH}
    wanted = _TRUTH if node.kind in ("and", "or", "not") else _NUMBER
    for part, its in zip(node.parts, kinds, strict=True):
        _expect(part, its, wanted)
    return {wanted}


def _expect(part: Part, kinds: set[str], wanted: str) -> None:
    if wanted not in kinds:
        is_truth = wanted == _TRUTH
        advice = f"Compare it: {part.text} == 0, for example." if is_truth else ""
        raise _Fault(f"needs {wanted} where it has {part.text}, {_listed(kinds)}", advice)


def _check_pair(
    sign: str,
    parts: tuple[Part, ...],
    kinds: list[set[str]],
    space: Space,
    fixed: Mapping[str, Any],
) -> None:
    """Check one comparison of two parts."""
    if sign not in ("==", "!="):
        for part, its in zip(parts, kinds, strict=True):
            _expect(part, its, _NUMBER)
        return
    if not kinds[0] & kinds[1]:
        what = f"{parts[0].text} is {_listed(kinds[0])}, {parts[1].text} {_listed(kinds[1])}"
        raise _Fault(f"compares what is never the same: {what}", _choices_of(parts, space))
    for name, value in (parts, parts[::-1]):
        if name.kind != "name" or value.kind != "value" or name.value not in space.names():
            continue
        parameter = space.get(name.value)
        if parameter.choices and not parameter.contains(value.value):
            advice = describe_values(parameter, value.value)
            raise _Fault(f"compares {parameter.name} with {value.text}, which it never is", advice)


def _choices_of(parts: tuple[Part, ...], space: Space) -> str:
    for part in parts:
        if part.kind == "name" and part.value in space.names():
            return describe_values(space.get(part.value), None)
    return ""


def _samples(name: str, space: Space, fixed: Mapping[str, Any]) -> list[Any]:
    if name not in space.names():
        return [fixed[name]]
    parameter: Parameter = space.get(name)
    return list(parameter.choices) if parameter.type == "categorical" else [parameter.low]


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return _TRUTH
    if isinstance(value, str):
        return "a text"
    return "a list or mapping" if isinstance(value, list | tuple | dict) else _NUMBER


def _listed(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))


def known_values(point: Mapping[str, Any], fixed: Mapping[str, Any], space: Space) -> dict:
    """Return what a point and the fixed values give, a choice as it stands in the space."""
    found = dict(fixed)
    for name, value in point.items():
        choices = space.get(name).choices
        found[name] = next((one for one in choices if same_value(one, value)), value)
    return found
