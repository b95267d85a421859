"""The search space of a script that calls Optuna: its ``trial.suggest_…`` calls."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from sweep.core.placeholders import EDIT
from sweep.studyfile.starter.draft import HINTS, Draft, fit_grid, make_name
from sweep.studyfile.starter.foreign_python import Unknown, evaluate
from sweep.studyfile.starter.wandb_ranges import distinct

DEFAULT_TRIALS = 100
_PREFIX = "suggest_"


def has_suggestions(tree: ast.AST) -> bool:
    """Tell whether a script asks Optuna for values."""
    return any(
        isinstance(node, ast.Attribute) and node.attr.startswith(_PREFIX) for node in ast.walk(tree)
    )


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
    conditional = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If | ast.For | ast.While)
        for inner in (*branch.body, *branch.orelse)
        for node in ast.walk(inner)
    }
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith(_PREFIX)
    ]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        _add(draft, call, names, lost, is_conditional=id(call) in conditional)
    _add_study(draft, tree, names, lost)
    lost.append(
        "the script: it runs a study of its own. Let it train once, with the values as its "
        f"arguments, and name it for {EDIT} in the command; trial.report becomes "
        "sweep.report.Reporter().log(step=…, objective=…), trial.should_prune its should_stop()"
    )
    return draft


def _constants(tree: ast.Module) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                names[node.targets[0].id] = evaluate(node.value, names)
            except Unknown:
                continue
    return names


def _add(
    draft: Draft, call: ast.Call, names: dict[str, Any], lost: list[str], *, is_conditional: bool
) -> None:
    assert isinstance(call.func, ast.Attribute)
    kind = call.func.attr.removeprefix(_PREFIX)
    order = ("name", "choices") if kind == "categorical" else ("name", "low", "high", "step")
    if kind == "discrete_uniform":
        order = ("name", "low", "high", "q")
    try:
        given = {
            key: evaluate(value, names) for key, value in zip(order, call.args, strict=False)
        } | {word.arg: evaluate(word.value, names) for word in call.keywords if word.arg}
        name = given["name"]
        if not isinstance(name, str):
            raise TypeError(f"its name is no text (got {name!r})")
        found = _range(kind, given, lost)
    except (Unknown, KeyError, TypeError, ValueError, ArithmeticError) as error:
        lost.append(f"{ast.unparse(call)}: is not known without running the script ({error})")
        return
    if name in draft.space and draft.space[name] != found:
        lost.append(f"{name}: is suggested twice, differently; the first was taken")
        return
    draft.space[name] = found
    if is_conditional:
        lost.append(f"{name}: is suggested in an if or a loop; say with `when` where it exists")


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
    directions: list[str] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        words: dict[str, Any] = {}
        for word in node.keywords:
            try:
                words[word.arg or ""] = evaluate(word.value, names)
            except Unknown:
                words[word.arg or ""] = ast.unparse(word.value)
        if called == "create_study":
            given = words.get("directions") or [words.get("direction") or "minimize"]
            directions = [str(one) for one in given] if isinstance(given, list) else []
            for key in ("sampler", "pruner"):
                if key in words:
                    lost.append(f"{key}: {words[key]} was not carried over; see the key {key}")
        count = words.get("n_trials")
        if called == "optimize" and isinstance(count, int) and count > 0:
            draft.more["trials"] = count
    good = [one for one in directions if one in ("minimize", "maximize")] or ["minimize"]
    for i, direction in enumerate(good):
        metric = "objective" if len(good) == 1 else f"objective_{i + 1}"
        draft.objectives.append({"metric": metric, "direction": direction})
