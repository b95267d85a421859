"""``--set key.path=value``: put a value into the tree of a study file; and other NAME=VALUE."""

from __future__ import annotations

from typing import Any

from sweep.core.errors import InputError, Problem
from sweep.core.masking import hide_setting
from sweep.studyfile.tree import Node, YamlError, parse

# Their keys are names that may hold dots, so what is left of a path is one name there.
_NAMED = ("fixed", "space")

SET = "--set "  # begins what stands for the file of a value that was set


def apply_override(root: Node, override: str) -> list[Problem]:
    """Set one value in the tree; return the problems that its text has.

    A path follows the keys that exist, the longest first where names hold dots
    (``space.model.lr.high``), and numbers into lists (``objective.0.at``); missing keys are made.

    Raises:
        InputError: It is not ``key=value``.
    """
    path, equals, text = override.partition("=")
    path = path.strip()
    if not equals or not path or not all(path.split(".")):
        raise InputError(
            f"--set needs key=value (got {hide_setting(override)!r}).",
            "For example --set trials=50.",
        )
    shown = hide_setting(override)
    file = f"{SET}{shown if len(shown) <= 60 else shown[:57] + '…'}"
    try:
        value, problems = parse(text, file, first_line=0)
    except YamlError as error:
        return [error.problem]
    if value is None:
        value = Node("scalar", file, 0)
    problem = _put(root, path.split("."), "", value)
    return [*problems, problem] if problem else problems


def parse_setting(text: str, option: str, example: str) -> tuple[str, Any]:
    """Return the name and the value of an option's ``NAME=VALUE``, the value as YAML has it.

    Args:
        example: What is shown to whoever gave something else.

    Raises:
        InputError: It is not ``NAME=VALUE``, or the value is no YAML.
    """
    name, equals, value = text.partition("=")
    try:
        node, problems = parse(value, f"{option} {text}", first_line=0)
    except YamlError as error:
        raise InputError(f"{option} {text}: {error.problem.rule}.") from None
    if not equals or not name or problems:
        raise InputError(f"{option} needs NAME=VALUE (got {text!r}).", f"For example {example}.")
    return name, None if node is None else node.plain()


def _put(node: Node, parts: list[str], path: str, value: Node) -> Problem | None:
    here = f"{path}." if path else ""
    if node.kind == "list":
        if not parts[0].isdecimal() or int(parts[0]) >= len(node.items):
            rule = f"is a list of {len(node.items)}"
            advice = "Write the number of an item, from 0."
            return Problem(value.file, 0, path, rule, parts[0], advice)
        position = int(parts[0])
        if len(parts) == 1:
            node.items[position] = value
            return None
        return _put(node.items[position], parts[1:], f"{here}{position}", value)
    if node.kind != "map":
        rule = "is not a mapping, so that nothing can be set in it"
        advice = f"Set the whole: --set '{path}={{…}}'."
        return Problem(value.file, 0, path, rule, node.shown(), advice)
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        if name in node.entries and count < len(parts):
            return _put(node.entries[name], parts[count:], f"{here}{name}", value)
        if name in node.entries:
            node.entries[name] = value
            return None
    name, rest = parts[0], parts[1:]
    if path in _NAMED:
        # A new parameter is set as a whole, or one key of it at a time.
        is_part = path == "space" and value.kind == "scalar" and len(parts) > 1
        name, rest = (".".join(parts[:-1]), parts[-1:]) if is_part else (".".join(parts), [])
    if not rest:
        node.entries[name] = value
        return None
    node.entries[name] = Node("map", value.file, 0)
    return _put(node.entries[name], rest, f"{here}{name}", value)
