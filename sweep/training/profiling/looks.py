"""What a training was seen to do at single moments, and what several such looks come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core.system import process_tree
from sweep.core.system.process_tree import ProcessLook

MOST_ROWS = 300  # of its course that are kept
COURSE = (
    *("gpu_busy", "gpu_memory", "gpu_power", "cpu_cores", "files"),
    *("rss_bytes", "read_bytes_s", "written_bytes_s"),
)


@dataclass(frozen=True)
class GpuLook:
    """The GPUs of a training at one moment, on average; see ``Symptoms``."""

    busy: float | None
    traffic: float | None
    memory: float | None
    power: float | None


@dataclass(frozen=True)
class TrainingLook:
    """A training at one moment; amounts count from the first look.

    Attributes:
        at_s: Seconds since the first look.
        ranks: Of its ranks, those that are here.
        waits, files: Share of the ranks here that wait; that wait for files.
        main_cpu_s, loader_cpu_s: Of the ranks' main threads, and of what they have started.
        delay_s: In which the main threads had no CPU.
    """

    at_s: float
    ranks: int
    waits: float
    files: float
    cpu_s: float
    main_cpu_s: float
    loader_cpu_s: float
    delay_s: float
    loaders: int
    read_bytes: int
    written_bytes: int
    faults: int
    rss_bytes: int
    gpu: GpuLook | None


def waits_for_files(rank: ProcessLook, loaders: Sequence[ProcessLook]) -> bool:
    """Tell whether a rank waits for files: itself, or for loaders of which more do than work."""
    if rank.waits_for_files:
        return True
    if rank.state == process_tree.RUNS:
        return False
    waiting = sum(one.waits_for_files for one in loaders)
    return waiting > sum(one.state == process_tree.RUNS for one in loaders)


def symptoms_of(looks: Sequence[TrainingLook]) -> dict[str, Any]:
    """Return the symptoms that some looks show, by the names of ``Symptoms``."""
    if len(looks) < 2:
        return {}
    first, last = looks[0], looks[-1]
    seen_s = max(last.at_s - first.at_s, 1e-6)
    inner = looks[1:]
    gpus = [one.gpu for one in inner if one.gpu is not None]
    ranks = max(1.0, sum(one.ranks for one in inner) / len(inner))
    return {
        "seen_s": seen_s,
        "looks": len(looks),
        "cpu_cores": (last.cpu_s - first.cpu_s) / seen_s,
        "main_busy": min(1.0, (last.main_cpu_s - first.main_cpu_s) / seen_s / ranks),
        "main_waits": mean([one.waits for one in inner]),
        "main_delayed": min(1.0, (last.delay_s - first.delay_s) / seen_s / ranks),
        "files": mean([one.files for one in inner]),
        "loaders": mean([float(one.loaders) for one in inner]),
        "loader_cores": (last.loader_cpu_s - first.loader_cpu_s) / seen_s,
        "read_bytes_s": (last.read_bytes - first.read_bytes) / seen_s,
        "written_bytes_s": (last.written_bytes - first.written_bytes) / seen_s,
        "faults_s": (last.faults - first.faults) / seen_s,
        "rss_bytes": max(one.rss_bytes for one in inner),
        "gpu_busy": mean([one.busy for one in gpus if one.busy is not None]),
        "gpu_traffic": mean([one.traffic for one in gpus if one.traffic is not None]),
        "gpu_memory": max((one.memory for one in gpus if one.memory is not None), default=None),
        "gpu_power": mean([one.power for one in gpus if one.power is not None]),
    }


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None without any values."""
    return sum(values) / len(values) if values else None


def course(looks: Sequence[TrainingLook]) -> dict[str, list[Any]]:
    """Return the course of a training, as columns of at most MOST_ROWS values."""
    parts = min(MOST_ROWS, max(0, len(looks) - 1))
    columns: dict[str, list[Any]] = {"s": []}
    for k in range(parts):
        first, last = len(looks) * k // parts, len(looks) * (k + 1) // parts
        one = symptoms_of(looks[max(0, first - 1) : last])
        columns["s"].append(round(looks[last - 1].at_s, 1))
        for name in COURSE:
            value = one.get(name)
            columns.setdefault(name, []).append(
                round(value, 3) if isinstance(value, float) else value
            )
    return columns
