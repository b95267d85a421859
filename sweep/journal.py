"""The attempt's folder as its journal: what training wrote there, and what it is told.

Training appends lines to ``metrics.jsonl`` and reads ``control.json``; sweep tails the one and
writes the other, and leaves ``exit.json`` when the process is gone. No database is involved.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from sweep.paths import AttemptFolder, check_owner, hash_file, read_json, write_atomic
from sweep.report import capture, decode, encode
from sweep.storage.ledger import Report
from sweep.study import Objective

_CHUNK_BYTES = 1 << 20
SAVED_S = 60.0  # after its latest sign of life a training may still have saved a checkpoint
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


def tell(folder: AttemptFolder, stop: str | None) -> None:
    """Tell training to stop ("pruned" or "checkpoint"); None takes it back."""
    if stop is None:
        folder.control.unlink(missing_ok=True)
    else:
        write_atomic(folder.control, json.dumps({"stop": stop}) + "\n")


def told(folder: AttemptFolder) -> str | None:
    """Return what training was told, or None."""
    found = read_json(folder.control)
    return found.get("stop") if found else None


def write_exit(folder: AttemptFolder, exit_code: int | None, signal: int | None, told: str) -> None:
    """Note how the training's process ended, before the database hears of it.

    What it was told is part of that; the file that told it goes, as files are counted.
    """
    note = {"exit_code": exit_code, "signal": signal, "told": told, "time": time.time()}
    write_atomic(folder.exit, json.dumps(note) + "\n")
    with contextlib.suppress(OSError):
        folder.control.unlink()


def read_exit(folder: AttemptFolder) -> dict[str, object] | None:
    """Return what ``write_exit`` noted, or None."""
    found = read_json(folder.exit)
    return dict(found) if found else None


def last_sign(folder: AttemptFolder) -> float:
    """Return when an attempt's files last changed, in epoch seconds; 0 where there are none."""
    return _last_change((folder.metrics, folder.log, folder.exit))


def _last_change(paths: Iterable[Path]) -> float:
    found = 0.0
    for path in paths:
        with contextlib.suppress(OSError):  # there may be none, or a link to none
            found = max(found, path.stat().st_mtime)
    return found


def append(folder: AttemptFolder, step: int, metrics: dict[str, float]) -> None:
    """Append a report as the training would."""
    with folder.metrics.open("a", encoding="utf-8") as stream:
        stream.write(encode(step, metrics, time.time()))


def checkpoints(folder: AttemptFolder) -> list[Path]:
    """Return the checkpoints of an attempt, newest first.

    A checkpoint is a file or folder in ``checkpoints/`` whose name does not mark it as unfinished
    (a leading dot, or the ending .tmp or .part) and which belongs to us.
    """
    found = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(folder.checkpoints):
            if entry.name.startswith(".") or entry.name.endswith((".tmp", ".part")):
                continue
            # Removed by its training just now, or a link "last" to one that was.
            with contextlib.suppress(OSError):
                status = entry.stat()
                if status.st_size:
                    found.append((status.st_mtime_ns, entry.name, Path(entry.path)))
    return [path for _, _, path in sorted(found, reverse=True)]


def digest(path: Path) -> str:
    """Return the SHA-256 of a checkpoint; of a folder, over its files' names and contents."""
    import hashlib

    whole = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        if file != path:
            whole.update(str(file.relative_to(path)).encode() + b"\0")
        hash_file(file, whole)
    return whole.hexdigest()


def newest_checkpoint(
    folders: Sequence[AttemptFolder], known: dict[str, str]
) -> tuple[Path, str] | None:
    """Return the newest readable checkpoint of earlier attempts and its hash, or None.

    Args:
        folders: Attempts, newest first.
        known: Hashes recorded when attempts ended, by path. A file that differs from its record is
            damaged and passed over, as is one that cannot be read or belongs to somebody else;
            but not where the training has outlived the record and saved again, in its place.
    """
    for folder in folders:
        for path in checkpoints(folder):
            try:
                check_owner(path)
                found = digest(path)
                recorded = known.get(str(path), found)
                is_good = recorded == found or _was_saved_by_training(path, folder)
            except Exception:
                continue
            if is_good:
                return path, found
    return None


def _was_saved_by_training(path: Path, folder: AttemptFolder) -> bool:
    """Tell whether a checkpoint was last written while its training still reported or printed."""
    return _last_change((path, *path.rglob("*"))) <= last_sign(folder) + SAVED_S
