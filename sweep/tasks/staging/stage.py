"""Find or make a node's copies of a study's data sets, for one training."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.core.errors import SweepError
from sweep.core.executors import kind_of
from sweep.core.files import make_private
from sweep.core.paths import StudyFolder
from sweep.core.study import DataSet, Study
from sweep.provenance import manifest
from sweep.provenance.data import capture_data
from sweep.schedulers.choose import scheduler_of
from sweep.tasks.staging import archives, copying, on_nodes, places
from sweep.tasks.staging.cache import POLL_S, Cache, DoesNotFit
from sweep.tasks.staging.making import AGAIN, CopyMaker, DataDiffer, Left, Stop, WantedCopy


class NoPlaceForArchive(SweepError):
    """An archive can be unpacked nowhere, not even beside the study."""


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
        step: What does so on the nodes of a trial that has several.
    """

    data: dict[str, Path]
    notes: list[str] = field(default_factory=list)
    locks: list[int] = field(default_factory=list)
    step: on_nodes.NodeStep | None = None

    def close(self) -> None:
        """Let go of the copies; a training that still runs holds them by itself."""
        while self.locks:
            os.close(self.locks.pop())
        if self.step is not None:
            self.step.end()


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
        self.is_strict = is_strict
        self.study = study
        self.folder = folder
        self.recorded: Mapping[str, Any] = manifest.read(folder).get("data") or {}
        self.environ = environ
        self.say = say
        self._maker = CopyMaker(folder, study.resources.memory_mb, say, open_source)

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
            if self._spans_nodes and any(d.stage != "none" for d in self.study.datasets.values()):
                staged.step = self._stage_on_nodes(stop)
            for name, given in self.study.datasets.items():
                if given.stage != "none":
                    self._stage_one(name, given, staged, stop)
        except BaseException:
            staged.close()
            raise
        for note in staged.notes:
            self.say(note)
        return staged

    @property
    def _spans_nodes(self) -> bool:
        return self.study.resources.nodes > 1 and kind_of(self.study).spans_nodes

    def _stage_on_nodes(self, stop: Stop) -> on_nodes.NodeStep:
        """Have each node of the trial stage; what hinders one of them hinders the trial."""
        try:
            on_nodes.clear_dead(self.folder, scheduler_of(self.folder, self.study, self.environ))
        except (SweepError, OSError) as error:
            self.say(f"what killed tasks have left in {self.folder.data} stays: {_said(error)}")
        options = {"is_strict": self.is_strict}
        step = on_nodes.stage(self.study, self.folder, self.environ, stop, **options)
        if step is None:
            raise Left("The task is to end while data are copied to its nodes.")
        for one in step.answers:
            if "error" in one:
                step.end()
                kind = _FAULTS.get(one["error"], SweepError)
                raise kind(f"{one['node']}: {one['message']}", one["hint"])
            for note in one["notes"]:
                self.say(f"{one['node']}: {note}")
        return step

    def _stage_one(self, name: str, given: DataSet, staged: Staged, stop: Stop) -> None:
        path = staged.data[name]
        recorded = self.recorded.get(given.path) or {}
        try:
            if "manifest_sha256" not in recorded:
                recorded = capture_data(path)
            if recorded.get("missing"):
                raise DataDiffer(f"data.{name}: {path} was missing at launch.", AGAIN)
            wanted = WantedCopy(name, given, path, recorded)
        except OSError as error:
            staged.notes.append(f"data.{name} is read from {path}: {_said(error)}")
            return
        try:
            if staged.step is not None:
                staged.data[name] = self._on_all(staged.step, wanted)
            else:
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

    def _on_all(self, step: on_nodes.NodeStep, wanted: WantedCopy) -> Path:
        """Return the path that all nodes of the trial have. Raises: _NotHere: There is none."""
        path = step.path_of(wanted.name) if step.answers else None
        if path is None:
            raise _NotHere(step.why_not(wanted.name))
        return path

    def _on_node(self, wanted: WantedCopy, staged: Staged, stop: Stop) -> Path:
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

    def _beside_study(self, wanted: WantedCopy, staged: Staged, stop: Stop) -> Path:
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
        self, cache: Cache, spot: places.Spot, wanted: WantedCopy, staged: Staged, stop: Stop
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
                            self._maker.make(cache, spot, wanted, stop)
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
        self, cache: Cache, wanted: WantedCopy, record: Mapping[str, Any], lock: int, staged: Staged
    ) -> Path:
        try:
            self._maker.agree(wanted, str(record["sha256"]))
            cache.touch(wanted.key)
        except BaseException:
            os.close(lock)
            raise
        staged.locks.append(lock)
        return cache.tree(wanted.key) / wanted.inner


# By the names under which the nodes of a trial tell them.
_FAULTS = {kind.__name__: kind for kind in (DataDiffer, NoPlaceForArchive, archives.CannotUnpack)}


def _said(error: Exception) -> str:
    if isinstance(error, SweepError):
        return error.message.removesuffix(".")
    assert isinstance(error, OSError)
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)
