"""What is installed beside an interpreter, read from its folders without starting it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from sweep.core.programs import interpreter, read_program
from sweep.core.study import Study
from sweep.core.system.search_path import search_path
from sweep.provenance.installed import list_packages

NO_PYTHON = "none"


def find_python(study: Study, environ: Mapping[str, str]) -> Path | None:
    """Return the interpreter that a study's training starts with, where that can be known."""
    given, path = study.environment, search_path(environ)
    if given.runtime not in ("none", "venv"):
        return None
    if given.runtime == "venv":
        path = str(study.venv_folder / "bin")
    if given.runtime == "none" and read_program(study.command).is_elsewhere:
        # uv run, poetry run and their like: of a project's own folder it is known.
        found = study.at_workdir(".venv/bin/python")
        return found if found.exists() else None
    word = interpreter(study.command)
    there = shutil.which(word, path=path) or shutil.which("python3", path=path)
    return Path(there) if there else None


def describe_python(python: Path) -> dict[str, object]:
    """Return an interpreter's version and its packages.

    Args:
        python: The interpreter as found on PATH; not resolved, because a venv's is a link.

    Returns:
        {"python": "3.11.7" or as much as its folders tell, "interpreter": path,
        "packages": {name: version}}.
    """
    version, folders = find_folders(python)
    return {"python": version, "interpreter": str(python), "packages": list_packages(folders)}


def describe_conda(prefix: Path) -> dict[str, object]:
    """Return what ``describe_python`` does of a conda environment, conda's own packages too: they
    need be none of Python's (a CUDA toolkit, a BLAS).

    Where a package of Python's has the name of one of conda's, its own record counts.
    """
    conda: dict[str, str] = {}
    for path in sorted((prefix / "conda-meta").glob("*.json")):
        name, version, _ = [*path.stem.rsplit("-", 2), "", ""][:3]
        if version:
            conda[name] = version
    folders = sorted(prefix.glob("lib/python3*/site-packages"))
    python = conda.pop("python", None)
    if python is None:
        there = (prefix / "bin/python").exists()
        python = _look_around(prefix / "bin/python")[0] if there else NO_PYTHON
    return {
        "python": python,
        "interpreter": str(prefix / "bin/python"),
        "packages": dict(sorted({**conda, **list_packages(folders)}.items())),
    }


def find_folders(python: Path) -> tuple[str, list[Path]]:
    """Return an interpreter's version, or as much as its folders tell, and its package folders."""
    is_ours = os.path.abspath(python) == os.path.abspath(sys.executable) or (
        python.exists()
        and python.parent == Path(sys.executable).parent
        and python.resolve() == Path(sys.executable).resolve()
    )
    if is_ours:
        version = ".".join(map(str, sys.version_info[:3]))
        return version, [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    return _look_around(python)


def editable_folders(folders: Iterable[Path]) -> list[Path]:
    """Return the folders outside an interpreter's own that it imports from: editable installs.

    They stand in ``.pth`` files, as a line of their own or, setuptools' other way, in a module that
    maps packages to folders.
    """
    found: dict[Path, None] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.pth")):
            for line in _read_lines(path):
                if line.startswith("/") and Path(line).is_dir():
                    found[Path(line)] = None
        for path in sorted(folder.glob("__editable___*_finder.py")):
            match = re.search(r"^MAPPING[^=]*=\s*(\{.*\})\s*$", "\n".join(_read_lines(path)), re.M)
            try:
                mapping = dict(ast.literal_eval(match[1])) if match else {}
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            for name, target in mapping.items():
                if Path(target).stem == name.rpartition(".")[2]:
                    found[Path(target).parent] = None
    inner = [folder.resolve() for folder in folders]
    return [path for path in found if not any(path.resolve().is_relative_to(f) for f in inner)]


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _look_around(python: Path) -> tuple[str, list[Path]]:
    """Return the version and the package folders of an interpreter that is not ours."""
    prefix = python.parent.parent
    config = prefix / "pyvenv.cfg"
    folders = sorted(prefix.glob("lib/python3*/site-packages"))
    if config.is_file():
        found = re.search(r"^version(?:_info)?\s*=\s*([\d.]+)", config.read_text(), re.M)
        return (found[1].rstrip(".") if found else "unknown"), folders
    # The link's target carries the minor version: python3 -> python3.11.
    named = re.search(r"python(\d+\.\d+)", python.resolve().name)
    version = named[1] if named else "unknown"
    if named:
        folders = [f for f in folders if f.parent.name == f"python{version}"]
    # Where Debian keeps what it packaged, and what pip installed for all users.
    folders += prefix.glob("local/lib/python3*/dist-packages")
    return version, [*folders, prefix / "lib/python3/dist-packages"]
