"""Which of a study's data are there, and where ``fetching`` keeps its files of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sweep.core.errors import DamagedFile
from sweep.core.files import read_json
from sweep.core.study import Study


def missing(study: Study) -> list[str]:
    """Return the names of the data sets that are to be fetched and are not there."""
    return [
        name
        for name, path in study.data_paths.items()
        if study.datasets[name].fetch and not os.path.exists(path)
    ]


def notes(study: Study) -> list[str]:
    """Return in sentences which data are there by another ``fetch`` than the study's."""
    found = []
    for name, path in study.data_paths.items():
        asked = study.datasets[name].fetch
        record = read_record(folder_of(path) / "done.json") if asked else None
        if isinstance(record, dict) and os.path.exists(path) and record.get("fetch") != list(asked):
            found.append(
                f"data.{name}: {path} was fetched in another way than the study file's. It stays; "
                f"to fetch it anew, move it away and launch."
            )
    return found


def log_of(path: Path) -> Path:
    """Return the log of what fetches some data."""
    return folder_of(path) / "log.txt"


def folder_of(path: Path) -> Path:
    """Return the folder in which some data are fetched, beside them."""
    return path.with_name(f".{path.name}.sweep-fetch")


def read_record(file: Path) -> Any:
    """Return what a file of a fetch holds; None where it is not there, or damaged."""
    try:
        return read_json(file)
    except DamagedFile:
        return None
