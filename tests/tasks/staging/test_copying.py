"""Copies: all of it, read-only, hashed as a record is, and gone on with after a stop."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from sweep.provenance.data import DataFile, capture_data, list_files
from sweep.tasks.staging import copying
from sweep.tasks.staging.copying import Changed, Stopped, copy, read_journal, what_is_damaged

NEVER = lambda: False  # noqa: E731
KB = 1024


class Counted:
    """Opens files and counts what is read of them."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, path: Path) -> Any:
        stream, outer = path.open("rb", buffering=0), self

        class Reader:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                stream.close()

            def __getattr__(self, name: str) -> Any:
                return getattr(stream, name)

            def read(self, size: int) -> bytes:
                chunk = stream.read(size)
                outer.bytes += len(chunk)
                return chunk

        return Reader()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "deep/er").mkdir(parents=True)
    (folder / "a b.bin").write_bytes(os.urandom(300 * KB))
    (folder / "deep/er/ü.txt").write_text("x")
    (folder / "empty").touch()
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o750)
    (folder / "link").symlink_to(folder / "a b.bin")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "far").write_text("far")
    (folder / "elsewhere").symlink_to(outside)
    (folder / "deep/back").symlink_to(folder)
    return folder


def run(source: Path, place: Path, stop: Any = NEVER, opened: Any = None) -> str:
    files = sorted(list_files(source))
    more = {} if opened is None else {"open_source": opened}
    return copy(files, place / "tree", place / "parts", place / "done", stop, **more)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.path.read_bytes() for file in list_files(folder)}


def test_all_of_it_is_copied(source: Path, tmp_path: Path) -> None:
    """Names, contents, times; links as what they lead to, a link that leads back once."""
    digest = run(source, tmp_path / "place")
    tree = tmp_path / "place/tree"
    assert contents(tree) == contents(source)
    assert set(contents(source)) == {
        *("a b.bin", "deep/er/ü.txt", "empty", "run.sh", "link", "elsewhere/far")
    }
    assert digest == capture_data(source, full=True)["content_sha256"]
    assert digest == capture_data(tree, full=True)["content_sha256"]
    modes = {name: stat.S_IMODE((tree / name).stat().st_mode) for name in ("empty", "run.sh")}
    assert modes == {"empty": 0o444, "run.sh": 0o554}
    assert (tree / "empty").stat().st_mtime_ns == (source / "empty").stat().st_mtime_ns
    assert not list((tmp_path / "place/parts").iterdir())


def test_a_single_file(source: Path, tmp_path: Path) -> None:
    """A data set that is one file is copied under its name."""
    place = tmp_path / "place"
    files = list_files(source / "a b.bin")
    assert [file.name for file in files] == ["."]
    copy(files, place / "a b.bin", place / "parts", place / "done", NEVER)
    assert (place / "a b.bin").read_bytes() == (source / "a b.bin").read_bytes()


def test_a_copier_that_stopped_has_lost_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole files are not read again, nor what is there of the one that was being copied."""
    monkeypatch.setattr(copying, "CHUNK_BYTES", 10 * KB)
    monkeypatch.setattr(copying, "THREADS", 1)
    place, asked = tmp_path / "place", 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 12

    first = Counted()
    with pytest.raises(Stopped):
        run(source, place, stop, first)
    assert 0 < first.bytes < 300 * KB
    second = Counted()
    digest = run(source, place, NEVER, second)
    total = sum(file.size for file in list_files(source))
    assert first.bytes + second.bytes == total
    assert digest == capture_data(source, full=True)["content_sha256"]
    third = Counted()
    assert run(source, place, NEVER, third) == digest
    assert third.bytes == 0


def test_a_journal_that_was_cut_off(source: Path, tmp_path: Path) -> None:
    """Its last line is copied again; a whole file that it does not name is too."""
    place = tmp_path / "place"
    digest = run(source, place)
    lines = (place / "done").read_bytes().splitlines(keepends=True)
    (place / "done").write_bytes(b"".join(lines[:-1]) + lines[-1][:5])
    assert len(read_journal(place / "done")) == len(lines) - 1
    (place / "tree/empty").unlink()
    assert run(source, place) == digest
    assert contents(place / "tree") == contents(source)


@pytest.mark.parametrize("size", [10 * KB, 400 * KB])
def test_a_file_that_changes_meanwhile(source: Path, tmp_path: Path, size: int) -> None:
    """Half of one version and half of another is no copy."""
    files = sorted(list_files(source))
    (source / "a b.bin").write_bytes(os.urandom(size))
    place = tmp_path / "place"
    with pytest.raises(Changed, match=r"a b\.bin changed while it was copied"):
        copy(files, place / "tree", place / "parts", place / "done", NEVER)
    assert run(source, place) == capture_data(source, full=True)["content_sha256"]


def test_what_a_cleaner_has_taken_is_seen(source: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    run(source, place)
    files = read_journal(place / "done")
    assert what_is_damaged(files, place / "tree") is None
    (place / "tree/extra").touch()  # a training's own cache file
    assert what_is_damaged(files, place / "tree") is None
    (place / "tree/deep/er/ü.txt").unlink()
    assert what_is_damaged(files, place / "tree") == "deep/er/ü.txt"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    files = [DataFile("x", 1, 1, tmp_path / "gone")]
    place = tmp_path / "place"
    with pytest.raises(FileNotFoundError) as raised:
        copy(files, place / "tree", place / "parts", place / "done", NEVER)
    assert raised.value.filename == str(tmp_path / "gone")
