"""The code as it was at launch: a snapshot that trials run, whatever is edited afterwards.

A snapshot lies in ``code/<id>`` of the study's folder, its file list with SHA-256 beside it, and
its id is made of what is in it: while nothing changes a later launch takes up the same one.
Training starts in the snapshot's copy of the workdir, which also comes first on PYTHONPATH; in a
container the snapshot is bound over the original path.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweep.core.errors import DamagedFile, InputError
from sweep.core.files import make_folders, make_private, open_regular, read_object, write_atomic
from sweep.core.paths import PACKAGE, StudyFolder
from sweep.core.study import Study
from sweep.provenance import code_tree
from sweep.provenance.code_tree import Tree, inside
from sweep.provenance.packages import editable_folders, find_folders, find_python

LIVE = "live"
LIST = "list_sha256"  # of a note: the SHA-256 of the list of files; earlier versions noted none
REFROZEN = "Launch the study again: `sweep launch` freezes the code anew."
# In these training sees this machine's paths; in all others the snapshot is bound.
ON_THE_MACHINE = ("none", "venv", "conda", "modules")


@dataclass(frozen=True)
class SnapshotPlan:
    """What a launch will freeze.

    Attributes:
        editable: Folders that the training's interpreter imports from beside its own.
    """

    study: Study
    tree: Tree
    editable: Sequence[Path]

    @property
    def is_bound(self) -> bool:
        return self.study.environment.runtime not in ON_THE_MACHINE


def plan(study: Study, runs: Path, environ: Mapping[str, str]) -> SnapshotPlan | None:
    """Look at a study's code; None with ``code: live``.

    Raises:
        InputError: There is too much of it.
    """
    if study.code == LIVE:
        return None
    workdir = Path(study.workdir)
    tree = code_tree.find(workdir, [runs, *(workdir / path for path in study.data)])
    python = find_python(study, environ)
    folders = find_folders(python)[1] if python else []
    return SnapshotPlan(study, tree, editable_folders(folders))


def freeze(found: SnapshotPlan, folder: StudyFolder) -> str:
    """Copy the code into a study's folder, unless it is there already; return the snapshot's id.

    Nobody else does at the same time: half a copy was left by one who was killed, and is removed.

    Raises:
        InputError: A file of it cannot be read.
    """
    tree, study = found.tree, found.study
    make_private(folder.code)
    for left in folder.code.iterdir():
        if re.fullmatch(r"\.[0-9a-f]{12}", left.name):
            shutil.rmtree(left, ignore_errors=True)
    if any(folder.code.glob("*.sha256")):  # else it cannot be there: read the files once
        name = _name(found, _hash_files(tree))
        if (folder.code / name).is_dir() and _is_noted(folder, name):
            return name
    temporary = folder.code / f".{os.urandom(6).hex()}"
    temporary.mkdir(mode=0o700)
    try:
        copied = _copy(tree, temporary)
        _link(found, temporary, folder)
        name = _name(found, copied)  # of what was copied, should somebody be editing just now
        listed = _write_list(copied)
        note = {
            "root": str(tree.root),
            "workdir": inside(Path(study.workdir), tree.root) or ".",
            "editable": [p for p in (inside(e, tree.root) for e in found.editable) if p],
            "links": list(tree.links),
            "bound": found.is_bound,
            LIST: hashlib.sha256(listed).hexdigest(),
        }
        write_atomic(folder.code / f"{name}.sha256", listed)
        write_atomic(folder.code / f"{name}.json", json.dumps(note, indent=1) + "\n")
        if not (folder.code / name).is_dir():
            temporary.rename(folder.code / name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return name


def _name(found: SnapshotPlan, files: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    # What a study file says reaches trials otherwise: raising `trials` in it is no other code.
    own = inside(Path(found.study.source), found.tree.root) if found.study.source else None
    place = [str(found.tree.root), found.study.workdir, str(found.is_bound), *found.tree.links]
    place += [str(path) for path in found.editable]
    for text in (*place, *(f"{path}\0{value}" for path, value in files.items() if path != own)):
        digest.update(os.fsencode(text) + b"\n")
    return digest.hexdigest()[:16]


def _hash_files(tree: Tree) -> dict[str, str]:
    return {name: found for name in tree.files if (found := _take(tree, name, None)) is not None}


def _copy(tree: Tree, target: Path) -> dict[str, str]:
    made: set[str] = set()
    found: dict[str, str] = {}
    for name in tree.files:
        above = name.rpartition("/")[0]
        if above not in made:
            make_folders(target / above)
            made.add(above)
        digest = _take(tree, name, os.path.join(target, name))
        if digest is not None:
            found[name] = digest
    return found


def _take(tree: Tree, name: str, target: str | None) -> str | None:
    """Hash one file of the code, and copy it if a target is given; None where it has gone."""
    source = os.path.join(tree.root, name)
    try:
        status = os.lstat(source)
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(_retarget(tree, name))
            if target is not None:
                os.symlink(content, target)
        elif stat.S_ISREG(status.st_mode):
            with open(source, "rb") as stream:
                content = stream.read()
            if target is not None:
                with open(target, "wb") as stream:
                    stream.write(content)
                    own = stat.S_IMODE(status.st_mode) & stat.S_IRWXU  # a copy is for us alone
                    os.fchmod(stream.fileno(), own | stat.S_IWUSR)
                os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        else:
            return None  # a pipe, a socket
    except FileNotFoundError:
        return None
    except PermissionError:
        raise InputError(
            f"{source} cannot be read, so the code cannot be frozen.",
            "Make it readable, let git ignore it, or write `code: live` in the study file.",
        ) from None
    return hashlib.sha256(content).hexdigest()


def _retarget(tree: Tree, name: str) -> str:
    """Return a link's target as it must read in the snapshot: what it named outside stays so."""
    link = tree.root / name
    text = os.readlink(link)
    target = os.path.normpath(link.parent / text)
    below = os.path.relpath(target, tree.root)
    if below == ".." or below.startswith("../"):
        return target
    return os.path.relpath(below, os.path.dirname(name) or ".")


def _link(found: SnapshotPlan, target: Path, folder: StudyFolder) -> None:
    """Link what is not copied. In a container the links would name themselves: there are mount
    points instead."""
    tree = found.tree
    for name in tree.links:
        place = target / name
        if os.path.lexists(place):
            continue
        make_folders(place.parent)
        if not found.is_bound:
            place.symlink_to(tree.root / name)
        elif (tree.root / name).is_dir():
            place.mkdir(mode=0o700)
        else:
            place.touch(mode=0o600)
    for path in _own_folders(folder) if found.is_bound else ():
        below = inside(path, tree.root)
        if below:
            make_folders(target / below)


def _own_folders(folder: StudyFolder) -> list[Path]:
    """Return what training sees of the study's folder, should that lie in the code's."""
    return [folder.root / "trials", folder.root / "reruns", folder.python_path]


def is_there(folder: StudyFolder, name: str) -> bool:
    """Tell whether a snapshot has not been removed."""
    return (folder.code / name).is_dir() and (folder.code / f"{name}.json").is_file()


def frozen_workdir(study: Study, folder: StudyFolder, name: str | None) -> Path:
    """Return the workdir as one of a study's snapshots has it.

    Args:
        name: The snapshot's id; None for the live code.

    Raises:
        InputError: The snapshot is gone.
    """
    if name is None:
        return Path(study.workdir)
    _refuse_gone(folder, name)
    return Path(os.path.normpath(folder.code / name / _read_note(folder, name)["workdir"]))


def _refuse_gone(folder: StudyFolder, name: str) -> None:
    if not is_there(folder, name):
        raise InputError(
            f"The frozen code that this runs is gone: {folder.code / name}.",
            "Launch the study again: `sweep launch` freezes the code anew.",
        )


@dataclass(frozen=True)
class Placed:
    """A study whose training runs from a snapshot, and the environment that it inherits."""

    study: Study
    environ: Mapping[str, str]


def place(
    study: Study, folder: StudyFolder, name: str | None, environ: Mapping[str, str]
) -> Placed:
    """Return a study as it trains from one of its snapshots.

    Args:
        name: The snapshot's id; None for the live code.
        environ: What training inherits.

    Raises:
        InputError: The snapshot is gone.
    """
    if name is None:
        return Placed(study, environ)
    _refuse_gone(folder, name)
    note = _read_note(folder, name)
    if note["bound"]:
        for path in _own_folders(folder):
            make_private(path)  # what is not there cannot be bound
        binds = tuple(f"{source}:{target}" for source, target in bindings(folder, name))
        given = replace(study.environment, binds=(*binds, *study.environment.binds))
        return Placed(replace(study, environment=given), environ)
    root, snapshot = Path(note["root"]), folder.code / name
    workdir = os.path.normpath(snapshot / note["workdir"])
    first = [workdir, *(os.path.normpath(snapshot / path) for path in note["editable"])]
    moved = _Mover(root, snapshot, note["links"], Path(study.workdir))
    given = study.environment
    if given.runtime == "venv":  # it does not move, and may lie outside the code
        given = replace(given, image=os.path.normpath(study.venv_folder))
    own = given.env.get("PYTHONPATH")
    if own is not None:
        given = replace(given, env={**given.env, "PYTHONPATH": moved.path(own, first)})
    placed = replace(
        study, workdir=workdir, command=tuple(map(moved.argument, study.command)), environment=given
    )
    inherited = moved.path(environ.get("PYTHONPATH", ""), first)
    return Placed(placed, {**environ, "PYTHONPATH": inherited})


class _Mover:
    """Turns paths of frozen files into those of their copies."""

    def __init__(self, root: Path, snapshot: Path, links: Sequence[str], workdir: Path) -> None:
        self.root, self.snapshot, self.links, self.workdir = root, snapshot, links, workdir

    def argument(self, word: str) -> str:
        """Move an argument (or what follows its "=") that is the absolute path of a frozen file.

        A relative one that leads out of the code becomes absolute: it still means the same.
        """
        head, equals, tail = word.partition("=")
        if equals and head.startswith("-"):
            return f"{head}={self._file(tail)}"
        return self._file(word)

    def _file(self, word: str) -> str:
        if word.startswith("../"):
            target = Path(os.path.normpath(self.workdir / word))
            return str(target) if target.exists() and inside(target, self.root) is None else word
        copy = self._copy(word)
        return str(copy) if copy is not None and copy.is_file() else word

    def path(self, text: str, first: Sequence[str]) -> str:
        """Move the folders of a search path, with others before them."""
        parts = [part for part in text.split(os.pathsep) if part]
        moved = [str(self._copy(part) or part) for part in parts]
        return os.pathsep.join(dict.fromkeys([*first, *moved]))

    def _copy(self, word: str) -> Path | None:
        if not os.path.isabs(word):
            return None
        below = inside(Path(word), self.root)
        if below is None or any(below == x or below.startswith(x + "/") for x in self.links):
            return None
        copy = self.snapshot / below
        return copy if copy.exists() else None


def _read_note(folder: StudyFolder, name: str) -> dict[str, Any]:
    """Return what a launch has noted of a snapshot.

    Raises:
        DamagedFile: It cannot be understood, or is gone.
    """
    path = folder.code / f"{name}.json"
    note = read_object(path, REFROZEN) or {}
    whole = {"root": str, "workdir": str, "bound": bool, "editable": list, "links": list}
    if not all(isinstance(note.get(key), kind) for key, kind in whole.items()):
        raise DamagedFile(
            f"{path} should say where this frozen code is from, and does not.", REFROZEN
        )
    return note


def _is_noted(folder: StudyFolder, name: str) -> bool:
    """Tell whether what was noted of a snapshot can be read."""
    try:
        _read_digests(folder, name)
        return True
    except DamagedFile:
        return False


def bindings(folder: StudyFolder, name: str) -> list[tuple[Path, Path]]:
    """Return (source, target) of what a container binds, in this order, to see the snapshot.

    The snapshot over the code's own path; then what is only linked, and the folders of the study
    that training uses where they lie in the code, each over its own place in it.
    """
    note = _read_note(folder, name)
    root = Path(note["root"])
    inner = [root / path for path in note["links"] if (root / path).exists()]
    inner += [path for path in _own_folders(folder) if inside(path, root)]
    return [(folder.code / name, root), *((path, path) for path in inner)]


def _write_list(files: Mapping[str, str]) -> bytes:
    """Return {path: SHA-256} as sha256sum writes it: a name with a line break is escaped."""
    lines = []
    for path, digest in files.items():
        escaped = path.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        lines.append(f"{'' if escaped == path else chr(92)}{digest}  {escaped}\n")
    return os.fsencode("".join(lines))


def _read_list(content: bytes) -> dict[str, str]:
    """Read back what ``_write_list`` wrote."""
    plain = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}
    found = {}
    for line in os.fsdecode(content).split("\n")[:-1]:
        digest, _, path = line.lstrip("\\").partition("  ")
        if line.startswith("\\"):
            path = re.sub(r"\\[\\nr]", lambda match: plain[match[0]], path)
        found[path] = digest
    return found


def _read_digests(folder: StudyFolder, name: str) -> dict[str, str]:
    """Return {path: SHA-256} of a snapshot as it was frozen.

    Raises:
        DamagedFile: They cannot be read, or are not what was written: what a list lacks would
            count as unchanged.
    """
    path = folder.code / f"{name}.sha256"
    noted = _read_note(folder, name).get(LIST)
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            content = stream.read()
    except OSError as error:
        raise DamagedFile(f"{path} cannot be read: {error.strerror or error}.", REFROZEN) from None
    is_whole = hashlib.sha256(content).hexdigest() == noted if noted else content.endswith(b"\n")
    if not is_whole:
        raise DamagedFile(f"{path} is not the list of files that was frozen.", REFROZEN)
    return _read_list(content)


def refuse_damaged(folder: StudyFolder, name: str) -> None:
    """Refuse a snapshot of which nobody could say whether its files have changed.

    Raises:
        DamagedFile: Its list of files is damaged.
    """
    _read_digests(folder, name)


def changed_files(folder: StudyFolder, name: str) -> list[str]:
    """Return the files of a snapshot that are no longer what was frozen, sorted.

    Raises:
        DamagedFile: The list of them is damaged.
    """
    before = _read_digests(folder, name)
    now = _hash_files(Tree(folder.code / name, list(before)))
    return sorted(path for path, digest in before.items() if now.get(path) != digest)


def new_files(folder: StudyFolder, name: str) -> list[str]:
    """Return the files within a snapshot that were not frozen: training wrote them. Sorted."""
    frozen = _read_list((folder.code / f"{name}.sha256").read_bytes())
    found = []
    for top, folders, files in os.walk(folder.code / name):
        folders[:] = [one for one in folders if one != "__pycache__"]
        paths = (os.path.relpath(os.path.join(top, one), folder.code / name) for one in files)
        found += [path for path in paths if not (folder.code / name / path).is_symlink()]
    return sorted(set(found) - set(frozen))


def notes(found: SnapshotPlan) -> list[str]:
    """Return, in sentences, what training uses of the live tree although the code is frozen."""
    root, links, study = found.tree.root, found.tree.links, found.study
    said = []
    ours = PACKAGE.parent
    for path in found.editable:
        if inside(path, root) is not None:
            said.append(f"{path} is installed as editable; training imports its frozen copy.")
        elif path.resolve() != ours:
            said.append(f"{path} is installed as editable and is not frozen: edits reach trials.")
    words = [*study.command, *(str(v) for v in study.fixed.values() if isinstance(v, str))]
    for word in words:
        path_text = word.partition("=")[2] if word.startswith("-") else word
        if not os.path.isabs(path_text) or not os.path.exists(path_text):
            continue
        if word == study.command[0] and os.path.basename(word).startswith("python"):
            continue  # an environment's, which is linked
        below = inside(Path(path_text), root)
        if below is None:
            continue
        if os.path.isfile(path_text) and not any(
            below == x or below.startswith(x + "/") for x in links
        ):
            said.append(
                f"{path_text} is an absolute path; training gets its frozen copy."
                if word in study.command and not found.is_bound
                else f"{path_text} points into the live code: edits reach trials."
            )
        else:
            said.append(f"{path_text} points into the live tree; it is not frozen.")
    return said
