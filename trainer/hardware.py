"""The device, the number of threads, and whether the same seed gives the same numbers."""

from __future__ import annotations

import os

import torch

from .config import InputError, Options


def prepare(options: Options, local_rank: int = 0) -> torch.device:
    """Set threads and determinism for this process, and return the device to work on.

    Args:
        options: ``threads``, ``deterministic``, ``device``, ``cuda_graphs``.
        local_rank: Of this process on its host: the number of its GPU.

    Raises:
        InputError: A GPU is asked for that torch does not see.
    """
    torch.set_num_threads(count_threads(options.threads))
    if options.deterministic:
        # cuBLAS reads this when it starts; without it, it refuses in deterministic mode.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # The same as use_deterministic_algorithms(True), which imports the compiler: two seconds.
        torch.set_deterministic_debug_mode("error")
        torch.backends.cudnn.benchmark = False
        # Filling new memory guards against reading it uninitialised, which nothing here does.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    else:
        torch.backends.cudnn.benchmark = True
    return choose(options.device, local_rank)


def choose(wanted: str, local_rank: int = 0) -> torch.device:
    """Return the device that ``--device`` means here.

    Args:
        wanted: ``auto``, ``cpu`` or ``cuda``.
        local_rank: Of this process on its host.

    Raises:
        InputError: A GPU is asked for that torch does not see, or there are fewer than processes.
    """
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError(
            "--device cuda: torch sees no GPU here. Ask for one (resources: gpus: 1, and --nv for "
            "apptainer), install a torch with CUDA, or take --device cpu."
        )
    count = torch.cuda.device_count()
    if count == 1:
        local_rank = 0  # Slurm may show each process its own GPU only
    if local_rank >= count:
        raise InputError(
            f"process {local_rank} of this host has no GPU: torch sees {count}. Start as many "
            "processes a host as it has GPUs, or take --device cpu."
        )
    return torch.device("cuda", local_rank)


def count_threads(wanted: int = 0) -> int:
    """Return the number of CPU threads: what is wanted, else what the task was given, else 1.

    Never all cores of the machine: trials share it, and the number may change the last bits of a
    result, so it must not depend on where a trial happens to run.
    """
    for text in (
        str(wanted),
        *(os.environ.get(n, "") for n in ("SWEEP_CPUS", "SLURM_CPUS_PER_TASK")),
    ):
        if text.isdecimal() and int(text) > 0:
            return int(text)
    return 1
