"""What an attempt has saved: found, hashed, and the newest that can be read."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.core.files import check_owner
from sweep.core.paths import AttemptFolder
from sweep.training import save_order
from sweep.training.attempt_files import last_change, last_sign
from sweep.training.digests import digest
from sweep.training.saves import Save

SAVED_S = 60.0  # after its latest sign of life a training may still have saved a checkpoint


def newest(folder: str | os.PathLike[str], pattern: str | None = None) -> Path | None:
    """Return the newest whole checkpoint in a folder, or None.

    Whole is what has the marker that its framework writes last, all its ranks' and parts' files,
    and no file that is known to lack its end. What is being written, logs and settings never count;
    weights alone (a best.pt, an exported model.safetensors) only where there is nothing else. Of
    several ranks' files it is the first rank's.

    Args:
        folder: A training's checkpoint folder.
        pattern: A glob, relative to it: only what matches counts (``checkpoint_files``).
    """
    found = save_order.find(Path(folder), pattern)
    return found[0].path if found else None


def checkpoints(folder: AttemptFolder, pattern: str | None = None) -> list[Path]:
    """Return the whole checkpoints of an attempt, newest first; see ``newest``."""
    return [save.path for save in save_order.find(folder.checkpoints, pattern)]


def saves(folder: AttemptFolder, pattern: str | None = None) -> list[Save]:
    """Return the same with all that they consist of."""
    return save_order.find(folder.checkpoints, pattern)


@dataclass(frozen=True)
class Found:
    """A checkpoint to go on from, the hash of its content, and the attempt in whose folder it is.

    ``files`` are all that it consists of.
    """

    path: Path
    digest: str
    files: tuple[Path, ...]
    folder: AttemptFolder


def newest_checkpoint(
    folders: Sequence[AttemptFolder],
    known: Mapping[str, str],
    pattern: str | None = None,
    refused: Collection[str] = (),
) -> Found | None:
    """Return the newest readable checkpoint of earlier attempts, or None.

    Args:
        folders: Attempts, newest first.
        known: Hashes recorded when attempts ended, by path. A file that differs from its record is
            damaged and passed over, as is one that cannot be read or belongs to somebody else;
            but not where the training has outlived the record and saved again, in its place.
        pattern: As for ``newest``.
        refused: Hashes of those from which an attempt could not go on, wherever they lie.
    """
    for folder in folders:
        for save in saves(folder, pattern):
            try:
                for path in save.files:
                    check_owner(path)
                recorded = known.get(str(save.path))
                found = digest(save.files, recorded)
                is_good = recorded in (None, found) or _was_saved_by_training(save, folder)
            except Exception:
                continue
            if is_good and found not in refused:
                return Found(save.path, found, save.files, folder)
    return None


def _was_saved_by_training(save: Save, folder: AttemptFolder) -> bool:
    """Tell whether a checkpoint was last written while its training still reported or printed."""
    paths = [below for path in save.files for below in (path, *path.rglob("*"))]
    return last_change(paths) <= last_sign(folder) + SAVED_S
