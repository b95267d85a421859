"""What was seen of a training, as numbers: the evidence that ``judgement`` judges."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Symptoms:
    """What was seen of a training on one node. None where it was not seen, or does not apply.

    Shares lie between 0 and 1 and are of the time that was looked at, without the start.

    Attributes:
        seen_s: How long it was looked at, in seconds.
        looks: How often.
        ranks: Processes of the training, on all nodes.
        gpus: GPUs that it has here; 0 where it trains on CPUs.
        cores: CPUs that it may use here.
        cpu_cores: CPUs that all its processes used, on average.
        main_busy: Share of one CPU that the main thread of a rank used.
        main_waits: Share in which that thread waited, for whatever it was.
        main_delayed: Share in which it could have run and had no CPU.
        files: Share in which it waited for a disk or a file system, itself or for a process that
            loads for it and did so.
        loaders: Processes that ranks have started, on average.
        loader_cores: CPUs that these used.
        read_bytes_s, written_bytes_s: Through read(), write() and their like, bytes a second.
        faults_s: Pages a second for which a process had to wait for a disk.
        rss_bytes: Most memory of all processes together; shared parts count several times.
        memory_bytes: What the study asks for on a node.
        gpu_busy: Share in which the GPUs ran anything.
        gpu_traffic: Share in which their memory was read or written.
        gpu_memory: Most that was used of a GPU's memory, as a share of it.
        gpu_power: What they drew, as a share of their limit.
        stack_looks: How often the stacks of the ranks were read.
        stack_data, stack_communication: Share of these in which a rank's main thread was in a
            loader, or in an exchange with other ranks.
        own_data, own_communication, own_compute: Shares that training reports itself.
    """

    seen_s: float = 0.0
    looks: int = 0
    ranks: int = 1
    gpus: int = 0
    cores: float = 1.0
    cpu_cores: float | None = None
    main_busy: float | None = None
    main_waits: float | None = None
    main_delayed: float | None = None
    files: float | None = None
    loaders: float | None = None
    loader_cores: float | None = None
    read_bytes_s: float | None = None
    written_bytes_s: float | None = None
    faults_s: float | None = None
    rss_bytes: int | None = None
    memory_bytes: int | None = None
    gpu_busy: float | None = None
    gpu_traffic: float | None = None
    gpu_memory: float | None = None
    gpu_power: float | None = None
    stack_looks: int = 0
    stack_data: float | None = None
    stack_communication: float | None = None
    own_data: float | None = None
    own_communication: float | None = None
    own_compute: float | None = None

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON can hold it, rounded to what means anything."""
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in dataclasses.asdict(self).items()
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Symptoms:
        """Return what ``to_data`` gave; names that are not known are passed over."""
        known = {one.name for one in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})
