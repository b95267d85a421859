"""The attempt's folder as its journal: what training wrote there, and what it is told.

Training appends lines to ``metrics.jsonl`` and reads ``control.json``; sweep tails the one and
writes the other, and leaves ``exit.json`` when the process is gone. No database is involved.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sweep.core.paths import AttemptFolder
from sweep.core.study import Objective
from sweep.core.trial import Report
from sweep.report import capture, decode

_CHUNK_BYTES = 1 << 20
LONGEST_NAME_BYTES = 2048  # 512 characters of four bytes; PostgreSQL indexes up to 2,700


class Tail:
    """Reads the whole lines that were appended to a file since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""

    def lines(self, *, final: bool = False) -> Iterator[str]:
        """Yield new lines, without their end; a last line without an end only when final."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                while chunk := stream.read(_CHUNK_BYTES):
                    self._offset += len(chunk)
                    *whole, self._rest = (self._rest + chunk).split(b"\n")
                    for line in whole:
                        yield line.decode("utf-8", "replace")
        except FileNotFoundError:
            return
        if final and self._rest:
            yield self._rest.decode("utf-8", "replace")
            self._rest = b""


class Journal:
    """One attempt's reports, in the order in which they were made.

    Args:
        folder: The attempt's folder.
        objectives: Those with a pattern are also read from the output: each line that matches
            becomes a report of its own, at steps 0, 1, 2, … of that metric.
        first_step: Step of the first match (a resumed script goes on counting).
        read: Returns what of a line of output may match, None for nothing of it: of several ranks
            the first one's lines count.
    """

    def __init__(
        self,
        folder: AttemptFolder,
        objectives: Sequence[Objective] = (),
        first_step: int = 0,
        read: Callable[[str], str | None] = lambda line: line,
    ) -> None:
        self.folder = folder
        self._read = read
        self.patterns = [o for o in objectives if o.pattern]
        self._steps = {o.metric: first_step for o in self.patterns}
        self._metrics = Tail(folder.metrics)
        self._log = Tail(folder.log)
        self.unreadable = 0
        self.last_sign = time.monotonic()
        self._log_size = 0

    def read(self, *, final: bool = False) -> list[Report]:
        """Return the reports that are new since the last call.

        A line that cannot be read is counted in ``unreadable`` and left in the file.
        """
        reports = []
        for line in self._metrics.lines(final=final):
            report = _read_line(line)
            if report is not None:
                reports.append(report)
            else:
                self.unreadable += bool(line.strip())
        if self.patterns:
            reports.extend(self._captured(final))
        if reports:
            self.last_sign = time.monotonic()
        return reports

    def _captured(self, final: bool) -> Iterator[Report]:
        # Progress bars rewrite their line with \r; each rewriting is a line of its own here.
        for whole in self._log.lines(final=final):
            line = self._read(whole)
            for part in (line or "").split("\r"):
                for objective in self.patterns:
                    value = capture(objective.pattern, part)
                    if value is not None:
                        step = self._steps[objective.metric]
                        self._steps[objective.metric] = step + 1
                        yield Report(step, time.time(), {objective.metric: value})

    def idle_s(self) -> float:
        """Return for how many seconds training has neither reported nor printed anything."""
        with contextlib.suppress(FileNotFoundError):
            size = self.folder.log.stat().st_size
            if size != self._log_size:
                self._log_size = size
                self.last_sign = time.monotonic()
        return time.monotonic() - self.last_sign


def _read_line(line: str) -> Report | None:
    """Return a journal line's report, or None for what is none or what no database could hold."""
    try:
        report = Report(*decode(line))
        for name in report.metrics:
            storable = "\0" not in name and len(name.encode()) <= LONGEST_NAME_BYTES
            if not storable:
                return None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return report if abs(report.step) < 2**63 else None
