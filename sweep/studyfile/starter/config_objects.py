"""Configurations that are built by assignments, and whose values a command line replaces.

With ml_collections (beside absl) a script is given ``--config=configs/default.py`` and
``--config.lr=0.1``; with ``merge_from_args``, as minGPT has it, ``--trainer.lr=0.1``.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweep.core.placeholders import EDIT
from sweep.studyfile.starter.flags import Flag, literal
from sweep.studyfile.starter.python_flags import Sources
from sweep.studyfile.starter.python_text import parse_python

MAKERS = ("get_config", "get_default_config", "get_cfg", "default_config")
_DEEPEST = 5


def read_config_flags(sources: Sources) -> tuple[list[Flag], list[str]] | None:
    """Return the flags of a script that uses ``ml_collections.config_flags``, and the arguments
    that name its configuration's file; None for another script."""
    for called, call in sources.calls:
        kind = called.rpartition(".")[2]
        name = literal(call.args[0]) if call.args else None
        if kind not in ("DEFINE_config_file", "DEFINE_config_dict") or not isinstance(name, str):
            continue
        if kind == "DEFINE_config_dict":
            return list(_flags(_of_makers(sources, sources.trees), f"--{name}.")), []
        given = literal(call.args[1]) if len(call.args) > 1 else None
        path = _find_file(sources.script.parent, given)
        if path is None:
            return [], [f"--{name}={EDIT}"]
        shown = os.path.relpath(path, sources.folder)
        try:
            tree = parse_python(path.read_text("utf-8", "replace"))
        except (OSError, SyntaxError):
            return [], [f"--{name}={shown}"]  # the script may read it all the same
        return list(_flags(_of_makers(sources, [tree]), f"--{name}.")), [f"--{name}={shown}"]
    return None


def read_merged(sources: Sources) -> list[Flag] | None:
    """Return the flags of a script whose configuration takes ``merge_from_args(sys.argv[1:])``."""
    for called, call in sources.calls:
        if called.endswith(".merge_from_args") and "argv" in ast.unparse(call):
            return list(_flags(_of_makers(sources, sources.trees[:1]), "--"))
    return None


def _find_file(folder: Path, given: Any) -> Path | None:
    """Return the file of the configuration: the script's own default, else the likeliest."""
    if isinstance(given, str) and given:
        path = folder / given
        return path if os.path.isfile(path) else None
    found = sorted(folder.glob("config*/*.py"))
    found = [path for path in found if path.name != "__init__.py"]
    likely = [path for path in found if path.stem in ("default", "config", "base")]
    if likely or len(found) == 1:
        return (likely or found)[0]
    return None


def _of_makers(sources: Sources, trees: list[ast.Module]) -> dict[str, Any]:
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in MAKERS:
                return dict(_assigned(node, sources, 0))
    return {}


def _assigned(function: ast.FunctionDef, sources: Sources, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield what a function assigns to the attributes of its configuration: dotted names, values.

    A part that is another class's default configuration is read there.
    """
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    for node in sorted(nodes, key=lambda one: one.lineno):
        _, _, name = ast.unparse(node.targets[0]).partition(".")
        value = node.value
        if not isinstance(value, ast.Call):
            if name and isinstance(node.targets[0], ast.Attribute):
                yield name, literal(value)
            continue
        prefix = f"{name}." if name else ""
        owner, _, method = ast.unparse(value.func).rpartition(".")
        if method in MAKERS and owner in sources.classes and depth < _DEEPEST:
            for inner in sources.classes[owner].body:
                if isinstance(inner, ast.FunctionDef) and inner.name == method:
                    for below, given in _assigned(inner, sources, depth + 1):
                        yield prefix + below, given
        elif method.endswith("ConfigDict") and value.args:
            yield from _items(value.args[0], prefix)


def _items(node: ast.AST, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of a dict as it stands in the source: ``{…}`` or ``dict(…)``."""
    pairs: list[tuple[Any, ast.AST]] = []
    if isinstance(node, ast.Dict):
        pairs = [(literal(key), value) for key, value in zip(node.keys, node.values, strict=True)]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
        pairs = [(word.arg, word.value) for word in node.keywords]
    for key, value in pairs:
        if isinstance(key, str):
            yield prefix + key, literal(value)
            yield from _items(value, f"{prefix}{key}.")


def _flags(values: dict[str, Any], before: str) -> Iterator[Flag]:
    for name, value in values.items():
        if isinstance(value, list | tuple | dict):
            yield Flag(f"{before}{name}", "list")
        elif value is not None:
            yield Flag(f"{before}{name}", type(value).__name__, value)
