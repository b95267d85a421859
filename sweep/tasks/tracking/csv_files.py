"""CSV: a file of metrics a trial, as Lightning's CSVLogger lays it out: no package is needed.

``runs/<name>/csv/00007/metrics.csv`` has a row for each report, its step and its metrics, and empty
fields for what was not reported then; ``hparams.yaml`` beside it the parameters. A later attempt
begins the file anew, with what counts of the earlier ones. Of a trial with ``replicates`` each
further training has a folder of its own (``00007-2``).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from sweep.core.files import make_private, write_atomic
from sweep.core.paths import StudyFolder
from sweep.core.trial import Report
from sweep.tasks.tracking.tracker import Described

STEP = "step"


class CsvTracker:
    """Writes files."""

    def __init__(self, folder: StudyFolder) -> None:
        self._folder = folder
        self._columns: dict[tuple[int, int], list[str]] = {}  # of attempts that have reported

    def begin(self, described: Described) -> None:
        stream = io.StringIO()
        YAML(typ="safe", pure=True).dump(dict(described.params), stream)
        write_atomic(make_private(self._place(described)) / "hparams.yaml", stream.getvalue())

    def cut(self, described: Described, first: int) -> None:
        """The attempt begins the file anew: there is nothing to take away."""

    def restore(self, described: Described, reports: Sequence[Report]) -> None:
        self.log(described, reports)

    def log(self, described: Described, reports: Sequence[Report]) -> None:
        path = self._place(described) / "metrics.csv"
        key = (described.trial, described.attempt)
        known = self._columns.get(key, [])
        names = (name for report in reports for name in report.metrics)
        columns = list(dict.fromkeys([*(known or [STEP]), *names]))
        rows: list[Mapping[str, Any]] = [{**one.metrics, STEP: one.step} for one in reports]
        if columns == known:
            _append(path, _lines(columns, rows))
        else:
            old = _read(path) if known else []
            header = dict(zip(columns, columns, strict=True))
            write_atomic(path, _lines(columns, [header, *old, *rows]))
            self._columns[key] = columns

    def end(self, described: Described, state: str) -> None:
        self._columns.pop((described.trial, described.attempt), None)

    def close(self) -> None:
        """Nothing is held back."""

    def trouble(self) -> str:
        return ""  # a file that cannot be written raises

    def _place(self, described: Described) -> Path:
        number = "" if described.replicate == 1 else f"-{described.replicate}"
        return self._folder.csv / f"{described.trial:05d}{number}"


def _lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    stream = io.StringIO()
    csv.DictWriter(stream, columns, restval="", lineterminator="\n").writerows(rows)
    return stream.getvalue()


def _read(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _append(path: Path, text: str) -> None:
    """Append all of it, or nothing: what was refused is sent again."""
    with path.open("r+", encoding="utf-8", newline="") as stream:
        size = stream.seek(0, io.SEEK_END)
        try:
            stream.write(text)
            stream.flush()
        except OSError:
            stream.truncate(size)
            raise
