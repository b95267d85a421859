"""A folder whose files come as slowly as told, for all readers together, and that counts.

    python -m benchmarks.slow_folder SOURCE MOUNT --rate 50 --count FILE

It stands in for a shared file system that many nodes read at once: each read takes its turn at one
clock and returns when its bytes would have come. Nothing of it stays in the kernel's cache, else
the nodes of one machine would share that. It needs mfusepy (``pip install mfusepy``), libfuse and
/dev/fuse; ``fusermount -u MOUNT`` ends it.
"""

from __future__ import annotations

import argparse
import errno
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mfusepy

KEPT = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid")
TIMES = ("st_mtime", "st_ctime", "st_atime")  # in nanoseconds


class SlowFolder(mfusepy.Operations):
    """A folder's files to read, at one rate.

    Args:
        source: The folder.
        rate: Bytes a second, of all readers together.
        count: A file that has how many bytes were read.
    """

    use_ns = True

    def __init__(self, source: Path, rate: float, count: Path) -> None:
        self.source, self.rate = source, rate
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._read = 0
        self._count = count.open("w", encoding="ascii")

    def _at(self, path: str) -> Path:
        return self.source / path.lstrip("/")

    def getattr(self, path: str, fh: Any = None) -> dict[str, int]:
        try:
            found = os.lstat(self._at(path))
        except FileNotFoundError:
            raise mfusepy.FuseOSError(errno.ENOENT) from None
        times = {name: getattr(found, f"{name}_ns") for name in TIMES}
        return {name: getattr(found, name) for name in KEPT} | times

    def readdir(self, path: str, fh: Any) -> list[str]:
        return [".", "..", *os.listdir(self._at(path))]

    def open(self, path: str, fi: Any) -> int:
        fi.fh = os.open(self._at(path), os.O_RDONLY)
        fi.direct_io = 1
        return 0

    def read(self, path: str, size: int, offset: int, fi: Any) -> bytes:
        chunk = os.pread(fi.fh, size, offset)
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + len(chunk) / self.rate
            free_at = self._free_at
            self._read += len(chunk)
            self._count.seek(0)
            self._count.write(f"{self._read:<20}")
            self._count.flush()
        time.sleep(max(0.0, free_at - time.monotonic()))
        return chunk

    def release(self, path: str, fi: Any) -> int:
        os.close(fi.fh)
        return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the folder until it is unmounted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("mount", type=Path)
    parser.add_argument("--rate", type=float, default=50.0, help="MB/s")
    parser.add_argument("--count", type=Path, required=True)
    given = parser.parse_args(arguments)
    folder = SlowFolder(given.source, given.rate * 1e6, given.count)
    mfusepy.FUSE(folder, str(given.mount), foreground=True, raw_fi=True, ro=True, allow_other=True)
    return 0


if __name__ == "__main__":
    main()
