"""Make a node's copy of one data set, and hold it against what the launch and other nodes saw."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.errors import DamagedFile, SweepError
from sweep.core.files import make_private, read_json, remove_tree
from sweep.core.paths import StudyFolder
from sweep.core.sizes import byte_text
from sweep.core.study import DataSet
from sweep.provenance.data import DataFile, describe_files, list_files
from sweep.tasks.staging import archives, copying, places
from sweep.tasks.staging.cache import Cache, DoesNotFit

Stop = Callable[[], bool]
GROW_BYTES = 64 << 20  # by so much, or a quarter, room is reserved anew for what is unpacked
AGAIN = "Where the data have changed, launch again: that records them as they are now."


class DataDiffer(SweepError):
    """What this node sees of some data is not what the launch, or another node, has seen."""


class Left(SweepError):
    """The task is to end before the data are there."""


@dataclass(frozen=True)
class WantedCopy:
    """One data set: what it is called, where it lies, and what the launch recorded of it."""

    name: str
    given: DataSet
    path: Path
    recorded: Mapping[str, Any]

    @property
    def stem(self) -> str | None:
        """What an archive's folder is called; None where it is to stay as it is."""
        is_file = self.given.unpack and self.path.is_file()
        return archives.stem_of(self.path.name) if is_file else None

    @property
    def key(self) -> str:
        what = f"{os.path.realpath(self.path)}\0{self.recorded['manifest_sha256']}\0{self.stem}"
        label = re.sub(r"[^A-Za-z0-9_-]", "_", self.path.name)[:40] or "data"
        return f"{label}-{hashlib.sha256(what.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"

    @property
    def inner(self) -> str:
        """The copy's name within its folder."""
        return self.stem or self.path.name or "data"


class CopyMaker:
    """Makes copies in places of this node.

    Args:
        folder: The study's; in it the hashes of what nodes have copied are kept.
        memory_mb: What the study asks for on a node: what lies in memory takes of it.
        say: Told what takes long.
        open_source: Opens a file of the data.
    """

    def __init__(
        self,
        folder: StudyFolder,
        memory_mb: int | None,
        say: Callable[[str], object],
        open_source: Callable[[Path], Any],
    ) -> None:
        self.folder = folder
        self.memory_mb = memory_mb
        self.say = say
        self.open_source = open_source

    def make(self, cache: Cache, spot: places.Spot, wanted: WantedCopy, stop: Stop) -> None:
        """Copy a data set into a place; the lock of copying is held."""
        cache.start(wanted.key)
        files = list_files(wanted.path)
        self._compare_listing(wanted, files)
        size = sum(file.size for file in files)
        if spot.is_memory and self.memory_mb and size > self.memory_mb << 20:
            raise DoesNotFit(f"{spot.folder} is memory of the job's, which has less than that")
        cache.reserve(wanted.key, size, len(files), str(wanted.path))
        often = f" (once a task: {spot.private})" if spot.private else ""
        self.say(
            f"data.{wanted.name}: copying {byte_text(size)} in {len(files)} files from "
            f"{wanted.path} to {cache.folder}{often}"
        )
        began = time.monotonic()
        partial = cache.partial(wanted.key)
        tree, journal = partial / "tree", partial / "done.jsonl"
        made = tree / (wanted.path.name if wanted.stem else wanted.inner)
        try:
            digest = copying.copy(
                sorted(files), made, partial / "parts", journal, stop, self.open_source
            )
        except copying.Stopped:
            raise Left(f"data.{wanted.name}: the task is to end while it is copied.") from None
        except copying.Changed as error:
            raise DataDiffer(error.message, AGAIN) from None
        if describe_files(list_files(wanted.path)) != describe_files(files):
            raise DataDiffer(f"data.{wanted.name}: {wanted.path} changed meanwhile.", AGAIN)
        self.agree(wanted, digest)
        record = {"source": str(wanted.path), "sha256": digest, "bytes": size, "files": len(files)}
        if wanted.stem:
            tree, journal, record = self._unpack(cache, wanted, made, record, stop)
        cache.complete(wanted.key, tree, journal, record)
        took_s = time.monotonic() - began
        self.say(f"data.{wanted.name}: copied in {took_s:.1f} s")

    def _unpack(
        self, cache: Cache, wanted: WantedCopy, archive: Path, record: dict[str, Any], stop: Stop
    ) -> tuple[Path, Path, dict[str, Any]]:
        """Unpack a copied archive; return the folder, the list of its files, and its record."""
        partial = cache.partial(wanted.key)
        target = partial / "unpacked"
        remove_tree(target)  # of a copier that was killed
        packed = int(record["bytes"])
        room = _Room(lambda size: cache.reserve(wanted.key, packed + size, 1, str(wanted.path)))

        def before(size: int) -> None:
            if stop():
                raise Left(f"data.{wanted.name}: the task is to end while it is unpacked.")
            room.take(size)

        archives.unpack(archive, wanted.path.name, target / wanted.inner, before)
        found = list_files(target / wanted.inner)
        copied = [copying.Copied(file.name, file.size, file.time_ns, "") for file in found]
        journal = partial / "unpacked.jsonl"
        copying.write_files(journal, copied)
        size = sum(file.size for file in found)
        return target, journal, {**record, "bytes": size, "files": len(found)}

    def _compare_listing(self, wanted: WantedCopy, files: list[DataFile]) -> None:
        """Refuse data whose names or sizes are not those that the launch recorded."""
        now, then = describe_files(files), wanted.recorded
        if now["listing_sha256"] != then["listing_sha256"]:
            raise DataDiffer(
                f"data.{wanted.name}: {wanted.path} is not what the launch recorded: "
                f"{then['files']} files of {then['bytes']} bytes, here {now['files']} of "
                f"{now['bytes']}.",
                AGAIN,
            )

    def agree(self, wanted: WantedCopy, digest: str) -> None:
        """Hold the content of a copy against the launch's record, and that of other nodes.

        The first to have copied it writes its hash into the study's folder.
        """
        first = {"sha256": wanted.recorded.get("content_sha256"), "host": "the launch"}
        if first["sha256"] is None:
            path = self.folder.data / f"{wanted.key}.json"
            mine = {"sha256": digest, "host": socket.gethostname()}
            try:
                first = _keep_first(path, mine)
            except (OSError, DamagedFile) as error:
                self.say(f"data.{wanted.name}: its hash could not be kept: {error}")
                return
        if first["sha256"] != digest:
            raise DataDiffer(
                f"data.{wanted.name}: what was read of {wanted.path} here has another content "
                f"(SHA-256 {digest[:16]}…) than {first['host']} has seen "
                f"({str(first['sha256'])[:16]}…).",
                AGAIN,
            )


class _Room:
    """Room for what an archive holds, which is known only as it is unpacked."""

    def __init__(self, reserve: Callable[[int], None]) -> None:
        self._reserve = reserve
        self._taken = self._reserved = 0

    def take(self, size: int) -> None:
        """Raises: DoesNotFit."""
        self._taken += size
        if self._taken <= self._reserved:
            return
        more = max(GROW_BYTES, self._taken // 4)
        try:
            self._reserve(self._taken + more)
            self._reserved = self._taken + more
        except DoesNotFit:
            self._reserve(self._taken)
            self._reserved = self._taken


def _keep_first(path: Path, mine: Mapping[str, Any]) -> dict[str, Any]:
    """Write a record unless there is one; return the one that is there then."""
    make_private(path.parent)
    own = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    own.write_text(json.dumps(mine) + "\n", encoding="utf-8")
    try:
        with suppress(FileExistsError):
            os.link(own, path)
    finally:
        own.unlink()
    found = read_json(path)
    if not isinstance(found, dict) or "sha256" not in found:
        raise DamagedFile(f"{path} should hold the hash of some data.")
    return found
