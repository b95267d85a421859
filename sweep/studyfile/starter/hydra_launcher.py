"""The launcher of a Hydra configuration (submitit's, joblib's) as resources of a study."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sweep.studyfile.starter.hydra_interpolation import is_open

# How submitit's own runs are made; here they are sweep's.
_UNUSED = {
    *("_target_", "submitit_folder", "name", "stderr_to_stdout", "signal_delay_s", "defaults"),
    *("max_num_timeout", "timeout_min", "nodes", "gpus_per_node", "gpus_per_task", "gres"),
    *("tasks_per_node", "cpus_per_task", "mem_gb", "partition", "qos", "account", "constraint"),
    *("array_parallelism", "setup", "additional_parameters", "exclude", "comment", "mem_per_gpu"),
    *("mem_per_cpu", "cpus_per_gpu", "reservation", "n_jobs", "prefer", "verbose", "backend"),
    *("pre_dispatch", "batch_size", "temp_folder", "max_nbytes", "mmap_mode", "timeout"),
}


def add_launcher(
    more: dict[str, Any], launcher: Mapping[str, Any], name: str, lost: list[str]
) -> None:
    """Add ``resources``, ``slurm`` and ``max_parallel`` to a study's further keys.

    Args:
        name: Of the launcher: "submitit_slurm", "joblib" …; "" where only its keys tell.
    """
    given = {}
    for key, value in launcher.items():
        if key in ("submitit_folder", "name") or value is None:
            continue
        if is_open(value):
            lost.append(f"launcher.{key}: {value} is not in this file; set it in the study")
        else:
            given[str(key)] = value
    if "ray" in name or "rq" in name.split("_"):
        lost.append(f"launcher: {name} has no counterpart here; see resources and slurm")
        return
    resources = _resources(given, lost)
    slurm = _slurm(given, lost)
    if resources:
        more["resources"] = resources
    if slurm:
        more["slurm"] = slurm
    for key in ("array_parallelism", "n_jobs"):
        width = given.get(key)
        if isinstance(width, int) and not isinstance(width, bool) and width > 0:
            more["max_parallel"] = width
    for key in given:
        if key not in _UNUSED:
            lost.append(f"launcher.{key}: has no counterpart here")


def _whole(given: Mapping[str, Any], key: str, lost: list[str]) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**6:
        lost.append(f"launcher.{key}: must be a whole number (got {value!r})")
        return None
    return value


def _resources(given: Mapping[str, Any], lost: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    minutes = _whole(given, "timeout_min", lost)
    if minutes:
        found["time"] = f"{minutes}min"
    nodes, tasks = _whole(given, "nodes", lost), _whole(given, "tasks_per_node", lost) or 1
    if nodes and nodes > 1:
        found["nodes"] = nodes
    gpus: Any = _whole(given, "gpus_per_node", lost)
    per_task = _whole(given, "gpus_per_task", lost)
    if gpus is None and per_task is not None:
        gpus = per_task * tasks
    if gpus is None and "gres" in given:
        matched = re.fullmatch(r"gpu(?::(?!\d+$)(\w[\w.-]*))?(?::(\d+))?", str(given["gres"]))
        if matched:
            count = int(matched[2] or 1)
            gpus = f"{matched[1]}:{count}" if matched[1] else count
        else:
            lost.append(f"launcher.gres: {given['gres']} has no counterpart here; see slurm.extra")
    if gpus is not None:
        found["gpus"] = gpus
    cpus = _whole(given, "cpus_per_task", lost)
    if cpus:
        found["cpus"] = cpus * tasks
    memory = given.get("mem_gb")
    if isinstance(memory, int | float) and not isinstance(memory, bool) and memory > 0:
        found["memory"] = f"{memory:g}G" if memory == int(memory) else f"{int(memory * 1024)}M"
    if tasks > 1:
        lost.append(
            f"launcher.tasks_per_node: {tasks} processes a node; see the keys launcher (torchrun, "
            "srun) and ddp.ranks_per_node"
        )
    return found


def _slurm(given: Mapping[str, Any], lost: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("partition", "account", "qos", "constraint", "reservation"):
        if key in given:
            found[key] = str(given[key])
    setup = given.get("setup")
    if setup:
        found["setup"] = [str(line) for line in (setup if isinstance(setup, list) else [setup])]
    extra = [
        f"--{key.replace('_', '-')}={given[key]}"
        for key in ("exclude", "comment", "mem_per_gpu", "mem_per_cpu", "cpus_per_gpu")
        if key in given
    ]
    more = given.get("additional_parameters")
    for key, value in more.items() if isinstance(more, Mapping) else ():
        if is_open(value):
            lost.append(f"launcher.additional_parameters.{key}: {value} is not in this file")
            continue
        option = str(key).replace("_", "-")
        extra.append(f"--{option}" if value is True else f"--{option}={value}")
    if extra:
        found["extra"] = extra
    return found
