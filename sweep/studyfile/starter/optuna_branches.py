"""Where a script asks Optuna for a value: under which conditions, and in which turns of a loop.

A condition on another suggestion becomes a ``when``: it is tried with each value that the other can
have. Loops over what is known, or over a suggested number of turns, are gone through. A function is
read where it is called.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sweep.studyfile.starter.foreign_python import Unknown, evaluate

PREFIX = "suggest_"
MOST_VALUES = 200  # of a number on which others depend
_MOST_TURNS = 64
_MOST_CALLS = 2000
When = dict[str, list[Any]]


@dataclass(frozen=True)
class Parent:
    """A suggestion that others depend on: its parameter, and all values that it can have."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Suggestion:
    """One ``trial.suggest_…`` as it is met.

    Attributes:
        names: What is known there: constants, loop variables, arguments.
        when: The values of other parameters for which it is met.
        unread: A condition that ``when`` cannot say; "" for none.
    """

    call: ast.Call
    names: Mapping[str, Any]
    when: When
    unread: str = ""


@dataclass(frozen=True)
class _Place:
    names: Mapping[str, Any]
    when: When
    unread: str = ""
    within: tuple[str, ...] = ()  # the functions that are being read

    def under(self, when: When | None, source: ast.AST) -> _Place | None:
        """Return the place within a branch; None where it is never met."""
        if when is None:
            return replace(self, unread=ast.unparse(source))
        both = dict(self.when)
        for name, values in when.items():
            both[name] = [one for one in both.get(name, values) if one in values]
        return replace(self, when=both) if all(both.values()) else None


def is_suggestion(node: ast.AST) -> bool:
    """Tell whether a node is a call of ``suggest_…``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith(PREFIX)
    )


def find_suggestions(
    tree: ast.Module, names: Mapping[str, Any], values_of: Callable[[ast.Call], Parent | None]
) -> list[Suggestion]:
    """Return all suggestions of a script in the order in which they are met.

    Args:
        names: The script's constants.
        values_of: Says which parameter a call suggests, where its values can be counted.
    """
    return _Walk(tree, values_of).read(tree, names)


class _Walk:
    def __init__(self, tree: ast.Module, values_of: Callable[[ast.Call], Parent | None]) -> None:
        self.parents = _parents(tree, values_of)
        found = [
            node
            for node in ast.walk(tree)
            # super().__init__() calls another's.
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__")
        ]
        counts = Counter(function.name for function in found)
        self.functions = {one.name: one for one in found if counts[one.name] == 1}
        self.met: list[Suggestion] = []
        self.read_functions: set[str] = set()

    def read(self, tree: ast.Module, names: Mapping[str, Any]) -> list[Suggestion]:
        called = {_called(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        self._all(tree.body, _Place(names, {}))
        for node in ast.walk(tree):
            is_called = isinstance(node, ast.FunctionDef) and node.name in self.functions
            if isinstance(node, ast.FunctionDef) and not (is_called and node.name in called):
                self._all(node.body, _Place(names, {}, within=(node.name,)))
        # What only calls itself, or is called in a way that is not followed.
        met = {id(one.call) for one in self.met}
        for node in ast.walk(tree):
            if is_suggestion(node) and id(node) not in met:
                assert isinstance(node, ast.Call)
                self.met.append(Suggestion(node, names, {}))
        return self.met

    def _all(self, nodes: Iterable[ast.AST], place: _Place | None) -> None:
        for node in nodes:
            if place is None:
                return
            self._visit(node, place)
            if isinstance(node, ast.If) and _leaves(node.body) and not node.orelse:
                _, no = self._branches(node.test, place)
                place = place.under(no, node.test) if no is not None else place

    def _visit(self, node: ast.AST, place: _Place) -> None:
        if len(self.met) > _MOST_CALLS or isinstance(node, ast.FunctionDef | ast.Lambda):
            if isinstance(node, ast.Lambda):
                self._visit(node.body, place)
            return
        if isinstance(node, ast.If | ast.IfExp):
            self._visit(node.test, place)
            yes, no = self._branches(node.test, place)
            body, other = node.body, node.orelse
            self._all(body if isinstance(body, list) else [body], place.under(yes, node.test))
            self._all(other if isinstance(other, list) else [other], place.under(no, node.test))
        elif isinstance(node, ast.For):
            self._visit(node.iter, place)
            for turn in self._turns(node.target, node.iter, place):
                self._all(node.body, turn)
            self._all(node.orelse, place)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            self._comprehension(node, place)
        elif isinstance(node, ast.While) and isinstance(node.test, ast.Constant):
            self._all([*node.body, *node.orelse], place)
        elif isinstance(node, ast.While | ast.Match):
            what = node.test if isinstance(node, ast.While) else node.subject
            self._all(ast.iter_child_nodes(node), replace(place, unread=ast.unparse(what)))
        else:
            self._all(ast.iter_child_nodes(node), place)
            if isinstance(node, ast.Call):
                self._call(node, place)

    def _call(self, node: ast.Call, place: _Place) -> None:
        if is_suggestion(node):
            self.met.append(Suggestion(node, place.names, place.when, place.unread))
            return
        function = self.functions.get(_called(node))
        if function is None or function.name in place.within:
            return
        given = [one for one in function.args.args if one.arg not in ("self", "cls")]
        names = {k: v for k, v in place.names.items() if k not in {one.arg for one in given}}
        pairs: list[tuple[str | None, ast.AST]] = [
            (argument.arg, value) for argument, value in zip(given, node.args, strict=False)
        ]
        for name, value in [*pairs, *((word.arg, word.value) for word in node.keywords)]:
            known = _value(value, place.names)
            if name and known is not _UNKNOWN:
                names[name] = known
        within = (*place.within, function.name)
        self._all(function.body, replace(place, names=names, within=within))

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, place: _Place
    ) -> None:
        first, *others = node.generators
        self._visit(first.iter, place)
        inner = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        if others or first.ifs:
            self._all(inner, replace(place, unread=ast.unparse(node)))
            return
        for turn in self._turns(first.target, first.iter, place):
            self._all(inner, turn)

    def _turns(self, target: ast.AST, over: ast.AST, place: _Place) -> Iterator[_Place | None]:
        """Yield the place within each turn of a loop."""
        inside = self._inside(over)
        turns: dict[Any, When] = {}
        known = _items(over, place.names, {})
        if known is not None and not inside:
            turns = {one: {} for one in known if isinstance(one, str | int | float)}
        elif len(inside) == 1:
            (key, parent), *_ = inside.items()
            for value in parent.values:
                known = _items(over, place.names, {key: value})
                if known is None:
                    break
                for one in known:
                    turns.setdefault(one, {parent.name: []})[parent.name].append(value)
        if known is None or len(turns) > _MOST_TURNS or not isinstance(target, ast.Name):
            hidden = {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}
            names = {k: v for k, v in place.names.items() if k not in hidden}
            yield replace(place, names=names, unread=f"for … in {ast.unparse(over)}")
            return
        for one, when in turns.items():
            turn = replace(place, names={**place.names, target.id: one})
            # All of its values: no condition.
            bound = {n: v for n, v in when.items() if len(v) < len(self._values(n))}
            yield turn.under(bound, over)

    def _values(self, name: str) -> tuple[Any, ...]:
        return next(one.values for one in self.parents.values() if one.name == name)

    def _inside(self, node: ast.AST) -> dict[str, Parent]:
        """Return the suggestions that an expression uses, by how they are written."""
        texts = [ast.unparse(one) for one in ast.walk(node) if isinstance(one, ast.expr)]
        return {text: self.parents[text] for text in texts if text in self.parents}

    def _branches(self, test: ast.expr, place: _Place) -> tuple[When | None, When | None]:
        """Return the values for which a condition holds, and those for which it does not; None for
        what cannot be said."""
        if ast.unparse(test) == "__name__ == '__main__'":
            return {}, {}
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yes, no = self._branches(test.operand, place)
            return no, yes
        inside = self._inside(test)
        if len({parent.name for parent in inside.values()}) == 1:
            parent = next(iter(inside.values()))
            try:
                holds = [
                    bool(_truth(test, place.names, dict.fromkeys(inside, value)))
                    for value in parent.values
                ]
            except (Unknown, TypeError):
                return None, None
            pairs = list(zip(parent.values, holds, strict=True))
            return (
                {parent.name: [value for value, is_held in pairs if is_held]},
                {parent.name: [value for value, is_held in pairs if not is_held]},
            )
        if isinstance(test, ast.BoolOp):
            sides = [self._branches(one, place) for one in test.values]
            if isinstance(test.op, ast.And):
                return _join([yes for yes, _ in sides]), None
            return None, _join([no for _, no in sides])
        return None, None


def _leaves(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Return | ast.Continue)


def _join(conditions: list[When | None]) -> When | None:
    both: When = {}
    for one in conditions:
        if one is None:
            return None
        for name, values in one.items():
            both[name] = [value for value in both.get(name, values) if value in values]
    return both


def _parents(tree: ast.Module, values_of: Callable[[ast.Call], Parent | None]) -> dict[str, Parent]:
    """Return the suggestions by how the script writes them: ``name``, ``params['kind']``, or the
    call itself. A name that is set to anything else too is left out."""
    found: dict[str, list[Parent | None]] = {}

    def note(text: str, value: ast.AST) -> None:
        is_one = isinstance(value, ast.Call) and is_suggestion(value)
        found.setdefault(text, []).append(values_of(value) if is_one else None)  # type: ignore[arg-type]

    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
            targets, value = [node.target], node.value
        elif isinstance(node, ast.arg):
            found.setdefault(node.arg, []).append(None)
        elif isinstance(node, ast.For):
            targets, value = [node.target], node.iter
        elif isinstance(node, ast.Call) and is_suggestion(node):
            note(ast.unparse(node), node)
        for target in targets if value is not None else ():
            assert value is not None
            inner = target.elts if isinstance(target, ast.Tuple | ast.List) else []
            for one in inner:
                found.setdefault(ast.unparse(one), []).append(None)
            note(ast.unparse(target), value)
            for key, below in _entries(value):
                note(f"{ast.unparse(target)}[{key!r}]", below)
    return {text: ones[0] for text, ones in found.items() if ones[0] and set(ones) == {ones[0]}}


def _entries(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
        yield from ((word.arg, word.value) for word in node.keywords if word.arg)


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


_UNKNOWN = object()


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    try:
        return evaluate(node, dict(names))
    except Unknown:
        return _UNKNOWN


def _items(node: ast.AST, names: Mapping[str, Any], bound: Mapping[str, Any]) -> list[Any] | None:
    """Return what a loop goes over; None where that is not known."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "range":
        try:
            ends = [_truth(one, names, bound) for one in node.args]
            made = range(*ends)
        except (Unknown, TypeError, ValueError):
            return None
        return list(made) if len(made) <= MOST_VALUES else None
    known = _UNKNOWN if bound else _value(node, names)
    return known if isinstance(known, list) else None


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}


def _truth(node: ast.AST, names: Mapping[str, Any], bound: Mapping[str, Any]) -> Any:
    """Return the value of an expression in which suggestions have the values of ``bound``.

    Raises:
        Unknown, TypeError: It is not known.
    """
    text = ast.unparse(node)
    if text in bound:
        return bound[text]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _truth(node.operand, names, bound)
    if isinstance(node, ast.BoolOp):
        values = [bool(_truth(one, names, bound)) for one in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.Compare):
        sides = [_truth(one, names, bound) for one in (node.left, *node.comparators)]
        return all(
            _COMPARE[type(sign)](left, right)
            for sign, left, right in zip(node.ops, sides, sides[1:], strict=False)
        )
    plain = {name: value for name, value in bound.items() if name.isidentifier()}
    return evaluate(node, {**names, **plain})
