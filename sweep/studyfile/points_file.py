"""``points`` from a CSV file: of one's own, or as ``sweep collect --format csv`` writes it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.core.space import Parameter, Space
from sweep.studyfile.rules import Reader
from sweep.studyfile.tree import Node

_PREFIXES = ("params.", "params_", "")  # ours, Optuna's, plain


def read_points(
    text: str, node: Node, space: Space, folder: Path, reader: Reader
) -> tuple[Mapping[str, Any], ...]:
    """Return a CSV file's rows as configurations, first row first; () after a report.

    Columns that name no parameter are ignored, empty cells leave the parameter out, and so is one
    that does not exist beside the row's other values.

    Args:
        text: The file's path, seen from the study file's folder.
    """
    path = folder / Path(text).expanduser()
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or str(error)
        reader.report(node, "points", f"cannot be read: {why}", "Give a CSV file.", text)
        return ()
    columns = {
        parameter.name: next(
            (
                prefix + parameter.name
                for prefix in _PREFIXES
                if rows and prefix + parameter.name in rows[0]
            ),
            None,
        )
        for parameter in space
    }
    if not any(columns.values()):
        reader.report(
            node,
            "points",
            "has no column that is a parameter of the space",
            f"Columns are named {', '.join(space.names())}, or params.{next(iter(space)).name}.",
            text,
        )
        return ()
    found: list[dict[str, Any]] = []
    for line, row in enumerate(rows, 2):
        point: dict[str, Any] = {}
        for parameter in space:
            column = columns[parameter.name]
            cell = (row.get(column) or "").strip() if column else ""
            if not cell or (not parameter.is_active(point) and _parents_given(parameter, point)):
                continue
            value = _read_cell(cell, parameter)
            if not parameter.contains(value):
                where = f"{path.name}, line {line}: {parameter.name}"
                reader.report(
                    node,
                    "points",
                    f"{where} must be a value that it can take",
                    "Correct it, or leave the cell empty.",
                    cell,
                )
                continue
            point[parameter.name] = value
        if point:
            found.append(point)
    return tuple(found)


def _parents_given(parameter: Parameter, point: Mapping[str, Any]) -> bool:
    return all(parent in point for parent in parameter.when)


def _read_cell(cell: str, parameter: Parameter) -> Any:
    """Return a cell as the parameter's kind of value, or the text where it is none."""
    if parameter.type == "categorical":
        # A choice that is text looks the same as one that is not: the choices decide.
        if cell in parameter.choices:
            return cell
        try:
            return json.loads(cell.lower() if cell in ("True", "False") else cell)
        except ValueError:
            return None if cell == "None" else cell
    try:
        value = float(cell)
    except ValueError:
        return cell
    return int(value) if parameter.type == "int" and value.is_integer() else value
