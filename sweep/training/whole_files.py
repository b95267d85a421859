"""Which files were cut short while they were written, as far as their own format tells.

A few bytes of each are read, however large it is. A format that does not say how long a file is
counts as whole: only what is certain is held against a checkpoint.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_ZIP_END = b"PK\x05\x06"  # the record that ends a zip file: torch.save, .keras, .npz, SB3's .zip
_ZIP_TAIL_BYTES = 22 + 65_535  # of that record with the longest comment
_MOST_JSON_BYTES = 16 << 20  # of a file that is parsed
_LEGACY_TORCH = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # raw numbers follow its pickles


def is_whole(path: Path) -> bool:
    """Tell whether a file is not empty, and not known to lack its end.

    Raises:
        OSError: It cannot be read.
    """
    size = path.stat().st_size
    if not size:
        return False
    with path.open("rb") as stream:
        head = stream.read(64)
        for begins, has_end in _FORMATS:
            if head.startswith(begins):
                return has_end(stream, head, size)
        return _has_all_tensors(stream, head, size)


def _tail(stream: BinaryIO, size: int, length: int) -> bytes:
    stream.seek(max(0, size - length))
    return stream.read(length)


def _zip_ends(stream: BinaryIO, _head: bytes, size: int) -> bool:
    tail = _tail(stream, size, _ZIP_TAIL_BYTES)
    record = tail[max(0, tail.rfind(_ZIP_END)) :]
    if not record.startswith(_ZIP_END) or len(record) < 22:
        return False
    return len(record) >= 22 + struct.unpack_from("<H", record, 20)[0]  # its comment


def _hdf5_ends(_stream: BinaryIO, head: bytes, size: int) -> bool:
    """HDF5 (.h5) names the address of its end in its first block, by the version of that."""
    if len(head) < 14:
        return False
    version = head[8]
    at, wide = (40, head[13]) if version < 2 else (28, head[9])
    if wide != 8:
        return True
    return len(head) >= at + 8 and bool(struct.unpack_from("<Q", head, at)[0] <= size)


def _pickle_ends(stream: BinaryIO, head: bytes, size: int) -> bool:
    """A pickle (joblib's too) ends with a full stop; torch's old format goes on behind its own."""
    return head.startswith(_LEGACY_TORCH) or _tail(stream, size, 1) == b"."


def _ubjson_ends(stream: BinaryIO, _head: bytes, size: int) -> bool:
    return _tail(stream, size, 1) == b"}"  # an object (XGBoost's .ubj)


def _json_ends(stream: BinaryIO, _head: bytes, size: int) -> bool:
    if size <= _MOST_JSON_BYTES:
        stream.seek(0)
        try:
            json.JSONDecoder().raw_decode(stream.read().decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return False
        return True
    return _tail(stream, size, 64).rstrip().endswith((b"}", b"]"))


def _has_all_tensors(stream: BinaryIO, head: bytes, size: int) -> bool:
    """Safetensors begin with the length of a JSON header, which says where each tensor ends."""
    if len(head) < 9 or head[8:9] != b"{":
        return True
    (length,) = struct.unpack_from("<Q", head)
    if length > 100_000_000:  # no such file: the format's own limit
        return True
    if 8 + length > size:
        return False
    stream.seek(8)
    header = stream.read(length)
    ends = [
        int(part.partition(b"]")[0].rpartition(b",")[2])
        for part in header.split(b'"data_offsets"')[1:]
        if part.partition(b"]")[0].rpartition(b",")[2].strip().isdigit()
    ]
    return 8 + length + max(ends, default=0) <= size


_FORMATS: tuple[tuple[bytes, Callable[[BinaryIO, bytes, int], bool]], ...] = (
    (b"PK\x03\x04", _zip_ends),
    (b"\x89HDF\r\n\x1a\n", _hdf5_ends),
    (b"\x80\x02", _pickle_ends),
    (b"\x80\x03", _pickle_ends),
    (b"\x80\x04", _pickle_ends),
    (b"\x80\x05", _pickle_ends),
    (b"{L", _ubjson_ends),
    (b'{"', _json_ends),
    (b"{\n", _json_ends),
)


def are_whole(folder: Path, files: list[str], most: int = 200) -> bool:
    """Tell whether none of a folder's files is known to lack its end; the largest are looked at.

    Raises:
        OSError: One cannot be read.
    """
    sized = sorted(((os.stat(folder / name).st_size, name) for name in files), reverse=True)
    return all(is_whole(folder / name) for size, name in sized[:most] if size)
