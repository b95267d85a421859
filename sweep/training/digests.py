"""The digest of a checkpoint: read whole where that is quick, in samples where it is large.

It is taken while a task leaves, and Slurm's KillWait gives it thirty seconds: 20 GB cannot be read
in them. Of large ones the names and sizes of all files count, and samples of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.core.files import hash_file

if TYPE_CHECKING:
    from hashlib import _Hash

SAMPLED = "sampled:"  # begins the digest of a large one
WHOLE_BYTES = 256 << 20  # up to so many are read whole
_SAMPLE_BYTES = 64 << 20  # of all files together, about
_CHUNK_BYTES = 64 << 10
_LEAST_BYTES = 4 << 10  # of a file


def digest(paths: Path | Sequence[Path], like: str | None = None) -> str:
    """Return the SHA-256 of a checkpoint; of several files over their names and contents.

    Args:
        paths: A file, a folder, or the files that together are one.
        like: A digest with which to compare it: made in the same way. When None, the size decides.

    Raises:
        OSError: A file cannot be read.
    """
    given = [paths] if isinstance(paths, Path) else list(paths)
    files = _named(given)
    if like is None:
        in_samples = sum(file.stat().st_size for _, file in files) > WHOLE_BYTES
    else:
        in_samples = like.startswith(SAMPLED)
    whole = hashlib.sha256()
    for name, file in files:
        whole.update(name)
        if in_samples:
            _sample(file, len(files), whole)
        else:
            hash_file(file, whole)
    return (SAMPLED if in_samples else "") + whole.hexdigest()


def _named(paths: Sequence[Path]) -> list[tuple[bytes, Path]]:
    """Return the files with what of their names counts: of a single file nothing."""
    found = []
    for path in paths:
        above = path if len(paths) == 1 else path.parent
        files = [path] if not path.is_dir() else sorted(p for p in path.rglob("*") if p.is_file())
        for file in files:
            name = b"" if file == above else str(file.relative_to(above)).encode() + b"\0"
            found.append((name, file))
    return found


def _sample(path: Path, files: int, whole: _Hash) -> None:
    """Feed a file's size to a hash, its begin, its end, and what lies in even steps between."""
    size = path.stat().st_size
    whole.update(f"{size}\0".encode())
    share = max(_LEAST_BYTES, _SAMPLE_BYTES // files)
    if size <= share:
        hash_file(path, whole)
        return
    length = min(share, _CHUNK_BYTES)
    count = max(2, share // length)
    with path.open("rb") as stream:
        for number in range(count):
            stream.seek((size - length) * number // (count - 1))
            whole.update(stream.read(length))
