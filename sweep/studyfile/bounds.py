"""``high: width``: a bound that is another parameter is that one's own end, and a relation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from sweep.core.relation_syntax import quote_name
from sweep.studyfile.rules import Entry, is_number
from sweep.studyfile.tree import Node

_SIGNS = {"low": ">=", "high": "<="}


def take_bounds(root: Entry) -> list[str]:
    """Put numbers where bounds of the space name parameters; return the relations that they mean.

    The number is the farthest that the other parameter goes. What names none is left to the rule of
    the key; what names one that is no range of numbers, or that depends on itself, is reported.
    """
    space = root.node.entries.get("space")
    if space is None or space.kind != "map":
        return []
    fixed = root.node.entries.get("fixed")
    constants = fixed.entries if fixed and fixed.kind == "map" else {}
    known = {**constants, **space.entries}
    found: list[str] = []
    put: list[tuple[Node, str, Node]] = []
    for name, parameter in space.entries.items():
        for side in _SIGNS if parameter.kind == "map" else ():
            written = parameter.entries.get(side)
            other = written.value if written else None
            if written is None or not isinstance(other, str) or other not in known:
                continue
            at = Entry(written, f"space.{name}.{side}", root.reader)
            end = _outer(known, name, side, at)
            if end is None:  # reported: nothing more is to be found wrong with it
                opposite = parameter.entries.get("low" if side == "high" else "high")
                number = opposite.value if opposite and is_number(opposite.value) else 1
                put.append((parameter, side, _number_like(written, number)))
                continue
            put.append((parameter, side, _number_like(written, _fitting(parameter, side, end))))
            if other in space.entries:
                found.append(f"{quote_name(name)} {_SIGNS[side]} {quote_name(other)}")
    for parameter, side, number in put:  # only now: bounds name each other
        parameter.entries[side] = number
    return found


def _number_like(written: Node, value: Any) -> Node:
    return dataclasses.replace(written, value=value, text=str(value))


def _outer(known: Mapping[str, Node], name: str, side: str, at: Entry) -> float | None:
    """Return the farthest that a bound goes; None after a report."""
    chain, other = [name], str(at.node.value)
    while other not in chain:
        chain.append(other)
        node = known[other]
        if node.kind == "scalar" and is_number(node.value):
            return float(node.value) if isinstance(node.value, float) else int(node.value)
        end = node.entries.get(side) if node.kind == "map" else None
        choices = node.entries.get("choices") if node.kind == "map" else None
        if choices and choices.items and all(is_number(c.value) for c in choices.items):
            values = [c.value for c in choices.items]
            return max(values) if side == "high" else min(values)
        if end is not None and is_number(end.value):
            return end.value  # type: ignore[no-any-return]
        if end is None or not isinstance(end.value, str) or end.value not in known:
            at.report(f"names {other}, which is no range of numbers", "Write a number.")
            return None
        other = end.value
    at.report("must not depend on itself", "Write a number.", " -> ".join([*chain, other]))
    return None


def _fitting(parameter: Node, side: str, end: float) -> float:
    """Return the end for a parameter of whole numbers, or of steps, as far as they reach."""
    kind, low, step = (_written(parameter, key) for key in ("type", "low", "step"))
    if kind == "int" and math.isfinite(end):
        end = math.floor(end) if side == "high" else math.ceil(end)
    if side == "high" and is_number(low) and is_number(step) and 0 < step <= end - low:
        steps = math.floor((end - low) / step + 1e-9)
        end = round(low + steps * step, 12) if kind != "int" else low + steps * step
    return end


def _written(parameter: Node, key: str) -> Any:
    return parameter.entries[key].value if key in parameter.entries else None
