"""Where the time of training goes: examples a second, and shares by torch's profiler (--profile).

The first steps are left out, the next are profiled, and all others are timed: the profiler slows
what it looks at. Reported with each epoch, under names that ``sweep scaling`` reads from any
training:

- ``samples_per_s``: examples of all ranks, a second
- ``share_compute``: part of the time in which a device (or CPU) computes
- ``share_communication``: part in which it only waits for other ranks
- ``share_data``: part in which it only waits for the next batch; the rest is overhead
- ``memory_gb``: most memory of a rank, of its GPU where it has one
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from .ranks import ALONE, Ranks
from .stream import Batch

# Steps that compile, tune and fill caches; then those that are profiled.
WARM_UP, PROFILED = 5, 20
_DATA = "trainer: next batch"
Interval = tuple[float, float]


class Meter:
    """Watches the steps of one rank.

    Args:
        device: Where it trains.
        ranks: All of the run; ``figures`` is called by all at the same moment.
    """

    def __init__(self, device: torch.device, ranks: Ranks = ALONE) -> None:
        self._device, self._ranks = device, ranks
        self._steps = 0
        self._timed_s, self._samples = 0.0, 0
        self._profiler: Any = None
        self._profiled_from = 0.0
        self._shares: dict[str, float] = {}

    def watch(self, batches: Iterable[Tensor | Batch]) -> Iterator[Tensor | Batch]:
        """Yield an epoch's batches; what is done between two of them is a step."""
        source = iter(batches)
        since, samples = self._now(), 0
        try:
            while True:
                if self._steps in (WARM_UP, WARM_UP + PROFILED):
                    # Two borders of what is timed.
                    self._count(since, samples)
                    self._stop() if self._profiler else self._start()
                    since, samples = self._now(), 0
                with record_function(_DATA):
                    batch = next(source, None)
                if batch is None:
                    return
                yield batch
                self._steps += 1
                samples += len(batch) * self._ranks.world
        finally:
            self._count(since, samples)
            self._stop()

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def _count(self, since: float, samples: int) -> None:
        if self._profiler is None and samples and self._steps > WARM_UP:
            self._timed_s += self._now() - since
            self._samples += samples

    def _start(self) -> None:
        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(activities=activities)
        self._profiler.__enter__()
        self._profiled_from = self._now()

    def _stop(self) -> None:
        if self._profiler is None:
            return
        wall_s = self._now() - self._profiled_from
        self._profiler.__exit__(None, None, None)
        self._shares = shares(self._profiler.events(), wall_s, cuda=self._device.type == "cuda")
        self._profiler = None
        # An epoch may be shorter than what was to be profiled.
        self._steps = max(self._steps, WARM_UP + PROFILED + 1)

    def figures(self) -> dict[str, float]:
        """Return what is known since the last call: means over the ranks, and the most memory.

        Empty figures are left out: there are none before the warm-up is over.
        """
        own = dict(self._shares)
        if self._timed_s:
            own["samples_per_s"] = self._samples / self._timed_s
        self._timed_s, self._samples = 0.0, 0
        own["memory_gb"] = self._memory_gb()
        found = self._ranks.gather(own)
        return {
            name: max(each[name] for each in found)
            if name == "memory_gb"
            else sum(each[name] for each in found) / len(found)
            for name in own
            if all(name in each for each in found)
        }

    def _memory_gb(self) -> float:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e9
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def shares(events: Iterable[Any], wall_s: float, *, cuda: bool) -> dict[str, float]:
    """Return the parts of the time that compute, communication and data take.

    Each moment counts once: where something is computed it is compute, whatever else goes on; a
    moment of communication counts where nothing is computed, and one of waiting for data where
    there is neither.

    Args:
        events: Of torch.profiler, with ``name``, ``time_range`` in microseconds, ``device_type``.
        wall_s: Length of what was profiled.
        cuda: Whether devices compute; else the CPU does.
    """
    compute: list[Interval] = []
    communication: list[Interval] = []
    data: list[Interval] = []
    for event in events:
        interval = (event.time_range.start / 1e6, event.time_range.end / 1e6)
        name = event.name
        on_device = "CUDA" in str(event.device_type)
        if name == _DATA and not on_device:
            data.append(interval)
        elif cuda and on_device and not getattr(event, "is_user_annotation", False):
            (communication if "nccl" in name.lower() else compute).append(interval)
        elif not cuda and name.startswith("gloo:"):
            communication.append(interval)
        elif not cuda and name.startswith("aten::"):
            compute.append(interval)
    computed = length(compute)
    with_communication = length(compute + communication)
    everything = length(compute + communication + data)
    whole_s = max(wall_s, everything)
    return {
        "share_compute": computed / whole_s,
        "share_communication": (with_communication - computed) / whole_s,
        "share_data": (everything - with_communication) / whole_s,
    }


def length(intervals: list[Interval]) -> float:
    """Return how long at least one of some intervals lasts."""
    total, end = 0.0, float("-inf")
    for first, last in sorted(intervals):
        if last > end:
            total += last - max(first, end)
            end = last
    return total
