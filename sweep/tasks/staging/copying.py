"""Copy a file or a folder so that a copier that was killed has lost nothing.

Whole files are renamed into place and noted in a journal with their hashes; of the file that was
being copied the bytes that are there are kept, and hashed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.errors import SweepError
from sweep.provenance.data import DataFile, content_hash

CHUNK_BYTES = 4 << 20
THREADS = 8  # a shared file system answers each open and read slowly, and many at once
BATCH = 512  # files that are handed to the threads at a time


class Stopped(SweepError):
    """The copying was asked to stop; what is there is kept."""


class Changed(SweepError):
    """The data changed while they were copied."""


@dataclass(frozen=True)
class Copied:
    """A whole file of a copy; ``digest`` is its SHA-256, empty for what an archive held."""

    name: str
    size: int
    time_ns: int
    digest: str

    def line(self) -> str:
        return json.dumps([self.name, self.size, self.time_ns, self.digest]) + "\n"


def read_journal(path: Path) -> list[Copied]:
    """Return the files that a journal names; a last line that is cut off is left out."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    found = []
    for line in text.splitlines():
        try:
            found.append(Copied(*json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def open_plain(path: Path) -> Any:
    """Open a file of the data, without a buffer."""
    return path.open("rb", buffering=0)


def copy(
    files: Sequence[DataFile],
    tree: Path,
    parts: Path,
    journal: Path,
    stop: Callable[[], bool],
    open_source: Callable[[Path], Any] = open_plain,
) -> str:
    """Copy what is not copied yet; return the hash of the whole content, as a record has it.

    Args:
        files: What is to be copied; one named "." is the data set itself.
        tree: Becomes the copy.
        parts: Folder for files that are not whole yet.
        journal: Where whole files are noted.
        stop: Asked between chunks.
        open_source: Opens a file of the data.

    Raises:
        Stopped: ``stop`` said so.
        Changed: A file is not what it was when it was listed.
        OSError: Something cannot be read or written.
    """
    done = {one.name: one for one in read_journal(journal) if _is_whole(one, tree)}
    wanted = {file.name: (file.size, file.time_ns) for file in files}
    done = {n: one for n, one in done.items() if wanted.get(n) == (one.size, one.time_ns)}
    for folder in {(tree / file.name).parent for file in files}:
        folder.mkdir(parents=True, exist_ok=True)
    parts.mkdir(parents=True, exist_ok=True)
    left = [file for file in files if file.name not in done]
    with (
        open(journal, "a", encoding="utf-8") as notes,
        ThreadPoolExecutor(THREADS, "sweep-copy") as threads,
    ):
        for first in range(0, len(left), BATCH):
            batch = left[first : first + BATCH]
            waiting = [
                threads.submit(_copy_one, file, tree, parts, stop, open_source) for file in batch
            ]
            try:
                for one in waiting:
                    copied = one.result()
                    done[copied.name] = copied
                    notes.write(copied.line())
                    notes.flush()
            except BaseException:
                for one in waiting:
                    one.cancel()
                raise
    return content_hash((file.name, done[file.name].digest) for file in files)


def _is_whole(one: Copied, tree: Path) -> bool:
    try:
        found = os.stat(tree / one.name)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == one.size


def _copy_one(
    file: DataFile,
    tree: Path,
    parts: Path,
    stop: Callable[[], bool],
    open_source: Callable[[Path], Any],
) -> Copied:
    which = f"{file.name}\0{file.size}\0{file.time_ns}".encode("utf-8", "surrogateescape")
    part = parts / hashlib.sha256(which).hexdigest()[:32]
    found = hashlib.sha256()
    with open(part, "a+b", buffering=0) as target, open_source(file.path) as source:
        target.seek(0)
        there = 0
        while chunk := target.read(CHUNK_BYTES):
            found.update(chunk)
            there += len(chunk)
        source.seek(there)
        while there <= file.size:
            if stop():
                raise Stopped("The copying was asked to stop.")
            chunk = source.read(CHUNK_BYTES)
            if not chunk:
                break
            _write_all(target, chunk)
            found.update(chunk)
            there += len(chunk)
        if there != file.size:
            part.unlink()
            raise Changed(f"{file.path} changed while it was copied.")
        # Training is not to write into what others read too.
        os.fchmod(
            target.fileno(), 0o444 | (stat.S_IMODE(os.fstat(source.fileno()).st_mode) & 0o111)
        )
    os.utime(part, ns=(file.time_ns, file.time_ns))
    os.replace(part, tree / file.name)
    return Copied(file.name, file.size, file.time_ns, found.hexdigest())


def _write_all(target: Any, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[target.write(view) :]


def write_files(path: Path, files: Iterable[Copied]) -> None:
    """Write a list of a copy's files."""
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(one.line() for one in files)


def what_is_damaged(files: Sequence[Copied], tree: Path) -> str | None:
    """Return the first file that is missing from a copy, or has another size; None if none is.

    Cleaners of /tmp remove single files of what has not been read for days.
    """
    return next((one.name for one in files if not _is_whole(one, tree)), None)
