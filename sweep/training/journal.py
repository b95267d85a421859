"""The attempt's folder as its journal: what training wrote there, and what it is told.

Training appends lines to ``metrics.jsonl`` and reads ``control.json``; sweep tails the one and
writes the other, and leaves ``exit.json`` when the process is gone. No database is involved.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sweep.core.paths import AttemptFolder
from sweep.core.study import Objective
from sweep.core.trial import Reading, Report
from sweep.training.output import Output, Value
from sweep.training.tail import Position, Tail
from sweep.training.writers import Writers

LONGEST_NAME_BYTES = 2048  # 512 characters of four bytes; PostgreSQL indexes up to 2,700
MAX_STEP = 2**63 - 1  # a column of 64 bits
# Reports in one reading: what is not read yet waits in its file, where it costs no memory.
MOST_REPORTS = 4000
_SHOWN_CHARACTERS = 120  # of a line that cannot be read
_NUMBERS = (int, float)
# As the reporter writes them: JSON has no such numbers.
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_LONGEST_INT = 400  # digits; beyond, no float holds it


class Journal:
    """One attempt's reports, in the order in which they were made.

    Args:
        folder: The attempt's folder.
        objectives: Those with a pattern are also read from the output: each value there becomes a
            report of its own (see ``Output``).
        first_step: Step of the first value there, where steps are counted (a resumed script goes
            on); asked when there is one: by then training has said whether it goes on.
        read: Returns what of a line of output may match, None for nothing of it: of several ranks
            the first one's lines count.
        position: Where an earlier reader had come to (``position``), "" for the start.

    Attributes:
        unreadable: Lines, or values within a line, that could not be read.
        first_unreadable: What was wrong with the first of them, and how it begins.
    """

    def __init__(
        self,
        folder: AttemptFolder,
        objectives: Sequence[Objective] = (),
        first_step: Callable[[], int] = int,
        read: Callable[[str], str | None] = lambda line: line,
        position: str = "",
    ) -> None:
        self.folder = folder
        known = json.loads(position) if position else {}
        self._output = Output(objectives, first_step, read)
        # "steps" is how tasks of an older version have it.
        steps = known.get("steps", {}).items()
        before = {name: {"step": step, "start": 0} for name, step in steps}
        self._output.restore(known.get("output", {"metrics": before}))
        self._peeked: tuple[str, list[Value]] = ("", [])
        self._metrics = Tail(folder.metrics, Position(*known.get("metrics", ())))
        self._log = Tail(folder.log, Position(*known.get("log", ())), returns=True)
        self._writers = Writers(known.get("writers", {}))
        self.unreadable = int(known.get("unreadable", 0))
        self.first_unreadable = str(known.get("first", ""))
        self._notes_before: list[str] = known.get("notes", [])  # about the files
        self.last_sign = time.monotonic()
        self._sizes = (0, 0)

    def read(self, most: int = MOST_REPORTS, *, final: bool = False) -> list[Report]:
        """Return up to so many reports that are new since the last call.

        What cannot be read of a line is counted and left in the file; the rest of it counts.

        Args:
            final: Training has ended: the last line may lack its end. Call it until it returns
                nothing.
        """
        reports: list[Report] = []
        while len(reports) < most:
            lines = self._metrics.lines(most - len(reports), final=final)
            if not lines:
                break
            for line in lines:
                report, faults = read_line(line, self._writers)
                if report is not None:
                    reports.append(report)
                for fault in faults:
                    self._count(fault, line)
        if self._output:
            reports.extend(self._printed(most - len(reports), final))
        if reports:
            self.last_sign = time.monotonic()
        return reports

    def rest(self) -> Iterator[Report]:
        """Yield all reports that are new, of a training that has ended."""
        while found := self.read(final=True):
            yield from found

    def position(self) -> str:
        """Return up to where reports were handed out, for a ``Journal`` that goes on from there."""
        metrics, log = self._metrics.position(), self._log.position()
        found: dict[str, Any] = {"metrics": [metrics.inode, metrics.offset]}
        if self._output:
            found |= {"log": [log.inode, log.offset], "output": self._output.state()}
        if writers := self._writers.state():
            found["writers"] = writers
        if self.unreadable:
            found |= {"unreadable": self.unreadable, "first": self.first_unreadable}
        if notes := self._about_files():
            found["notes"] = notes
        return json.dumps(found)

    def reading(self) -> Reading:
        """Return up to where reports were handed out, and what was odd until there."""
        return Reading(self.position(), tuple(self.notes()))

    def _about_files(self) -> list[str]:
        found = [*self._notes_before, *self._metrics.notes]
        return list(dict.fromkeys([*found, *(self._log.notes if self._output else ())]))

    def notes(self) -> list[str]:
        """Return, in sentences, what was odd about the files."""
        found = [*self._about_files(), *self._writers.notes(), *self._output.notes()]
        if self.unreadable:
            many = f"{self.unreadable:,} lines or values" if self.unreadable > 1 else "A line"
            found.append(
                f"{many} of {self.folder.metrics.name} could not be read, the first: "
                f"{self.first_unreadable}"
            )
        return found

    def close(self) -> None:
        """Close the files."""
        self._metrics.close()
        self._log.close()

    def _count(self, fault: str, line: str) -> None:
        self.unreadable += 1
        if not self.first_unreadable:
            shown = line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…"
            self.first_unreadable = f"{fault} in {shown!r}"

    def _printed(self, most: int, final: bool) -> list[Report]:
        """Read what training has printed."""
        values: list[Value] = []
        is_dry = False
        while len(values) < most and not is_dry:
            pieces = self._log.pieces(most - len(values), final=final)
            is_dry = not pieces
            for piece in pieces:
                found = self._output.take(*piece)
                # What was read of it before its end came is not told twice.
                values += [value for value in found if value not in self._peeked[1]]
                self._peeked = ("", [])
        if is_dry and final:
            values += self._output.end()
        elif is_dry and (begun := self._log.unfinished()) and begun != self._peeked[0]:
            # Of a bar that is drawn once an epoch nobody knows when its line will end.
            told = self._peeked[1]
            new = [value for value in self._output.peek(begun) if value not in told]
            self._peeked = (begun, [*told, *new])
            values += new
        return [Report(step, time.time(), {metric: value}) for metric, step, value in values]

    def has_missed(self) -> bool:
        """Tell whether no line of output matches so far, although some came near."""
        return self._output.has_missed()

    def idle_s(self) -> float:
        """Return for how many seconds training has neither reported nor printed anything."""
        sizes = (_size(self.folder.log), _size(self.folder.metrics))
        if sizes != self._sizes:
            self._sizes = sizes
            self.last_sign = time.monotonic()
        return time.monotonic() - self.last_sign


def _size(path: Any) -> int:
    with contextlib.suppress(OSError):
        return int(path.stat().st_size)
    return 0


def read_line(line: str, writers: Writers | None = None) -> tuple[Report | None, list[str]]:
    """Read one line of a metrics file.

    Args:
        writers: Says which values count where several processes write.

    Returns:
        Its report, with the values that could be read; None where there is none of them. And what
        was wrong, in a few words each; nothing for an empty line.
    """
    faults = []
    if line.startswith("\ufeff"):
        line = line.removeprefix("\ufeff")
        faults.append("a byte order mark")
    if not line.strip():
        return None, faults
    try:
        record = json.loads(line, parse_int=_int)
    except (ValueError, RecursionError):
        return None, [*faults, "no JSON"]
    if not isinstance(record, dict):
        return None, [*faults, "no JSON object"]
    step = _whole(record.get("step"))
    if step is None:
        what = "no step" if "step" not in record else "a step that is no whole number from 0 on"
        return None, [*faults, what]
    given = record.get("metrics")
    if not isinstance(given, dict):
        hint = ', not as {"step": …, "metrics": {…}}' if "metrics" not in record else ""
        return None, [*faults, f"metrics that are no JSON object{hint}"]
    if writers is not None:
        counted = writers.counted(step, record, given)
        if not counted and (given or record.get("beside")):
            return None, faults
        given = counted
    metrics = {}
    for name, value in given.items():
        number = _number(value)
        if number is None:
            faults.append(f"a value of {name[:40]!r} that is no number")
        elif not _is_storable(name):
            faults.append("a name that no database could hold")
        else:
            metrics[name] = number
    if given and not metrics:
        return None, faults
    return Report(step, _number(record.get("time")) or 0.0, metrics), faults


def _int(digits: str) -> int | float:
    return int(digits) if len(digits) < _LONGEST_INT else float(digits)


def _whole(value: object) -> int | None:
    """Return a step from 0 to MAX_STEP; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if 0 <= value <= MAX_STEP else None


def _number(value: object) -> float | None:
    """Return a number, also one of those that JSON lacks; None for anything else."""
    if isinstance(value, str):
        value = _NOT_FINITE.get(value)
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_storable(name: str) -> bool:
    try:
        return "\0" not in name and len(name.encode()) <= LONGEST_NAME_BYTES
    except UnicodeEncodeError:
        return False
