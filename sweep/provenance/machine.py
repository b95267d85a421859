"""The machine of an attempt: its host, CPUs, GPUs and their driver, read without waiting."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ASK_TIMEOUT_S = 10.0
NVIDIA = Path("/proc/driver/nvidia")


def capture_host() -> dict[str, Any]:
    """Return what this machine is: it belongs into the ``execution`` of an attempt's record."""
    return {
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "cpu": _name_cpu(),
        "cpus": len(os.sched_getaffinity(0)),
    }


def capture_gpus(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the GPUs, their driver and CUDA: they belong into the ``environment``.

    Args:
        environ: The training's.
    """
    gpus, driver = _read_proc(NVIDIA) or _ask_tool(environ)
    return {
        "gpus": gpus,
        "driver": driver,
        "cuda": _cuda_version(environ),
        "cuda_visible_devices": environ.get("CUDA_VISIBLE_DEVICES"),
    }


def _name_cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _read_proc(top: Path) -> tuple[list[str], str | None] | None:
    """Return GPU names and driver from the driver's files: no process, no waiting.

    None where there are none, or where GPUs of several models leave open which are ours.
    """
    names = []
    for path in sorted(top.glob("gpus/*/information")):
        try:
            found = re.search(r"^Model:\s*(.+?)\s*$", path.read_text(errors="replace"), re.M)
        except OSError:
            return None
        names.append(found[1] if found else "unknown")
    if not names or len(set(names)) > 1:
        return None
    try:
        text = (top / "version").read_text(errors="replace")
    except OSError:
        return None
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text.partition("Module")[2])
    return names, found[1] if found else None


def _ask_tool(environ: Mapping[str, str]) -> tuple[list[str], str | None]:
    """Return the names of this machine's NVIDIA GPUs and the driver's version, by nvidia-smi."""
    tool = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if not tool:
        return [], None
    try:
        done = subprocess.run(
            [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return [], "nvidia-smi failed"
    rows = [line.rpartition(", ") for line in done.stdout.splitlines() if ", " in line]
    return [name for name, _, _ in rows], rows[0][2] if rows else None


def _cuda_version(environ: Mapping[str, str]) -> str | None:
    """Return the version of the CUDA toolkit that is set up here, or None.

    What a framework brings as packages (``nvidia-cuda-runtime``) is among the packages.
    """
    given = environ.get("CUDA_HOME") or environ.get("CUDA_PATH") or "/usr/local/cuda"
    try:
        record = json.loads((Path(given) / "version.json").read_text(encoding="utf-8"))
        return str(record["cuda"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return environ.get("CUDA_VERSION")
