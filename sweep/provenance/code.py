"""A study's code as a record: commit, branch, changes, submodules, and the files that count."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sweep.core.files import hash_file
from sweep.core.masking import mask
from sweep.provenance.code_tree import GitFailed, find_top, git, inside

# Untracked files of these kinds are code that a commit would lack.
CODE_SUFFIXES = (".py", ".pyx", ".sh", ".jl", ".r", ".lua", ".c", ".cpp", ".cu", ".h")
MAX_UNTRACKED = 500
MAX_SCRIPT_BYTES = 4_000_000
MAX_IMPORTED = 500
MAX_PATCH_BYTES = 20_000_000
_IMPORT = (
    r"(?m)^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n;#]+)"
    r"|import[ \t]+([^\n;#]+))"
)


def capture_code(command: Sequence[str], workdir: Path, runs: Path) -> tuple[dict[str, Any], bytes]:
    """Return the record of a working folder's code, and the patch of what is not committed.

    Args:
        runs: Results, and no code.
    """
    named = imported_files(command, workdir)
    files = {os.path.relpath(path, workdir): digest(path).hex() for path in named}
    found, patch = _capture_git(workdir, runs, named)
    return {**found, "files": files}, patch if len(patch) <= MAX_PATCH_BYTES else b""


def _capture_git(workdir: Path, runs: Path, named: Sequence[Path]) -> tuple[dict[str, Any], bytes]:
    """Return commit, branch, origin and uncommitted changes; or {"git": why there is none}."""
    patch = b""
    try:
        top = find_top(workdir)
        # All of the repository, not only the folder; the runs are results, not code.
        scope = [".", f":(exclude){inside(runs, top) or '.git'}"]
        changes = git(top, "status", "--porcelain", "-z", "--untracked-files=no", "--", *scope)
        try:
            commit = git(top, "rev-parse", "--verify", "HEAD").decode().strip()
        except GitFailed:
            return {"git": "the repository has no commit yet", "repository": str(top)}, b""
        others = git(top, "ls-files", "-z", "--others", "--exclude-standard", "--", *scope)
        untracked = [
            name
            for name in sorted(os.fsdecode(others).split("\0"))
            if name.lower().endswith(CODE_SUFFIXES)
        ]
        diff = hashlib.sha256()
        if changes:
            patch = git(top, "diff", "HEAD", "--binary", "--no-ext-diff", "--", *scope)
            diff.update(patch)
        for name in untracked[:MAX_UNTRACKED]:
            diff.update(name.encode("utf-8", "surrogateescape") + b"\0" + digest(top / name))
        branch = git(top, "rev-parse", "--abbrev-ref", "HEAD").decode().strip()
    except GitFailed as error:
        return {"git": str(error)}, b""
    try:
        origin = mask(git(top, "config", "--get", "remote.origin.url").decode().strip())
    except GitFailed:
        origin = None
    is_dirty = bool(changes or untracked)
    # What the command imports comes first: it matters.
    imported = {inside(path, top) for path in named}
    untracked.sort(key=lambda name: (name not in imported, name))
    record = {
        "git": "ok",
        "repository": str(top),
        "origin": origin,
        "commit": commit,
        "branch": branch if branch != "HEAD" else None,
        "dirty": is_dirty,
        "diff": diff.hexdigest() if is_dirty else None,
        "untracked": untracked[:20],
        "untracked_imported": [name for name in untracked if name in imported],
        "submodules": _submodules(top),
    }
    return record, patch


def _submodules(top: Path) -> dict[str, str]:
    """Return {path: commit that is checked out}."""
    if not (top / ".gitmodules").is_file():
        return {}
    try:
        lines = git(top, "submodule", "status", "--recursive").decode("utf-8", "replace")
    except GitFailed:
        return {}
    found = [line[1:].split(" ") for line in lines.splitlines() if line]
    return {words[1]: words[0] for words in found if len(words) > 1}


def has_commit(workdir: Path, commit: str) -> bool:
    """Tell whether the repository around a folder still has a commit."""
    try:
        git(workdir, "cat-file", "-e", f"{commit}^{{commit}}")
    except (GitFailed, OSError):
        return False
    return True


def imported_files(command: Sequence[str], workdir: Path) -> list[Path]:
    """Return the files that a command names, and those of the workdir's that they import, sorted.

    Found by reading ``import`` lines, without running anything; what is imported otherwise (by a
    name in a configuration) is not seen.
    """
    found: dict[Path, None] = {}
    waiting: list[Path] = []

    def add(path: Path) -> None:
        try:
            small = path.is_file() and path.stat().st_size <= MAX_SCRIPT_BYTES
        except OSError:
            return
        if small and path not in found and len(found) < MAX_IMPORTED:
            found[path] = None
            waiting.append(path)

    for before, element in zip(("", *command), command, strict=False):
        if not element or "{" in element or "\n" in element:
            continue
        if before == "-m":
            for path in _resolve(element, [workdir, workdir / "src"]):
                add(path)
            for path in _resolve(f"{element}.__main__", [workdir, workdir / "src"]):
                add(path)
        else:
            add(workdir / element)
    while waiting:
        path = waiting.pop()
        if path.suffix != ".py":
            continue
        folders = list(dict.fromkeys([path.parent, workdir, workdir / "src"]))
        text = path.read_text(encoding="utf-8", errors="replace")
        for name, level in _imports(text):
            base = [path.parents[level - 1]] if 0 < level <= len(path.parents) else folders
            for other in _resolve(name, base) if name else ():
                add(other)
    return sorted(found)


def _imports(text: str) -> Iterator[tuple[str, int]]:
    """Yield (dotted name, level) of what a module's text imports; level 0 is absolute."""
    for module, names, plain in re.findall(_IMPORT, text):
        if plain:
            for part in plain.split(","):
                yield part.split()[0] if part.split() else "", 0
            continue
        bare = module.lstrip(".")
        level = len(module) - len(bare)
        yield bare, level
        for part in names.strip("() \t\n").split(","):
            words = part.split()
            if words and words[0] != "*":
                yield f"{bare}.{words[0]}".strip("."), level


def _resolve(name: str, folders: Sequence[Path]) -> list[Path]:
    """Return the file of a module, and its packages' ``__init__``, in the first folder that has
    it."""
    for folder in folders:
        found = []
        place = folder
        for part in name.split("."):
            place = place / part
            if (place / "__init__.py").is_file():
                found.append(place / "__init__.py")
        if place.with_suffix(".py").is_file():
            found.append(place.with_suffix(".py"))
        if found:
            return found
    return []


def digest(path: Path) -> bytes:
    """Return the SHA-256 of a file, of nothing where it cannot be read."""
    try:
        return hash_file(path).digest()
    except OSError:
        return b""
