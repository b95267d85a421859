"""Results of a long benchmark in a CSV file: it goes on where it was ended."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows that a benchmark has written; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def append_rows(path: Path, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    """Write rows behind those that are there, each at once: what is ended later has kept it."""
    path.parent.mkdir(exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="", buffering=1) as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        if is_new:
            writer.writeheader()
        for row in rows:
            writer.writerow(row)
            stream.flush()
