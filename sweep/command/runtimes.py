"""What brings the training's software: how each runtime wraps a command."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sweep.errors import InputError
from sweep.study import Study

Built = tuple[list[str], dict[str, str]]


def _run_plain(study: Study, argv: list[str], env: dict[str, str]) -> Built:
    given = study.environment
    for name in ("image", "binds", "workdir", "options", "setup", "remap_root", "name"):
        if getattr(given, name):
            raise InputError(
                f"environment.{name}: has no meaning with runtime {given.runtime}.",
                "Name the runtime that it is for, or leave it out.",
            )
    return argv, env


def _run_venv(study: Study, argv: list[str], env: dict[str, str]) -> Built:
    given = study.environment
    for name in ("binds", "workdir", "options", "setup", "remap_root", "name"):
        if getattr(given, name):
            raise InputError(f"environment.{name}: has no meaning with runtime venv.")
    folder = Path(study.workdir, Path(given.image or ".venv").expanduser())
    if not (folder / "bin" / "python").exists():
        raise InputError(
            f"environment.image: no virtual environment at {folder} (bin/python is missing).",
            "Give the folder that `python -m venv` made.",
        )
    env = env | {
        "VIRTUAL_ENV": str(folder),
        "PATH": os.pathsep.join([str(folder / "bin"), env["PATH"]]),
    }
    env.pop("PYTHONHOME", None)
    return argv, env


# How each runtime wraps a command: (study, argv, environment) -> both as they are to be started.
RUNTIMES: dict[str, Callable[[Study, list[str], dict[str, str]], Built]] = {
    "none": _run_plain,
    "venv": _run_venv,
}
LATER_RUNTIMES = ("conda", "modules", "apptainer", "singularity", "enroot", "pyxis")
