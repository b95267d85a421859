"""Processes of a test cluster: pid files that survive a crash, and finding what was left."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.waiting import PATIENCE_S, text_of


def read_start(pid: int) -> str | None:
    """Return a live process's start time in clock ticks (None: gone, or a zombie).

    Pid and start time together name a process for good; a pid alone may be used again.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def write_pid(path: Path, pid: int) -> None:
    """Record a process, with its start time."""
    whole = path.with_name(path.name + ".new")
    whole.write_text(f"{pid} {read_start(pid) or 0}\n")
    whole.replace(path)  # another test session that reads half of it takes the process for dead


def read_pid(path: Path) -> int | None:
    """Return the recorded process's pid while that very process lives."""
    try:
        pid, start = path.read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if read_start(int(pid)) == start else None


def wait_for(
    check: Callable[[], object],
    timeout_s: float,
    what: str,
    pause_s: float = 0.1,
    *,
    may_fail: bool = False,
) -> None:
    """Wait until ``check`` returns something true.

    Args:
        timeout_s: Three minutes where it is less: a busy machine is no fault.
        may_fail: Then it is what it says: the caller goes on without it.

    Raises:
        TimeoutError: it did not within ``timeout_s``; the text is ``what``.
    """
    timeout_s = timeout_s if may_fail else max(timeout_s, PATIENCE_S)
    end = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()  # taken first: one slow check is no reason to give up
        if check():
            return
        if began > end:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(max(pause_s, time.monotonic() - began))  # see tests/waiting.py


def find_leftovers(root: Path, uid: int | None) -> list[int]:
    """Return every live process that belongs to the cluster in ``root``.

    Those are: the recorded daemons, processes that carry the daemons' mark, slurmstepd's that
    hold a file beneath ``root``, processes of a job of this cluster, and all of its user's.
    This process and its ancestors never belong.
    """
    recorded = {read_pid(path) for path in (root / "run").glob("*.pid")}
    mark = f"SWEEP_TEST_CLUSTER={root}".encode()

    def belongs(entry: Path) -> bool:
        return (
            int(entry.name) in recorded
            or (uid is not None and entry.stat().st_uid == uid)
            or mark in _environ(entry)
            or _is_in_job(entry, root)
            or ((entry / "comm").read_text().startswith("slurmstepd") and _holds(entry, root))
        )

    return _find(belongs)


def find_job_processes(root: Path) -> list[int]:
    """Return the live processes of jobs of the cluster in ``root``, orphans included.

    Their slurmstepd's are spared: without it slurmd hears of a step's end minutes later.
    """
    return _find(
        lambda entry: (
            _is_in_job(entry, root) and not (entry / "comm").read_text().startswith("slurmstepd")
        )
    )


def kill_all(find: Callable[[], list[int]], patience_s: float = 10.0) -> list[int]:
    """Send SIGKILL to all that ``find`` finds until it finds none; return what it still finds."""
    end = time.monotonic() + patience_s
    while pids := find():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            return pids
        time.sleep(0.05)
    return []


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _find(belongs: Callable[[Path], bool]) -> list[int]:
    spared = {1, os.getpid(), *read_parents(os.getpid())}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in spared:
            with contextlib.suppress(OSError):  # it ended while we looked
                if read_start(int(entry.name)) is not None and belongs(entry):
                    found.append(int(entry.name))
    return found


def read_parents(pid: int) -> list[int]:
    """Return the processes above one, the nearest first, without pid 1."""
    found = []
    while (pid := _parent(pid)) > 1:
        found.append(pid)
    return found


def shows_job(pid: int) -> bool:
    """Return whether a live process was started with the number of a Slurm job."""
    try:
        environ = _environ(Path(f"/proc/{pid}"))
    except OSError:
        return False
    return any(variable.startswith(b"SLURM_JOB_ID=") for variable in environ)


def is_stepd(pid: int) -> bool:
    """Return whether a process is Slurm's own above a job's, or is about to become one of those."""
    return text_of(Path(f"/proc/{pid}/comm")).startswith("slurmstepd")


def _environ(entry: Path) -> list[bytes]:
    return (entry / "environ").read_bytes().split(b"\0")


def _is_in_job(entry: Path, root: Path) -> bool:
    return shows_job(int(entry.name)) and f"SLURM_CONF={root}/etc/slurm.conf".encode() in _environ(
        entry
    )


def _holds(entry: Path, root: Path) -> bool:
    """Tell whether a process has an open file beneath ``root``."""
    for link in (entry / "fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(f"{root}/"):
                return True
    return False
