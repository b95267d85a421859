"""``constraints``: metrics, and the bounds to which a trial must keep."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sweep.core.study import Constraint
from sweep.studyfile.rules import INVALID, Reader, Real, join
from sweep.studyfile.sections import Key, Section
from sweep.studyfile.tree import Node

BOUNDS = Section(
    "a constraint",
    (
        Key(
            "max",
            Real(),
            "Largest value of the metric's last report that is allowed.",
            None,
            50,
            aliases=("below", "upper", "high", "le", "at_most", "less_than"),
        ),
        Key(
            "min",
            Real(),
            "Smallest value of the metric's last report that is allowed.",
            None,
            0.5,
            aliases=("above", "lower", "low", "ge", "at_least", "greater_than"),
        ),
    ),
)
_SHORT = re.compile(r"\s*(<=|>=)\s*([+-]?[\d.]+(?:[eE][+-]?\d+)?)\s*")


@dataclass(frozen=True)
class Constraints:
    """Bounds by metric: {max: 50}, {min: 0.9, max: 1}, or text: "<= 50". Read as a tuple."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if node.kind != "map" or not node.entries:
            return reader.report(node, path, "must be a mapping of metrics to bounds")
        found = [
            self._read_one(name, child, join(path, name), reader)
            for name, child in node.entries.items()
        ]
        return INVALID if INVALID in found else tuple(found)

    def _read_one(self, name: str, node: Node, path: str, reader: Reader) -> Any:
        if isinstance(node.value, str):
            short = _SHORT.fullmatch(node.value)
            if short is None:
                return reader.report(
                    node,
                    path,
                    "must be <= or >= and a number, or min and max",
                    f'For example {name}: "<= 50".',
                )
            bound = {"<=": "max", ">=": "min"}[short[1]]
            return Constraint(name, **{bound: float(short[2])})
        values = BOUNDS.read(node, path, reader)
        if values is INVALID:
            return INVALID
        if not values:
            advice = f"For example {name}: {{max: 50}}."
            return reader.report(node, path, "needs min or max", advice)
        low, high = values.get("min"), values.get("max")
        if low is not None and high is not None and low > high:
            return reader.report(
                node.entries["min"],
                f"{path}.min",
                f"must not be above max, {high:g}",
                "Swap the two.",
            )
        return Constraint(name, **values)

    def schema(self) -> dict[str, Any]:
        one = {"anyOf": [{"type": "string"}, BOUNDS.schema()]}
        return {"type": "object", "additionalProperties": one, "minProperties": 1}
