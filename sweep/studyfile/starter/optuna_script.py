"""The search space of a script that calls Optuna: its ``trial.suggest_…`` calls."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweep.core.placeholders import EDIT
from sweep.studyfile.starter.draft import HINTS, Draft, fit_grid, make_name
from sweep.studyfile.starter.foreign_python import Unknown, evaluate
from sweep.studyfile.starter.optuna_branches import (
    MOST_VALUES,
    PREFIX,
    Parent,
    Suggestion,
    find_suggestions,
)
from sweep.studyfile.starter.wandb_ranges import distinct

DEFAULT_TRIALS = 100


def has_suggestions(tree: ast.AST) -> bool:
    """Tell whether a script asks Optuna for values."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in _SUGGESTIONS for node in ast.walk(tree)
    )


_KINDS = ("categorical", "float", "int", "uniform", "loguniform", "discrete_uniform")
_SUGGESTIONS = {f"{PREFIX}{kind}" for kind in _KINDS}


def convert_optuna(tree: ast.Module, path: Path, lost: list[str]) -> Draft:
    """Return the study of a script's suggestions; what is lost is said in ``lost``."""
    draft = Draft(
        f"Made from the Optuna script {path.name}.",
        make_name(path.stem),
        ["python", EDIT, "{params}"],
        hints=list(HINTS),
        more={"trials": DEFAULT_TRIALS, "seed": 0, "sampler": "tpe", "max_parallel": 4},
    )
    names = _constants(tree)
    found = find_suggestions(tree, names, lambda call: _parent(call, names))
    around = _find_around(tree)
    for one in found:
        _add(draft, one, around.get(_place(one.call)), lost)
    _settle_conditions(draft, lost)
    _add_study(draft, tree, names, lost)
    lost.append(
        "the script: it runs a study of its own. Let it train once, with the values as its "
        f"arguments, and name it for {EDIT} in the command; trial.report becomes "
        "sweep.report.Reporter().log(step=…, objective=…), trial.should_prune its should_stop()"
    )
    return draft


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return the names that are set once, to plain data."""
    names: dict[str, Any] = {}
    given = [
        (node.targets[0].id, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    ]
    counts = Counter(name for name, _ in given)
    for name, value in given:
        if counts[name] == 1:
            try:
                names[name] = evaluate(value, names)
            except Unknown:
                continue
    return names


def _read(call: ast.Call, names: Mapping[str, Any], lost: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the name and the range that a call suggests.

    Raises:
        Unknown, KeyError, TypeError, ValueError, ArithmeticError: It is not known.
    """
    assert isinstance(call.func, ast.Attribute)
    kind = call.func.attr.removeprefix(PREFIX)
    order = ("name", "choices") if kind == "categorical" else ("name", "low", "high", "step")
    if kind == "discrete_uniform":
        order = ("name", "low", "high", "q")
    known = dict(names)
    given = {key: evaluate(value, known) for key, value in zip(order, call.args, strict=False)}
    given |= {word.arg: evaluate(word.value, known) for word in call.keywords if word.arg}
    name = given["name"]
    if not isinstance(name, str):
        raise TypeError(f"its name is no text (got {name!r})")
    return name, _range(kind, given, lost)


_UNREADABLE = (Unknown, KeyError, TypeError, ValueError, ArithmeticError)


def _parent(call: ast.Call, names: Mapping[str, Any]) -> Parent | None:
    """Return a suggestion on which others may depend; None where its values cannot be counted."""
    try:
        name, found = _read(call, names, [])
    except _UNREADABLE:
        return None
    values = _values(found)
    return Parent(name, values) if values else None


def _values(found: Mapping[str, Any]) -> tuple[Any, ...]:
    if found["type"] == "categorical":
        return tuple(found["choices"])
    values = (
        range(found["low"], found["high"] + 1, found.get("step", 1))
        if (found["type"] == "int")
        else range(0)
    )
    return tuple(values) if len(values) <= MOST_VALUES else ()


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _find_around(tree: ast.Module) -> dict[tuple[int, int], ast.expr]:
    """Return what a script makes of its suggestions at once, by the place of each:
    ``int(trial.suggest_…)``, ``2 ** trial.suggest_…``."""
    found: dict[tuple[int, int], ast.expr] = {}
    for node in ast.walk(tree):
        inside: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            inside = node.args[:1] if node.func.id in ("int", "round") else []
        elif isinstance(node, ast.BinOp):
            inside = [node.left, node.right]
        for below in inside:
            called = below.func if isinstance(below, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in _SUGGESTIONS:
                assert isinstance(node, ast.expr)
                found[_place(below)] = node
    return found


def _made_of(found: dict[str, Any], name: str, around: ast.expr, lost: list[str]) -> dict[str, Any]:
    """Return a range after what the script makes of its values."""
    if isinstance(around, ast.BinOp):
        text = ast.unparse(around)
        shown = text if len(text) < 80 else f"{text[:77]}…"
        lost.append(
            f"{name}: the script goes on with {shown}; have it do so with what it is given, too, "
            "or write the values that come of it"
        )
        return found
    if found["type"] != "float":
        return found
    ends = [found["low"], found["high"], found.get("step", 1.0)]
    if "step" in found and not all(float(one).is_integer() for one in ends):
        lost.append(f"{name}: {ast.unparse(around)}: its steps are no whole numbers")
        return found
    is_cut = isinstance(around, ast.Call) and ast.unparse(around.func) == "int"
    low, high = (int(one) if is_cut else round(one) for one in (found["low"], found["high"]))
    if found.get("log") and low < 1:
        lost.append(f"{name}: {ast.unparse(around)}: is cut to whole numbers, here it is not")
        return found
    whole = {"type": "int", "low": low, "high": high}
    if found.get("step", 1.0) != 1.0:
        whole["step"] = int(found["step"])
    return whole | ({"log": True} if found.get("log") else {})


def _add(draft: Draft, one: Suggestion, around: ast.expr | None, lost: list[str]) -> None:
    try:
        name, found = _read(one.call, one.names, lost)
        found = _made_of(found, name, around, lost) if around is not None else found
    except _UNREADABLE as error:
        text = ast.unparse(one.call)
        lost.append(f"{text}: is not known without running the script ({error})")
        return
    if one.unread:
        lost.append(
            f"{name}: is suggested only under a condition that is not known here ({one.unread}); "
            "say with `when` where it exists"
        )
    when = one.when
    if name not in draft.space:
        draft.space[name] = found | ({"when": when} if when else {})
        return
    before = draft.space[name].get("when", {})
    if {key: value for key, value in draft.space[name].items() if key != "when"} != found:
        where = f", where {before}" if before else ""
        lost.append(f"{name}: is suggested twice, differently; the first was taken{where}")
    elif before != when:
        # Of two places with one condition each, on the same parameter: where either holds.
        is_same = len(before) == 1 and before.keys() == when.keys()
        if not is_same and before and when:
            lost.append(f"{name}: is suggested in several places; say with `when` where it exists")
        draft.space[name]["when"] = (
            {
                key: [*values, *(v for v in when[key] if v not in values)]
                for key, values in before.items()
            }
            if is_same
            else {}
        )


def _settle_conditions(draft: Draft, lost: list[str]) -> None:
    """Take out of the conditions what always holds, and parents that are not there."""
    for name, found in draft.space.items():
        kept = {}
        for parent, values in found.pop("when", {}).items():
            if parent not in draft.space:
                lost.append(f"{name}: depends on {parent}, which is not known")
            elif len(values) < len(_values(draft.space[parent])):
                kept[parent] = values[0] if len(values) == 1 else values
        if kept:
            found["when"] = kept


def _range(kind: str, given: dict[str, Any], lost: list[str]) -> dict[str, Any]:
    if kind == "categorical":
        choices = distinct(str(given["name"]), list(given["choices"]), lost)
        return {"type": "categorical", "choices": choices}
    if kind not in ("float", "int", "uniform", "loguniform", "discrete_uniform"):
        raise ValueError(f"suggest_{kind} has no counterpart")
    number = int if kind == "int" else float
    low, high = number(given["low"]), number(given["high"])
    step = given.get("step", given.get("q"))
    found: dict[str, Any] = {"type": number.__name__, "low": low, "high": high}
    if given.get("log") is True or kind == "loguniform":
        return found | {"log": True}
    if step is None or (kind == "int" and step == 1):
        return found
    low, high, step = fit_grid(low, high, number(step))
    return {"type": number.__name__, "low": low, "high": high, "step": step}


def _add_study(draft: Draft, tree: ast.Module, names: dict[str, Any], lost: list[str]) -> None:
    """Add directions, the number of trials and the budget, from the calls that make the study."""
    directions: list[Any] = []
    counts: list[Any] = []
    budgets: list[str] = []
    for called, words in _calls(tree, names):
        if called in ("create_study", "hyperparameter_search"):  # the latter is transformers'
            given = words.get("directions") or words.get("direction") or "minimize"
            directions += [given if isinstance(given, list) else [given]]
            for key in ("sampler", "pruner"):
                if key in words:
                    lost.append(f"{key}: {words[key]} was not carried over; see the key {key}")
        if called in ("optimize", "hyperparameter_search"):
            counts.append(words.get("n_trials"))
            timeout = words.get("timeout")
            if isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0:
                seconds = round(timeout)
                budgets.append(f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}")
            elif timeout is not None:
                lost.append(f"timeout: {timeout} is not known; see the key time")
        if called == "enqueue_trial":
            lost.append("enqueue_trial: points to try first were not carried over; see points")
    if len(directions) > 1:
        lost.append(f"create_study: the last of {len(directions)} studies was taken")
        counts = counts[-1:]
    _add_count(draft, counts, lost)
    if budgets and len(counts) == 1:
        draft.more["time"] = budgets[-1]
    elif budgets:
        lost.append(f"timeout: {', '.join(budgets)} were not carried over; see the key time")
    chosen = directions[-1] if directions else ["minimize"]
    for i, given in enumerate(chosen):
        direction = str(given).rpartition(".")[2].lower()
        if direction not in ("minimize", "maximize"):
            lost.append(f"direction: {given} is not known without running the script; check it")
            direction = "minimize"
        metric = "objective" if len(chosen) == 1 else f"objective_{i + 1}"
        draft.objectives.append({"metric": metric, "direction": direction})


def _calls(tree: ast.Module, names: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what is called, in the order of the script, with its keyword arguments."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in sorted(nodes, key=lambda one: (one.lineno, one.col_offset)):
        called = ast.unparse(node.func).rpartition(".")[2]
        words: dict[str, Any] = {}
        for word in node.keywords:
            try:
                words[word.arg or ""] = evaluate(word.value, names)
            except Unknown:
                words[word.arg or ""] = ast.unparse(word.value)
        if called == "optimize" and len(node.args) > 1:
            words.setdefault("n_trials", _value(node.args[1], names))
        yield called, words


def _value(node: ast.AST, names: dict[str, Any]) -> Any:
    try:
        return evaluate(node, names)
    except Unknown:
        return ast.unparse(node)


def _add_count(draft: Draft, counts: list[Any], lost: list[str]) -> None:
    known = [
        one for one in counts if isinstance(one, int) and not isinstance(one, bool) and one > 0
    ]
    unknown = [one for one in counts if one not in known]
    if len(known) == 1 and not unknown:
        draft.more["trials"] = known[0]
    elif known:
        draft.more["trials"] = sum(known)
        lost.append(f"n_trials: the script optimizes {len(counts)} times; trials is their sum")
    else:
        told = f"{unknown[0]} is not known" if unknown and unknown[0] is not None else "is missing"
        lost.append(f"n_trials: {told}, and a study has an end: trials is {DEFAULT_TRIALS}")
