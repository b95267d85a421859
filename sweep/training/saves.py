"""The saved states in a training's folder, as ordinary frameworks leave them: whole ones alone.

What belongs together is one save (ranks' files, a model and its optimizer), what only lies beside
saves is none, and what a killed training was writing is passed over. ``layouts`` knows what a
folder must hold, ``save_names`` what names say, ``save_order`` which is the newest.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from sweep.training import layouts, save_names
from sweep.training.save_names import DOUBTFUL, HOLDERS, LAST, OTHER, PART, STATE, UNFINISHED, Name
from sweep.training.whole_files import is_whole

_DEEPEST = 5  # folders of frameworks within each other: lightning_logs/version_0/checkpoints
_NUMBERED = r"(^|[^a-z])(epochs?|ep|steps?|iter(ation)?s?|it|ba|checkpoint|ckpt|batch)$"
# Files that are one of a series of saves, in a folder of whatever name: model_100.pt, ep_9.pth.
_NUMBERED_FILE = r"(^|[^a-z])(epochs?|ep|steps?|iter(ation)?s?|it|ba|checkpoint|ckpt|batch|model)$"
_STATE_FILE = r"(?i)\.(pth?|ckpt|zip|tar|pkl|th)$"
_DAY_DIGITS = 8
_NEVER_HOLDERS = frozenset(("wandb", "mlruns"))


@dataclass(frozen=True)
class Save:
    """One saved state.

    Attributes:
        path: What training is handed: a file, a folder, or the prefix that TensorFlow goes by.
        files: All that it consists of: ``path``, or the files of several ranks.
        name: What its name says.
        saved_ns: When it was last changed.
        is_whole: Nothing of it is missing, as far as it alone tells.
        needs_pointer: It is whole only once a pointer has named it, or a later one.
        content: What a folder holds.
        kinds: What several files of one save are, without their numbers.
    """

    path: Path
    files: tuple[Path, ...]
    name: Name
    saved_ns: int
    is_whole: bool = True
    needs_pointer: bool = False
    content: layouts.Content | None = field(default=None, repr=False)
    kinds: frozenset[str] = frozenset()

    def misses_what_has(self, before: Save) -> bool:
        """Tell whether it lacks what an earlier save of its series has."""
        if self.content is not None and before.content is not None:
            return layouts.misses_what_others_have(self.content, before.content)
        return len(self.files) < len(before.files) or not before.kinds <= self.kinds


@dataclass
class Listing:
    """One folder: what is saved there, and where more is.

    Attributes:
        saves: Also those that are not whole.
        pointers: The names or numbers that pointers hold, "" where one is empty.
        targets: The entries that links call the newest.
        unfinished: The names of saves that files beside them call unfinished.
        holders: Folders that hold saves and are none.
    """

    saves: list[Save] = field(default_factory=list)
    pointers: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    holders: list[Path] = field(default_factory=list)


def look(folder: Path, *, folders_only: bool = False) -> Listing:
    """Return what lies in a folder.

    Args:
        folders_only: It is one of logs: its files are no saves.
    """
    found = Listing()
    files: dict[str, os.stat_result] = {}
    for entry, status in _entries(folder):
        inside = _target_inside(entry)
        if marked := save_names.marked_unfinished(entry.name):
            found.unfinished.append(marked)
        if inside:
            if save_names.parse(entry.name).role == LAST:
                found.targets.append(inside)
        elif not entry.is_dir():
            files[entry.name] = status
        elif save_names.parse(entry.name, is_folder=True).role == UNFINISHED:
            continue
        elif _is_holder(Path(entry.path)):
            found.holders.append(Path(entry.path))
        elif not save_names.is_log_folder(entry.name):
            found.saves += folder_save(Path(entry.path), status)
    if folders_only:
        return found
    # Beside what only a pointer makes whole, such a file is one, even if it cannot be understood.
    expects_one = any(save.needs_pointer for save in found.saves) or any(
        name.endswith(".index") for name in files
    )
    for name in [name for name in files if layouts.may_be_pointer(name)]:
        text = layouts.read_pointer(folder / name)
        if text is not None and _is_pointer(
            name, text, [*files, *(s.path.name for s in found.saves)]
        ):
            found.pointers.append(text)
            del files[name]
        elif (
            text is not None
            and layouts.is_pointer_name(name)
            and (expects_one or "_" in name or name.endswith(".txt"))
        ):
            found.pointers.append("")
            del files[name]
    found.saves += file_saves(folder, files)
    return found


def is_flat(folder: Path) -> bool:
    """Tell whether a checkpoint folder is itself one checkpoint, saved into it directly."""
    names = [entry.name.lower() for entry, _ in _entries(folder)]
    return any(fnmatchcase(name, pattern) for name in names for pattern in layouts.FLAT)


def matching(folder: Path, pattern: str) -> Listing:
    """Return what the user's pattern finds in a folder; whatever it is called, it counts."""
    found = Listing()
    root = os.path.realpath(folder)
    files: dict[Path, dict[str, os.stat_result]] = {}
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            real, status = os.path.realpath(path), path.stat()
            if not real.startswith(root + os.sep):
                continue  # a link out of it
            if marked := save_names.marked_unfinished(path.name):
                found.unfinished.append(marked)
            if save_names.parse(path.name, is_folder=path.is_dir()).role == UNFINISHED:
                continue
            if path.is_dir():
                found.saves += folder_save(path, status, needs_marker=False)
            else:
                files.setdefault(path.parent, {})[path.name] = status
    for parent, names in files.items():
        found.saves += file_saves(parent, names, as_role=_named_by_user)
    return found


def _named_by_user(name: Name) -> Name:
    return replace(name, role=STATE) if name.role in (OTHER, PART, DOUBTFUL) else name


def _entries(folder: Path) -> list[tuple[os.DirEntry[str], os.stat_result]]:
    found = []
    with contextlib.suppress(OSError):  # see ``attempt_files.odd_files``
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):  # removed just now, or a link to nothing
                found.append((entry, entry.stat()))
    return found


def _target_inside(entry: os.DirEntry[str]) -> str:
    """Return the entry of the same folder to which a link leads; "" where it is no such link."""
    if not entry.is_symlink():
        return ""
    target = os.path.realpath(entry.path)
    same = os.path.dirname(target) == os.path.realpath(os.path.dirname(entry.path))
    return os.path.basename(target) if same else ""


def _is_pointer(name: str, text: str, entries: Sequence[str]) -> bool:
    """Tell whether a small file names a save, and is none: people call theirs "last", too."""
    names_one = any(text in (entry, entry.removesuffix(".index")) for entry in entries)
    if not layouts.is_pointer_name(name):
        told_by_number = text.isdecimal() and any(
            save_names.parse(entry, is_folder=True).numbers[-1:] == (int(text),)
            for entry in entries
        )
        return bool(text) and (names_one or told_by_number)
    if not text or names_one:
        return True
    told = save_names.parse(text)
    if text.isdecimal() or text == "release":
        return name.lower() not in ("last", "latest")
    return bool(told.numbers) and any(
        save_names.parse(entry, is_folder=True).series == told.series for entry in entries
    )


def _is_holder(path: Path) -> bool:
    """Tell whether a folder holds saves, and is none itself."""
    name = path.name.lower()
    if name in _NEVER_HOLDERS:
        return False
    if name in HOLDERS:
        with contextlib.suppress(OSError):
            entries = os.listdir(path)
            own = "config.json" in entries or any(e.endswith(".distcp") for e in entries)
            return not own
        return False
    is_day = name.isdecimal() and len(name) >= _DAY_DIGITS
    if is_day or name == "checkpoint":  # a save, or where they are
        files = [entry.name for entry, _ in _entries(path) if not entry.is_dir()]
        if _is_one_series(files):
            return True
    return not _is_numbered(name) and (_has_numbered(path) or _has_holder(path, 3))


def _is_numbered(name: str) -> bool:
    """Tell whether a folder's name is one of a series of saves: step-100, 100, iter_0000100."""
    told = save_names.parse(name, is_folder=True)
    words = re.sub(r"[^a-z]+$", "", told.series)
    return bool(told.numbers) and bool(
        re.search(_NUMBERED, words) or (not words and len(told.numbers) == 1)
    )


def _has_numbered(path: Path) -> bool:
    """Tell whether a folder holds numbered saves, and is none of a name that says that it is."""
    inside = _entries(path)
    folders = [e.name for e, _ in inside if e.is_dir() and _is_numbered(e.name)]
    files = [e.name for e, _ in inside if not e.is_dir()]
    if folders and all(map(save_names.is_companion, files)):
        return True
    role = save_names.parse(path.name, is_folder=True).role
    if role not in (STATE, OTHER) or save_names.is_log_folder(path.name):
        return False
    return any(map(_is_counted, folders)) or _is_one_series(files)


def _is_counted(name: str) -> bool:
    """Tell whether a folder's number is one of steps: no layer_01."""
    return not re.fullmatch(r"[\W\d_]+", name)


def _is_one_series(files: Sequence[str]) -> bool:
    """Tell whether files are saves of one kind: numbered ones, the last, or both.

    Those of several kinds (actor.pt, critic.pt) are a save together: their folder is it.
    """
    told = [save_names.parse(file) for file in files if re.search(_STATE_FILE, file)]
    last = {name.series for name in told if name.role == LAST}
    others = {name.series for name in told if name.role == STATE}
    counted = {
        s for s in others if re.search(_NUMBERED_FILE, re.sub(r"[^a-z]+$", "", s.split(".")[0]))
    }
    is_numbered = all(name.numbers for name in told if name.role == STATE)
    return is_numbered and others == counted and max(len(last), len(others)) == 1


def _has_holder(path: Path, depth: int) -> bool:
    for entry, _ in _entries(path):
        if entry.is_dir(follow_symlinks=False):
            if entry.name.lower() in ("checkpoints", "ckpts", "weights", *save_names.STATE_HOLDERS):
                return True
            if depth > 1 and _has_holder(Path(entry.path), depth - 1):
                return True
    return False


def folder_save(path: Path, status: os.stat_result, *, needs_marker: bool = True) -> list[Save]:
    """Return the save that a folder is, if it is one."""
    try:
        content = layouts.look_into(path)
        if not layouts.holds_state(content):
            return []
        whole = layouts.is_whole(content, needs_marker=needs_marker)
    except OSError:
        return []
    layout = layouts.find_layout(content) if needs_marker else None
    name = save_names.parse(path.name, is_folder=True)
    if needs_marker and name.role == STATE and not name.numbers and not layouts.says_state(content):
        name = replace(name, role=DOUBTFUL)
    pointed_at = layout is not None and layout.is_pointed_at
    return [Save(path, (path,), name, status.st_mtime_ns, whole, pointed_at, content)]


def file_saves(
    folder: Path,
    files: dict[str, os.stat_result],
    as_role: Callable[[Name], Name] = lambda name: name,
) -> list[Save]:
    """Return the saves that files are, those together that are one.

    Args:
        files: The files' names.
        as_role: Corrects what their names say.
    """
    prefixes = {name.removesuffix(".index") for name in files if name.endswith(".index")}
    groups: dict[object, list[str]] = {}
    parts: list[tuple[str, Name]] = []
    told = {entry: as_role(save_names.parse(entry)) for entry in files}
    owners = {entry: owner for entry in files if (owner := _owner_of(entry, files))}
    for entry, name in told.items():
        if name.role in (OTHER, UNFINISHED) or entry in owners:
            continue
        prefix = _prefix_of(entry, prefixes)
        if prefix is not None:
            groups.setdefault(prefix, []).append(entry)
        elif name.role == PART:
            parts.append((entry, name))
        elif name.ranks:
            together = (name.series, name.numbers, name.version, name.world)
            groups.setdefault(together, []).append(entry)
        elif not _is_data(entry):
            groups.setdefault((entry,), []).append(entry)
    found = []
    for key, entries in groups.items():
        entries.sort(key=lambda entry: (told[entry].ranks, entry))
        name = save_names.parse(key) if isinstance(key, str) else told[entries[0]]
        beside = [e for e, part in parts if name.numbers and part.numbers == name.numbers]
        if beside and name.role == DOUBTFUL:  # tensors, and an optimizer's file
            name = replace(name, role=STATE)
        beside += [entry for entry, owner in owners.items() if owner in entries]
        found.append(_together(folder, files, [*entries, *beside], name, key, told))
    return found


def _together(
    folder: Path,
    files: dict[str, os.stat_result],
    entries: Sequence[str],
    name: Name,
    key: object,
    told: dict[str, Name],
) -> Save:
    paths = tuple(folder / entry for entry in entries)
    whole = all(_is_whole(path) for path in paths)
    world = max((told[entry].world or 0 for entry in entries), default=0)
    if isinstance(key, str):
        whole = whole and len(entries) > max(1, world) and f"{key}.index" in entries
    else:
        whole = whole and len(entries) >= world
    return Save(
        folder / key if isinstance(key, str) else paths[0],
        paths,
        name,
        max(files[entry].st_mtime_ns for entry in entries),
        whole,
        kinds=frozenset(told[entry].series for entry in entries),
    )


def _owner_of(entry: str, files: Collection[str]) -> str:
    """Return the file to which one belongs, by its name: model.npz of model.npz.optimizer.npz."""
    role = save_names.parse(entry).role
    for place, letter in enumerate(entry):
        before, after = entry[:place], entry[place:]
        is_more = letter == "." and role in (STATE, PART, DOUBTFUL)
        if is_more and before in files and not re.search(r"\d", after):
            return before if save_names.parse(before).role in (STATE, LAST, DOUBTFUL) else ""
    return ""


def _prefix_of(entry: str, prefixes: set[str]) -> str | None:
    """Return TensorFlow's name of the save of which a file is a part: ckpt-5 of ckpt-5.index."""
    for prefix in (entry.removesuffix(".index"), entry.rpartition(".data-")[0]):
        if prefix in prefixes:
            return prefix
    return None


def _is_data(entry: str) -> bool:
    """Tell whether a file is a part of TensorFlow's that has no index yet."""
    return re.search(r"\.data-\d+-of-\d+$", entry) is not None


def _is_whole(path: Path) -> bool:
    try:
        return is_whole(path)
    except OSError:
        return False
