"""Conditions between parameters (``when``): checked against the parents, and parents put first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sweep.core.errors import closest
from sweep.core.space import Parameter, to_optuna
from sweep.studyfile.rules import INVALID, Entry, is_number, shown_number
from sweep.studyfile.tree import Node


def resolve_conditions(
    parameter: Parameter, found: Mapping[str, Parameter | None], space: Entry
) -> Any:
    """Return the parameter with its conditions checked against its parents, or INVALID."""
    if not parameter.when:
        return parameter
    resolved: dict[str, Any] = {}
    for parent_name, wanted in parameter.when.items():
        at = space[parameter.name]["when"][parent_name]
        if parent_name not in found:
            near = closest(parent_name, [n for n in found if n != parameter.name])
            advice = f"Did you mean {near}?" if near else "Declare it under space."
            if parent_name in at.reader.fixed:
                advice = "It is under fixed: remove the condition."
            resolved[parent_name] = at.report("is not a parameter of the space", advice, "")
            continue
        parent = found[parent_name]
        if parent is None:
            continue  # its own problems are reported already
        is_one = not isinstance(wanted, list) or parent.contains(wanted)
        values = [wanted] if is_one else wanted
        nodes = [at.node] if is_one else at.node.items
        resolved[parent_name] = tuple(values)
        if not values:
            rule = "must name at least one value"
            resolved[parent_name] = at.report(rule, "Write the value.")
        for value, node in zip(values, nodes, strict=True):
            if not parent.contains(value):
                rule = f"must be a value that {parent_name} can take"
                one = Entry(node, at.path, at.reader)
                resolved[parent_name] = one.report(rule, describe_values(parent, value))
    if INVALID in resolved.values():
        return INVALID
    return dataclasses.replace(parameter, when=resolved)


def describe_values(parent: Parameter, value: Any) -> str:
    """Return the values that a parameter can take, or the one that was meant, as advice."""
    if parent.type != "categorical":
        step = f" in steps of {shown_number(parent.step)}" if parent.step else ""
        low, high = shown_number(parent.low or 0), shown_number(parent.high or 0)
        return f"It goes from {low} to {high}{step}."
    texts = [choice for choice in parent.choices if isinstance(choice, str)]
    near = closest(value, texts) if isinstance(value, str) else ""
    if near:
        return f"Did you mean {near}?"
    return f"Its choices: {', '.join(_shown(choice) for choice in parent.choices)}."


def _shown(value: Any) -> str:
    return Node("scalar", "", 0, value).shown() if isinstance(value, str) else str(to_yaml(value))


def to_yaml(value: Any) -> Any:
    """Return a value as one writes it in YAML: null, true, 0.1, [1, 2]."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return shown_number(value) if is_number(value) else to_optuna(value)


def order_parents_first(parameters: Mapping[str, Any], space: Entry) -> list[Parameter] | None:
    """Return the parameters with parents first, else as declared; None where there is a cycle."""
    good = {name: parameter for name, parameter in parameters.items() if parameter is not INVALID}
    ordered: dict[str, Parameter] = {}
    left = dict(good)
    while left:
        ready = [
            name
            for name, parameter in left.items()
            if all(parent in ordered or parent not in left for parent in parameter.when)
        ]
        if not ready:
            _report_cycle(left, space)
            return None
        # One at a time keeps a child as near to its place in the file as its parents allow.
        ordered[ready[0]] = left.pop(ready[0])
    return list(ordered.values())


def _report_cycle(left: Mapping[str, Parameter], space: Entry) -> None:
    name = next(iter(left))
    chain: list[str] = []
    while name not in chain:
        chain.append(name)
        name = next(parent for parent in left[name].when if parent in left)
    cycle = [*chain[chain.index(name) :], name]
    start = min(cycle, key=lambda n: space[n].node.line)
    cycle = cycle[:-1]
    cycle = [*cycle[cycle.index(start) :], *cycle[: cycle.index(start)], start]
    rule, advice = "must not depend on itself", "Remove one of the conditions."
    space[start]["when"].report(rule, advice, " -> ".join(cycle))
