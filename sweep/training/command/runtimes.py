"""What brings the training's software: how each runtime wraps a command.

Each is a function (study, argv, environment, folders) -> (argv, environment) of the process that is
started: the folders are what a container must see at the same paths. None of them starts anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from sweep.core.errors import InputError
from sweep.core.study import Study
from sweep.training.command import apptainer, conda_and_modules, enroot, pyxis
from sweep.training.command.containers import Built

Contain = Callable[[Study, Sequence[str], dict[str, str], Sequence[str]], Built]


def _run_plain(
    study: Study, argv: Sequence[str], env: dict[str, str], folders: Sequence[str]
) -> Built:
    conda_and_modules.refuse(
        study, ("image", "binds", "make_binds", "workdir", "options", "setup", "remap_root", "name")
    )
    return list(argv), env


def _run_venv(
    study: Study, argv: Sequence[str], env: dict[str, str], folders: Sequence[str]
) -> Built:
    conda_and_modules.refuse(
        study, ("binds", "make_binds", "workdir", "options", "setup", "remap_root", "name")
    )
    folder = study.venv_folder
    if not os.path.exists(folder / "bin" / "python"):
        raise InputError(
            f"environment.image: no virtual environment at {folder} (bin/python is missing).",
            "Give the folder that `python -m venv` made.",
        )
    env = env | {
        "VIRTUAL_ENV": str(folder),
        "PATH": os.pathsep.join([str(folder / "bin"), env["PATH"]]),
    }
    env.pop("PYTHONHOME", None)
    return list(argv), env


# The option with which what is changed in a container's root stays in it.
WRITABLE = {
    "apptainer": "--writable",
    "singularity": "--writable",
    "enroot": "--rw",
    "pyxis": "--container-writable",
}

RUNTIMES: dict[str, Contain] = {
    "none": _run_plain,
    "venv": _run_venv,
    "conda": conda_and_modules.activate_conda,
    "modules": conda_and_modules.load_modules,
    "apptainer": apptainer.contain,
    "singularity": apptainer.contain,
    "enroot": enroot.contain,
    "pyxis": pyxis.contain,
}
