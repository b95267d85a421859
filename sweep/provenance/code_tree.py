"""What belongs to a study's code: the files to freeze, and what is only linked.

In a git repository the code is all of the working tree that git does not ignore, submodules too,
committed or not. Elsewhere it is the working folder, less what is data, results, caches or an
environment. What is left out but lies there (ignored folders with data, an environment) is linked.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweep.core.errors import InputError
from sweep.core.masking import mask
from sweep.core.paths import RUNS_OWN

ASK_TIMEOUT_S = 10.0
MAX_BYTES = 200_000_000
MAX_FILES = 50_000
MAX_LINKS = 2_000  # a container binds each of them
SHOWN = 5
# Made again by whoever needs them; a link would let all snapshots write into one. And what belongs
# to a runs folder, whosever: one where nothing was launched yet is told by nothing else.
NO_CODE = frozenset(
    {
        "__pycache__",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".ipynb_checkpoints",
        ".git",
        ".hg",
        ".svn",
        *RUNS_OWN,
    }
)
CACHE_SUFFIXES = (".pyc", ".pyo")
# Ignored files of these kinds are frozen all the same: generated code, one's own configuration.
FROZEN_THOUGH_IGNORED = (
    ".py",
    ".pyx",
    ".so",
    ".sh",
    ".jl",
    ".lua",
    ".r",
    ".yaml",
    ".yml",
    ".toml",
    ".json",
    ".ini",
    ".cfg",
)
MAX_IGNORED_BYTES = 20_000_000


class GitFailed(Exception):
    """Git did not answer; the text is why."""


@dataclass(frozen=True)
class Tree:
    """The code of a study as it lies on disk.

    Attributes:
        root: The repository's top, or the working folder; absolute.
        files: Paths relative to root, sorted; symbolic links among them.
        links: What is linked instead of copied: relative paths, sorted.
        why_plain: Why this is no repository; "" where it is one.
        submodules: Relative path to commit.
    """

    root: Path
    files: Sequence[str]
    links: Sequence[str] = ()
    why_plain: str = ""
    submodules: dict[str, str] = field(default_factory=dict)


def find(workdir: Path, apart: Sequence[Path] = ()) -> Tree:
    """Return the code around a working folder.

    Args:
        apart: Folders and files that are no code, wherever they lie: the runs (never linked), and
            after them the study's data.

    Raises:
        InputError: There is more than can be frozen at each launch.
    """
    runs, data = apart[:1], apart[1:]
    try:
        top = find_top(workdir)
        tree = _find_repository(top, runs, data)
    except GitFailed as error:
        tree = _find_plain(workdir, runs, data, str(error))
    _check_size(tree)
    _check_links(tree)
    return tree


def find_top(workdir: Path) -> Path:
    """Return the top of the repository whose code a folder is. Raises: GitFailed."""
    if not shutil.which("git"):
        raise GitFailed("git is not installed")
    top = Path(os.fsdecode(git(workdir, "rev-parse", "--show-toplevel")).rstrip("\n"))
    if workdir.resolve() != top.resolve() and _is_ignored(top, workdir):
        raise GitFailed(f"{workdir} is ignored by the repository {top}")
    return top


def git(folder: Path, *arguments: str) -> bytes:
    """Return what git prints. Raises: GitFailed."""
    # Without optional locks: a record must not disturb the user's own git at work.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            env=environ,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GitFailed(f"git did not answer in {ASK_TIMEOUT_S:g} s") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitFailed(mask(lines[0]) if lines else f"git ended with code {done.returncode}")
    return done.stdout


def _is_ignored(top: Path, path: Path) -> bool:
    try:
        git(top, "check-ignore", "-q", str(path.resolve()))
    except GitFailed:
        return False
    return True


def inside(path: Path, root: Path) -> str | None:
    """Return a path relative to a root that it lies below, links resolved; else None."""
    try:
        return str(path.resolve().relative_to(root.resolve()))
    except ValueError:
        return None


def _names(answer: bytes) -> list[str]:
    return [name for name in os.fsdecode(answer).split("\0") if name]


def _find_repository(top: Path, runs: Sequence[Path], data: Sequence[Path]) -> Tree:
    out = _relative(runs, top)
    linked = _relative(data, top)
    files: set[str] = set()
    ignored: set[str] = set()
    submodules: dict[str, str] = {}
    is_apart = _Apart(top)

    def add(folder: Path, prefix: str) -> None:
        ask = ["ls-files", "-z", "--exclude-standard"]
        for name in _names(git(folder, *ask, "--cached", "--others")):
            path = prefix + name
            if _is_below(path, out) or _is_below(path, linked) or _is_cache(path):
                continue
            mode = _mode(os.path.join(top, path))
            if stat.S_ISDIR(mode) or name.endswith("/"):
                path = path.rstrip("/")  # a submodule, or a repository that lies in this one
                if not (top / path / ".git").exists():
                    continue  # not checked out
                with_commit = _commit(top / path)
                if with_commit:
                    submodules[path] = with_commit
                add(top / path, path + "/")
            elif (foreign := is_apart(path)) is not None:
                if not foreign.is_runs:
                    ignored.add(foreign.path)
            elif mode:
                files.add(path)
        for name in _names(git(folder, *ask, "--others", "--ignored", "--directory")):
            path = prefix + name
            is_code = path.lower().endswith(FROZEN_THOUGH_IGNORED)
            if is_code and _size(top / path) <= MAX_IGNORED_BYTES:
                files.update({path} if not _is_below(path, out | linked) else ())
            else:
                ignored.add(path.rstrip("/"))
        for name in _names(git(folder, *ask, "--others", "--directory")):
            path = prefix + name
            if name.endswith("/") and _is_empty(top / path):
                ignored.add(path.rstrip("/"))

    add(top, "")
    there = {path for path in linked if (top / path).exists()}
    kept = {path for path in ignored - out if not _is_cache(path) and not _holds(path, out)}
    parted = {path for path in ignored if _holds(path, out)}
    for path in parted:  # an ignored folder with the runs in it: link the rest of it
        kept |= {one for one in _around(top, path, out) if not _is_cache(one)}
    links = {path for path in kept | there if not _is_below(path, (kept | there) - {path})}
    return Tree(top, sorted(files), sorted(links), "", submodules)


@dataclass(frozen=True)
class _Foreign:
    path: str
    is_runs: bool


class _Apart:
    """Tells whether a path lies in an environment, or among the runs of another runs folder."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.known: dict[str, _Foreign | None] = {"": None}

    def __call__(self, path: str) -> _Foreign | None:
        folder = path.rpartition("/")[0]
        if folder not in self.known:
            above = self(folder)
            if above is None and _is_environment(self.top / folder):
                above = _Foreign(folder, is_runs=False)
            elif above is None and _is_runs(self.top / folder):
                above = _Foreign(folder, is_runs=True)
            self.known[folder] = above
        return self.known[folder]


def _commit(folder: Path) -> str:
    try:
        return git(folder, "rev-parse", "--verify", "HEAD").decode().strip()
    except GitFailed:
        return ""


def _around(top: Path, path: str, out: set[str]) -> Iterator[str]:
    """Yield what lies in a folder beside the paths in ``out`` that it holds."""
    if path in out:
        return
    for entry in sorted(os.listdir(top / path)):
        below = f"{path}/{entry}"
        if _holds(below, out):
            yield from _around(top, below, out)
        else:
            yield below


def _find_plain(workdir: Path, runs: Sequence[Path], data: Sequence[Path], why: str) -> Tree:
    root = Path(os.path.abspath(workdir))
    out, linked = _relative(runs, root), _relative(data, root)
    files: list[str] = []
    links: set[str] = set()
    size = 0
    for folder, folders, names in os.walk(root):
        at = os.path.relpath(folder, root)
        prefix = "" if at == "." else at + "/"
        enter = []
        for name in sorted(folders):
            path = prefix + name
            if path in out or name in NO_CODE or _is_runs(root / path):
                continue
            if path in linked or _is_empty(root / path) or _is_environment(root / path):
                links.add(path)
            elif (root / path).is_symlink():
                files.append(path)
            else:
                enter.append(name)
        folders[:] = enter
        for name in sorted(names):
            path = prefix + name
            if path in linked:
                links.add(path)
            elif not name.endswith(CACHE_SUFFIXES) and path not in out:
                files.append(path)
                size += _size(root / path)
        if size > MAX_BYTES or len(files) > MAX_FILES:
            break  # enough is known: it is too much
    return Tree(root, sorted(files), sorted(links), why)


def _relative(paths: Iterable[Path], root: Path) -> set[str]:
    found = {inside(path, root) for path in paths}
    return {path for path in found if path and path != "."}


def _is_empty(folder: Path) -> bool:
    """Tell whether nothing of a folder can be copied: results go there, or it is closed to us."""
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except FileNotFoundError:  # removed just now, or a link to nothing: links are copied
        return False
    except OSError:
        return True


def _is_environment(folder: Path) -> bool:
    """Tell whether a folder is a virtual or conda environment: no code, and it does not move."""
    return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()


def _is_runs(folder: Path) -> bool:
    return (folder / ".last").is_file() and any(folder.glob("*/study.json"))


def _is_below(path: str, tops: set[str]) -> bool:
    if not tops:
        return False
    parts = path.rstrip("/").split("/")
    return any("/".join(parts[:count]) in tops for count in range(1, len(parts) + 1))


def _holds(path: str, inner: set[str]) -> bool:
    return any(one == path or one.startswith(path + "/") for one in inner)


def _is_cache(path: str) -> bool:
    return path.endswith(CACHE_SUFFIXES) or not NO_CODE.isdisjoint(path.rstrip("/").split("/"))


def _mode(path: str) -> int:
    """Return a file's type and permissions, 0 where there is nothing."""
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _size(path: str | Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _check_size(tree: Tree) -> None:
    """Refuse what is too much to copy at each launch, naming what takes most of it."""
    by_entry: dict[str, int] = {}
    total = 0
    for name in tree.files:
        size = _size(os.path.join(tree.root, name))
        total += size
        entry = name.split("/", 1)[0]
        by_entry[entry] = by_entry.get(entry, 0) + size
    if total <= MAX_BYTES and len(tree.files) <= MAX_FILES:
        return
    largest = sorted(by_entry.items(), key=lambda item: -item[1])[:SHOWN]
    shown = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in largest)
    what = f"{total / 1e6:.0f} MB" if total > MAX_BYTES else f"{len(tree.files)} files"
    ignore = (
        "add it to .gitignore"
        if not tree.why_plain
        else "name it under `data` in the study file, or keep the code in a git repository"
    )
    no_git = f" (git gives no list of it: {tree.why_plain})" if tree.why_plain else ""
    raise InputError(
        f"The code in {tree.root}{no_git} is {what} or more; at most {MAX_BYTES / 1e6:.0f} MB in "
        f"{MAX_FILES} files are frozen at launch. Largest: {shown}.",
        f"If data are among it, {ignore}: it is linked then. Or write `code: live` in the study "
        "file: trials run the files as they are when they start.",
    )


def _check_links(tree: Tree) -> None:
    """Refuse what is too much to link: training that lists a folder would miss the rest of it."""
    if len(tree.links) <= MAX_LINKS:
        return
    by_folder = Counter(os.path.dirname(name) or "." for name in tree.links)
    shown = ", ".join(f"{name} {count}" for name, count in by_folder.most_common(SHOWN))
    raise InputError(
        f"{len(tree.links)} files and folders that are no code lie singly in {tree.root}; at most "
        f"{MAX_LINKS} are linked into the frozen code. Most of them: {shown}.",
        "Let git ignore their folder as a whole, or name it under `data` in the study file: it is "
        "one link then. Or write `code: live` in the study file: trials run the files as they are "
        "when they start.",
    )
