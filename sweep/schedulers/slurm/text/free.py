"""sinfo and squeue about a whole partition: what is free there, and who waits. A question each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sweep.core.numbers import is_whole
from sweep.core.site_view import Amount, NodeView, WaitingJob
from sweep.schedulers.slurm.text.nodes import WELL
from sweep.schedulers.slurm.text.notation import expand_indices
from sweep.schedulers.slurm.text.reasons import explain_reason

# Columns of fixed width: what a node is called, or has, may hold any sign.
_WIDTHS = {
    "NodeList": 64,
    "StateLong": 24,
    "CPUsState": 32,
    "Memory": 16,
    "AllocMem": 16,
    "Gres": 256,
    "GresUsed": 256,
}
_GRES = r"([A-Za-z]\w*)(?::(\w[\w.-]*))?:(\d+)"
# Array or job id, indices, state, priority, user, expected start, reason (free text: the last).
_QUEUE = "%F|%K|%T|%Q|%u|%S|%r"
_COLUMNS = _QUEUE.count("|") + 1


def nodes_argv(partitions: Sequence[str], sinfo: str = "sinfo") -> list[str]:
    """Return the command line that asks what the nodes of partitions have and hold."""
    wanted = ",".join(f"{name}:{width}" for name, width in _WIDTHS.items())
    return [sinfo, "-h", "-N", "-p", ",".join(partitions), "-O", wanted]


def waiting_argv(partitions: Sequence[str], squeue: str = "squeue") -> list[str]:
    """Return the command line that asks for what waits and runs in partitions, of everybody."""
    options = ["-h", "-a", "-t", "PENDING,RUNNING", "-o", _QUEUE]
    return [squeue, *options, "-p", ",".join(partitions)]


def parse_nodes(stdout: str) -> list[NodeView]:
    """Read sinfo's rows, each node once; lines that are none (a site's banner) are passed over."""
    found: dict[str, NodeView] = {}
    for line in stdout.splitlines():
        at, cells = 0, {}
        for name, width in _WIDTHS.items():
            cells[name], at = line[at : at + width].strip(), at + width
        cpus = cells["CPUsState"].split("/")
        if len(cpus) != 4 or not all(is_whole(part) for part in (*cpus, cells["Memory"])):
            continue
        state = cells["StateLong"].split()[0].lower() if cells["StateLong"] else "unknown"
        held = int(cells["AllocMem"]) if is_whole(cells["AllocMem"]) else 0
        memory = int(cells["Memory"])
        amounts = [
            *_gres(cells["Gres"], cells["GresUsed"]),
            Amount("cpus", int(cpus[1]), int(cpus[3])),
            Amount("memory", max(0, memory - held), memory),
        ]
        is_usable = state in WELL
        found[cells["NodeList"]] = NodeView(cells["NodeList"], state, is_usable, tuple(amounts))
    return list(found.values())


def _gres(there: str, used: str) -> list[Amount]:
    """Return GPUs and their shares, as ``gpu:a100:4(S:0-1),shard:64`` and what is used of them.

    A GPU goes to jobs whole or in shares, never both; Slurm counts the shares of one that is taken
    whole as free: ``gpu:a100:1(IDX:0),shard:a100:0(0/16,0/16)``.
    """
    total, held = _counts(there), _counts(used)
    found = {name: max(0, n - held.get(name, 0)) for name, n in total.items() if n}
    whole, shared = _taken(used)
    for name, n in total.items():
        gpus = total.get(name.replace("shard", "gpu", 1), 0)
        if name.partition(":")[0] == "shard" and gpus:
            found[name] = max(0, found[name] - len(whole - shared) * (n // gpus))
    return [Amount(name, free, total[name]) for name, free in found.items()]


def _taken(used: str) -> tuple[set[int], set[int]]:
    """Return which GPUs jobs have, and of which they have shares, by their indices."""
    listed = re.search(r"\bgpu[^,(]*\(IDX:([\d,-]+)\)", used)
    shares = re.search(r"\bshard[^,(]*\(([\d/,]+)\)", used)
    try:
        whole = set(expand_indices(listed[1]) or ()) if listed else set()
    except ValueError:
        whole = set()
    parts = shares[1].split(",") if shares else []
    return whole, {place for place, part in enumerate(parts) if not part.startswith("0/")}


def _counts(text: str) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        match = re.fullmatch(_GRES, part.strip())
        if match:
            name = f"{match[1]}:{match[2]}" if match[2] else match[1]
            found[name] = found.get(name, 0) + int(match[3])
    return found


def parse_waiting(stdout: str) -> tuple[list[WaitingJob], int]:
    """Return the jobs that wait, by priority, and how many tasks run; other lines are passed over.

    An array is one row, with as many tasks as wait of it.
    """
    waiting: list[tuple[int, int, WaitingJob]] = []
    running = 0
    for line in stdout.splitlines():
        columns = line.split("|", _COLUMNS - 1)
        if len(columns) < _COLUMNS or not (is_whole(columns[0]) and is_whole(columns[3])):
            continue
        job, index, state, priority, user, start, reason = columns
        if state != "PENDING":
            running += state == "RUNNING"
            continue
        why = explain_reason(reason).words
        known = "" if start in ("N/A", "(null)") else start
        one = WaitingJob(job, user, _tasks(index), why, known)
        waiting.append((-int(priority), int(job), one))
    return [one for *_, one in sorted(waiting, key=lambda row: row[:2])], running


def _tasks(index: str) -> int:
    """Return how many tasks a row's indices are: ``0-99%4``; 1 where that cannot be read."""
    try:
        return len(expand_indices(index) or (0,))
    except ValueError:
        return 1
