"""Data as a record: what lies under a path, cheaply, and by its whole content on request."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sweep.provenance.code import digest

# Data up to here is hashed by content (a fraction of a second), beyond by names, sizes, times and
# samples.
MAX_HASHED_BYTES = 64_000_000
MAX_DATA_FILES = 200_000
SAMPLED_FILES = 64
SAMPLE_BYTES = 65_536
# A list of checksums that lies with the data stands for them.
MANIFESTS = (
    "SHA256SUMS",
    "sha256sums.txt",
    "sha256sum.txt",
    "checksums.txt",
    "MD5SUMS",
    "md5sums.txt",
    "manifest.json",
    "MANIFEST",
    "manifest.txt",
)


def capture_data(
    path: Path, *, full: bool = False, known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return count, size and hashes of a data file or folder; or {"missing": True}.

    Args:
        full: Hash every byte, however many.
        known: An earlier record of it: where names, sizes and times are the same, nothing is read.
    """
    if not os.path.exists(path):
        return {"missing": True}
    files: list[tuple[str, int, int, Path]] = []
    for file in _walk(path):
        if len(files) == MAX_DATA_FILES:
            break
        try:
            status = file.stat()
        except OSError:  # removed since the folder was listed
            continue
        files.append((os.path.relpath(file, path), status.st_size, status.st_mtime_ns, file))
    files.sort()
    total = sum(size for _, size, _, _ in files)
    found: dict[str, Any] = {
        "files": len(files),
        "bytes": total,
        "listing_sha256": _hash_lines(f"{n}\0{size}" for n, size, _, _ in files),
        "manifest_sha256": _hash_lines(f"{n}\0{size}\0{time}" for n, size, time, _ in files),
    }
    if len(files) == MAX_DATA_FILES:
        found["truncated"] = True
    same = known is not None and known.get("manifest_sha256") == found["manifest_sha256"]
    if known is not None and same and (not full or "content_sha256" in known):
        return dict(known)
    for name in MANIFESTS:
        if os.path.isfile(path / name):
            found["manifest_file"], found["manifest_file_sha256"] = name, digest(path / name).hex()
            break
    if full or (total <= MAX_HASHED_BYTES and "truncated" not in found):
        found["content_sha256"] = _hash_lines(f"{n}\0{digest(f).hex()}" for n, _, _, f in files)
        found |= {"full": True} if full else {}
    else:
        found["sample_sha256"] = _hash_lines(
            f"{n}\0{_sample(file, size)}" for n, size, _, file in _spread(files)
        )
    return found


def _spread(files: list[tuple[str, int, int, Path]]) -> list[tuple[str, int, int, Path]]:
    """Return some of the files, the same ones for the same names, evenly spread."""
    step = max(1, -(-len(files) // SAMPLED_FILES))
    return files[::step]


def _sample(path: Path, size: int) -> str:
    """Return the SHA-256 of a file's beginning, middle and end."""
    found = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            for start in sorted({0, max(0, size // 2), max(0, size - SAMPLE_BYTES)}):
                stream.seek(start)
                found.update(stream.read(SAMPLE_BYTES))
    except OSError:
        return ""
    return found.hexdigest()


def _walk(path: Path) -> Iterator[Path]:
    if os.path.isfile(path):
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            if os.path.isfile(file):
                yield file


def _hash_lines(lines: Iterable[str]) -> str:
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return found.hexdigest()
