"""Data as a record: what lies under a path, cheaply, and by its whole content on request."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.provenance.code import digest
from sweep.provenance.data_versions import find_pointers, find_versions

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


@dataclass(frozen=True, order=True)
class DataFile:
    """A file of some data, by its name within them; "." is the data themselves."""

    name: str
    size: int
    time_ns: int
    path: Path


def capture_data(
    path: Path, *, full: bool = False, known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return count, size, hashes and versions of a data file or folder; or {"missing": True}.

    ``versions`` is what tools say of it (see ``data_versions``), ``pointers`` the same of files
    that only point at their content, and ``unfetched`` how many have it elsewhere.

    Args:
        full: Hash every byte, however many.
        known: An earlier record of it: where names, sizes and times are the same, nothing is read.
    """
    if not os.path.exists(path):
        return {"missing": True, **_versions(path)}
    files = sorted(list_files(path, MAX_DATA_FILES))
    found = describe_files(files)
    total = found["bytes"]
    versions = _versions(path, (file.name for file in files))
    same = known is not None and known.get("manifest_sha256") == found["manifest_sha256"]
    if known is not None and same and (not full or "content_sha256" in known):
        return {**{key: known[key] for key in known if key != "versions"}, **versions}
    found |= versions
    pointers = find_pointers(path, MAX_DATA_FILES)
    if pointers.versions():
        found["pointers"] = pointers.versions()
    if pointers.missing:
        found["unfetched"] = len(pointers.missing)
    for name in MANIFESTS:
        if os.path.isfile(path / name):
            found["manifest_file"], found["manifest_file_sha256"] = name, digest(path / name).hex()
            break
    if full or (total <= MAX_HASHED_BYTES and "truncated" not in found):
        hashes = ((file.name, digest(file.path).hex()) for file in files)
        found["content_sha256"] = content_hash(hashes)
        found |= {"full": True} if full else {}
    else:
        found["sample_sha256"] = _hash_lines(
            f"{file.name}\0{_sample(file.path, file.size)}" for file in _spread(files)
        )
    return found


def _versions(path: Path, names: Iterable[str] = ()) -> dict[str, Any]:
    found = find_versions(path, names)
    return {"versions": found} if found else {}


def list_files(path: Path, most: int | None = None) -> list[DataFile]:
    """Return the files under a path, folder by folder; links are followed, each folder once;
    without ``.git``.

    Args:
        most: Stop after so many.
    """
    files: list[DataFile] = []
    for file in _walk(path):
        if len(files) == most:
            break
        try:
            status = file.stat()
        except OSError:  # removed since the folder was listed
            continue
        name = os.path.relpath(file, path)
        files.append(DataFile(name, status.st_size, status.st_mtime_ns, file))
    return files


def describe_files(files: Sequence[DataFile]) -> dict[str, Any]:
    """Return count, size and hashes of a listing, without reading any file; of its first so many
    files as a record looks at."""
    known = sorted(files[:MAX_DATA_FILES])
    found: dict[str, Any] = {
        "files": len(known),
        "bytes": sum(file.size for file in known),
        "listing_sha256": _hash_lines(f"{file.name}\0{file.size}" for file in known),
        "manifest_sha256": _hash_lines(f"{f.name}\0{f.size}\0{f.time_ns}" for f in known),
    }
    return found | ({"truncated": True} if len(known) == MAX_DATA_FILES else {})


def content_hash(hashes: Iterable[tuple[str, str]]) -> str:
    """Return one hash of all content, from each file's name and SHA-256 in the order of names."""
    return _hash_lines(f"{name}\0{digest}" for name, digest in hashes)


def _spread(files: list[DataFile]) -> list[DataFile]:
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
    seen = set()
    for folder, folders, names in os.walk(path, followlinks=True):
        try:
            status = os.stat(folder)
        except OSError:  # removed meanwhile
            continue
        if (status.st_dev, status.st_ino) in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        # What git keeps of them is no data, and changes while nobody touches these.
        folders[:] = sorted(each for each in folders if each != ".git")
        for name in sorted(names):
            file = Path(folder, name)
            if os.path.isfile(file):
                yield file


def _hash_lines(lines: Iterable[str]) -> str:
    found = hashlib.sha256()
    for line in lines:
        found.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return found.hexdigest()
