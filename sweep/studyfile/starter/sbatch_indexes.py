"""What each task of a job array picks: bash's arithmetic over SLURM_ARRAY_TASK_ID."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.studyfile.starter.python_text import parse_expression

_MOST_TASKS = 10_000
TASK = "SLURM_ARRAY_TASK_ID"
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: int(a / b),  # bash cuts off towards 0
    ast.Mod: lambda a, b: a - int(a / b) * b,
}


def read_tasks(spec: str) -> list[int]:
    """Return the tasks of ``--array=0-7:2,9%4``; none where that says none."""
    tasks: list[int] = []
    for part in spec.partition("%")[0].split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip())
        if found is None:
            return []
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if last - first > _MOST_TASKS or step < 1:
            return []
        tasks += range(first, last + 1, step)
    return list(dict.fromkeys(tasks))


def read_scalars(body: str) -> dict[str, str]:
    """Return the variables that a script sets once: name and text, ``IDX=$((… % 3))`` too."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(
        r"^[ \t]*(?:export\s+|local\s+|declare\s+(?:-\w+\s+)?)?(\w+)="
        r"((?!\().*?)(?:[ \t]+#.*)?[ \t]*$",
        body,
        re.MULTILINE,
    ):
        found.setdefault(name, []).append(value)
    for name, value in re.findall(r"\(\(\s*(\w+)\s*=([^=].*?)\)\)", body):
        found.setdefault(name, []).append(f"$(({value}))")
    once = {name: _unquote(values[0]) for name, values in found.items() if len(values) == 1}
    home = f"{Path.home()}/"
    return {n: home + value[2:] if value.startswith("~/") else value for n, value in once.items()}


def _unquote(value: str) -> str:
    """Return a value without its quotes: ``'a'_${b}_'c'`` too, of which each part has its own."""
    parts = r"\"((?:\\.|[^\"\\])*)\"|'([^']*)'"
    if re.search(r"`|\$\(", value) or not re.fullmatch(rf"(?:{parts}|[^\"'])*", value):
        return value.strip("\"'")
    return re.sub(parts, lambda found: found[1] or found[2] or "", value)


def pick(expression: str, scalars: Mapping[str, str], sizes: Mapping[str, int], task: int) -> int:
    """Return the number that an index comes to in a task.

    Args:
        expression: As in ``${LRS[expression]}``.
        sizes: How many values each list has, for ``${#LRS[@]}``.

    Raises:
        ValueError: It is not known without running the script.
    """
    text = _resolve(expression, scalars, sizes, 0)
    try:
        return _evaluate(parse_expression(text), task)
    except (SyntaxError, ZeroDivisionError, RecursionError):
        raise ValueError(expression) from None


def reads_task(expression: str, scalars: Mapping[str, str]) -> bool:
    """Tell whether an expression, or a variable in it, reads the task's number."""
    try:
        return TASK in _resolve(expression, scalars, {}, 0)
    except ValueError:
        return False


def _resolve(text: str, scalars: Mapping[str, str], sizes: Mapping[str, int], depth: int) -> str:
    if depth > 10:
        raise ValueError(text)

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name == TASK or name not in scalars:
            return name
        return f"({_resolve(scalars[name], scalars, sizes, depth + 1)})"

    text = re.sub(
        r"\$\{#(\w+)\[[@*]\]\}", lambda m: str(sizes[m[1]]) if m[1] in sizes else "unknown", text
    )
    text = re.sub(r"\$\(\(|\)\)|\$\(\s*expr\b|\)(?=\s*$)", _bracket, text)
    text = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", replace, text)
    text = text.replace("\\*", "*").replace('"', "").replace("'", "")
    return re.sub(r"(?<!/)/(?!/)", "//", text)


def _bracket(match: re.Match[str]) -> str:
    return "(" if match[0].startswith("$") else ")"


def _evaluate(node: ast.AST, task: int) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id == TASK:
        return task
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, task)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left, task), _evaluate(node.right, task))
    raise ValueError(ast.unparse(node))


@dataclass
class Picks:
    """What tasks pick from.

    Attributes:
        lists: Bash arrays by name.
        scalars: Variables that are set once, as they stand.
        loops: Names of those lists that a loop around the command goes through.
        indexes: By parameter, the expression that says which value a task takes; none of what a
            loop goes through.
        looped: By parameter, the loop's variable.
    """

    lists: dict[str, list[Any]]
    scalars: dict[str, str]
    tasks: list[int]
    loops: set[str] = field(default_factory=set)
    indexes: dict[str, str] = field(default_factory=dict)
    looped: dict[str, str] = field(default_factory=dict)

    def is_number(self, expression: str) -> bool:
        """Tell whether a task's number makes a number of it."""
        sizes = {name: len(values) for name, values in self.lists.items()}
        try:
            found = {pick(expression, self.scalars, sizes, task) for task in self.tasks}
        except ValueError:
            return False
        return len(found) > 1

    def places(self, index: str, size: int) -> list[int]:
        """Return which of so many elements tasks take by an index: all where that is not known."""
        sizes = {name: len(values) for name, values in self.lists.items()}
        try:
            taken = {pick(index, self.scalars, sizes, task) for task in self.tasks}
        except ValueError:
            return list(range(size))
        return sorted({place % size for place in taken if -size <= place < size})
