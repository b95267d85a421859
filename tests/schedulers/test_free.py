"""What sinfo and squeue say of a whole partition, and the lines that people read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core.site_view import Amount, NodeView, SiteView, WaitingJob
from sweep.core.system.memory import read_memory
from sweep.results.site_lines import site_lines
from sweep.schedulers.slurm.text.free import nodes_argv, parse_nodes, parse_waiting, waiting_argv


def node(*cells: str) -> str:
    """Return a row as sinfo prints it: columns of fixed width."""
    widths = (64, 24, 32, 16, 16, 256, 256)
    return "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


GRES = "gpu:a100:4(S:0-1),shard:a100:64(S:0-1)"
USED = "gpu:a100:3(IDX:0-2),shard:a100:16(4/16,0/16,12/16,0/16)"


def test_nodes() -> None:
    """Of each node once what is free; a banner and a row that cannot be read are passed over."""
    rows = [
        "Welcome to the cluster!",
        node("n1", "mixed", "6/2/0/8", "8000", "3000", GRES, USED),
        node("n1", "mixed", "6/2/0/8", "8000", "3000", GRES, USED),  # of another partition
        node("n2", "drained*", "0/0/8/8", "8000", "0", GRES, "gpu:a100:0,shard:0"),
        node("n3", "idle", "0/8/0/8", "8000", "0", "(null)", "(null)"),
        node("n4", "idle", "?", "8000", "0", "(null)", "(null)"),
        node("n5", "idle", "0/8/0/8", "8000", "", "gpu:1,lustre:x:2", "gpu:0"),
    ]
    first, second, third, last = parse_nodes("\n".join(rows))
    assert (first.name, first.state, first.is_usable) == ("n1", "mixed", True)
    assert first.amounts == (
        Amount("gpu:a100", 1, 4),
        Amount("shard:a100", 32, 64),  # GPU 1 is taken whole
        Amount("cpus", 2, 8),
        Amount("memory", 5000, 8000),
    )
    assert (second.state, second.is_usable) == ("drained*", False)
    assert [amount.name for amount in third.amounts] == ["cpus", "memory"]
    assert last.amounts[:2] == (Amount("gpu", 1, 1), Amount("lustre:x", 2, 2))


@pytest.mark.parametrize(
    ("used", "free"),
    [
        ("gpu:a100:4(IDX:0-3),shard:a100:0(0/16,0/16,0/16,0/16)", 0),
        ("gpu:a100:1(IDX:2),shard:a100:0(0/16,0/16,0/16,0/16)", 48),
        ("gpu:a100:2(IDX:0,3),shard:a100:8(0/16,8/16,0/16,0/16)", 24),
        ("gpu:a100:0(IDX:N/A),shard:a100:16(16/16,0/16,0/16,0/16)", 48),
        ("gpu:a100:0,shard:0", 64),
    ],
)
def test_shares_of_a_gpu_that_is_taken_whole_are_not_free(used: str, free: int) -> None:
    (one,) = parse_nodes(node("n1", "mixed", "6/2/0/8", "8000", "3000", GRES, used))
    assert one.amounts[1] == Amount("shard:a100", free, 64)


@pytest.mark.parametrize("kind", ["a100", "2080ti", "3090", "1g.10gb"])
def test_gpus_are_counted_whatever_their_type_is_called(kind: str) -> None:
    """A type that begins with a digit is no count."""
    gres, used = f"gpu:{kind}:4(S:0-1)", f"gpu:{kind}:1(IDX:0)"
    (one,) = parse_nodes(node("n1", "mixed", "6/2/0/8", "8000", "3000", gres, used))
    assert one.amounts[0] == Amount(f"gpu:{kind}", 3, 4)


def test_waiting() -> None:
    """By priority, an array in one row with all its tasks; what runs is counted."""
    rows = [
        "a banner",
        "7|0-9%2|PENDING|100|me|2026-03-01T12:00:00|JobArrayTaskLimit",
        "5|N/A|PENDING|900|you|N/A|Resources",
        "6|1,4-5|PENDING|900|you|(null)|odd | reason",
        "7|10|RUNNING|100|me|2026-03-01T11:00:00|None",
        "x|N/A|PENDING|1|me|N/A|None",
    ]
    waiting, running = parse_waiting("\n".join(rows))
    assert running == 1
    assert [(one.job, one.user, one.tasks, one.start) for one in waiting] == [
        ("5", "you", 1, ""),
        ("6", "you", 3, ""),
        ("7", "me", 10, "2026-03-01T12:00:00"),
    ]
    assert waiting[0].reason == "the resources it asks for are in use"
    assert waiting[1].reason == "Slurm says odd | reason"


def test_one_question_each() -> None:
    assert nodes_argv(["gpu", "big"])[:5] == ["sinfo", "-h", "-N", "-p", "gpu,big"]
    argv = waiting_argv(["gpu"])
    assert argv[0] == "squeue" and argv[-2:] == ["-p", "gpu"] and "PENDING,RUNNING" in argv


def test_lines() -> None:
    """Nodes that are alike share a line; what is before ours is counted without ours."""
    full = (Amount("gpu:a100", 0, 4), Amount("memory", 1024, 8192))
    empty = (Amount("gpu:a100", 4, 4), Amount("memory", 8192, 8192))
    nodes = [NodeView(f"n{number}", "allocated", True, full) for number in range(6)]
    nodes += [NodeView("m\x1b[2J1", "idle", True, empty), NodeView("bad", "down", False, empty)]
    waiting = [
        WaitingJob("5", "you", 3, "other jobs come first"),
        WaitingJob("4", "me", 1, "x"),
        WaitingJob("7", "me", 10, "other jobs come first", "2026-03-01T12:00:00"),
    ]
    lines = list(site_lines(SiteView("Slurm, partition gpu", nodes, waiting, 9), {"7", "4"}))
    assert lines == [
        "site: Slurm, partition gpu, 7 of 8 nodes in service",
        "free: gpu:a100 4 of 28",
        "free: memory 14 of 56G",
        "node: n0, n1, n2, n3 and 2 more (allocated): gpu:a100 0 of 4, memory 1 of 8G",
        f"node: {lines[4].split()[1]} (idle): gpu:a100 4 of 4, memory 8 of 8G",
        "node: bad (down): gpu:a100 4 of 4, memory 8 of 8G",
        "waiting: 3 jobs (14 tasks) in all; 9 tasks run there",
        "yours: job 4, 1 task waiting: x",
        "before it: 1 job (3 tasks)",
        "yours: job 7, 10 tasks waiting: other jobs come first; expected to start at "
        "2026-03-01T12:00:00",
        "before it: 1 job (3 tasks)",
    ]
    assert "\x1b" not in "".join(lines)


def test_nobody_counts_the_gpus_of_one_machine() -> None:
    machine = NodeView("me", "up", True, (Amount("gpu", None, 2), Amount("cpus", 1, 2)))
    lines = list(site_lines(SiteView("this machine, me", [machine]), set()))
    assert lines[1:] == ["free: gpu 2", "free: cpus 1 of 2", "node: me (up): gpu 2, cpus 1 of 2"]


def test_memory(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal:       2048000 kB\nMemFree: 1 kB\nMemAvailable:    1024000 kB\n")
    assert read_memory(file) == Amount("memory", 1000, 2000)
    assert 0 < (read_memory().free or 0) <= read_memory().total


@pytest.mark.parametrize("text", ["", "\n", "garbage|" * 9, "\x00" * 700])
def test_hostile_answers(text: str) -> None:
    assert parse_nodes(text) == []
    assert parse_waiting(text) == ([], 0)
