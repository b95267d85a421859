"""CIFAR-10 in its binary format: records of one label byte and 3 x 32 x 32 bytes, planes R, G, B.

The format is described at https://www.cs.toronto.edu/~kriz/cifar.html. The files are read where
they were unpacked, or straight from the archive ``cifar-10-binary.tar.gz``.
"""

from __future__ import annotations

import os
import tarfile
import zlib
from pathlib import Path

import torch

from .failures import InputError
from .split import Split

ARCHIVE = "cifar-10-binary.tar.gz"
# The archive's digest as its authors publish it.
ARCHIVE_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)
_RECORD = 1 + 3 * 32 * 32


def find(data_dir: str = "") -> Path:
    """Return the folder of the binary files, or the archive that holds them.

    Looked for in ``data_dir``, else ``$SWEEP_DATA``, else ``./data``, and in its subfolders
    ``cifar10``, ``cifar-10`` and ``cifar-10-batches-bin``.

    Raises:
        InputError: They are not there; says where to get them.
    """
    base = Path(data_dir or os.environ.get("SWEEP_DATA") or "data")
    for name in ("cifar10", "cifar-10", "cifar10/cifar-10-batches-bin", "cifar-10-batches-bin", ""):
        folder = base / name
        if (folder / TRAIN[0]).is_file():
            return folder
        if (folder / ARCHIVE).is_file():
            return folder / ARCHIVE
    raise InputError(
        f"The files of cifar10 are not in {base / 'cifar10'} nor in {base}.\n"
        f"Download https://www.cs.toronto.edu/~kriz/{ARCHIVE} (162 MB, MD5 {ARCHIVE_MD5}) into "
        f"{(base / 'cifar10').absolute()}; it need not be unpacked. Or say where it is with "
        "--data-dir or SWEEP_DATA."
    )


def read(place: Path, files: tuple[str, ...]) -> Split:
    """Return the images and labels of some of the files, in order.

    Args:
        place: What ``find`` returned.
        files: ``TRAIN`` or ``TEST``.

    Raises:
        InputError: A file is missing, cut short, or holds other labels than 0 to 9.
    """
    content = bytearray()
    for file in files:
        part = _read_member(place, file) if place.is_file() else _read_file(place / file)
        if not part or len(part) % _RECORD:
            raise InputError(
                f"{place}: {file}: {len(part)} bytes are no whole number of CIFAR-10 records of "
                f"{_RECORD} bytes. Take the binary version, and get it again."
            )
        content += part
    records = torch.frombuffer(content, dtype=torch.uint8).view(-1, _RECORD)
    labels = records[:, 0].long()
    if int(labels.max()) > 9:
        raise InputError(f"{place}: label {int(labels.max())} in a set of ten classes (0 to 9).")
    return Split(records[:, 1:].reshape(-1, 3, 32, 32).contiguous(), labels)


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None


def _read_member(archive: Path, file: str) -> bytes:
    try:
        with tarfile.open(archive) as opened:
            for member in opened:
                if member.isfile() and member.name.rsplit("/", 1)[-1] == file:
                    stream = opened.extractfile(member)
                    assert stream is not None  # it is a file
                    return stream.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise InputError(f"{archive}: cannot be unpacked ({error}). Get it again.") from None
    raise InputError(f"{archive}: holds no {file}. Take the binary version of CIFAR-10.")
