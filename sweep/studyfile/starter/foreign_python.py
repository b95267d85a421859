"""Find the values that a script (or a notebook) gives to its names, without running it.

A W&B sweep often stands in a script as a dict that is built in some steps:
``config = {"method": "random"}``, ``config["parameters"] = params``, ``params.update(…)``. These
steps are followed for plain data; what comes from anywhere else is unknown.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sweep.studyfile.starter.python_text import parse_python

_STEPS = 100_000


class Unknown(Exception):
    """A value that only running the script would tell; the argument is its source."""


@dataclass(frozen=True)
class Unread:
    """What stands in a dict in the place of a value that is not known; its source."""

    source: str

    def __str__(self) -> str:
        return f"{UNREAD}{self.source}"


UNREAD = "not known without running the script: "


def read_source(text: str, *, is_notebook: bool) -> ast.Module:
    """Return a script's or notebook's syntax tree. Raises: ValueError, SyntaxError."""
    if is_notebook:
        text = _cells(text)
    return parse_python(text)


def _cells(text: str) -> str:
    data = json.loads(text)
    cells = data.get("cells") if isinstance(data, dict) else None
    if not isinstance(cells, list):
        raise ValueError("a notebook has cells")
    good: list[str] = []
    for cell in cells:
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source") or ""
        lines = "".join(map(str, source)) if isinstance(source, list) else str(source)
        plain = "\n".join(
            "pass" if line.lstrip().startswith(("%", "!")) else line for line in lines.split("\n")
        )
        try:
            parse_python(plain)
        except (SyntaxError, ValueError):
            continue
        good.append(plain)
    return "\n".join(good)


def find_dicts(tree: ast.Module) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Yield the dicts that a script makes, with their names, as they are at its end.

    What was passed to a function directly has the function's name: ``wandb.sweep({...})``.
    """
    names: dict[str, Any] = {}
    direct: list[tuple[str, dict[Any, Any]]] = []
    for statement in _statements(tree):
        _run(statement, names)
        if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Dict):
            with contextlib.suppress(Unknown):
                direct.append(("return", evaluate(statement.value, names)))
        for node in ast.walk(statement) if not hasattr(statement, "body") else ():
            if isinstance(node, ast.Call):
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                for argument in given:
                    if isinstance(argument, ast.Dict) or _is_dict_call(argument):
                        try:
                            direct.append((ast.unparse(node.func), evaluate(argument, names)))
                        except Unknown:
                            continue
    yield from ((name, value) for name, value in names.items() if isinstance(value, dict))
    yield from direct


def _is_dict_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict"


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements in the order of the text, those of functions too."""
    for field in ("body", "orelse", "finalbody"):
        for child in getattr(tree, field, []):
            if isinstance(child, ast.stmt):
                yield child
                yield from _statements(child)


def _run(statement: ast.stmt, names: dict[str, Any]) -> None:
    try:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            _assign(statement.targets[0], statement.value, names)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            _assign(statement.target, statement.value, names)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            if isinstance(call.func, ast.Attribute) and call.func.attr == "update":
                target = evaluate(call.func.value, names)
                if isinstance(target, dict):
                    for argument in call.args:
                        target.update(evaluate(argument, names))
                    for keyword in call.keywords:
                        if keyword.arg:
                            target[keyword.arg] = evaluate(keyword.value, names)
    except Unknown:
        return


def _assign(target: ast.AST, given: ast.AST, names: dict[str, Any]) -> None:
    if isinstance(target, ast.Name):
        names.pop(target.id, None)
        names[target.id] = evaluate(given, names)
    elif isinstance(target, ast.Subscript):
        holder, key = evaluate(target.value, names), evaluate(target.slice, names)
        if isinstance(holder, dict):
            try:
                holder.pop(key, None)
                holder[key] = evaluate(given, names)
            except TypeError:
                raise Unknown(ast.unparse(target)) from None


_MATH: dict[str, Callable[..., Any]] = {
    "math.log": math.log,
    "np.log": math.log,
    "numpy.log": math.log,
    "math.exp": math.exp,
    "np.exp": math.exp,
    "math.log10": math.log10,
    "np.log10": math.log10,
    "math.sqrt": math.sqrt,
    "float": float,
    "int": int,
    "str": str,
}


def evaluate(node: ast.AST, names: dict[str, Any]) -> Any:
    """Return the value of an expression of plain data. Raises: Unknown."""
    try:
        return _evaluate(node, names)
    except (ArithmeticError, TypeError, ValueError, KeyError, IndexError, RecursionError):
        raise Unknown(ast.unparse(node)) from None


def _evaluate(node: ast.AST, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        if node.id in names:
            return names[node.id]
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [_evaluate(item, names) for item in node.elts]
    elif isinstance(node, ast.Dict):
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found.update(_evaluate(value, names))
                continue
            try:
                found[_evaluate(key, names)] = _evaluate(value, names)
            except Unknown as error:
                # The rest of it is worth reading; who converts it names what is not known.
                found[_evaluate(key, names)] = Unread(str(error))
        return found
    elif isinstance(node, ast.Subscript):
        return _evaluate(node.value, names)[_evaluate(node.slice, names)]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _evaluate(node.operand, names)
        return -value if isinstance(node.op, ast.USub) else +value
    elif isinstance(node, ast.BinOp):
        return _operate(node, names)
    elif isinstance(node, ast.JoinedStr):
        return "".join(str(_evaluate(part, names)) for part in node.values)
    elif isinstance(node, ast.FormattedValue):
        if node.format_spec is None and node.conversion == -1:
            return str(_evaluate(node.value, names))
    elif isinstance(node, ast.Call):
        return _call(node, names)
    raise Unknown(ast.unparse(node))


def _operate(node: ast.BinOp, names: dict[str, Any]) -> Any:
    left, right = _evaluate(node.left, names), _evaluate(node.right, names)
    numbers = all(isinstance(one, int | float) for one in (left, right))
    if isinstance(node.op, ast.Mod) and isinstance(left, str) and _PLAIN_PERCENT.fullmatch(left):
        return left % (tuple(right) if isinstance(right, list) else right)
    if isinstance(node.op, ast.Add) and (numbers or type(left) is type(right)):
        return left + right
    if numbers:
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Div):
            return left / right
        if isinstance(node.op, ast.Pow) and abs(right) <= 64:
            return left**right
    raise Unknown(ast.unparse(node))


# Texts into which values are put as they are: "units_%d", "units_{}".
_PLAIN_PERCENT = re.compile(r"(?:[^%]|%[sdi])*")
_PLAIN_BRACES = re.compile(r"(?:[^{}]|\{\d?\})*")


def _call(node: ast.Call, names: dict[str, Any]) -> Any:
    called = ast.unparse(node.func)
    given = [_evaluate(argument, names) for argument in node.args]
    if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        text = _evaluate(node.func.value, names)
        if isinstance(text, str) and _PLAIN_BRACES.fullmatch(text) and not node.keywords:
            return text.format(*given)
    if called == "dict" and len(given) <= 1:
        found = dict(*given)
        for keyword in node.keywords:
            value = _evaluate(keyword.value, names)
            found.update(value if keyword.arg is None else {keyword.arg: value})
        return found
    if node.keywords:
        raise Unknown(ast.unparse(node))
    if called in ("list", "tuple", "sorted") and len(given) == 1:
        return sorted(given[0]) if called == "sorted" else list(given[0])
    if called == "range":
        made = range(*given)
        if len(made) <= _STEPS:
            return list(made)
    elif called in _MATH:
        return _MATH[called](*given)
    raise Unknown(ast.unparse(node))
