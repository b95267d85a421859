"""The part of a study file that declares what varies: ``space``, ``fixed`` and ``points``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.core.errors import closest
from sweep.core.space import Parameter, Space, to_optuna, whole_steps
from sweep.studyfile.conditions import order_parents_first, resolve_conditions
from sweep.studyfile.ranges import explain_type
from sweep.studyfile.rules import (
    INVALID,
    Flag,
    Reader,
    Real,
    Whole,
    Word,
    either,
    join,
    shown_number,
)
from sweep.studyfile.sections import REQUIRED, Key, Section
from sweep.studyfile.tree import Node

# Optuna's tables hold numbers as double precision; a whole number above 2**53 would come back
# as another one.
EXACT = 2**53
# Travels as --name=value and as name=value, and Optuna's column takes 512 characters.
_NAME = re.compile(r"[\w+@~][\w./:@+-]{0,199}")


@dataclass(frozen=True)
class Choices:
    """A list of JSON values that Optuna can tell apart."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if node.kind != "list" or not node.items:
            return reader.report(node, path, "must be a list of at least one value")
        good = True
        for i, item in enumerate(node.items):
            good &= is_plain(item, f"{path}[{i}]", reader)
        if not good:
            return INVALID
        values = node.plain()
        stored = [to_optuna(value) for value in values]
        for i, item in enumerate(node.items):
            twin = stored.index(stored[i])  # compares as Optuna does: 1, 1.0 and true are equal
            if twin == i:
                continue
            good = False
            first = node.items[twin].shown()
            rule, advice = "is given twice", "Remove one of the two."
            if first != item.shown():
                rule = f"is the same as {first} to Optuna"
                advice = "Leave one out, or make them different texts."
            reader.report(item, f"{path}[{i}]", rule, advice)
        return tuple(values) if good else INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "minItems": 1}


@dataclass(frozen=True)
class Conditions:
    """``when``: for each parent the value, or the list of values, for which this one exists."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if node.kind != "map" or not node.entries:
            return reader.report(node, path, "must be a mapping of parameters to values")
        return {name: child.plain() for name, child in node.entries.items()}

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "minProperties": 1}


def _range_keys(number: Any, example: tuple[Any, Any, Any]) -> tuple[Key, ...]:
    return (
        Key(
            "low",
            number,
            "Smallest value, inclusive.",
            REQUIRED,
            example[0],
            aliases=("min", "lower", "minimum", "start", "from"),
        ),
        Key(
            "high",
            number,
            "Largest value, inclusive.",
            REQUIRED,
            example[1],
            aliases=("max", "upper", "maximum", "end", "stop", "to"),
        ),
        Key(
            "step",
            number,
            "Distance between neighbouring values; it must divide the range.",
            None,
            example[2],
            aliases=("q", "quantum", "quantisation", "stride"),
        ),
        Key(
            "log",
            Flag(),
            "Whether the logarithm is uniform: for values over decades.",
            False,
            True,
            aliases=("logarithmic", "log_scale", "log_uniform"),
        ),
    )


def _parameter(kind: str, keys: tuple[Key, ...]) -> Section:
    kind_key = Key("type", Word((kind,)), "float, int or categorical.", REQUIRED, kind)
    when = Key(
        "when",
        Conditions(),
        "The parameter exists only where others have these values.",
        None,
        {"optimizer": "sgd"},
        aliases=("if", "condition", "conditions", "depends_on"),
    )
    return Section(f"a parameter of type {kind}", (kind_key, *keys, when))


PARAMETERS: dict[str, Section] = {
    "float": _parameter("float", _range_keys(Real(), (0.0001, 0.1, 0.1))),
    "int": _parameter("int", _range_keys(Whole(-EXACT, EXACT), (1, 4, 1))),
    "categorical": _parameter(
        "categorical",
        (
            Key(
                "choices",
                Choices(),
                "The values, of any kind.",
                REQUIRED,
                [32, 64, 128],
                aliases=("values", "options", "choice", "categories"),
            ),
        ),
    ),
}


@dataclass(frozen=True)
class SpaceRule:
    """All parameters by name. Read as a Space, parents first."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if node.kind != "map":
            return reader.report(
                node,
                path,
                "must be a mapping of parameters",
                "For example lr: {type: float, low: 0.0001, high: 0.1, log: true}.",
            )
        found: dict[str, Parameter | None] = {
            name: _read_parameter(name, child, join(path, name), reader)
            for name, child in node.entries.items()
        }
        good = {name: parameter for name, parameter in found.items() if parameter}
        checked = {
            name: resolve_conditions(parameter, found, node, path, reader)
            for name, parameter in good.items()
        }
        ordered = order_parents_first(checked, node, path, reader)
        if len(good) < len(found) or INVALID in checked.values() or ordered is None:
            return INVALID
        return Space(tuple(ordered))

    def schema(self) -> dict[str, Any]:
        kinds = either([section.schema() for section in PARAMETERS.values()])
        return {"type": "object", "additionalProperties": kinds}


def check_name(name: str, node: Node, path: str, reader: Reader) -> bool:
    """Tell whether a parameter can be called so, and report where not."""
    if _NAME.fullmatch(name):
        return True
    reader.report(
        node,
        path,
        "must be named by 1 to 200 letters, digits and any of _ . / : @ + -, not starting with '-'",
        "Rename it.",
        f'"{name[:60]}"',
    )
    return False


def _read_parameter(name: str, node: Node, path: str, reader: Reader) -> Parameter | None:
    named = check_name(name, node, path, reader)
    if node.kind != "map":
        advice = f"For one value write it under fixed, {name}: {node.shown()}."
        if node.kind == "list":
            advice = f"Write {{type: categorical, choices: {node.shown()}}}."
        elif node.value is None:
            advice = "For example {type: float, low: 0.0001, high: 0.1, log: true}."
        reader.report(node, path, "must be a mapping with a type", advice)
        return None
    kind = _read_type(node, path, reader)
    if kind is None:
        return None
    values = PARAMETERS[kind].read_values(node, path, reader)
    if INVALID in list(values.values()) or not named:
        return None
    if any(key not in PARAMETERS[kind].names() for key in node.entries):
        return None
    raw = values.pop("when")
    if kind != "categorical" and not _check_range(kind, values, node, path, reader):
        return None
    return Parameter(name, **values, when=raw or {})


def _read_type(node: Node, path: str, reader: Reader) -> str | None:
    if "type" not in node.entries:
        advice = "One of float, int, categorical."
        if {"choices", "values"} & set(node.entries):
            advice = "Write type: categorical."
        elif {"low", "high", "min", "max"} & set(node.entries):
            whole = all(isinstance(c.value, int) for c in node.entries.values())
            advice = "Write type: int or type: float." if whole else "Write type: float."
        reader.report(node, join(path, "type"), "is missing", advice, "")
        return None
    child = node.entries["type"]
    if isinstance(child.value, str) and child.value in PARAMETERS:
        return child.value
    advice = explain_type(child.value, node) if isinstance(child.value, str) else ""
    if not advice:
        near = closest(child.text, list(PARAMETERS))
        advice = f"Did you mean {near}?" if near else "For example type: float."
    reader.report(child, join(path, "type"), "must be float, int or categorical", advice)
    return None


def _check_range(
    kind: str, values: Mapping[str, Any], node: Node, path: str, reader: Reader
) -> bool:
    low, high, step, log = (values[name] for name in ("low", "high", "step", "log"))
    first = len(reader.problems)

    def report(key: str, rule: str, advice: str) -> None:
        reader.report(node.entries[key], join(path, key), rule, advice)

    if low > high:
        report("low", f"must not be above high, {node.entries['high'].text}", "Swap the two.")
    if log and low <= 0:
        if kind == "int":
            report("low", "must be at least 1 when log is true", "Write low: 1.")
        else:
            report(
                "low", "must be > 0 when log is true", "Use a small positive number, such as 1e-6."
            )
    if step is not None:
        if step <= 0:
            report("step", "must be above 0", "Remove it for no step.")
        elif log and not (kind == "int" and step == 1):
            report("step", "cannot go with log: Optuna has no such range", "Remove one of the two.")
        elif low < high:
            _check_step(low, high, step, report)
    return len(reader.problems) == first


def _check_step(low: float, high: float, step: float, report: Any) -> None:
    steps, divides = whole_steps(low, high, step)
    if divides:
        return
    if steps == 0:
        report(
            "step",
            f"must not be above high - low, {shown_number(round(high - low, 12))}",
            "Use a smaller step.",
        )
        return
    nearest = round(low + steps * step, 12)
    if isinstance(low, int) and isinstance(step, int):
        nearest = low + steps * step
    report(
        "step",
        f"must divide the range from {shown_number(low)} to {shown_number(high)}",
        f"Write high: {shown_number(nearest)}, or another step.",
    )


def is_plain(node: Node, path: str, reader: Reader) -> bool:
    """Tell whether all numbers below a node are finite, and report where not."""
    for child in node.walk():
        if isinstance(child.value, float) and not math.isfinite(child.value):
            reader.report(child, path, "must be finite", f'Write it as text: "{child.text}".')
            return False
    return True


@dataclass(frozen=True)
class Values:
    """``fixed``: names and values that every trial gets."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if node.kind != "map":
            return reader.report(node, path, "must be a mapping of names to values")
        good = [
            check_name(name, child, join(path, name), reader)
            and is_plain(child, join(path, name), reader)
            for name, child in node.entries.items()
        ]
        return node.plain() if all(good) else INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


@dataclass(frozen=True)
class Configurations:
    """``points``: configurations of the user's own. Checked against the space by ``studyfile``."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if node.kind == "scalar" and isinstance(node.value, str) and node.value.endswith(".csv"):
            return ()  # read later, by the space
        if node.kind != "list":
            return reader.report(node, path, "must be a list of mappings, or a CSV file")
        good = [True]
        for i, item in enumerate(node.items):
            if item.kind != "map":
                reader.report(item, f"{path}[{i}]", "must be a mapping", "For example {lr: 0.01}.")
                good.append(False)
            else:
                good.append(is_plain(item, f"{path}[{i}]", reader))
        return tuple(node.plain()) if all(good) else INVALID

    def schema(self) -> dict[str, Any]:
        return {
            "anyOf": [
                {"type": "array", "items": {"type": "object"}},
                {"type": "string", "pattern": r"\.csv$"},
            ]
        }
