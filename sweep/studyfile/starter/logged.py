"""The metrics that a script gives to a framework or a logger, where it prints none itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

WANDB = "wandb.log"
TENSORBOARD = "TensorBoard"


@dataclass(frozen=True)
class Logged:
    """A metric by its name.

    Attributes:
        how: Who gets it, for the reader: "self.log", WANDB, TENSORBOARD, "the Trainer", "Keras".
        is_printed: Whether that prints it, as ``'name': 0.5`` or ``name: 0.5``.
    """

    name: str
    how: str
    is_printed: bool = False


def find_logged(tree: ast.AST, source: str) -> list[Logged]:
    """Return what a script logs, in the order of the source."""
    return [
        *_dicts_printed(tree),
        *_of_loggers(tree),
        *_of_trainer(tree, source),
        *_of_keras(tree, source),
    ]


def _calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def _keys(node: ast.AST | None) -> Iterator[str]:
    for key in node.keys if isinstance(node, ast.Dict) else ():
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def _dicts_printed(tree: ast.AST) -> Iterator[Logged]:
    for called, call in _calls(tree):
        if called == "print":
            for argument in call.args:
                for key in _keys(argument):
                    yield Logged(key, "print", is_printed=True)


def _runs_of_wandb(tree: ast.AST) -> set[str]:
    """Return the names by which a script knows W&B and its run: ``run = wandb.init(…)``."""
    found = {"wandb"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            given, target = node.value, node.targets[0]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            given, target = node.context_expr, node.optional_vars
        else:
            continue
        if isinstance(given, ast.Call) and ast.unparse(given.func) == "wandb.init":
            found.add(ast.unparse(target))
    return found


def _of_loggers(tree: ast.AST) -> Iterator[Logged]:
    runs = _runs_of_wandb(tree)
    for called, call in _calls(tree):
        owner, _, method = called.rpartition(".")
        if (
            method not in ("log", "log_dict", "log_metrics", "log_metric", "add_scalar")
            or not owner
        ):
            continue
        how = WANDB if owner in runs and method == "log" else called
        if method == "add_scalar" and not owner.endswith("experiment"):  # which is Lightning's
            how = TENSORBOARD
        for argument in (*call.args[:1], *(k.value for k in call.keywords if k.arg == "data")):
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield Logged(argument.value, how)
            for key in _keys(argument):
                yield Logged(key, how)


def _of_trainer(tree: ast.AST, source: str) -> Iterator[Logged]:
    """Hugging Face's Trainer prints its logs as dicts."""
    called = [name.rpartition(".")[2] for name, _ in _calls(tree)]
    if "transformers" not in source or not any(re.fullmatch(r"\w*Trainer", one) for one in called):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "compute_metrics":
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return):
                    for key in _keys(inner.value):
                        yield Logged(f"eval_{key}", "the Trainer", is_printed=True)
    yield Logged("eval_loss", "the Trainer", is_printed=True)


def _of_keras(tree: ast.AST, source: str) -> Iterator[Logged]:
    if "keras" not in source:
        return
    validated, metrics = False, ["loss"]
    for called, call in _calls(tree):
        words = {keyword.arg: keyword.value for keyword in call.keywords}
        if called.endswith(".fit"):
            validated |= bool(words.keys() & {"validation_data", "validation_split"})
        if called.endswith(".compile") and isinstance(words.get("metrics"), ast.List):
            given = words["metrics"]
            for item in given.elts if isinstance(given, ast.List) else ():
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    metrics.append("accuracy" if item.value == "acc" else item.value)
    for name in metrics:
        yield Logged(f"val_{name}" if validated else name, "Keras", is_printed=True)
