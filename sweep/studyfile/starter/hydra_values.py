"""The values of a Hydra application's configuration, by their dotted names."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.studyfile.starter.flags import literal
from sweep.studyfile.starter.foreign_yaml import read_yaml
from sweep.studyfile.starter.hydra_app import Application
from sweep.studyfile.tree import YamlError


def read_values(app: Application, tree: ast.Module) -> dict[str, Any]:
    """Return an application's plain values: of its primary configuration and the groups that its
    defaults list chooses, or of the dataclass that it stores under that name."""
    if app.folder is None or app.name is None:
        return _stored(tree, app.name)
    data = _load(app.folder / f"{app.name}.yaml")
    if data is None:
        return _stored(tree, app.name)
    found: dict[str, Any] = {}
    entries = data.get("defaults")
    for entry in entries if isinstance(entries, list) else ():
        for key, value in entry.items() if isinstance(entry, Mapping) else ():
            group = re.sub(r"^(override|optional)\s+", "", str(key)).lstrip("/")
            name, _, package = group.partition("@")
            if name.startswith("hydra") or not isinstance(value, str):
                continue
            option = re.sub(r"\.ya?ml$", "", value)
            inner = _load(app.folder / name / f"{option}.yaml")
            if inner is not None:
                at = package or name.replace("/", ".")
                found |= _flatten(inner, "" if at in ("_global_", "_here_") else f"{at}.")
    return found | _flatten(data, "")


def _load(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
        data = read_yaml(text, path.name).data
    except (OSError, UnicodeDecodeError, YamlError):
        return None
    return data if isinstance(data, dict) else None


def _flatten(data: Mapping[str, Any], prefix: str, depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        if depth == 0 and key in ("defaults", "hydra"):
            continue
        if isinstance(value, Mapping) and depth < 10:
            found |= _flatten(value, f"{prefix}{key}.", depth + 1)
        elif not (isinstance(value, str) and ("${" in value or value == "???")):
            found[f"{prefix}{key}"] = value
    return found


def _stored(tree: ast.Module, name: str | None) -> dict[str, Any]:
    """Return the fields of the dataclass that ``cs.store(name=…, node=…)`` stores under a name."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".store"):
            words = {keyword.arg: keyword.value for keyword in node.keywords}
            given = literal(words.get("name", node.args[0] if node.args else None))
            stored = words.get("node")
            if given == name and stored is not None and "group" not in words:
                found = classes.get(ast.unparse(stored).partition("(")[0])
                return _fields(found, classes, "") if found else {}
    return {}


def _fields(
    node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], prefix: str, depth: int = 0
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in node.body if depth < 6 else ():
        if not isinstance(entry, ast.AnnAssign) or not isinstance(entry.target, ast.Name):
            continue
        inner = classes.get(ast.unparse(entry.annotation))
        if inner is not None:
            found |= _fields(inner, classes, f"{prefix}{entry.target.id}.", depth + 1)
        elif entry.value is not None:
            value = literal(entry.value)
            if value is not None:
                found[f"{prefix}{entry.target.id}"] = value
    return found
