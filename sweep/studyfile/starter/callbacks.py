"""The metrics that a script's integration (``sweep.integrations``) reports, guessed from it.

A framework names them, so that the script seldom does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

PACKAGE = "sweep.integrations"


def reported(tree: ast.AST) -> list[str]:
    """Return the names that the integrations which a script imports report, the likeliest first."""
    found: list[str] = []
    for node in ast.walk(tree):
        module = node.module if isinstance(node, ast.ImportFrom) else None
        if module and module.startswith(PACKAGE + "."):
            framework = module.removeprefix(PACKAGE + ".").partition(".")[0]
            found += _FRAMEWORKS.get(framework, _nothing)(tree)
    return list(dict.fromkeys(found))


def _nothing(tree: ast.AST) -> Iterator[str]:
    yield from ()


def _calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = getattr(called, "attr", None) or getattr(called, "id", None)
            if name in names:
                yield node


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    return next((word.value for word in call.keywords if word.arg == name), None)


def _texts(tree: ast.AST | None) -> Iterator[str]:
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _of_lightning(tree: ast.AST) -> Iterator[str]:
    """What the module logs: ``self.log("val_loss", …)``, ``self.log_dict({"val_loss": …})``."""
    for call in _calls(tree, "log", "log_dict"):
        first = call.args[0] if call.args else _argument(call, "name")
        if isinstance(first, ast.Dict):
            for key in first.keys:
                yield from _texts(key)
        elif isinstance(first, ast.Constant):
            yield from _texts(first)


def _of_transformers(tree: ast.AST) -> Iterator[str]:
    for call in _calls(tree, "TrainingArguments", "Seq2SeqTrainingArguments"):
        for best in _texts(_argument(call, "metric_for_best_model")):
            yield best if best.startswith("eval_") else f"eval_{best}"
    yield "eval_loss"


def _of_keras(tree: ast.AST) -> Iterator[str]:
    validated = any(
        _argument(call, name) is not None
        for call in _calls(tree, "fit")
        for name in ("validation_data", "validation_split")
    )
    yield "val_loss" if validated else "loss"


def _of_loop(tree: ast.AST) -> Iterator[str]:
    """What a hand-written loop reports: ``epochs.log(val_loss=…)``."""
    for call in _calls(tree, "log", "report"):
        yield from (word.arg for word in call.keywords if word.arg and word.arg != "step")


# What a framework calls an objective's own metric, where the script names none.
_XGBOOST = {
    "binary:logistic": "logloss",
    "multi:softmax": "mlogloss",
    "multi:softprob": "mlogloss",
    "reg:absoluteerror": "mae",
}
_LIGHTGBM = {
    "binary": "binary_logloss",
    "multiclass": "multi_logloss",
    "mae": "l1",
    "regression_l1": "l1",
    "l1": "l1",
}


def _parameters(tree: ast.AST) -> dict[str, str]:
    """Return the texts that a script gives by name: in dictionaries, and as arguments."""
    found = {}
    for node in ast.walk(tree):
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Dict):
            pairs = list(zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.keyword) and node.arg:
            pairs = [(ast.Constant(node.arg), node.value)]
        for key, value in pairs:
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                found[str(key.value)] = value.value
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _of_xgboost(tree: ast.AST) -> Iterator[str]:
    given = _parameters(tree)
    metric = given.get("eval_metric") or _XGBOOST.get(given.get("objective", ""), "rmse")
    for call in _calls(tree, "train"):
        for name in _texts(_argument(call, "evals")):
            yield f"{name}-{metric}"
    if any(_calls(tree, "fit")):  # scikit-learn's way: the sets are numbered
        yield f"validation_0-{metric}"


def _of_lightgbm(tree: ast.AST) -> Iterator[str]:
    given = _parameters(tree)
    metric = given.get("metric") or _LIGHTGBM.get(given.get("objective", ""), "l2")
    named = [name for c in _calls(tree, "train") for name in _texts(_argument(c, "valid_names"))]
    for name in named or ["valid_0"]:
        yield f"{name}-{metric}"


_FRAMEWORKS: Mapping[str, Callable[[ast.AST], Iterator[str]]] = {
    "lightning": _of_lightning,
    "transformers": _of_transformers,
    "keras": _of_keras,
    "xgboost": _of_xgboost,
    "lightgbm": _of_lightgbm,
    "accelerate": _of_loop,
    "dcp": _of_loop,
    "deepspeed": _of_loop,
    "orbax": _of_loop,
}
