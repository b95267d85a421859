"""Which version of some data this is, by the word of the tool that keeps them.

DVC, Git, Git LFS, git-annex and the Hugging Face hub each write down what they have put there.
Those files are read here; no tool but git is asked. What a tool did not fetch, so that only a
pointer lies where a file is expected, is found as well.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweep.provenance.code_tree import GitFailed, git

# A pointer of Git LFS has less than 1024 bytes by its specification; git-annex's are shorter.
MAX_POINTER_BYTES = 1023
MAX_READ = 20_000  # small files that are looked into
MAX_DOWNLOADS = 2_000
_LFS = b"version https://git-lfs.github.com/spec/"
_LFS_ID = re.compile(rb"^oid (?:sha256:)?([0-9a-f]{40,128})$", re.MULTILINE)
_ANNEX = "annex/objects/"
_HUB = re.compile(r"(?:datasets|models|spaces)--(.+)")


@dataclass
class Pointers:
    """Files of some data that only point at their content, and what they point at.

    Attributes:
        annex: (name, key) of each file that git-annex keeps, whether its content is here or not.
        lfs: (name, SHA-256) of each file that Git LFS has not fetched.
        missing: Names of the files whose content is not here.
        fetch: What would fetch it.
    """

    annex: list[tuple[str, str]] = field(default_factory=list)
    lfs: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    fetch: str = ""

    def versions(self) -> dict[str, str]:
        """Return a hash for each tool that keeps some of the files."""
        found = {}
        for tool, pairs in (("git-annex's key", self.annex), ("Git LFS's pointer", self.lfs)):
            if [name for name, _ in pairs] == ["."]:
                found[tool] = pairs[0][1]
            elif pairs:
                lines = "".join(f"{name}\0{key}\n" for name, key in sorted(pairs))
                content = lines.encode("utf-8", "surrogateescape")
                found[f"{tool}s"] = hashlib.sha256(content).hexdigest()
        return found


def find_versions(path: Path, names: Iterable[str] = ()) -> dict[str, str]:
    """Return {what says so: version} of a data file or folder; cheap, however large it is.

    Args:
        names: Of the files within it.
    """
    path = Path(os.path.abspath(path))
    return {**_dvc(path, names), **_hub(path), **_downloads(path), **_git(path)}


def tracking_file(path: Path) -> Path | None:
    """Return the ``.dvc`` file of data that are not there; None where there is none."""
    if os.path.lexists(path):
        return None
    beside = path.with_name(f"{path.name}.dvc")
    return beside if beside.is_file() else None


def find_pointers(path: Path, most: int) -> Pointers:
    """Return the pointers among the files of some data.

    Args:
        most: Look at no more files than these.
    """
    found = Pointers()
    read = 0
    for number, (name, file) in enumerate(_entries(path)):
        if number == most:
            break
        try:
            if os.path.islink(file):
                target = os.readlink(file)
                if _ANNEX in target:
                    found.annex.append((name, os.path.basename(target)))
                    if not os.path.exists(file):
                        found.missing.append(name)
                        found.fetch = "git annex get"
                continue
            if read >= MAX_READ or not 0 < os.stat(file).st_size <= MAX_POINTER_BYTES:
                continue
            read += 1
            content = Path(file).read_bytes()
        except OSError:
            continue
        lfs = _LFS_ID.search(content) if content.startswith(_LFS) else None
        if lfs:
            found.lfs.append((name, lfs[1].decode()))
            found.fetch = "git lfs pull"
        elif content.startswith(f"/{_ANNEX}".encode()):
            key = os.path.basename(os.fsdecode(content.splitlines()[0]))
            found.annex.append((name, key))
            found.fetch = "git annex get"
        else:
            continue
        found.missing.append(name)
    return found


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (name within the data, path) of files and links; "." is the data themselves."""
    if not path.is_dir():
        yield ".", str(path)
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            file = os.path.join(folder, name)
            yield os.path.relpath(file, path), file


def _dvc(path: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the hashes of what DVC tracks that is the data, holds them, or lies within them."""
    files = [path / name for name in names if name.endswith(".dvc") or name == "dvc.lock"]
    for folder in _dvc_folders(path):
        try:
            beside = sorted(os.listdir(folder))
        except OSError:
            continue
        files += [
            folder / name
            for name in beside
            if (name.endswith(".dvc") and name != ".dvc") or name == "dvc.lock"
        ]
    files = [file for file in dict.fromkeys(files) if file.is_file()]
    if not files:
        return {}
    from sweep.provenance.dvc import read_outs

    found = {}
    for file in files:
        for out, version in read_outs(file):
            if out == path or out in path.parents or path in out.parents:
                label = os.path.relpath(file, path.parent)
                if file.name == "dvc.lock":
                    label += f" of {os.path.relpath(out, path.parent)}"
                found[label] = version
    return found


def _dvc_folders(path: Path) -> Sequence[Path]:
    """Return the folders above some data whose DVC files may speak of them."""
    above = list(path.parents)
    for number, folder in enumerate(above):
        if (folder / ".dvc").is_dir():
            return above[: number + 1]
    return above[:1] if path.name and path.with_name(f"{path.name}.dvc").is_file() else []


def _hub(path: Path) -> dict[str, str]:
    """Return the revisions of what lies in a cache of the Hugging Face hub."""
    for number, part in enumerate(path.parts):
        if not (named := _HUB.fullmatch(part)):
            continue
        repository = Path(*path.parts[: number + 1])
        label = f"Hugging Face's {named[1].replace('--', '/')}"
        if path.parts[number + 1 : number + 2] == ("snapshots",) and len(path.parts) > number + 2:
            snapshot = repository / "snapshots" / path.parts[number + 2]
            return {label: snapshot.resolve().name}  # some make a link of a branch's name
        return _refs(repository, label)
    found: dict[str, str] = {}
    for repository in sorted(path.glob("*--*")) if path.is_dir() else ():
        if (named := _HUB.fullmatch(repository.name)) and (repository / "refs").is_dir():
            found |= _refs(repository, f"Hugging Face's {named[1].replace('--', '/')}")
    return found


def _refs(repository: Path, label: str) -> dict[str, str]:
    found = {}
    for file in sorted((repository / "refs").rglob("*")):
        if file.is_file() and (revision := _first_line(file)):
            found[f"{label} {file.relative_to(repository / 'refs')}"] = revision
    return found


def _downloads(path: Path) -> dict[str, str]:
    """Return the revisions that ``hf download --local-dir`` has noted."""
    folder = path if path.is_dir() else path.parent
    notes = folder / ".cache" / "huggingface" / "download"
    if not notes.is_dir():
        return {}
    if folder is path:
        files = [file for file, _ in zip(notes.rglob("*.metadata"), range(MAX_DOWNLOADS))]
    else:
        files = [notes / f"{path.name}.metadata"]
    revisions = sorted({line for file in files if (line := _first_line(file))})
    return {"Hugging Face's download": " ".join(revisions)} if revisions else {}


def _first_line(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return stream.readline(200).strip()
    except OSError:
        return ""


def _git(path: Path) -> dict[str, str]:
    """Return git's name for data that it tracks: the commit of a repository of their own, else
    the tree or blob as it was committed; of a file that Git LFS keeps, its SHA-256."""
    folder = path if path.is_dir() else path.parent
    if not any((above / ".git").exists() for above in (folder, *folder.parents)):
        return {}
    try:
        if (path / ".git").exists():
            return {"git's commit": _ask(folder, "rev-parse", "--verify", "HEAD")}
        if folder is path:
            return {"git's tree": _ask(folder, "rev-parse", "--verify", "HEAD:./")}
        blob = _ask(folder, "rev-parse", "--verify", f"HEAD:./{path.name}")
        if int(_ask(folder, "cat-file", "-s", blob)) <= MAX_POINTER_BYTES:
            content = git(folder, "cat-file", "blob", blob)
            lfs = _LFS_ID.search(content) if content.startswith(_LFS) else None
            if lfs:
                return {"Git LFS's pointer": lfs[1].decode()}
        return {"git's blob": blob}
    except (GitFailed, OSError, ValueError):  # not tracked, no commit, no git on this node
        return {}


def _ask(folder: Path, *arguments: str) -> str:
    return git(folder, *arguments).decode("utf-8", "replace").strip()
