"""Enroot without Slurm's help: ``enroot start … image command``.

It drops the host's environment; variables are passed by name, so that no value stands on a command
line. It has no option for the working directory: a shell inside changes to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from sweep.core.errors import InputError
from sweep.core.study import Study
from sweep.training.command import launchers
from sweep.training.command.containers import (
    OF_RANKS,
    Built,
    around,
    binds_of,
    check_options,
    clean,
    image_of,
    own_names,
    place_names,
    wants_gpu,
)

OWNED = {
    "--mount": "Use environment.binds.",
    "--env": "Use environment.env.",
    "--root": "Use environment.remap_root.",
    "--rc": "Use environment.setup.",
    "--conf": "Use environment.setup.",
}


def contain(
    study: Study, argv: Sequence[str], env: dict[str, str], folders: Sequence[str]
) -> Built:
    """Return the command within a squashed image, or within the root named ``name``.

    Raises:
        InputError: A path, or a variable's value, cannot be written for enroot.
    """
    given = study.environment
    check_options("enroot", given.options, OWNED, "mercf")
    env = clean(study, env, folders) | gpu_variables(study) | places(env)
    names = own_names(study, env) + place_names(env) + list(gpu_variables(study))
    if launchers.uses_srun(study):
        names += [name for name in OF_RANKS if name not in names]
    passed = []
    for name in dict.fromkeys(names):
        if "\n" in env.get(name, ""):
            # It writes them line by line into a file of the image's.
            raise InputError(
                f"environment.env.{name}: enroot cannot pass a value with a line break.",
                "Pass it through {config}, or a file.",
            )
        passed += ["--env", name]
    mounts = []
    for source, destination, read_only in [("/tmp", "/tmp", False), *binds_of(study, folders)]:
        if set(source + destination) & set(": \t\n\\"):
            raise InputError(
                f"environment.binds: enroot cannot bind {source!r} at {destination!r}: a path must "
                "not hold spaces, colons or backslashes.",
                "Rename the folder, or use a link without them.",
            )
        kind = "file" if os.path.isfile(source) else "dir"
        options = f"x-create={kind},bind" + ",ro" * read_only
        mounts += ["--mount", f"{source}:{destination}:none:{options}"]
    return [
        "enroot",
        "start",
        *["--root"] * given.remap_root,
        *mounts,
        *passed,
        *given.options,
        given.name or image_of(study),
        *around(argv, given.setup, given.workdir or study.workdir),
    ], env


def gpu_variables(study: Study) -> dict[str, str]:
    """Return what enroot's hook for NVIDIA's driver reads; which of the GPUs are this task's,
    CUDA_VISIBLE_DEVICES says as it does outside."""
    if wants_gpu(study) != "nvidia":
        return {"NVIDIA_VISIBLE_DEVICES": "void"}
    return {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}


def _own(wanted: str) -> str:
    """Return a folder's path, with a number where another user has taken it."""
    path, number = wanted, 1
    while os.path.lexists(path) and os.lstat(path).st_uid != os.geteuid():
        number += 1
        path = f"{wanted}-{number}"
    return path


def places(env: Mapping[str, str]) -> dict[str, str]:
    """Return where enroot keeps its files, unless the site or the user says so: on scratch.

    Its own defaults are the home folder, and /run/enroot, where a user may not write.
    """
    root = _own(f"{env.get('TMPDIR') or '/tmp'}/sweep-enroot-{os.geteuid()}")
    found = {
        f"ENROOT_{name}_PATH": f"{root}/{name.lower()}" for name in ("RUNTIME", "DATA", "CACHE")
    }
    if env.get("XDG_RUNTIME_DIR"):
        del found["ENROOT_RUNTIME_PATH"]
    return {name: env.get(name) or value for name, value in found.items()}
