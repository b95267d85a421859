"""``points`` from a CSV file: of one's own, or as ``sweep collect --format csv`` writes it."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweep.core.cells import parameter_columns, read_cell
from sweep.core.errors import InputError
from sweep.core.space import Parameter, Space
from sweep.studyfile.rules import INVALID, Entry


def read_points_file(values: dict[str, Any], root: Entry, folder: Path) -> None:
    """Put a CSV file's rows where ``points`` names one; the space says what they may be.

    Args:
        folder: The study file's, from which the path is seen.
    """
    space, trials = values["space"], values["trials"]
    if "points" not in root or root["points"].node.kind != "scalar":
        return
    if values["points"] is INVALID or not isinstance(space, Space) or not space:
        return
    points = _read_points(root["points"].report, str(root["points"].node.value), space, folder)
    # The earlier study may have had more trials than this one: its first rows are tried.
    values["points"] = points[:trials] if isinstance(trials, int) else points


def read_points(path: Path, space: Space) -> tuple[Mapping[str, Any], ...]:
    """Return a CSV file's rows as configurations, as ``points`` of a study file takes them.

    Raises:
        InputError: Something is wrong with it; all of it is named.
    """
    problems: list[str] = []

    def report(rule: str, advice: str, got: str) -> None:
        problems.append(f"{path} {rule} (got {got}). {advice}")

    found = _read_points(report, str(path), space, Path.cwd())
    if problems:
        raise InputError("\n".join(problems))
    return found


def _read_points(
    report: Callable[[str, str, str], object], text: str, space: Space, folder: Path
) -> tuple[Mapping[str, Any], ...]:
    """Return a CSV file's rows as configurations, first row first; () after a report.

    Columns that name no parameter are ignored, empty cells leave the parameter out, and so is one
    that does not exist beside the row's other values.
    """
    path = folder / os.path.expanduser(text)
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            rows, header = list(reader), list(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or str(error)
        report(f"cannot be read: {why}", "Give a CSV file.", text)
        return ()
    columns = parameter_columns(header, space.names())
    if not columns:
        named = f"Columns are named {', '.join(space.names())}, or params.{space.names()[0]}."
        report("has no column that is a parameter of the space", named, text)
        return ()
    twice = [column for column in columns.values() if header.count(column) > 1]
    if twice:
        report(f"has the column {twice[0]} twice", "Remove one of the two.", text)
        return ()
    found: list[dict[str, Any]] = []
    for line, row in enumerate(rows, 2):
        point: dict[str, Any] = {}
        for parameter in space:
            column = columns.get(parameter.name)
            cell = (row.get(column) or "").strip() if column else ""
            if not cell or (not parameter.is_active(point) and _parents_given(parameter, point)):
                continue
            value = parameter.exact(read_cell(cell, parameter))
            if parameter.contains(value):
                point[parameter.name] = value
            else:
                where = f"{path.name}, line {line}: {parameter.name}"
                advice = "Correct it, or leave the cell empty."
                report(f"{where} must be a value that it can take", advice, cell)
        if point:
            found.append(point)
    return tuple(found)


def _parents_given(parameter: Parameter, point: Mapping[str, Any]) -> bool:
    return all(parent in point for parent in parameter.when)
