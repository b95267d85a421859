"""The study as launch wrote it, read back; and files of ours that were damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core.errors import DamagedFile
from sweep.core.files import read_json
from sweep.core.study import Study
from tests.study_rows import make_study


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_text(make_study().to_json())
    assert Study.read(path) == make_study()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"7", b'{"name": "x"}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_damaged_one_is_named(tmp_path: Path, content: bytes) -> None:
    """By its path, with what to do; it is nobody's fault of ours (exit code 70)."""
    path = tmp_path / "study.json"
    path.write_bytes(content)
    with pytest.raises(DamagedFile, match=r"study\.json should hold the study") as caught:
        Study.read(path)
    assert "sweep launch" in caught.value.hint and caught.value.exit_code == 1


def test_one_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match="cannot be read: No such file"):
        Study.read(tmp_path / "study.json")
    with pytest.raises(DamagedFile, match="cannot be read: is no regular file"):
        Study.read(tmp_path)
    with pytest.raises(DamagedFile, match="cannot be read: is no regular file"):
        read_json(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000])
def test_other_records_of_ours_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "storage.json"
    path.write_bytes(content)
    with pytest.raises(DamagedFile, match=r"storage\.json should hold JSON"):
        read_json(path)


def test_no_file_is_no_damage(tmp_path: Path) -> None:
    assert read_json(tmp_path / "storage.json") is None
