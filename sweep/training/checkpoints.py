"""What an attempt has saved: found, hashed, and the newest that can be read."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from sweep.core.files import check_owner, hash_file
from sweep.core.paths import AttemptFolder
from sweep.training.attempt_files import last_change, last_sign

SAVED_S = 60.0  # after its latest sign of life a training may still have saved a checkpoint


def checkpoints(folder: AttemptFolder) -> list[Path]:
    """Return the checkpoints of an attempt, newest first.

    A checkpoint is a file or folder in ``checkpoints/`` whose name does not mark it as unfinished
    (a leading dot, or the ending .tmp or .part) and which belongs to us.
    """
    found = []
    with contextlib.suppress(OSError):  # see ``odd_files``
        for entry in os.scandir(folder.checkpoints):
            if entry.name.startswith(".") or entry.name.endswith((".tmp", ".part")):
                continue
            # Removed by its training just now, or a link "last" to one that was.
            with contextlib.suppress(OSError):
                status = entry.stat()
                if status.st_size:
                    found.append((status.st_mtime_ns, entry.name, Path(entry.path)))
    return [path for _, _, path in sorted(found, reverse=True)]


def digest(path: Path) -> str:
    """Return the SHA-256 of a checkpoint; of a folder, over its files' names and contents."""
    whole = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        if file != path:
            whole.update(str(file.relative_to(path)).encode() + b"\0")
        hash_file(file, whole)
    return whole.hexdigest()


def newest_checkpoint(
    folders: Sequence[AttemptFolder], known: dict[str, str]
) -> tuple[Path, str] | None:
    """Return the newest readable checkpoint of earlier attempts and its hash, or None.

    Args:
        folders: Attempts, newest first.
        known: Hashes recorded when attempts ended, by path. A file that differs from its record is
            damaged and passed over, as is one that cannot be read or belongs to somebody else;
            but not where the training has outlived the record and saved again, in its place.
    """
    for folder in folders:
        for path in checkpoints(folder):
            try:
                check_owner(path)
                found = digest(path)
                recorded = known.get(str(path), found)
                is_good = recorded == found or _was_saved_by_training(path, folder)
            except Exception:
                continue
            if is_good:
                return path, found
    return None


def _was_saved_by_training(path: Path, folder: AttemptFolder) -> bool:
    """Tell whether a checkpoint was last written while its training still reported or printed."""
    return last_change((path, *path.rglob("*"))) <= last_sign(folder) + SAVED_S
