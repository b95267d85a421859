"""Archives: each kind is unpacked, and none writes outside its folder."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from sweep.tasks.staging.archives import CannotUnpack, stem_of, unpack
from tests.needs import require

FILES = {"a.txt": b"a" * 1000, "deep/b.bin": os.urandom(10_000)}


def make(path: Path) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
            for name, content in FILES.items():
                opened.writestr(name, content)
        return path
    kinds = {".tar": "", ".gz": "gz", ".tgz": "gz", ".xz": "xz", ".bz2": "bz2", ".zst": ""}
    plain = path.with_suffix("") if path.suffix == ".zst" else path
    with tarfile.open(plain, f"w:{kinds[path.suffix]}") as tar:
        for name, content in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    if path.suffix == ".zst":
        subprocess.run(["zstd", "-q", str(plain), "-o", str(path)], check=True)
    return path


@pytest.mark.parametrize(
    "name", ["d.tar", "d.tar.gz", "d.tgz", "d.tar.xz", "d.tar.bz2", "d.tar.zst", "d.zip"]
)
def test_each_kind(name: str, tmp_path: Path) -> None:
    """All files are there, and each was announced before it was written."""
    if name.endswith("zst"):
        require("zstd")
    archive, sizes = make(tmp_path / name), []
    kept = archive.rename(tmp_path / "archive")  # a copy need not be called as it was
    unpack(kept, name, tmp_path / "out", sizes.append)
    found = {name: (tmp_path / "out" / name).read_bytes() for name in FILES}
    assert found == FILES
    assert sum(sizes) == sum(map(len, FILES.values()))


@pytest.mark.parametrize("name", ["d.tar", "d.tar.gz", "d.zip", "d.tar.zst"])
def test_a_damaged_one_is_said(name: str, tmp_path: Path) -> None:
    if name.endswith("zst"):
        require("zstd")
    archive = make(tmp_path / name)
    archive.write_bytes(archive.read_bytes()[:5000])
    with pytest.raises(CannotUnpack, match=f"{name} cannot be unpacked"):
        unpack(archive, name, tmp_path / "out", lambda _: None)


def test_paths_that_lead_out_are_refused(tmp_path: Path) -> None:
    """An archive from anywhere must not write over what is the user's."""
    archive = tmp_path / "d.tar"
    with tarfile.open(archive, "w") as tar:
        info = tarfile.TarInfo("../evil")
        tar.addfile(info, io.BytesIO(b""))
    with pytest.raises(CannotUnpack, match="evil"):
        unpack(archive, "d.tar", tmp_path / "out", lambda _: None)
    assert not (tmp_path / "evil").exists()


def test_without_zstd_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.tar.zst").write_bytes(b"x")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotUnpack, match="needs the program zstd"):
        unpack(tmp_path / "d.tar.zst", "d.tar.zst", tmp_path / "out", lambda _: None)


@pytest.mark.parametrize(
    ("name", "stem"),
    [("m.tar", "m"), ("m.v2.tar.gz", "m.v2"), ("M.ZIP", "M"), ("m.gz", None), (".tar", None)],
)
def test_what_is_an_archive(name: str, stem: str | None) -> None:
    assert stem_of(name) == stem
