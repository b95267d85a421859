"""What every container has in common: the folders that it sees, the variables that reach it, and
what runs around the command inside.

All that a trial reads and writes has the same path inside and outside: the code, the attempt's
folder, the reporter and the scratch folder are bound at their own paths, and nothing need be
installed in the image.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sweep.core.errors import InputError
from sweep.core.study import Study
from sweep.core.system.mps import LOG, PIPE
from sweep.training.command.environment import TrialValues
from sweep.training.registry_names import read_registry_name

Built = tuple[list[str], dict[str, str]]  # argv and environment, as they are to be started

CONTAINERS = ("apptainer", "singularity", "enroot", "pyxis")
# What a line of `setup` that fails leaves in the log; `runtime_failure` reads it.
SETUP_FAILED = "sweep: a line of environment.setup failed"

# Variables that training needs inside, whatever the image sets: sweep's and the launchers'.
_OWN_PREFIXES = ("SWEEP_", "NCCL_", "GLOO_", "TORCH", "PET_")
_OWN = (
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "PYTHONUNBUFFERED",
    "OMP_NUM_THREADS",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TMPDIR",
    "WANDB_DIR",
    "WANDB_RUN_GROUP",
    "WANDB_RUN_ID",
    "WANDB_RESUME",
    "TENSORBOARD_LOGGING_DIR",
    "COMET_OFFLINE_DIRECTORY",
)
# Those of the place where a process runs; srun sets them anew for each rank.
PLACE_PREFIX = "SLURM_"
PLACE = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "CUDA_DEVICE_ORDER",
    "SLURMD_NODENAME",
)
# What srun tells each rank, beyond what the batch job has already.
OF_RANKS = (
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NNODES",
    "SLURM_STEP_ID",
    "SLURM_STEPID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NODELIST",
    "SLURM_GTIDS",
    "SLURM_CPUS_PER_TASK",
    "CUDA_VISIBLE_DEVICES",
    "SLURMD_NODENAME",
)
# Of the host's software: inside they name what is not there.
_OF_HOST = (
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "CONDA_SHLVL",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
)


def folders_of(
    study: Study, values: TrialValues, python_path: Path, env: Mapping[str, str]
) -> list[str]:
    """Return the folders that a trial needs inside, none of them below another.

    Args:
        python_path: The reporter's.
        env: The training's; its TMPDIR, where that is a folder, the reference trainer's data and
            MPS's folders are among them, as are the study's data sets.
    """
    wanted = [Path(study.workdir), values.config.parent, values.trial_dir, python_path]
    wanted += values.data.values()
    if values.resume is not None:
        wanted.append(values.resume.parent)
    for name in ("TMPDIR", "SWEEP_DATA", PIPE, LOG):
        given = env.get(name, "")
        if os.path.isabs(given) and os.path.isdir(given) and given != "/tmp":
            wanted.append(Path(given))
    unique = sorted({os.path.normpath(path) for path in wanted})
    return [path for path in unique if not any(_is_below(path, other) for other in unique)]


def _is_below(path: str, other: str) -> bool:
    return path != other and path.startswith(other.rstrip("/") + "/")


def split_bind(study: Study, bind: str) -> tuple[str, str, bool]:
    """Return source, destination and whether it is read-only, of ``source[:destination[:ro]]``.

    A relative source lies in the study's workdir.
    """
    parts = bind.split(":")
    source = os.path.normpath(Path(study.workdir, os.path.expanduser(parts[0])))
    destination = parts[1] if len(parts) > 1 else source
    if not os.path.isabs(destination):
        raise InputError(
            f"environment.binds: {destination!r} in {bind!r} is no absolute path.",
            "Write source:destination, with the destination as the container sees it.",
        )
    return source, destination, parts[2:] == ["ro"]


def binds_of(study: Study, folders: Iterable[str]) -> list[tuple[str, str, bool]]:
    """Return all binds as (source, destination, read-only): sweep's first, then the study's."""
    given = [split_bind(study, bind) for bind in study.environment.binds]
    taken = {destination for _, destination, _ in given}
    return [(path, path, False) for path in folders if path not in taken] + given


def image_of(study: Study) -> str:
    """Return the image to start: what was built, else the file beside the study, else its name.

    Raises:
        InputError: None is named.
    """
    given = study.environment
    if given.built:
        return given.built
    if not given.image:
        raise InputError(f"environment.image: is missing for runtime {given.runtime}.")
    path = study.at_workdir(given.image)
    if os.path.exists(path):
        return str(path)
    is_path = "/" in given.image.split("://")[0] and read_registry_name(given.image) is None
    return str(path) if is_path else given.image


def clean(study: Study, env: Mapping[str, str], folders: Sequence[str]) -> dict[str, str]:
    """Return the environment without what names the host's software.

    Of PYTHONPATH the entries stay that are visible inside; what the study file names stays whole.
    """
    asked = study.environment.env
    found = {name: value for name, value in env.items() if name not in _OF_HOST or name in asked}
    if "PYTHONPATH" in found and "PYTHONPATH" not in asked:
        entries = [path for path in found["PYTHONPATH"].split(os.pathsep) if path]
        found["PYTHONPATH"] = os.pathsep.join(
            path
            for path in entries
            if any(path == folder or _is_below(path, folder) for folder in folders)
        )
    return found


def own_names(study: Study, env: Mapping[str, str]) -> list[str]:
    """Return the variables that must reach training whatever the image sets, in order."""
    return sorted(
        name
        for name in env
        if name in _OWN or name.startswith(_OWN_PREFIXES) or name in study.environment.env
    )


def place_names(env: Mapping[str, str]) -> list[str]:
    """Return the variables that say where a process runs: Slurm's, and which GPUs are its own."""
    return sorted(name for name in env if name in PLACE or name.startswith(PLACE_PREFIX))


def wants_gpu(study: Study) -> str:
    """Return which GPUs the container is to see: "nvidia", "rocm" or "none"."""
    given = study.environment.gpu
    if given != "auto":
        return given
    needs = study.resources
    if not (needs.gpu_count or needs.shard or needs.mps):
        return "none"
    is_rocm = os.path.exists("/dev/kfd") and not os.path.exists("/dev/nvidiactl")
    return "rocm" if is_rocm else "nvidia"


def around(
    argv: Sequence[str], setup: Sequence[str], workdir: str | None = None, shell: str = "sh"
) -> list[str]:
    """Return the command with shell lines before it; as it is where there are none.

    The shell becomes the command (exec): a shell between would die of a signal first. The command
    travels as the shell's arguments, so nothing of it is evaluated.

    Args:
        setup: The user's own lines; the first that fails ends it.
        workdir: Folder to change to, or None.
    """
    if not setup and workdir is None:
        return list(argv)
    lines, first = [], []
    if setup:
        lines += [
            "set -e",
            f"trap 'echo \"{SETUP_FAILED}\" >&2' EXIT",
            *setup,
            "trap - EXIT",
            "set +e",
        ]
    if workdir is not None:
        lines.append('cd -- "$1" && shift || exit')
        first = [workdir]
    lines.append('exec "$@"')
    return [shell, "-c", "\n".join(lines), "sweep", *first, *argv]


def check_options(
    runtime: str,
    options: Sequence[str],
    owned: Mapping[str, str],
    letters: str = "",
    *,
    abbreviates: bool = False,
) -> None:
    """Refuse options of the study file that sweep sets itself.

    Args:
        owned: Long options to the key that stands for each, or why there is none.
        letters: Short options that sweep owns.
        abbreviates: Whether the program takes the beginning of an option for the whole.

    Raises:
        InputError: Names the key to use instead.
    """
    for option in options:
        if option.startswith("-") and " " in option and "=" not in option.split(" ")[0]:
            name, _, value = option.partition(" ")
            raise InputError(
                f"environment.options: {option!r} is passed as one argument.",
                f"Write two, [{name!r}, {value!r}]; nothing splits them.",
            )
        name = option.partition("=")[0]
        if name.startswith("--"):
            near = [
                long
                for long in owned
                if long == name or (abbreviates and len(name) > 3 and long.startswith(name))
            ]
            if near:
                raise InputError(f"environment.options: {name} is sweep's own.", owned[near[0]])
        elif name.startswith("-") and (letter := name[1:2]) and letter in letters:
            raise InputError(
                f"environment.options: -{letter} is sweep's own for {runtime}.",
                "Use the keys of `environment` (binds, env, workdir, gpu) instead.",
            )
