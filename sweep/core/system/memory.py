"""Whether memory ran out: the kernel's own count of those that it killed; and how much is free.

A process that the kernel killed for memory looks like any that got SIGKILL. The memory cgroup that
a task runs in counts such kills.
"""

from __future__ import annotations

import re
from pathlib import Path

from sweep.core.site_view import Amount

# cgroups(7): version 1 mounts a hierarchy for each controller, version 2 one for all.
_MOUNT = Path("/sys/fs/cgroup")
_COUNT = re.compile(r"^oom_kill ([0-9]{1,18})$", re.MULTILINE)


def count_kills(cgroup: Path = Path("/proc/self/cgroup"), mount: Path = _MOUNT) -> int | None:
    """Return how many processes of our cgroup the kernel has killed for memory; None if unknown."""
    try:
        lines = cgroup.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            file = mount / "memory" / path.lstrip("/") / "memory.oom_control"
        elif not controllers:
            file = mount / path.lstrip("/") / "memory.events"
        else:
            continue
        try:
            found = _COUNT.search(file.read_text(errors="replace"))
        except (OSError, ValueError):
            continue
        if found:
            return int(found[1])
    return None


def count_job_kills(
    job: str, cgroup: Path = Path("/proc/self/cgroup"), mount: Path = _MOUNT
) -> int | None:
    """Return how many processes of a Slurm job the kernel has killed for memory, in all steps on
    this node; None if unknown, as it is with version 1, where each group counts its own."""
    try:
        lines = cgroup.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        number, _, rest = line.partition(":")
        parts = rest.partition(":")[2].strip("/").split("/")
        if number == "0" and f"job_{job}" in parts:
            group = mount.joinpath(*parts[: parts.index(f"job_{job}") + 1])
            try:
                found = _COUNT.search((group / "memory.events").read_text(errors="replace"))
            except (OSError, ValueError):
                return None
            return int(found[1]) if found else None
    return None


def read_memory(path: Path = Path("/proc/meminfo")) -> Amount:
    """Return this machine's memory in MiB, and what of it is available."""
    found = dict(re.findall(r"^(\w+): +(\d+) kB$", path.read_text(), re.MULTILINE))
    return Amount("memory", int(found["MemAvailable"]) // 1024, int(found["MemTotal"]) // 1024)
