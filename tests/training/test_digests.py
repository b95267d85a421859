"""Digests of checkpoints, small and large."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from sweep.training import digests
from sweep.training.digests import SAMPLED, digest


def test_small_ones_are_read_whole(tmp_path: Path) -> None:
    """Of a file its content; of a folder, and of several files, their names too."""
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")
    assert digest(tmp_path / "a") == hashlib.sha256(b"one").hexdigest()
    both = hashlib.sha256(b"a\0oneb\0two").hexdigest()
    assert digest(tmp_path) == digest([tmp_path / "a", tmp_path / "b"]) == both


def test_large_ones_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of 20 GB is read whole, and what differs in size, begin or end differs."""
    large = tmp_path / "save"
    large.mkdir()
    for name in ("model.pt", "optimizer.pt"):
        with (large / name).open("wb") as stream:
            stream.truncate(20 << 30)  # a sparse file

    def refuse(path: Path, *rest: object) -> object:
        raise AssertionError(f"{path} is read whole")

    monkeypatch.setattr(digests, "hash_file", refuse)
    first = digest(large)
    assert first.startswith(SAMPLED) and first == digest(large) == digest(large, like=first)
    with (large / "model.pt").open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"1")
    second = digest(large)
    with (large / "model.pt").open("ab") as stream:
        stream.write(b"1")
    assert len({first, second, digest(large)}) == 3


def test_as_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of an earlier version, which read everything, is compared with as much."""
    (tmp_path / "last.pt").write_bytes(b"x" * 100)
    whole = digest(tmp_path / "last.pt")
    monkeypatch.setattr(digests, "WHOLE_BYTES", 10)
    assert digest(tmp_path / "last.pt").startswith(SAMPLED)
    assert digest(tmp_path / "last.pt", like=whole) == whole
