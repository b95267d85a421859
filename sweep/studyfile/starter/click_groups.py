"""The commands of a click group: the options of each are its own, and stand behind its name."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from sweep.studyfile.starter.flags import Flag, likeliest, literal, read_call, read_constants
from sweep.studyfile.starter.python_flags import Sources

# What click 8.2 takes off the end of a function's name.
_ENDS = re.compile(r"_(?:command|cmd|group|grp)$")


@dataclass(frozen=True)
class Group:
    """The command of a group that trains.

    Attributes:
        flags: Its own, and those of its group.
        outer: The options of the group.
        others: The names of the group's other commands.
    """

    name: str
    flags: list[Flag]
    outer: frozenset[str]
    others: list[str]


def read_group(sources: Sources) -> Group | None:
    """Return the command that trains of a script's click group; None for a script without one."""
    if not re.search(r"\bclick\b", sources.text):
        return None
    made = {
        node.name: one
        for node in sources.tree.body
        if isinstance(node, ast.FunctionDef)
        for one in node.decorator_list
        if re.search(r"(?:^|\.)(?:group|command)$", _called(one))
    }
    groups = [name for name, one in made.items() if _called(one).endswith("group")]
    added = {
        ast.unparse(call.args[0])
        for called, call in sources.calls
        if called.endswith(".add_command") and call.args
    }
    commands = {
        _name(function, made[function]): function
        for function in made
        if function in added or _called(made[function]).partition(".")[0] in groups
    }
    name = likeliest(list(commands))
    if not groups or name is None:
        return None
    constants = read_constants(sources.tree)
    own = _flags(sources.functions[commands[name]], constants)
    outer = [flag for group in groups for flag in _flags(sources.functions[group], constants)]
    others = [one for one in commands if one != name]
    return Group(name, [*outer, *own], frozenset(flag.option for flag in outer), others)


def _called(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _name(function: str, decorator: ast.expr) -> str:
    given: Any = None
    if isinstance(decorator, ast.Call):
        named = [keyword.value for keyword in decorator.keywords if keyword.arg == "name"]
        given = next((literal(value) for value in [*decorator.args[:1], *named]), None)
    return given if isinstance(given, str) else _ENDS.sub("", function).replace("_", "-")


def _flags(function: ast.FunctionDef, constants: dict[str, Any]) -> list[Flag]:
    calls = [one for one in function.decorator_list if isinstance(one, ast.Call)]
    found = [
        read_call(call, constants)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("option", "argument")
    ]
    return [flag for flag in found if flag]
