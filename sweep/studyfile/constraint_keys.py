"""``constraints``: metrics, and the bounds to which a trial must keep."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sweep.core.study import Constraint
from sweep.studyfile.rules import INVALID, Entry, Real, either
from sweep.studyfile.sections import Key, Section

BOUNDS = Section(
    "a constraint",
    None,
    {
        "max": Key(
            Real(),
            "Largest value of the metric's last report that is allowed.",
            example=50,
            aliases="below upper high le at_most less_than",
        ),
        "min": Key(
            Real(),
            "Smallest value of the metric's last report that is allowed.",
            example=0.5,
            aliases="above lower low ge at_least greater_than",
        ),
    },
)
_SHORT = re.compile(r"\s*(<=|>=)\s*([+-]?[\d.]+(?:[eE][+-]?\d+)?)\s*")


@dataclass(frozen=True)
class Constraints:
    """Bounds by metric: {max: 50}, {min: 0.9, max: 1}, or text: "<= 50". Read as a tuple."""

    in_words = "metrics with bounds"

    def read(self, at: Entry) -> Any:
        if at.node.kind != "map" or not at.node.entries:
            return at.report("must be a mapping of metrics to bounds")
        found = at.read_each(self._read_one)
        return found if found is INVALID else tuple(found.values())

    def _read_one(self, name: str, at: Entry) -> Any:
        if isinstance(at.node.value, str):
            short = _SHORT.fullmatch(at.node.value)
            if short is None:
                example = f'For example {name}: "<= 50".'
                return at.report("must be <= or >= and a number, or min and max", example)
            bound = {"<=": "max", ">=": "min"}[short[1]]
            return Constraint(name, **{bound: float(short[2])})
        values = BOUNDS.read(at)
        if values is INVALID:
            return INVALID
        if not values:
            return at.report("needs min or max", f"For example {name}: {{max: 50}}.")
        low, high = values.get("min"), values.get("max")
        if low is not None and high is not None and low > high:
            return at["min"].report(f"must not be above max, {high:g}", "Swap the two.")
        return Constraint(name, **values)

    def schema(self) -> dict[str, Any]:
        one = either([{"type": "string"}, BOUNDS.schema()])
        return {"type": "object", "additionalProperties": one, "minProperties": 1}
