"""A notebook as papermill runs it: the cell of its parameters, and what it reports or prints."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from sweep.core.errors import InputError
from sweep.core.placeholders import escape
from sweep.studyfile.starter.flags import Flag, literal
from sweep.studyfile.starter.metrics import Metric, find_in_text, find_metrics
from sweep.studyfile.starter.other_scripts import Argument, OtherScript, make_flag
from sweep.studyfile.starter.python_text import parse_python

LOOKED_FOR = "a cell with the tag parameters, which papermill replaces"
_ASSIGNMENT = re.compile(r"^([A-Za-z][\w.]*)\s*(?:<-|=)\s*([^#\n]+?)\s*(?:#.*)?$", re.MULTILINE)
_MAGIC = re.compile(r"^([ \t]*)[%!?].*$", re.MULTILINE)


def read_notebook(path: Path, shown: str) -> OtherScript:
    """Return what a notebook can be given.

    Args:
        shown: Its path in the command.

    Raises:
        InputError: It cannot be read, or is no notebook.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        cells = [(_source(cell), _tags(cell)) for cell in data["cells"] if _is_code(cell)]
        meta = data.get("metadata", {})
        language = meta.get("kernelspec", {}).get("language") or (
            meta.get("language_info", {}).get("name") or "python"
        )
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} is not a notebook of Jupyter's format 4: {error}.",
            "Save it anew in Jupyter, or convert it: jupyter nbconvert --to notebook.",
        ) from None
    code = "\n".join(source for source, _ in cells)
    given = [source for source, tags in cells if "parameters" in tags]
    is_python = str(language).lower().startswith("python")
    flags = [flag for source in given for flag in _read_cell(source, is_python=is_python)]
    remarks = []
    if not given:
        remarks.append(
            "No cell of the notebook has the tag parameters: papermill would set a trial's values "
            "first and the notebook its own afterwards. Give the tag to the cell that sets them "
            "(JupyterLab: property inspector, Cell Tags)."
        )
    return OtherScript(
        ["papermill", escape(shown), f"{{trial_dir}}/{escape(path.name)}"],
        [Argument(flag, ("-p", escape(flag.name), "{}")) for flag in flags],
        code,
        _find_metrics(code, is_python=is_python),
        # What cells print is read as any training's output.
        values_file=("-f", "{config}"),
        end=("--no-progress-bar", "--log-output"),
        remarks=remarks,
    )


def _is_code(cell: Any) -> bool:
    return isinstance(cell, dict) and cell.get("cell_type") == "code"


def _source(cell: Any) -> str:
    source = cell.get("source", "")
    text = "".join(source) if isinstance(source, list) else str(source)
    return _MAGIC.sub(r"\1pass", text)  # what only IPython reads


def _tags(cell: Any) -> list[Any]:
    return list(cell.get("metadata", {}).get("tags", []))


def _read_cell(source: str, *, is_python: bool) -> list[Flag]:
    if not is_python:
        return [make_flag(name, value) for name, value in _ASSIGNMENT.findall(source)]
    flags = []
    for node in parse_python(source).body if _parses(source) else ():
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        value = literal(node.value)
        kind = "switch" if isinstance(value, bool) else type(value).__name__
        kind = (
            kind if kind in ("switch", "int", "float", "str") else ("" if value is None else "list")
        )
        flags += [Flag(one.id, kind, value) for one in targets if isinstance(one, ast.Name)]
    return flags


def _parses(source: str) -> bool:
    try:
        parse_python(source)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _find_metrics(code: str, *, is_python: bool) -> list[Metric]:
    if is_python and _parses(code):
        return find_metrics(parse_python(code), code)
    return find_in_text(code)
