"""Find or make a node's copies of a study's data sets, for one training."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.core.errors import DamagedFile, SweepError
from sweep.core.files import make_private, read_json, remove_tree
from sweep.core.paths import StudyFolder
from sweep.core.sizes import byte_text
from sweep.core.study import DataSet, Study
from sweep.provenance import manifest
from sweep.provenance.data import DataFile, capture_data, describe_files, list_files
from sweep.tasks.staging import archives, copying, places
from sweep.tasks.staging.cache import POLL_S, Cache, DoesNotFit

Stop = Callable[[], bool]
GROW_BYTES = 64 << 20  # by so much, or a quarter, room is reserved anew for what is unpacked


class DataDiffer(SweepError):
    """What this node sees of some data is not what the launch, or another node, has seen."""


class NoPlaceForArchive(SweepError):
    """An archive can be unpacked nowhere, not even beside the study."""


class Left(SweepError):
    """The task is to end before the data are there."""


class _NotHere(SweepError):
    """A copy cannot be used here; training reads the shared path."""


# Why an attempt does not start, by no fault of the training's.
DATA_FAULTS = (DataDiffer, NoPlaceForArchive, Left)


@dataclass
class Staged:
    """Where a training finds its data.

    Attributes:
        data: Paths by name.
        notes: What did not go as asked, in sentences.
        locks: Descriptors that keep copies from being removed; training inherits them.
    """

    data: dict[str, Path]
    notes: list[str] = field(default_factory=list)
    locks: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Let go of the copies; a training that still runs holds them by itself."""
        while self.locks:
            os.close(self.locks.pop())


@dataclass(frozen=True)
class _Wanted:
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


class Stager:
    """Stages a study's data where a training is to start.

    Args:
        folder: The study's: its manifest has what the launch recorded of the data, and in it the
            hashes of what nodes have copied are kept.
        environ: The task's.
        say: Told what takes long.
        is_strict: Whether data that are not those of the launch are refused; else that is noted,
            and the training reads the shared path.
        open_source: Opens a file of the data; whoever measures counts what is read of them.
    """

    def __init__(
        self,
        study: Study,
        folder: StudyFolder,
        environ: Mapping[str, str],
        say: Callable[[str], object],
        *,
        is_strict: bool = True,
        open_source: Callable[[Path], Any] = copying.open_plain,
    ) -> None:
        self.open_source = open_source
        self.is_strict = is_strict
        self.study = study
        self.folder = folder
        self.recorded: Mapping[str, Any] = manifest.read(folder).get("data") or {}
        self.environ = environ
        self.say = say

    def stage(self, shared: Mapping[str, Path], stop: Stop = lambda: False) -> Staged:
        """Return where each data set lies for a training on this node.

        Args:
            shared: Where all nodes see them, by name.
            stop: Asked now and then whether the task is to end.

        Raises:
            DataDiffer: They are not those of the launch, as this node sees them.
            NoPlaceForArchive: There is no room for what one holds.
            CannotUnpack: One is damaged, or cannot be read here.
            Left: ``stop`` said so.
        """
        staged = Staged(dict(shared))
        try:
            for name, given in self.study.datasets.items():
                if given.stage != "none":
                    self._stage_one(name, given, staged, stop)
        except BaseException:
            staged.close()
            raise
        for note in staged.notes:
            self.say(note)
        return staged

    def _stage_one(self, name: str, given: DataSet, staged: Staged, stop: Stop) -> None:
        path = staged.data[name]
        recorded = self.recorded.get(given.path) or {}
        try:
            if "manifest_sha256" not in recorded:
                recorded = capture_data(path)
            if recorded.get("missing"):
                raise DataDiffer(f"data.{name}: {path} was missing at launch.", _AGAIN)
            wanted = _Wanted(name, given, path, recorded)
        except OSError as error:
            staged.notes.append(f"data.{name} is read from {path}: {_said(error)}")
            return
        try:
            staged.data[name] = self._on_node(wanted, staged, stop)
        except DataDiffer as error:
            if self.is_strict or wanted.stem is not None:
                raise
            staged.notes.append(f"data.{name} is read from {path}: {_said(error)}")
        except _NotHere as error:
            if wanted.stem is None:
                staged.notes.append(f"data.{name} is read from {path}: {_said(error)}")
                return
            staged.data[name] = self._beside_study(wanted, staged, stop)
            where = f"data.{name} is unpacked at {staged.data[name]}, for all nodes"
            staged.notes.append(f"{where}: {_said(error)}")

    def _on_node(self, wanted: _Wanted, staged: Staged, stop: Stop) -> Path:
        """Return a copy on this node. Raises: _NotHere, where it can have none."""
        if self.study.resources.nodes > 1:
            raise _NotHere("a trial on several nodes needs one path for all")
        given = self.study.staging
        spots, reasons = places.find_spots(given.place, self.environ, wanted.path)
        quota = given.quota_mb << 20 if given.quota_mb else None
        for spot in spots:
            try:
                cache = Cache(spot.folder, quota)
                return self._at(cache, spot, wanted, staged, stop)
            except (DataDiffer, Left, archives.CannotUnpack, _NotHere):
                raise
            except (SweepError, OSError) as error:  # a full disk; a folder that is another user's
                reasons.append(_said(error))
        raise _NotHere("; ".join(reasons) or "this node has no disk of its own for a copy")

    def _beside_study(self, wanted: _Wanted, staged: Staged, stop: Stop) -> Path:
        """Return what an archive holds, unpacked once on the disk of the runs folder."""
        try:
            make_private(self.folder.data)
            cache = Cache(self.folder.data, boot="any")
            return self._at(cache, places.Spot(cache.folder), wanted, staged, stop)
        except (DoesNotFit, _NotHere, OSError) as error:
            raise NoPlaceForArchive(
                f"data.{wanted.name}: {wanted.path} can be unpacked nowhere: {_said(error)}.",
                "Make room, name another staging.place, or unpack it yourself.",
            ) from error

    def _at(
        self, cache: Cache, spot: places.Spot, wanted: _Wanted, staged: Staged, stop: Stop
    ) -> Path:
        """Return the copy in one place, made where there is none.

        Raises:
            DoesNotFit: It does not fit there.
            OSError: The place refuses.
            DataDiffer, CannotUnpack, Left: See ``stage``.
            _NotHere: Training is to read the shared path.
        """
        is_told = False
        while True:
            lock = cache.lock_use(wanted.key)
            found = cache.find(wanted.key)
            if found is not None:
                files = copying.read_journal(cache.files(wanted.key))
                damage = copying.what_is_damaged(files, cache.tree(wanted.key) / wanted.inner)
                if damage is None and len(files) == found.get("files"):
                    return self._use(cache, wanted, found, lock, staged)
                os.close(lock)
                self.say(f"data.{wanted.name}: {damage or 'a file'} is gone from the copy here")
                if not cache.discard(wanted.key):
                    raise _NotHere("the copy here is damaged, and another training uses it")
                continue
            try:
                copier = cache.lock_copying(wanted.key)
                if copier is not None:
                    try:
                        if cache.find(wanted.key) is None:
                            self._make(cache, spot, wanted, stop)
                    finally:
                        os.close(copier)
                    if (made := cache.find(wanted.key)) is not None:
                        held, lock = lock, -1  # nobody could remove it meanwhile
                        return self._use(cache, wanted, made, held, staged)
                elif not (wanted.given.wait or wanted.stem):
                    raise _NotHere("another training is copying it just now")
            finally:
                if lock >= 0:
                    os.close(lock)
            if not is_told:
                self.say(f"data.{wanted.name}: another training copies it here; waiting for it")
                is_told = True
            if stop():
                raise Left(f"data.{wanted.name}: the task is to end while another copies it.")
            time.sleep(POLL_S)

    def _use(
        self, cache: Cache, wanted: _Wanted, record: Mapping[str, Any], lock: int, staged: Staged
    ) -> Path:
        try:
            self._agree(wanted, str(record["sha256"]))
            cache.touch(wanted.key)
        except BaseException:
            os.close(lock)
            raise
        staged.locks.append(lock)
        return cache.tree(wanted.key) / wanted.inner

    def _make(self, cache: Cache, spot: places.Spot, wanted: _Wanted, stop: Stop) -> None:
        """Copy a data set into a place; the lock of copying is held."""
        cache.start(wanted.key)
        files = list_files(wanted.path)
        self._compare_listing(wanted, files)
        size = sum(file.size for file in files)
        memory_mb = self.study.resources.memory_mb
        if spot.is_memory and memory_mb and size > memory_mb << 20:
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
            raise DataDiffer(error.message, _AGAIN) from None
        if describe_files(list_files(wanted.path)) != describe_files(files):
            raise DataDiffer(f"data.{wanted.name}: {wanted.path} changed meanwhile.", _AGAIN)
        self._agree(wanted, digest)
        record = {"source": str(wanted.path), "sha256": digest, "bytes": size, "files": len(files)}
        if wanted.stem:
            tree, journal, record = self._unpack(cache, wanted, made, record, stop)
        cache.complete(wanted.key, tree, journal, record)
        took_s = time.monotonic() - began
        self.say(f"data.{wanted.name}: copied in {took_s:.1f} s")

    def _unpack(
        self, cache: Cache, wanted: _Wanted, archive: Path, record: dict[str, Any], stop: Stop
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

    def _compare_listing(self, wanted: _Wanted, files: list[DataFile]) -> None:
        """Refuse data whose names or sizes are not those that the launch recorded."""
        now, then = describe_files(files), wanted.recorded
        if now["listing_sha256"] != then["listing_sha256"]:
            raise DataDiffer(
                f"data.{wanted.name}: {wanted.path} is not what the launch recorded: "
                f"{then['files']} files of {then['bytes']} bytes, here {now['files']} of "
                f"{now['bytes']}.",
                _AGAIN,
            )

    def _agree(self, wanted: _Wanted, digest: str) -> None:
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
                _AGAIN,
            )


_AGAIN = "Where the data have changed, launch again: that records them as they are now."


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


def _said(error: Exception) -> str:
    if isinstance(error, SweepError):
        return error.message.removesuffix(".")
    assert isinstance(error, OSError)
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)
