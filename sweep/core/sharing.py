"""``share: group``: what lies in a study's folder may be read by the group that the folder has.

Everything is made for its owner alone; what has been written is then opened, for reading only. What
holds a secret stays closed, and so does the embedded database, which holds the owner's password.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from sweep.core.paths import StudyFolder
from sweep.core.study import Study

GROUP = "group"


def closed(folder: StudyFolder) -> frozenset[Path]:
    """Return what of a study's folder is never shared: addresses, secrets, what starts tasks."""
    return frozenset({folder.storage, folder.secrets, folder.local, folder.tracking})


def share(study: Study, folder: StudyFolder, *parts: Path) -> None:
    """Let the group read a study's folder, or these parts of it, where the study says so.

    Links are not followed. What belongs to somebody else, or goes away meanwhile, is left as it is.
    """
    if study.share != GROUP:
        return
    _add(folder.root.parent, stat.S_IXGRP)  # to be passed through, not listed
    for part in parts or (folder.root,):
        for above in part.parents:
            if above.is_relative_to(folder.root):
                _add(above, stat.S_IRGRP | stat.S_IXGRP)
        _open(part, closed(folder))


def _open(path: Path, kept: frozenset[Path]) -> None:
    if path in kept:
        return
    with contextlib.suppress(OSError):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            _add(path, stat.S_IRGRP | stat.S_IXGRP)
            for entry in path.iterdir():
                _open(entry, kept)
        elif stat.S_ISREG(mode):
            _add(path, stat.S_IRGRP | (stat.S_IXGRP if mode & stat.S_IXUSR else 0))


def _add(path: Path, rights: int) -> None:
    with contextlib.suppress(OSError):
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & rights != rights:
            os.chmod(path, stat.S_IMODE(found.st_mode) | rights)
