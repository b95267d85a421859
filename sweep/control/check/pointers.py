"""Data that are only promised: a pointer, or nothing, where a tool has not fetched the content."""

from __future__ import annotations

import os
from pathlib import Path

from sweep.control.check.lines import WARNING, Line
from sweep.core.errors import InputError
from sweep.core.executors import kind_of
from sweep.core.study import Study
from sweep.provenance.data_versions import Pointers, find_pointers, tracking_file

LOOKED_AT = 2_000  # files of a data set: launch must not wait for a slow disk


def refuse_unfetched(study: Study) -> None:
    """Refuse data that are nothing but a pointer to their content.

    Raises:
        InputError: Some were not fetched.
    """
    for label, given in _data(study).items():
        path = study.at_workdir(given)
        dataset = study.datasets.get(label.partition(".")[2])
        if os.path.isdir(path) or (dataset and dataset.fetch and not os.path.lexists(path)):
            continue
        tracked = tracking_file(path)
        is_needed = kind_of(study).shares_this_machine or (dataset and dataset.stage != "none")
        if tracked is not None and is_needed:
            raise InputError(
                f"{label}: {path} is not there, only {tracked.name}, by which DVC fetches it.",
                f"Fetch it: dvc pull {tracked}",
            )
        found = find_pointers(path, 1) if os.path.lexists(path) else Pointers()
        if found.missing:
            raise InputError(
                f"{label}: {path} was not fetched: it only points at its content "
                f"({next(iter(found.versions()))} {next(iter(found.versions().values()))}).",
                f"Fetch it: {found.fetch} (in {path.parent}).",
            )


def look(study: Study) -> list[Line]:
    """Return a warning for each data set of which some files were not fetched."""
    lines = []
    for label, given in _data(study).items():
        path = study.at_workdir(given)
        found = find_pointers(path, LOOKED_AT) if path.is_dir() else Pointers()
        if not found.missing:
            continue
        number = len(found.missing)
        are = "1 file only points" if number == 1 else f"{number} files only point"
        text = f"{are} at content that was not fetched, {Path(path, found.missing[0])} for one"
        lines.append(Line(label, WARNING, text, f"Fetch them: {found.fetch} (in {path})."))
    return lines


def _data(study: Study) -> dict[str, str]:
    """Return the paths of a study's data by what they are called in its file."""
    named = {f"data.{name}": one.path for name, one in study.datasets.items()}
    return named or {f"data ({path})": path for path in study.data}
