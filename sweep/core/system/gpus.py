"""The GPUs of this machine: which there are, and who holds which."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.core.files import make_private, take_lock
from sweep.core.system.own_folder import own_folder

GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
ASK_TIMEOUT_S = 60  # nvidia-smi without the persistence daemon takes seconds a GPU


def find_gpus(env: Mapping[str, str]) -> list[str]:
    """Return the names of the GPUs that a process with this environment may use.

    Those of CUDA_VISIBLE_DEVICES where it is set (as CUDA reads it: what follows an invalid one
    does not count), else the indices that ``nvidia-smi -L`` lists; none without it.
    """
    if GPU_VARIABLE in env:
        names: list[str] = []
        for name in env[GPU_VARIABLE].split(","):
            if name.strip() in ("", "-1", "NoDevFiles"):
                break
            names.append(name.strip())
        return names
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return re.findall(r"^GPU (\d+):", listed.stdout, re.MULTILINE) if not listed.returncode else []


class GpuPool:
    """Hands out GPUs, each to one element at a time, also across the arrays of a user.

    Holding a GPU is holding a lock on its file, which ends with the process, however it ends.
    """

    def __init__(self, names: Sequence[str], folder: Path | None = None) -> None:
        self.names = list(names)
        self.folder = folder
        self.held: dict[str, int] = {}

    def take(self, count: int) -> list[str] | None:
        """Take that many free GPUs, or none at all (None) where fewer are free.

        Raises:
            SweepError: There is no place for the locks.
            OSError: There is no room for them.
        """
        taken: dict[str, int] = {}
        folder = self._folder() if count else Path()
        with contextlib.ExitStack() as unless_all:
            for name in self.names:
                if len(taken) == count:
                    break
                if name in self.held:
                    continue
                descriptor = take_lock(folder / re.sub(r"[^\w.-]", "_", name))
                if descriptor is not None:
                    taken[name] = descriptor
                    unless_all.callback(os.close, descriptor)
            if len(taken) < count:
                return None
            unless_all.pop_all()
        self.held |= taken
        return list(taken)

    def give(self, names: Sequence[str]) -> None:
        """Give GPUs back."""
        for name in names:
            os.close(self.held.pop(name))

    def _folder(self) -> Path:
        return make_private(self.folder) if self.folder else own_folder("gpus")
