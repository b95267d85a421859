"""Pyxis, Slurm's plugin for enroot: options of srun, which always starts the training then.

The host's environment passes, and the image's variables win over it unless they are named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from sweep.core.errors import InputError
from sweep.core.executors import is_packed, kind_of, slots_of
from sweep.core.study import Study
from sweep.training.command.containers import (
    Built,
    around,
    binds_of,
    check_options,
    clean,
    image_of,
    own_names,
)
from sweep.training.command.enroot import gpu_variables

_BINDS = "Use environment.binds: source[:destination[:ro]]."
OWNED = {
    "--container-image": "Use environment.image.",
    "--container-mounts": _BINDS,
    "--container-workdir": "Use environment.workdir.",
    "--container-name": "Use environment.name.",
    "--container-env": "Use environment.env.",
    "--container-remap-root": "Use environment.remap_root.",
    "--no-container-remap-root": "Use environment.remap_root.",
}


def contain(
    study: Study, argv: Sequence[str], env: dict[str, str], folders: Sequence[str]
) -> Built:
    """Return the command as it runs inside, and srun's environment.

    Raises:
        InputError: The study runs without Slurm, or in slots, or shares GPUs.
    """
    place = kind_of(study)
    if not place.spans_nodes:
        raise InputError(
            f"environment.runtime: pyxis needs Slurm, and this study runs on {place.place}.",
            "Use runtime: enroot or apptainer, or executor: slurm.",
        )
    if slots_of(study) > 1 or is_packed(study):
        raise InputError(
            "environment.runtime: pyxis starts a step of its own, and so does each slot, and each "
            "trial that shares a GPU.",
            "Use runtime: enroot, or leave slurm.slots and resources.share out.",
        )
    return around(argv, study.environment.setup), clean(study, env, folders) | gpu_variables(study)


def options(study: Study, env: Mapping[str, str], folders: Sequence[str]) -> list[str]:
    """Return srun's options for the container.

    Args:
        env: As ``contain`` returned it.

    Raises:
        InputError: A path cannot be written: Pyxis has no escape for commas and colons.
    """
    given = study.environment
    check_options("pyxis", given.options, OWNED, abbreviates=True)
    for option in given.options:
        if not option.startswith(("--container-", "--no-container-")):
            raise InputError(
                f"environment.options: {option!r} is no option of Pyxis.",
                "Options of Slurm belong into slurm.extra.",
            )
    mounts = []
    for source, destination, read_only in [("/tmp", "/tmp", False), *binds_of(study, folders)]:
        if set(source + destination) & set(",:"):
            raise InputError(
                f"environment.binds: Pyxis cannot bind {source!r} at {destination!r}: it has no "
                "escape for commas and colons.",
                "Rename the folder, or use a link without them.",
            )
        mounts.append(f"{source}:{destination}" + ":ro" * read_only)
    names = sorted({*own_names(study, env), *gpu_variables(study)})
    return [
        *([] if given.is_prepared else [f"--container-image={image(study)}"]),
        f"--container-mounts={','.join(mounts)}",
        f"--container-workdir={given.workdir or study.workdir}",
        f"--container-env={','.join(names)}",
        "--container-remap-root" if given.remap_root else "--no-container-remap-root",
        # Prepared once a node before, by a task or by the user: what starts at once from one name
        # breaks it. Each step has namespaces of its own within it.
        *([f"--container-name={given.name}:no_exec"] if given.name else []),
        *given.options,
    ]


def image(study: Study) -> str:
    """Return the image as Pyxis reads it: a file has a slash in front, or it is a registry's."""
    found = image_of(study)
    return os.path.abspath(found) if os.path.exists(found) else found
