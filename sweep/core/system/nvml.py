"""What the driver says of GPUs, by NVML (package nvidia-ml-py): memory, busy share, energy.

    cards = Cards.open(["0"], os.environ)
    if cards is not None:
        sample = cards.sample(0)

Nothing here raises for what a driver cannot or will not say: that is None, and ``Sample.trouble``
says why. A GPU that was lost, or a library that is gone, is such a sample as well.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.packing.card import CardState
from sweep.core.system.gpus import GPU_VARIABLE
from sweep.core.system.mps import DEFAULT, EXCLUSIVE, PROHIBITED, Identity

_MODES = (DEFAULT, "Exclusive_Thread", PROHIBITED, EXCLUSIVE)  # by NVML's numbers
# The namespace of processes that a machine starts with: Linux has given it this number since 3.8.
_FIRST_NAMESPACE = 4026531836


@dataclass(frozen=True)
class Sample:
    """One look at a GPU, or at a MIG slice of one.

    Attributes:
        total_bytes, used_bytes: Its memory, and how much all processes and the driver hold.
        busy: The part of the last moments in which it ran anything, 0.0 to 1.0; None for a slice.
        processes: Bytes by process number; None where the driver hides whose memory it is, as it
            does in containers and other namespaces of processes.
        energy_mj: Millijoules since the driver was loaded; None for a slice or an older GPU.
        traffic: The part of them in which its memory was read or written; None for a slice.
        is_lost: It has fallen off the bus, or answers no more: nothing will train on it.
        trouble: Why something above is None, in words; "" where nothing is.
    """

    total_bytes: int | None = None
    used_bytes: int | None = None
    busy: float | None = None
    processes: Mapping[int, int] | None = None
    energy_mj: int | None = None
    traffic: float | None = None
    is_lost: bool = False
    trouble: str = ""

    def memory_of(self, processes: Collection[int]) -> int | None:
        """Return the bytes that these processes hold together; None where that is hidden."""
        if self.processes is None:
            return None
        return sum(self.processes.get(pid, 0) for pid in processes)

    def card(self, ours: Collection[int]) -> CardState:
        """Return what a decision about sharing needs.

        Args:
            ours: The processes of all our trainings on the card. What else is used is others'.
        """
        held = self.memory_of(ours)
        if held is None or self.used_bytes is None:
            return CardState(self.total_bytes, self.used_bytes, None)
        return CardState(self.total_bytes, self.used_bytes, max(0, self.used_bytes - held))


class Cards:
    """GPUs, or MIG slices, in the order of their names; NVML stays open for the process."""

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self._nvml = nvml
        self._handles = list(handles)

    @classmethod
    def open(cls, names: Sequence[str], environ: Mapping[str, str]) -> Cards | None:
        """Return the GPUs of these names in CUDA_VISIBLE_DEVICES: indices, or UUIDs that may be
        cut short; those of MIG slices are written out. None where one of them is no single GPU or
        slice, where NVML is missing, or where a GPU does not answer.

        Args:
            environ: What training inherits: it says how CUDA counts.
        """
        try:
            import pynvml
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
            handles = _find_handles(pynvml, names, environ)
        except pynvml.NVMLError:
            return None
        return None if handles is None else cls(pynvml, handles)

    def __len__(self) -> int:
        return len(self._handles)

    def sample(self, number: int) -> Sample:
        """Return a look at one of them, by its place among the names."""
        handle, nvml = self._handles[number], self._nvml
        troubles: list[str] = []
        memory = self._ask(troubles, "memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        if memory is None and self._is_lost(handle):
            return Sample(is_lost=True, trouble="the GPU is lost: the driver does not reach it")
        rates = self._ask(
            troubles, "busy share", lambda: nvml.nvmlDeviceGetUtilizationRates(handle)
        )
        energy = self._ask(
            troubles, "energy", lambda: int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        )
        processes = self._processes(handle, troubles)
        return Sample(
            None if memory is None else int(memory.total),
            None if memory is None else int(memory.used),
            None if rates is None else rates.gpu / 100.0,
            processes,
            energy,
            None if rates is None else rates.memory / 100.0,
            trouble="; ".join(troubles),
        )

    def power(self, number: int) -> float | None:
        """Return what one draws, as a share of its limit; None where that is not known."""
        handle, nvml = self._handles[number], self._nvml
        try:
            limit = nvml.nvmlDeviceGetEnforcedPowerLimit(handle)
            return float(nvml.nvmlDeviceGetPowerUsage(handle) / limit) if limit else None
        except nvml.NVMLError:
            return None

    def model(self, number: int) -> str:
        """Return the name that one's maker gives it, by its place among the names; "GPU" where it
        does not say."""
        try:
            return _text(self._nvml.nvmlDeviceGetName(self._handles[number]))
        except self._nvml.NVMLError:
            return "GPU"

    def identity(self, number: int) -> Identity | None:
        """Return one's UUID, its compute mode and who computes on it; None where it does not
        answer."""
        handle, nvml = self._handles[number], self._nvml
        try:
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
            mode = int(nvml.nvmlDeviceGetComputeMode(handle))
            holders = [int(each.pid) for each in self._running(handle)]
        except nvml.NVMLError:
            return None
        return Identity(uuid, _MODES[mode] if mode < len(_MODES) else str(mode), holders)

    def energy_mj(self) -> list[int] | None:
        """Return each one's millijoules since its driver was loaded; None where one does not
        count, or is a slice."""
        try:
            return [
                int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
                for handle in self._handles
            ]
        except self._nvml.NVMLError:
            return None

    def _ask(self, troubles: list[str], what: str, ask: Any) -> Any:
        try:
            return ask()
        except self._nvml.NVMLError as error:
            troubles.append(f"{what}: {error}")
            return None

    def _is_lost(self, handle: Any) -> bool:
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except self._nvml.NVMLError as error:
            return error.value in (
                self._nvml.NVML_ERROR_GPU_IS_LOST,
                self._nvml.NVML_ERROR_UNKNOWN,
                self._nvml.NVML_ERROR_GPU_NOT_FOUND,
            )
        return False

    def _processes(self, handle: Any, troubles: list[str]) -> Mapping[int, int] | None:
        """Return the memory by process; under MPS its clients are in a list of their own."""
        listed = [
            self._ask(troubles, "processes", lambda: self._running(handle)),
            self._clients(handle),
        ]
        if listed[0] is None:
            return None
        found: dict[int, int] = {}
        for each in (process for part in listed if part for process in part):
            if each.usedGpuMemory is None or not Path(f"/proc/{each.pid}").exists():
                troubles.append("processes: their numbers are of another namespace, or hidden")
                return None
            found[int(each.pid)] = max(found.get(int(each.pid), 0), int(each.usedGpuMemory))
        if not found and not _is_first_namespace():
            troubles.append("processes: this namespace of processes may be shown none")
            return None
        return found

    def _running(self, handle: Any) -> list[Any]:
        return list(self._nvml.nvmlDeviceGetComputeRunningProcesses(handle))

    def _clients(self, handle: Any) -> list[Any]:
        try:
            return list(self._nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle))
        except self._nvml.NVMLError:  # an older driver has no such list
            return []


def _is_first_namespace() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_NAMESPACE
    except OSError:
        return False


def _find_handles(nvml: Any, names: Sequence[str], environ: Mapping[str, str]) -> list[Any] | None:
    """Return the handles of GPUs by their names; None where they name none, or not surely."""
    there = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    found = []
    for name in names:
        if name.startswith("MIG-"):
            found.append(nvml.nvmlDeviceGetHandleByUUID(name))
            continue
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
