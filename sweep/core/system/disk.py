"""Whether a disk is full."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

_PROBE_BYTES = 65536
FULL_DISK = "no space is left"  # begins the reason


def full_disk(folder: Path) -> str:
    """Return in words that the disk of a folder is full."""
    return f"{FULL_DISK} on the disk of {folder}; make room there, then launch again"


def is_full(error: OSError) -> bool:
    """Tell whether an error means a full disk or a quota that is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def has_room(folder: Path) -> bool:
    """Tell whether a small file can be written into a folder; other errors do not count."""
    probe = folder / f".room.{os.getpid()}"
    try:
        with open(probe, "wb", buffering=0) as stream:
            return stream.write(bytes(_PROBE_BYTES)) == _PROBE_BYTES
    except OSError as error:
        return not is_full(error)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
