"""What a run cost: the CPU of everything that it started, and what passed between its trials."""

from __future__ import annotations

import ctypes
import heapq
import itertools
import json
import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Note:
    """What one stand-in noted: see ``stand_in``. Times are epoch seconds."""

    index: int
    parent: int
    parent_cpu_s: float
    began: float
    ended: float


@dataclass(frozen=True)
class Run:
    """What some commands and everything that they started used.

    Attributes:
        began: When the first was started, epoch seconds.
        own_cpu_s: CPU seconds of the commands themselves and of children they waited for.
        all_cpu_s: The same of every descendant, also of those that went into the background.
        exit_codes: Of the commands, in their order.
    """

    began: float
    own_cpu_s: float
    all_cpu_s: float
    exit_codes: tuple[int, ...]


def run(commands: Sequence[Sequence[str]], env: Mapping[str, str], log: Path) -> Run:
    """Run commands side by side and wait until nothing that they started is left.

    A process of its own waits for them as the subreaper of all their descendants (prctl(2)), so
    that the kernel adds up what each has used, to the microsecond, however it was started.

    Args:
        log: Takes what they print.
    """
    reader, writer = os.pipe()
    began = time.time()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            os.write(writer, json.dumps(_run_and_reap(commands, env, log)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        found = stream.read()
    os.waitpid(pid, 0)
    if not found:
        raise RuntimeError(f"{commands[0][0]} could not be started; see {log}")
    codes, own_s, all_s = json.loads(found)
    return Run(began, own_s, all_s, tuple(codes))


def _run_and_reap(
    commands: Sequence[Sequence[str]], env: Mapping[str, str], log: Path
) -> tuple[list[int], float, float]:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with log.open("ab") as output:
        started = [
            subprocess.Popen(command, env=dict(env), stdout=output, stderr=output)
            for command in commands
        ]
    codes = {child.pid: 1 for child in started}
    own_s = all_s = 0.0
    while True:
        try:
            child, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return list(codes.values()), own_s, all_s
        used_s = usage.ru_utime + usage.ru_stime
        all_s += used_s
        if child in codes:
            codes[child] = os.waitstatus_to_exitcode(status)
            own_s += used_s


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of a live process, its live descendants and those it has waited for.

    From /proc, in steps of a clock tick (10 ms): for a server that goes on after the run.
    """
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            content = Path("/proc", entry, "stat").read_bytes()
        except OSError:
            continue
        fields = content.rpartition(b")")[2].split()
        parents[int(entry)] = int(fields[1])
        used[int(entry)] = sum(int(field) for field in fields[11:15])
    total = 0
    for pid, ticks in used.items():
        current = pid
        while current not in (root, 0):
            current = parents.get(current, 0)
        total += ticks if current == root else 0
    return total / TICKS


def read_notes(path: Path) -> list[Note]:
    """Return what the stand-ins of a run noted, in the order in which they ended."""
    notes = []
    for line in path.read_text(encoding="ascii").splitlines():
        index, parent, *numbers = line.split()
        notes.append(Note(int(index), int(parent), *map(float, numbers)))
    return notes


def list_schedule_s(durations: Sequence[float], slots: int) -> float:
    """Return how long trials take that are started in their order, each in the first free slot."""
    free_at = [0.0] * slots
    for duration in durations:
        heapq.heappush(free_at, heapq.heappop(free_at) + duration)
    return max(free_at)


def chains(notes: Sequence[Note]) -> list[list[Note]]:
    """Return the trials of each process that ran several, in their order."""
    found: dict[int, list[Note]] = {}
    for note in sorted(notes, key=lambda note: note.began):
        found.setdefault(note.parent, []).append(note)
    return list(found.values())


def gaps_s(notes: Sequence[Note]) -> list[float]:
    """Return the seconds between the last moment of a trial and the first of the slot's next."""
    return [
        after.began - before.ended
        for chain in chains(notes)
        for before, after in itertools.pairwise(chain)
    ]


def cycle_cpu_s(notes: Sequence[Note]) -> float | None:
    """Return a slot's CPU seconds from one trial's start to the next's; the mean over all slots.

    The first two trials of a slot are left out: what is loaded once is loaded during the first.
    """
    cycles, used_s = 0, 0.0
    for chain in chains(notes):
        if len(chain) > 2:
            cycles += len(chain) - 2
            used_s += chain[-1].parent_cpu_s - chain[1].parent_cpu_s
    return used_s / cycles if cycles else None


def median(values: Sequence[float]) -> float | None:
    """Return the median; None of nothing."""
    return statistics.median(values) if values else None
