"""A process and all that descends from it, as ``/proc`` shows them: state, CPU, memory, files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from sweep.core.system.processes import MOST_DESCENDANTS

_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
RUNS, DISK = "R", "D"  # states; a process in the second is in a driver, nearly always of a disk
# Functions of the kernel in which a process waits for files, also where it may be interrupted.
_FILE_WAITS = (
    *("io_schedule", "folio_wait", "wait_on_page", "wait_on_buffer", "blk_", "jbd2_", "xfs_"),
    *("rpc_wait", "nfs", "request_wait_answer", "fuse_", "ceph_", "cxi", "beegfs", "ptlrpc"),
    *("ll_", "cl_", "osc_", "ldlm_", "p9_", "cifs", "smb"),
)
# Those of the state of a disk's waits that are others: for a GPU's driver, for a child to start.
_OTHER_WAITS = ("nv_", "_nv", "os_acquire", "os_wait", "kernel_clone", "_do_fork")


@dataclass(frozen=True)
class ProcessLook:
    """A process at one moment.

    Attributes:
        name: As the kernel has it, 15 letters at most.
        state: Of its first thread: R, S, D, T, ….
        where: The kernel's function in which that waits; "" where that is hidden.
        cpu_s: Seconds of CPU since its start, of all its threads.
        thread_cpu_s: The same of its first thread.
        delay_s: Seconds in which its first thread could have run and had no CPU; None where the
            kernel does not tell.
        faults: Pages that it had to wait for a disk for, since its start.
        rss_bytes: Memory that it holds, what it shares included.
        read_bytes, written_bytes: By read(), write() and their like, since its start; None where
            that is hidden.
    """

    pid: int
    start: int
    parent: int
    name: str
    state: str
    where: str
    cpu_s: float
    thread_cpu_s: float
    delay_s: float | None
    faults: int
    rss_bytes: int
    read_bytes: int | None
    written_bytes: int | None

    @property
    def waits_for_files(self) -> bool:
        """Whether its first thread waits for a disk or a file system."""
        if self.state == DISK and not self.where.startswith(_OTHER_WAITS):
            return True
        return self.state == "S" and self.where.startswith(_FILE_WAITS)

    @property
    def is_python(self) -> bool:
        """Whether it runs Python, by its name; PyTorch gives its first thread one of its own."""
        return self.name.startswith(("python", "pypy", "pt_main", "ipython"))


def look(root: int) -> dict[int, ProcessLook]:
    """Return a process and its descendants by number, parents first; none where it is gone."""
    found: dict[int, ProcessLook] = {}
    queue = [(root, 0)]
    for pid, parent in queue:
        if pid in found or len(found) >= MOST_DESCENDANTS:
            continue
        one = _look_at(pid, parent)
        if one is not None:
            found[pid] = one
            queue += [(child, pid) for child in _children(pid)]
    return found


def _look_at(pid: int, parent: int) -> ProcessLook | None:
    try:
        name, fields = _stat(f"/proc/{pid}/stat")
        _, first = _stat(f"/proc/{pid}/task/{pid}/stat")
    except (OSError, ValueError, IndexError):
        return None
    if fields[0] in ("Z", "X", "x"):
        return None
    io = _io(pid)
    return ProcessLook(
        pid=pid,
        start=int(fields[19]),
        parent=parent,
        name=name,
        state=first[0],
        where=_where(pid),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_S,
        thread_cpu_s=(int(first[11]) + int(first[12])) / _TICKS_S,
        delay_s=_delay_s(pid),
        faults=int(fields[9]),
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
        read_bytes=io.get("rchar"),
        written_bytes=io.get("wchar"),
    )


def _stat(path: str) -> tuple[str, list[str]]:
    """Return the name, and the fields from the third (the state) on."""
    with open(path, "rb") as stream:
        content = stream.read().decode(errors="replace")
    # The name stands in parentheses, and may hold spaces and parentheses.
    begin, end = content.index("("), content.rindex(")")
    return content[begin + 1 : end], content[end + 2 :].split()


def _delay_s(pid: int) -> float | None:
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as stream:
            return int(stream.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _where(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii", errors="replace") as stream:
            said = stream.read().strip()
    except OSError:
        return ""
    return "" if said == "0" else said


def _io(pid: int) -> dict[str, int]:
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as stream:
            return {name: int(value) for name, _, value in (ln.partition(":") for ln in stream)}
    except (OSError, ValueError):
        return {}


def _children(pid: int) -> list[int]:
    """Return the children of all its threads; none where the kernel does not tell."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as stream:
                found += [int(word) for word in stream.read().split()]
    except (OSError, ValueError):
        pass
    return found


@dataclass
class TreeUse:
    """What a tree of processes has used, over many looks.

    The kernel adds what a child has read and written to its parent's once that has waited for it:
    what was counted of a process that has gone is not counted there again.
    """

    cpu_s: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    faults: int = 0
    _before: Mapping[int, ProcessLook] = field(default_factory=dict)
    _owed: dict[int, list[int]] = field(default_factory=dict)

    def add(self, found: Mapping[int, ProcessLook]) -> None:
        """Count what has been used since the look before; the first one counts nothing."""
        before, self._before = self._before, found
        if not before:
            return
        for pid, old in before.items():
            if pid not in found or found[pid].start != old.start:
                owed = self._owed.setdefault(old.parent, [0, 0])
                owed[0] += old.read_bytes or 0
                owed[1] += old.written_bytes or 0
        for pid, now in found.items():
            then = before.get(pid)
            if then is None or then.start != now.start:
                self.cpu_s += now.cpu_s  # it began meanwhile
                self.read_bytes += now.read_bytes or 0
                self.written_bytes += now.written_bytes or 0
                self.faults += now.faults
                continue
            self.cpu_s += now.cpu_s - then.cpu_s
            self.faults += now.faults - then.faults
            owed = self._owed.get(pid, [0, 0])
            self.read_bytes += _less(now.read_bytes, then.read_bytes, owed, 0)
            self.written_bytes += _less(now.written_bytes, then.written_bytes, owed, 1)


def _less(now: int | None, then: int | None, owed: list[int], place: int) -> int:
    grown = max(0, (now or 0) - (then or 0))
    taken = min(grown, owed[place])
    owed[place] -= taken
    return grown - taken
