"""A working folder of an attempt's own, over the code that all trials share: ``workdir: trial``.

What training writes where nobody told it to (``lightning_logs``, ``outputs``, ``wandb``) is then
the attempt's alone. The code is not copied: each entry of its folder is a link there, and that
folder itself comes first on PYTHONPATH. Folders for such output, and empty ones, are no links: what
is written into them would be in the code.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.core.output_folders import NAMES
from sweep.core.paths import AttemptFolder
from sweep.core.study import Study
from sweep.training.command.containers import CONTAINERS, split_bind

# Made again where they are needed; and a repository's, whose files would all be missing.
_NO_CODE = frozenset({"__pycache__", ".git", ".hg", ".svn"})
_KEEPS_EMPTY = frozenset({".gitkeep", ".gitignore", ".keep"})  # all that git keeps a folder by


@dataclass(frozen=True)
class Laid:
    """A study as it trains in a folder of its own, what it inherits, and where it starts."""

    study: Study
    environ: Mapping[str, str]
    cwd: str


def lay(study: Study, environ: Mapping[str, str], folder: AttemptFolder) -> Laid:
    """Return how an attempt is to start; with ``workdir: trial`` its working folder is made.

    Args:
        study: As it trains: from the snapshot of its code, if there is one.
        environ: What training inherits.
    """
    if not study.own_workdir:
        return Laid(study, environ, study.workdir)
    code = Path(study.workdir)  # as training sees it
    folder.work.mkdir(mode=0o700)
    for name in _entries(_on_this_machine(study, code)):
        (folder.work / name).symlink_to(code / name)
    own = study.environment.env.get("PYTHONPATH")
    given = study.environment
    if own is not None:
        given = replace(given, env={**given.env, "PYTHONPATH": _first(str(code), own)})
    if given.runtime == "venv":
        given = replace(given, image=os.path.normpath(study.venv_folder))
    if given.runtime in CONTAINERS:
        given = replace(given, workdir=str(folder.work))
    command = tuple(_absolute(word, code) for word in study.command)
    environ = {**environ, "PYTHONPATH": _first(str(code), environ.get("PYTHONPATH", ""))}
    return Laid(replace(study, command=command, environment=given), environ, str(folder.work))


def _entries(code: Path) -> list[str]:
    """Return what of the code's folder is linked."""
    found = []
    with os.scandir(code) as entries:
        for entry in entries:
            left_out = entry.name in NAMES or entry.name in _NO_CODE
            if not left_out and not (entry.is_dir() and _is_for_output(Path(entry.path))):
                found.append(entry.name)
    return sorted(found)


def _is_for_output(folder: Path) -> bool:
    """Tell whether a folder holds nothing but what keeps it in a repository."""
    try:
        return set(os.listdir(folder)) <= _KEEPS_EMPTY
    except OSError:
        return False


def _on_this_machine(study: Study, path: Path) -> Path:
    """Return where a folder that training sees lies here: in a container it may be bound."""
    for bind in study.environment.binds if study.environment.runtime in CONTAINERS else ():
        source, target, _ = split_bind(study, bind)
        if path == Path(target) or Path(target) in path.parents:
            return Path(source, path.relative_to(target))
    return path


def _absolute(word: str, code: Path) -> str:
    """Return an argument that leads out of the working folder as the path that it means."""
    head, equals, tail = word.partition("=")
    if word.startswith("../"):
        return os.path.normpath(code / word)
    if equals and tail.startswith("../"):
        return f"{head}={os.path.normpath(code / tail)}"
    return word


def _first(folder: str, paths: str) -> str:
    return os.pathsep.join(dict.fromkeys([folder, *(p for p in paths.split(os.pathsep) if p)]))


def tidy(folder: AttemptFolder) -> None:
    """Remove the links of an attempt's working folder once it has ended: they count as files.

    What training has written stays; a folder of which nothing is left goes.
    """
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder.work):
            if entry.is_symlink():
                os.unlink(entry.path)
        os.rmdir(folder.work)
