"""Output goes where ``cat >`` would have put it, and what stands there stays what it is."""

from __future__ import annotations

import os
import resource
import stat
import threading
from pathlib import Path

import pytest

from sweep.core.errors import InputError
from sweep.core.files import write_output
from tests.needs import skip_or_fail


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_output(tmp_path / "new", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "new").read_text() == "text"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("before, and longer")
    path.chmod(0o604)
    write_output(path, b"after")
    assert path.read_text() == "after" and stat.S_IMODE(path.stat().st_mode) == 0o604


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_one(tmp_path: Path, there: bool) -> None:
    target, link = tmp_path / "sub/target", tmp_path / "link"
    target.parent.mkdir()
    if there:
        target.write_text("before")
    link.symlink_to("sub/target")
    write_output(link, "after")
    assert link.is_symlink() and target.read_text() == "after"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link", "sub", "target"]


def test_a_device_stays_one(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        with device.open("wb"):
            pass
    except OSError as error:
        skip_or_fail("root", f"no device can be made here: {error}")
    link = tmp_path / "link"
    link.symlink_to(device)
    for path in (device, link):
        write_output(path, "gone")
        assert stat.S_ISCHR(device.lstat().st_mode) and link.is_symlink()
        assert device.read_bytes() == b""


def test_a_fifo_is_written_to(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    write_output(fifo, "through" * 20_000)
    reader.join()
    assert got == [b"through" * 20_000] and stat.S_ISFIFO(fifo.lstat().st_mode)


def test_what_is_open_already_is_written_into(tmp_path: Path) -> None:
    """/dev/stdout of a command whose output goes to a file: the shell's others follow."""
    with (tmp_path / "out").open("wb") as stream:
        number = stream.fileno()
        write_output(Path(f"/dev/fd/{number}"), "ours")
        write_output(Path(f"/proc/self/fd/{number}"), "ours")
        assert os.fstat(number).st_nlink == 1
    assert (tmp_path / "out").read_text() == "ours"


@pytest.mark.parametrize("kind", ["folder", "loop", "missing", "below a file"])
def test_what_cannot_be_written_is_said(tmp_path: Path, kind: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("stays")
    path = {
        "folder": tmp_path / "folder",
        "loop": tmp_path / "loop",
        "missing": tmp_path / "none/file",
        "below a file": tmp_path / "file/x",
    }[kind]
    with pytest.raises(InputError, match="cannot be written") as caught:
        write_output(path, "text")
    assert str(path) in caught.value.message and "-o FILE" in caught.value.hint
    assert (tmp_path / "folder").is_dir() and (tmp_path / "loop").is_symlink()
    assert (tmp_path / "file").read_text() == "stays"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(InputError, match="File too large"):
            write_output(path, bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["old"]
