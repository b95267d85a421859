"""Bash's arithmetic: whole numbers, as ``$((…))`` and ``((…))`` have them."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

from sweep.studyfile.starter.bash_state import BashState, NotKnown, known, mark
from sweep.studyfile.starter.python_text import parse_expression

_BINARY: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: _cut_off(a, b),
    ast.Mod: lambda a, b: a - _cut_off(a, b) * b,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_SETS = re.compile(r"\s*(\w+)\s*([-+*/%]?=)(?!=)(.*)", re.S)


def _cut_off(a: int, b: int) -> int:
    """Return a quotient as bash has it, cut off towards 0."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def evaluate(text: str, given: BashState) -> int:
    """Return the value of a text in which all is put in. Raises: NotKnown."""
    result = 0
    for part in text.split(","):
        result = _calculate(part, given)
    return result


def _calculate(text: str, given: BashState) -> int:
    steps = re.fullmatch(r"\s*(\+\+|--)?\s*(\w+)\s*(\+\+|--)?\s*", text)
    if steps and (steps[1] or steps[3]):
        before = _number(steps[2], given)
        after = before + (1 if (steps[1] or steps[3]) == "++" else -1)
        given.put(steps[2], str(after))
        return after if steps[1] else before
    setting = _SETS.fullmatch(text)
    if setting:
        value = _calculate(setting[3], given)
        if len(setting[2]) > 1:
            value = _evaluate(_parse(f"({setting[1]}){setting[2][0]}({value})"), given)
        given.put(setting[1], str(value))
        return value
    return _evaluate(_parse(text), given) if text.strip() else 0


def _parse(text: str) -> ast.AST:
    chosen = re.fullmatch(r"([^?]+)\?([^:]+):(.+)", text, re.S)
    if chosen:
        text = f"({chosen[2]}) if ({chosen[1]}) else ({chosen[3]})"
    text = re.sub(r"\b10#0*(\d)", r"\1", text)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    # Numbers that Python reads in another way, or not as a number; what steps within an expression.
    if re.search(r"\b0[oObB]|\d_|\+\+|--|\*\*\s*-", text):
        raise NotKnown(text)
    try:
        return parse_expression(re.sub(r"(?<!/)/(?!/)", "//", text).strip())
    except (SyntaxError, ValueError):
        raise NotKnown(text) from None


def _evaluate(node: ast.AST, given: BashState) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return _number(node.id, given)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        key = str(_evaluate(node.slice, given))
        return _read_number(given.arrays.get(node.value.id, {}).get(key, ""), node.value.id)
    if isinstance(node, ast.UnaryOp) and not isinstance(
        node.operand, ast.Compare | ast.BoolOp | ast.BinOp
    ):  # bash binds signs and "!" closer than Python does
        value = _evaluate(node.operand, given)
        if isinstance(node.op, ast.Not):
            return int(not value)
        return {ast.USub: -value, ast.UAdd: value, ast.Invert: ~value}[type(node.op)]
    if isinstance(node, ast.IfExp):
        return _evaluate(node.body if _evaluate(node.test, given) else node.orelse, given)
    if isinstance(node, ast.BoolOp):
        values = [bool(_evaluate(one, given)) for one in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides = _evaluate(node.left, given), _evaluate(node.comparators[0], given)
        return int(_operator(node.ops[0])(*sides))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, power = _evaluate(node.left, given), _evaluate(node.right, given)
        if 0 <= power < 64 and abs(base) < 2**32:
            return int(base**power)
    elif isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, given), _evaluate(node.right, given)
        try:
            return int(_operator(node.op)(left, right))
        except ZeroDivisionError:
            raise NotKnown("a division by 0") from None
    raise NotKnown(ast.unparse(node))


def _operator(node: ast.AST) -> Callable[[int, int], int]:
    if type(node) not in _BINARY:
        raise NotKnown(type(node).__name__)
    return _BINARY[type(node)]


def _number(name: str, given: BashState) -> int:
    return _read_number(given.get(name) or mark(name), name)


def _read_number(text: str, name: str) -> int:
    text = known(text).strip()
    if not re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", text):
        raise NotKnown(name)
    return int(text)
