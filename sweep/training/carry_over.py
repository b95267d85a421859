"""Put a checkpoint into a new attempt's folder, where a framework's "resume from last" finds it.

What it consists of is copied, or shared block by block where the file system can do that
(reflink), and never linked: frameworks write in place. With it come the newest save of each other
kind (epoch_9.pt beside last.pt), weights, and small files beside them, such as the ``latest`` by
which a framework finds its newest; not what is newer than the checkpoint, or not whole.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from sweep.core.files import make_folders
from sweep.core.paths import AttemptFolder
from sweep.training import layouts, save_names, save_order
from sweep.training.save_names import (
    DOUBTFUL,
    LAST,
    LEFT,
    OTHER,
    PART,
    TEXT_ENDS,
    UNFINISHED,
    WEIGHTS,
)
from sweep.training.saves import Save

_FICLONE = 0x40049409
_CHUNK_BYTES = 16 << 20
_MOST_BESIDE_BYTES = 16 << 20  # of a small file beside saves
_LOGS = r"events\.out\.tfevents|\.(log|out|err|png|jpe?g|gif|svg|pdf|mp4|wav)$"


def carry_over(
    path: Path, source: AttemptFolder, target: AttemptFolder, pattern: str | None = None
) -> Path:
    """Fill an attempt's empty checkpoint folder with a checkpoint; return where it is there.

    All of it is there at once, or nothing: whoever is killed here leaves an empty folder.

    Args:
        path: The checkpoint, in the folder of ``source``.
        pattern: As for ``checkpoints.newest``.

    Raises:
        OSError: It cannot be read, or not written (a full disk).
    """
    root = source.checkpoints
    saves = save_order.find(root, pattern)
    chosen = next((save for save in saves if save.path == path), None)
    if chosen is None:
        raise FileNotFoundError(errno.ENOENT, "has gone, or is being changed", str(path))
    carried = _with_others(chosen, saves)
    part = target.carried
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    try:
        for file in {file for save in carried for file in save.files}:
            _copy(file, part / file.relative_to(root))
        for folder in {file.parent for save in carried for file in save.files}:
            for above in (folder, *folder.parents):
                if above == root.parent:
                    break
                _copy_beside(above, part / above.relative_to(root), chosen)
        os.rename(part, target.checkpoints)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return target.checkpoints / path.relative_to(root)


def _with_others(chosen: Save, saves: Sequence[Save]) -> list[Save]:
    """Return a save, and of those before it the newest of each other kind, in the same folder.

    Not what is called the last and has been left behind: it would be the last there.
    """
    found = [chosen]
    is_last = chosen.name.role in (LAST, LEFT)
    for save in saves[saves.index(chosen) + 1 :]:
        if save.name.role in (LAST, LEFT) and not is_last:
            continue
        is_known = any(
            save.name.series == other.name.series and save.path.parent == other.path.parent
            for other in found
        )
        if not is_known and save.path.parent == chosen.path.parent:
            found.append(save)
    return found


def _copy_beside(folder: Path, target: Path, chosen: Save) -> None:
    """Copy what lies beside saves: pointers (to the chosen one), settings, weights, links."""
    for entry in os.scandir(folder):
        goal = target / entry.name
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile, or a link to nothing
            if goal.is_symlink() or goal.exists() or (entry.is_dir() and not entry.is_symlink()):
                continue
            name = save_names.parse(entry.name)
            role = name.role
            if entry.is_symlink():
                _copy_link(entry, goal, role, chosen)
            elif layouts.may_be_pointer(entry.name) and _copy_pointer(entry, goal, chosen):
                continue
            elif (
                role == WEIGHTS
                or (role in (PART, DOUBTFUL) and not name.numbers)  # optimizer.pt
                or (role == OTHER and _is_small(entry))
                or (role == DOUBTFUL and name.series.endswith(TEXT_ENDS) and _is_small(entry))
            ):
                _copy(Path(entry.path), goal)


def _is_small(entry: os.DirEntry[str]) -> bool:
    is_log = re.search(_LOGS, entry.name.lower()) is not None
    return not is_log and entry.stat().st_size <= _MOST_BESIDE_BYTES


def _copy_link(entry: os.DirEntry[str], goal: Path, role: str, chosen: Save) -> None:
    """Make a framework's link within its folder again: to what was carried over."""
    name = os.path.basename(os.readlink(entry.path))
    if role == LAST and chosen.path.parent == Path(entry.path).parent:
        name = chosen.path.name
    if role != UNFINISHED and (goal.parent / name).exists():
        goal.symlink_to(name)


def _copy_pointer(entry: os.DirEntry[str], goal: Path, chosen: Save) -> bool:
    """Write a pointer that names the chosen save; tell whether it was one."""
    text = layouts.read_pointer(Path(entry.path))
    if text is None:
        return False
    names_one = bool(text) and (text.isdecimal() or (chosen.path.parent / text).exists())
    if not layouts.is_pointer_name(entry.name) and not names_one:
        return False
    whole = Path(entry.path).read_text(encoding="utf-8")
    numbers, told = chosen.name.numbers, save_names.parse(text)
    of_rank = [f.name for f in chosen.files if save_names.parse(f.name).ranks == told.ranks]
    name = of_rank[0] if told.ranks and of_rank else chosen.path.name
    if not text:
        whole = name
    elif text.isdecimal() and numbers:
        whole = whole.replace(text, str(numbers[-1]))
    elif told.series == chosen.name.series:
        whole = whole.replace(text, name)
    elif text != name and (chosen.path.parent / text).exists():
        return False  # a save of another kind, or none
    goal.write_text(whole, encoding="utf-8")
    return True


def _copy(path: Path, goal: Path) -> None:
    """Copy a file or folder with its times; links within it become what they lead to."""
    clone(path, goal)


def clone(
    path: Path, goal: Path, *, links: bool = False, goes_on: Callable[[], bool] = lambda: True
) -> bool:
    """Share a file's or folder's blocks with a new one, or copy it, with its times.

    Args:
        links: Where blocks cannot be shared, link the files: nobody writes into them again.
        goes_on: Asked now and then; once it says no, the rest is left out.

    Returns:
        Whether all of it is there.
    """
    make_folders(goal.parent)
    if not path.is_dir():
        return _clone_file(path, goal, links, goes_on)
    goal.mkdir(exist_ok=True)
    for entry in sorted(path.iterdir()):
        if not clone(entry, goal / entry.name, links=links, goes_on=goes_on):
            return False
    shutil.copystat(path, goal)
    return True


def _clone_file(path: Path, goal: Path, links: bool, goes_on: Callable[[], bool]) -> bool:
    with open(path, "rb") as source, open(goal, "wb") as target:
        try:
            fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
            is_shared = True
        except OSError:  # another file system, or one that cannot share blocks
            is_shared = False
    if not is_shared and links and _link(path, goal):
        return True
    if not is_shared and not _copy_bytes(path, goal, goes_on):
        return False
    shutil.copystat(path, goal)
    return True


def _link(path: Path, goal: Path) -> bool:
    with contextlib.suppress(OSError):  # not all file systems have links
        goal.unlink()
        os.link(path.resolve(), goal)
        return True
    return False


def _copy_bytes(path: Path, goal: Path, goes_on: Callable[[], bool]) -> bool:
    with open(path, "rb") as source, open(goal, "wb") as target:
        while chunk := source.read(_CHUNK_BYTES):
            if not goes_on():
                return False
            target.write(chunk)
    return True
