"""What a study's trackers cannot do at present, as their processes note it for ``status``.

One file a process: a tracker may fail on one node and work on another.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from sweep.core.files import make_private, read_text, write_atomic
from sweep.core.masking import mask
from sweep.core.paths import StudyFolder

SUFFIX = ".trouble"
LONGEST = 300


class Trouble:
    """Where one tracker's process notes what it cannot do."""

    def __init__(self, folder: StudyFolder, name: str) -> None:
        own = f"{name}.{socket.gethostname()}-{os.getpid()}{SUFFIX}"
        self._path = folder.tracking / own
        self._is_noted = False

    def note(self, text: str) -> None:
        """Note it, in place of what was noted before. A full disk is no further trouble."""
        line = " ".join(mask(text).split())[:LONGEST]
        with contextlib.suppress(OSError):
            make_private(self._path.parent)
            write_atomic(self._path, line + "\n")
            self._is_noted = True

    def is_over(self) -> None:
        """Take back what was noted."""
        if self._is_noted:
            self._path.unlink(missing_ok=True)
            self._is_noted = False


def noted(folder: StudyFolder, name: str) -> list[Path]:
    """Return the files in which a tracker's processes have noted something."""
    return sorted(folder.tracking.glob(f"{name}.*{SUFFIX}"))


def forget(files: Iterable[Path]) -> None:
    """Take back what was noted: all of it was sent again."""
    for path in files:
        path.unlink(missing_ok=True)


def notes(folder: StudyFolder) -> list[str]:
    """Return a sentence on each tracker that cannot do its work, or could not to its end."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.tracking.glob(f"*{SUFFIX}")):
        name = path.name.partition(".")[0]
        with contextlib.suppress(OSError, ValueError):  # it works again
            found.setdefault(name, []).append(read_text(path).strip())
    return [
        f"tracker {name} does not get everything: {texts[-1]}"
        + (f" (and {len(texts) - 1} more like it)" if len(texts) > 1 else "")
        + f"; see {folder.tracking / name}.log. Trials go on without it"
        + (f"; wandb sync {folder.root}/wandb/*run-* sends it" if name == "wandb" else "")
        for name, texts in found.items()
    ]
