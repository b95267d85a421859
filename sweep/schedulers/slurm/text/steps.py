"""A slot of a task as a step of Slurm's: its share of what the task holds, and srun's argv."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What sbatch sets for the task's own processes, and srun would take for options of the step.
_TASK_WIDE = (
    r"SLURM_(CPUS_PER_TASK|TRES_PER_TASK|MEM_PER_\w+|NTASKS\w*|NPROCS|GPUS(_PER_\w+)?|GRES\w*"
    r"|EXCLUSIVE|EXACT|OVERLAP|CPU_BIND\w*|MEM_BIND\w*|GPU_BIND|DISTRIBUTION|EXPORT_ENV|HINT"
    r"|THREADS_PER_CORE|CORE_SPEC|THREAD_SPEC|STEP_\w+|STEPID|LABELIO|UNBUFFEREDIO)"
)
_HELD = r"(?<![a-z])(?:Alloc)?TRES=\S*?\bmem=(?P<amount>[0-9]{1,18}(?:\.[0-9]+)?)(?P<unit>[KMGT]?)"
_UNITS_MB = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}


def step_argv(
    environ: Mapping[str, str],
    slots: int,
    gpus: int | str,
    held_mb: int | None = None,
    threads_per_core: int = 1,
    srun: str = "srun",
) -> list[str]:
    """Return the options of srun with which one of several equal slots starts.

    The CPUs and the memory are the slot's share of what the task holds, which is more than it asked
    for where nodes are exclusive; the GPUs are those that one trial needs.

    Args:
        environ: The task's, as Slurm made it.
        gpus: Of one slot: a count, or ``type:count``.
        held_mb: Memory that the task holds, where its environment does not say.
        threads_per_core: A step gets whole cores, so the share is a multiple of this, where it can.
    """
    cpus = max(1, int(environ.get("SLURM_CPUS_ON_NODE") or slots) // slots)
    if cpus > threads_per_core:
        cpus -= cpus % threads_per_core
    # --exact: no more than its share, or the first step would hold all and the others wait.
    argv = [srun, "--exact", "--nodes=1", "--ntasks=1", f"--cpus-per-task={cpus}"]
    per_node_mb = int(environ.get("SLURM_MEM_PER_NODE") or held_mb or 0)
    if per_node_mb:
        argv.append(f"--mem={max(1, per_node_mb // slots)}M")
    elif environ.get("SLURM_MEM_PER_CPU"):
        argv.append(f"--mem-per-cpu={environ['SLURM_MEM_PER_CPU']}M")
    argv.append(f"--gres=gpu:{gpus}" if gpus else "--gres=none")
    return [*argv, "--input=none", "--mpi=none"]


def seat_argv(environ: Mapping[str, str], gpus: int | str, srun: str = "srun") -> list[str]:
    """Return the options of srun with which a step starts that shares with others all that a task
    holds on its node: CPUs, memory and GPUs.

    Args:
        environ: The task's, as Slurm made it.
        gpus: Of the task: a count, or ``type:count``.
    """
    cpus = max(1, int(environ.get("SLURM_CPUS_ON_NODE") or 1))
    argv = [srun, "--overlap", "--nodes=1", "--ntasks=1", f"--cpus-per-task={cpus}"]
    # --mem=0: all that the task holds. Without --overlap the second step would wait for the first.
    return [*argv, "--mem=0", f"--gres=gpu:{gpus}", "--input=none", "--mpi=none"]


def names_memory(environ: Mapping[str, str]) -> bool:
    """Tell whether a task's environment says how much memory it holds."""
    return any(
        environ.get(name) not in (None, "", "0")
        for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU")
    )


def step_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for srun: the task's, less what would describe the step."""
    return {name: value for name, value in environ.items() if not re.fullmatch(_TASK_WIDE, name)}


def held_argv(job: str, scontrol: str = "scontrol") -> list[str]:
    """Return the command line that prints what a running task holds, for ``parse_held``."""
    return [scontrol, "-o", "show", "job", job]


def parse_held(stdout: str) -> int | None:
    """Return the memory in MiB that a job holds, or None where that is not said."""
    found = re.search(_HELD, stdout)
    return int(float(found["amount"]) * _UNITS_MB[found["unit"]]) if found else None
