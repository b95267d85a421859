"""One place's copies of data: what is complete, who uses it, room for more, and what goes first."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.errors import DamagedFile, SweepError
from sweep.core.files import read_json, remove_tree, take_lock, tree_bytes, write_atomic
from sweep.core.sizes import byte_text
from sweep.core.system.own_folder import own_folder
from sweep.core.system.processes import boot_id

SPARE = 0.02  # of a disk stays free
POLL_S = 0.2


class DoesNotFit(SweepError):
    """A copy does not fit, whatever is removed; it says why."""


@dataclass(frozen=True)
class KeptCopy:
    """A copy in a place, or what there is of one.

    Attributes:
        bytes: What it takes, or will take once it is complete.
        is_used: A training reads it, or somebody is copying it.
        used_s: When it was last taken up, on the wall clock.
    """

    key: str
    bytes: int
    is_complete: bool
    is_used: bool
    used_s: float
    source: str = ""


class Cache:
    """The copies in one place.

    Args:
        place: A folder of the node.
        quota_bytes: What all copies take at most; None for half of the disk.
        boot: Until when copies can be trusted: this boot of the node, unless told.

    Raises:
        SweepError: Its folder is somebody else's.
        OSError: It cannot be made.
    """

    def __init__(
        self, place: Path, quota_bytes: int | None = None, boot: str | None = None
    ) -> None:
        self.folder = own_folder("data", [place])
        self.boot = boot or boot_id()
        disk = os.statvfs(self.folder)
        self.quota_bytes = quota_bytes or disk.f_blocks * disk.f_frsize // 2

    def tree(self, key: str) -> Path:
        return self.folder / key

    def partial(self, key: str) -> Path:
        return self.folder / f"{key}.partial"

    def files(self, key: str) -> Path:
        """The list of a copy's files."""
        return self.folder / f"{key}.files"

    def _record(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    # Locks

    def lock_copying(self, key: str) -> int | None:
        """Return the lock of who copies; None while somebody else does."""
        return take_lock(self.folder / f"{key}.copy")

    def lock_use(self, key: str) -> int:
        """Return a lock that keeps a copy from being removed; waits while one is removed."""
        while (lock := take_lock(self.folder / f"{key}.use", shared=True)) is None:
            time.sleep(POLL_S)
        return lock

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock under which room is reserved."""
        while (lock := take_lock(self.folder / "lock")) is None:
            time.sleep(POLL_S)
        try:
            yield
        finally:
            os.close(lock)

    # Complete copies

    def find(self, key: str) -> dict[str, Any] | None:
        """Return the record of a complete copy, or None. Ask under its lock of use.

        What was copied before the node's last start may lack what its disk had not written yet.
        """
        try:
            found = read_json(self._record(key))
        except DamagedFile:
            return None
        if not isinstance(found, dict) or found.get("boot") != self.boot:
            return None
        return found if os.path.isdir(self.tree(key)) else None

    def touch(self, key: str) -> None:
        """Note that a copy is used now."""
        os.utime(self._record(key))

    def complete(self, key: str, made: Path, files: Path, record: dict[str, Any]) -> None:
        """Make what was copied the copy; the lock of copying is held."""
        self._forget(key)
        os.replace(files, self.files(key))
        os.rename(made, self.tree(key))
        text = json.dumps({**record, "boot": self.boot}) + "\n"
        write_atomic(self._record(key), text)
        remove_tree(self.partial(key))

    def discard(self, key: str) -> bool:
        """Remove a copy that is no good, unless a training uses it; tell whether it is gone."""
        lock = take_lock(self.folder / f"{key}.use")
        if lock is None:
            return False
        try:
            self._forget(key)
        finally:
            os.close(lock)
        return True

    def _forget(self, key: str) -> None:
        self._record(key).unlink(missing_ok=True)  # first: what follows may be cut short
        remove_tree(self.tree(key))
        self.files(key).unlink(missing_ok=True)

    # Room

    def entries(self) -> list[KeptCopy]:
        """Return all copies, complete and partial, the longest unused first."""
        found = []
        for name in sorted(os.listdir(self.folder)):
            path = self.folder / name
            key = name.removesuffix(".partial")
            if name == "lock" or not path.is_dir():
                continue
            is_partial = key != name
            try:
                record = read_json(path / "plan.json" if is_partial else self._record(key))
            except DamagedFile:
                record = None
            record = record if isinstance(record, dict) else {}
            size = int(record.get("bytes") or tree_bytes(path))
            is_complete = not is_partial and self.find(key) is not None
            stamp = path / "plan.json" if is_partial else self._record(key)
            try:
                used_s = stamp.stat().st_mtime
            except FileNotFoundError:  # it is being removed
                used_s = 0.0
            source = str(record.get("source", ""))
            used = self._is_locked(key, "copy" if is_partial else "use")
            found.append(KeptCopy(name, size, is_complete, used, used_s, source))
        return sorted(found, key=lambda entry: entry.used_s)

    def _is_locked(self, key: str, kind: str) -> bool:
        lock = take_lock(self.folder / f"{key}.{kind}")
        if lock is None:
            return True
        os.close(lock)
        return False

    def reserve(self, key: str, size: int, files: int = 1, source: str = "") -> None:
        """Keep room for what a partial copy will be; the longest unused copies make place.

        Whatever it takes already counts as a part of it. The lock of copying is held.

        Raises:
            DoesNotFit: It does not fit; nothing was removed for it.
        """
        with self._alone():
            partial = self.partial(key)
            others = [entry for entry in self.entries() if entry.key != partial.name]
            disk = os.statvfs(self.folder)
            if disk.f_files and disk.f_favail < files:
                raise DoesNotFit(
                    f"{self.folder} has {disk.f_favail} inodes left, of {files} needed"
                )
            # What other copiers have reserved and not written yet is no longer free.
            promised = sum(
                max(0, entry.bytes - tree_bytes(self.folder / entry.key))
                for entry in others
                if entry.is_used and entry.key.endswith(".partial")
            )
            spare = int(disk.f_blocks * disk.f_frsize * SPARE)
            free = disk.f_bavail * disk.f_frsize - promised - spare
            lacking = size - tree_bytes(partial) if partial.exists() else size
            over = sum(entry.bytes for entry in others) + size - self.quota_bytes
            removable = [entry for entry in others if not entry.is_used]
            can_go = sum(entry.bytes for entry in removable)
            if over > can_go:
                used = sum(entry.bytes for entry in others) - can_go
                raise DoesNotFit(
                    f"{self.folder} may hold {byte_text(self.quota_bytes)} (staging.quota), of "
                    f"which {byte_text(used)} are in use; {byte_text(size)} more do not fit"
                )
            if lacking > free + can_go:
                raise DoesNotFit(
                    f"{self.folder} has {byte_text(max(0, free))} free, of {byte_text(size)} needed"
                )
            for entry in removable:
                if over <= 0 and lacking <= free:
                    break
                if self._remove(entry):
                    over -= entry.bytes
                    free += entry.bytes
            if over > 0 or lacking > free:
                raise DoesNotFit(f"what could make room in {self.folder} was just taken up again")
            partial.mkdir(mode=0o700, exist_ok=True)
            plan = {"bytes": size, "source": source, "boot": self.boot}
            write_atomic(partial / "plan.json", json.dumps(plan) + "\n")

    def start(self, key: str) -> None:
        """Drop what an earlier boot has left of a partial copy; the lock of copying is held."""
        partial = self.partial(key)
        if not partial.exists():
            return
        try:
            plan = read_json(partial / "plan.json")
        except DamagedFile:
            plan = None
        if not isinstance(plan, dict) or plan.get("boot") != self.boot:
            remove_tree(partial)

    def purge(self, wanted: Callable[[KeptCopy], bool]) -> list[KeptCopy]:
        """Remove copies that nobody uses; return those that are gone."""
        with self._alone():
            return [entry for entry in self.entries() if wanted(entry) and self._remove(entry)]

    def _remove(self, entry: KeptCopy) -> bool:
        if not entry.key.endswith(".partial"):
            return self.discard(entry.key)
        lock = self.lock_copying(entry.key.removesuffix(".partial"))
        if lock is None:
            return False
        try:
            remove_tree(self.folder / entry.key)
        finally:
            os.close(lock)
        return True
