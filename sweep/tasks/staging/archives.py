"""Unpack an archive of data, member by member, within bounds."""

from __future__ import annotations

import contextlib
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from sweep.core.errors import SweepError

SUFFIXES = (
    *(".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar.zst", ".tzst"),
    ".zip",
)
_ZSTD = (".tar.zst", ".tzst")


class CannotUnpack(SweepError):
    """An archive cannot be unpacked; it says why."""


def stem_of(name: str) -> str | None:
    """Return an archive's name without its suffix; None for what is no archive by its name."""
    suffix = max((one for one in SUFFIXES if name.lower().endswith(one)), key=len, default=None)
    return None if suffix is None or len(name) == len(suffix) else name[: -len(suffix)]


def unpack(archive: Path, name: str, target: Path, before: Callable[[int], None]) -> None:
    """Unpack an archive into a folder, which is made.

    Args:
        name: What it is called, which says its kind.
        before: Told each member's size before that is written; what it raises ends the unpacking.

    Raises:
        CannotUnpack: It is damaged, holds paths that lead out of the folder, or what reads it is
            missing here.
        OSError: Something cannot be written.
    """
    target.mkdir(parents=True)
    try:
        if name.lower().endswith(".zip"):
            _unpack_zip(archive, target, before)
        else:
            with _opened(archive, name) as tar:
                for member in tar:
                    before(member.size if member.isreg() else 0)
                    tar.extract(member, target, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise CannotUnpack(f"{name} cannot be unpacked: {error}.") from error
    except RuntimeError as error:  # a zip with a password
        raise CannotUnpack(f"{name} cannot be unpacked: {error}.") from error


def _unpack_zip(archive: Path, target: Path, before: Callable[[int], None]) -> None:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            before(member.file_size)
            opened.extract(member, target)


@contextlib.contextmanager
def _opened(archive: Path, name: str) -> Iterator[tarfile.TarFile]:
    if not hasattr(tarfile, "data_filter"):
        raise CannotUnpack("This Python unpacks nothing safely: 3.11.4 or newer does.")
    if not name.lower().endswith(_ZSTD):
        with tarfile.open(archive, "r:*") as tar:
            yield tar
        return
    try:
        reader = subprocess.Popen(
            ["zstd", "-dcq", str(archive)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise CannotUnpack(f"{name} needs the program zstd, which is not on PATH here.") from None
    assert reader.stdout is not None
    try:
        with tarfile.open(fileobj=reader.stdout, mode="r|") as tar:
            yield tar
        while reader.stdout.read(1 << 16):  # what stands behind the archive's end
            pass
        if reader.wait():
            raise CannotUnpack(f"{name} cannot be unpacked: zstd says that it is damaged.")
    finally:
        reader.stdout.close()
        reader.kill()
        reader.wait()
