"""The energy that an attempt's GPUs use, by NVML's counters (package nvidia-ml-py).

A GPU counts millijoules since its driver was loaded, from Volta on. They are an attempt's only
where it has whole GPUs of one node to itself: not shares of one, no MIG instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.core.study import Study
from sweep.core.system.gpus import GPU_VARIABLE, find_gpus


class Counters:
    """The counters of the GPUs that a task's attempts have; NVML stays open for the process."""

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self._nvml = nvml
        self._handles = handles

    @classmethod
    def find(cls, study: Study, environ: Mapping[str, str]) -> Counters | None:
        """Return the counters of a study's GPUs here; None where they are not an attempt's alone,
        do not count, or NVML is missing.

        Args:
            environ: What training inherits.
        """
        needs = study.resources
        is_own = needs.shard is None and needs.mps is None and needs.nodes == 1
        if not needs.gpu_count or not is_own:
            return None
        names = find_gpus(environ)
        if len(names) != needs.gpu_count:
            return None
        try:
            import pynvml
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
            handles = _handles(pynvml, names, environ)
            found = None if handles is None else cls(pynvml, handles)
            return found if found is not None and found.read() is not None else None
        except pynvml.NVMLError:
            return None

    def read(self) -> list[int] | None:
        """Return millijoules, one number a GPU; None where one of them does not count."""
        try:
            return [int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(h)) for h in self._handles]
        except self._nvml.NVMLError:
            return None

    def start(self) -> Meter:
        """Return what measures from now on."""
        return Meter(self, self.read())


class Meter:
    """What the GPUs have used since it was made."""

    def __init__(self, counters: Counters, begin: Sequence[int] | None) -> None:
        self._counters = counters
        self._begin = begin

    def joules(self) -> float | None:
        """Return the energy so far; None where a counter cannot be read, or was reset meanwhile."""
        now = self._counters.read()
        if now is None or self._begin is None:
            return None
        used = [end - begin for begin, end in zip(self._begin, now, strict=True)]
        return sum(used) / 1000.0 if min(used) >= 0 else None


def _handles(nvml: Any, names: Sequence[str], environ: Mapping[str, str]) -> list[Any] | None:
    """Return the handles of GPUs by their names in CUDA_VISIBLE_DEVICES: indices, or UUIDs that
    may be cut short; None where they name something else, or not surely."""
    there = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    found = []
    for name in names:
        if name.isdecimal():
            # CUDA counts the fastest first unless told otherwise, NVML by the bus.
            by_bus = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or GPU_VARIABLE not in environ
            if not by_bus and len({_text(nvml.nvmlDeviceGetName(h)) for h in there}) > 1:
                return None
            chosen = there[int(name) : int(name) + 1]
        elif name.startswith("GPU-"):
            chosen = [h for h in there if _text(nvml.nvmlDeviceGetUUID(h)).startswith(name)]
        else:
            return None
        if len(chosen) != 1 or _is_split(nvml, chosen[0]):
            return None
        found += chosen
    return found


def _is_split(nvml: Any, handle: Any) -> bool:
    """Tell whether a GPU is in MIG mode; one that does not know the mode is not."""
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
