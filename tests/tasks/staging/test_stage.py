"""A study's data sets on a node: copied once, shared, and where that cannot be, the shared path."""

from __future__ import annotations

import dataclasses
import json
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.core.files import make_private
from sweep.core.paths import StudyFolder
from sweep.core.study import DataSet, Resources, Staging, Study
from sweep.provenance.data import capture_data
from sweep.tasks.staging import cache as cache_module
from sweep.tasks.staging import copying, stage
from sweep.tasks.staging.archives import CannotUnpack
from sweep.tasks.staging.cache import Cache
from sweep.tasks.staging.making import DataDiffer, Left, WantedCopy
from sweep.tasks.staging.stage import NoPlaceForArchive, Staged, Stager
from tests.study_rows import make_study


class Node:
    """A study with data, and a node's disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk, self.data = root / "disk", root / "mnist"
        for folder in (self.disk, self.data / "train"):
            folder.mkdir(parents=True)
        (self.data / "train/x").write_bytes(os.urandom(100_000))
        (self.data / "labels").write_text("1 2 3\n")
        self.folder = StudyFolder(root / "runs/s")
        make_private(self.folder.root)
        self.said: list[str] = []
        self.given = DataSet(str(self.data), "node")
        self.resources = Resources()
        self.staging = Staging(str(self.disk))
        self.launch()

    def launch(self, *, full: bool = False) -> None:
        """Record the data, as a launch does."""
        path = self.given.path
        data = {path: capture_data(Path(path), full=full)}
        if not full:
            data[path].pop("content_sha256", None)
        axes: dict[str, Any] = {"code": {}, "environment": {}, "data": data, "execution": {}}
        text = json.dumps({"run": "r", **axes, "earlier": {}})
        self.folder.provenance.write_text(text)

    @property
    def study(self) -> Study:
        return dataclasses.replace(
            make_study(),
            datasets={"mnist": self.given},
            data=(self.given.path,),
            resources=self.resources,
            staging=self.staging,
        )

    def stage(self, stop: Callable[[], bool] = lambda: False, *, is_strict: bool = True) -> Staged:
        study = self.study
        stager = Stager(study, self.folder, {}, self.said.append, is_strict=is_strict)
        return stager.stage(study.data_paths, stop)

    def path(self) -> Path:
        staged = self.stage()
        staged.close()
        return staged.data["mnist"]

    @property
    def cache(self) -> Cache:
        return Cache(self.disk)

    def copies(self) -> list[str]:
        return [line for line in self.said if ": copying" in line]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_it_is_copied_once(node: Node) -> None:
    """All trainings of a node get one copy; while one of them lives, it is kept."""
    first, second = node.stage(), node.stage()
    path = first.data["mnist"]
    assert path == second.data["mnist"]
    assert node.disk in path.parents
    assert path.name == "mnist"
    assert (path / "labels").read_text() == "1 2 3\n"
    assert len(node.copies()) == 1
    assert first.notes == []
    first.close()
    assert node.cache.purge(lambda _: True) == []
    second.close()
    assert [entry.source for entry in node.cache.purge(lambda _: True)] == [str(node.data)]
    assert node.path() == path
    assert len(node.copies()) == 2


def test_a_single_file_keeps_its_name(node: Node) -> None:
    node.given = DataSet(str(node.data / "labels"), "node")
    node.launch()
    assert node.path().name == "labels"
    assert node.path().read_text() == "1 2 3\n"


def test_what_changed_by_a_launch_is_another_copy(node: Node) -> None:
    """Trainings of the earlier one keep theirs."""
    before = node.stage()
    (node.data / "labels").write_text("4 5 6 7\n")
    node.launch()
    after = node.stage()
    assert (before.data["mnist"] / "labels").read_text() == "1 2 3\n"
    assert (after.data["mnist"] / "labels").read_text() == "4 5 6 7\n"
    before.close()
    after.close()


def test_data_that_are_not_the_launchs(node: Node) -> None:
    """Other names or sizes are refused before a byte is copied; a re-run reads the shared path."""
    (node.data / "more").touch()
    with pytest.raises(DataDiffer, match=r"is not what the launch recorded: 2 files .* here 3 of"):
        node.stage()
    assert node.copies() == []
    loose = node.stage(is_strict=False)
    assert loose.data["mnist"] == node.data
    assert "is not what the launch recorded" in loose.notes[0]


def test_another_content_than_the_launch_hashed(node: Node) -> None:
    """Same names, sizes and times; the content tells."""
    node.launch(full=True)
    held = (node.data / "labels").stat().st_mtime_ns
    (node.data / "labels").write_text("3 2 1\n")
    os.utime(node.data / "labels", ns=(held, held))
    with pytest.raises(DataDiffer, match=r"another content .* than the launch has seen"):
        node.stage()
    assert [entry.is_complete for entry in node.cache.entries()] == [False]


def test_another_content_than_another_node_copied(node: Node) -> None:
    """The study's folder keeps what the first node has read."""
    node.path()
    (kept,) = node.folder.data.glob("*.json")
    kept.write_text(json.dumps({"sha256": "0" * 64, "host": "n7"}))
    with pytest.raises(DataDiffer, match=r"than n7 has seen \(0000000000000000"):
        node.stage()


def test_a_full_place_fails_nothing(node: Node) -> None:
    """Training reads the shared path, and it is said why."""
    node.staging = Staging(str(node.disk), quota_mb=1)
    (node.data / "big").write_bytes(bytes(2 << 20))
    node.launch()
    staged = node.stage()
    assert staged.data["mnist"] == node.data
    assert staged.locks == []
    (note,) = staged.notes
    assert note.startswith(f"data.mnist is read from {node.data}: {node.disk}/sweep-data-")
    assert "(staging.quota)" in note
    assert note in node.said


def test_without_a_place_it_is_said(node: Node) -> None:
    node.staging = Staging("$NOT_SET_ANYWHERE")
    (note,) = node.stage().notes
    assert note.endswith("staging.place $NOT_SET_ANYWHERE names a variable that is not set here")


def test_a_disk_that_refuses_while_copying(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was free when it was asked may be gone a minute later."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/disk/x")

    monkeypatch.setattr(copying, "_write_all", full)
    staged = node.stage()
    assert staged.data["mnist"] == node.data
    assert staged.notes == [
        f"data.mnist is read from {node.data}: /disk/x: No space left on device"
    ]


def test_memory_only_within_the_jobs(node: Node, tmp_path: Path) -> None:
    """A copy in /dev/shm is charged to the job."""
    shm = Path(tempfile.mkdtemp(prefix="sweep-test-", dir="/dev/shm"))
    try:
        node.staging, node.resources = Staging(str(shm)), Resources(memory_mb=1)
        assert shm in node.path().parents
        (node.data / "big").write_bytes(bytes(2 << 20))
        node.launch()
        assert "is memory of the job's" in node.stage().notes[0]
    finally:
        cache_module.remove_tree(shm)


@pytest.mark.parametrize("wait", [True, False])
def test_while_another_copies(node: Node, wait: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As asked: it waits for the copy, or trains from the shared path at once."""
    node.given = dataclasses.replace(node.given, wait=wait)
    key = WantedCopy("mnist", node.given, node.data, capture_data(node.data)).key
    copier = node.cache.lock_copying(key)
    assert copier is not None
    waited: list[float] = []

    def end_copying(pause_s: float) -> None:
        waited.append(pause_s)
        if len(waited) == 3:
            os.close(copier)  # killed: the one that waited goes on

    monkeypatch.setattr(stage, "time", SimpleNamespace(sleep=end_copying))
    staged = node.stage()
    if wait:
        assert node.disk in staged.data["mnist"].parents
        assert len(waited) == 3
        assert "another training copies it here" in node.said[0]
    else:
        assert staged.data["mnist"] == node.data
        assert staged.notes[0].endswith("another training is copying it just now")
        os.close(copier)
    staged.close()


def test_a_task_that_is_to_end(node: Node) -> None:
    """What is copied so far is kept for the next one."""
    with pytest.raises(Left, match="to end while it is copied"):
        node.stage(lambda: True)
    assert [entry.is_used for entry in node.cache.entries()] == [False]
    assert node.disk in node.path().parents


def test_a_copy_that_a_cleaner_took_a_file_of(node: Node) -> None:
    """It is made anew, unless a training still reads the rest: then the shared path serves."""
    held = node.stage()
    path = held.data["mnist"]
    (path / "labels").unlink()
    assert node.path() == node.data
    held.close()
    assert node.path() == path
    assert (path / "labels").read_text() == "1 2 3\n"


def archive(node: Node, name: str = "words.tar") -> Path:
    path = node.root / name
    with tarfile.open(path, "w") as tar:
        tar.add(node.data, "inside")
    node.given = DataSet(str(path), "node")
    node.launch()
    return path


def test_an_archive_is_unpacked(node: Node) -> None:
    """On the way; it is held against its own hash, and only its files are kept."""
    packed = archive(node)
    path = node.path()
    assert path.name == "words"
    assert (path / "inside/labels").read_text() == "1 2 3\n"
    assert node.path() == path
    assert len(node.copies()) == 1
    (kept,) = node.folder.data.glob("*.json")
    assert json.loads(kept.read_text())["sha256"] == capture_data(packed)["content_sha256"]
    assert not list(node.disk.rglob("*.tar"))
    node.given = dataclasses.replace(node.given, unpack=False)
    assert node.path().read_bytes() == packed.read_bytes()


def test_an_archive_without_a_place_is_unpacked_beside_the_study(node: Node) -> None:
    """Its path alone would be of no use to a training that expects a folder."""
    archive(node)
    node.staging = Staging("$NOT_SET_ANYWHERE")
    staged = node.stage()
    assert node.folder.data in staged.data["mnist"].parents
    assert (staged.data["mnist"] / "inside/labels").exists()
    assert "for all nodes: staging.place" in staged.notes[0]
    staged.close()


def test_an_archive_that_fits_nowhere(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(node)
    monkeypatch.setattr(cache_module, "SPARE", 1.0)
    with pytest.raises(NoPlaceForArchive, match=r"can be unpacked nowhere: .* free, of"):
        node.stage()


def test_a_damaged_archive_is_the_users(node: Node) -> None:
    (node.root / "words.tar").write_bytes(b"no archive" * 200)
    node.given = DataSet(str(node.root / "words.tar"), "node")
    node.launch()
    with pytest.raises(CannotUnpack, match=r"words\.tar cannot be unpacked"):
        node.stage()


def test_the_unpacked_keep_to_the_quota(node: Node) -> None:
    """Small as an archive may be, what it holds is counted before it is written."""
    (node.data / "zeros").write_bytes(bytes(3 << 20))
    path = node.root / "z.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(node.data, "inside")
    node.given, node.staging = DataSet(str(path), "node"), Staging(str(node.disk), quota_mb=2)
    node.launch()
    staged = node.stage()
    assert "(staging.quota)" in staged.notes[0]
    assert node.folder.data in staged.data["mnist"].parents
    assert sum(entry.bytes for entry in node.cache.entries()) < 2 << 20
    staged.close()
