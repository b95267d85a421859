"""What a check makes of literal facts: each line's state and words, and always what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sweep.control.check import judge_node, judge_services, judge_training
from sweep.control.check.lines import FAILED, NOT_ASKED, OK, WARNING, Line, judged, size, table
from sweep.control.check.quick import CheckFailed, refuse

INTERPRETER = {
    "path": "/opt/sweep/bin/python",
    "version": "3.11.2",
    "import_s": 0.8,
    "error": "",
    "glibc": "2.36",
}
IMAGE = {
    "image": "/images/train.sif",
    "given": "train.sif",
    "runtime": "apptainer",
    "recorded": None,
    "sha256": "ab" * 32,
    "kind": "file",
    "readable": True,
    "is_name": False,
    "bytes": 5 << 30,
}
BIND = {
    "bind": "/data:/data",
    "source": "/data",
    "exists": True,
    "reads": True,
    "writes": True,
    "read_only": False,
}
SPACE = {"folder": "/scratch/me/runs", "free_bytes": 1 << 40, "free_inodes": 5_000_000, "error": ""}
DATABASE = {
    "where": "me@db:5432/sweep",
    "error": "",
    "hint": "",
    "latency_s": 0.0012,
    "max_connections": 100,
    "reserved": 3,
    "used": 4,
    "role_limit": -1,
    "database_limit": -1,
    "version": "16.2",
    "skew_s": 0.1,
}
GPU = {"name": "NVIDIA H200", "memory": "143771 MiB", "mode": "Default", "driver": "570.1"}
GPUS = {
    "wanted": 1,
    "shard": None,
    "mps": None,
    "gpus": [GPU],
    "visible": "0",
    "error": "",
    "rocm": False,
}
NETWORK = {
    "host": "n1",
    "first": "n1",
    "wanted": None,
    "missing": [],
    "addresses": {"lo": "127.0.0.1", "eth0": "10.0.0.1", "ib0": "10.1.0.1"},
}
TORCH = {"version": "2.5.1", "cuda": "12.4", "hip": None, "import_s": 4.2}
DEVICE = {"name": "NVIDIA H200", "product_s": 0.001, "right": True}
REDUCED = {
    "backend": "nccl",
    "world": 4,
    "right": True,
    "first_s": 1.5,
    "bytes_per_s": 9e9,
    "ranks": [
        {"host": host, "torch": "2.5.1", "interface": "ib0"} for host in ("n1", "n1", "n2", "n2")
    ],
}


def interpreter(fact: Any) -> Line:
    return judge_node.interpreter(fact, "2.36")


def connections(fact: Any) -> Line:
    return judge_services.connections(fact, 50, is_cap=True)


def clock(fact: Any) -> Line:
    return judge_node.clock(fact, 1000.0, 1010.0, fact.get("database"))


def environment(fact: Any) -> Line:
    return judge_training.environment(fact, runs_python=True)


def torch(fact: Any) -> Line:
    return judge_training.torch(fact, "train.py imports it")


def reduced(fact: Any) -> Line:
    return judge_training.all_reduce(fact, NETWORK, 60)


def paths(fact: Any) -> Line:
    return judge_training.paths([fact])


PATH = {
    "path": "/data",
    "name": "/data:/data",
    "writes": True,
    "exists": True,
    "reads": True,
    "error": "",
}
CLOCK = {"now_s": 1005.0, "files_skew_s": 0.01}

# judge, facts, what is changed in them, state, words of the line (with its advice).
TABLE: list[tuple[Any, Mapping[str, Any], Mapping[str, Any], str, str]] = [
    (interpreter, INTERPRETER, {}, OK, "Python 3.11.2, imports in 0.8 s, glibc 2.36"),
    (interpreter, INTERPRETER, {"glibc": "2.17"}, WARNING, "older than 2.36"),
    (interpreter, INTERPRETER, {"glibc": "2.4"}, WARNING, "older than 2.36"),
    (interpreter, INTERPRETER, {"import_s": 42.0}, WARNING, "faster file system"),
    (interpreter, INTERPRETER, {"error": "No module named click"}, FAILED, "cannot import sweep"),
    (judge_node.setup, {"lines": [{"line": "true", "code": 0, "said": ""}]}, {}, OK, "1 line of"),
    (
        judge_node.setup,
        {"lines": [{"line": "module load x", "code": 127, "said": "not found"}]},
        {},
        FAILED,
        "'module load x' fails with exit code 127: not found",
    ),
    (judge_node.workdir, {"path": "/w", "exists": True, "enters": True}, {}, OK, "/w"),
    (judge_node.workdir, {"path": "/w", "exists": False, "enters": False}, {}, FAILED, "no folder"),
    (judge_node.workdir, {"path": "/w", "exists": True, "enters": False}, {}, FAILED, "entered"),
    (judge_node.command, {"error": "", "program": "python"}, {}, OK, "python"),
    (judge_node.command, {"error": "no program x"}, {}, FAILED, "Correct command"),
    (
        judge_node.runtime,
        {
            "runtime": "apptainer",
            "program": "/usr/bin/apptainer",
            "version": "apptainer version 1.4.5",
            "words": "",
        },
        {},
        OK,
        "1.4.5",
    ),
    (
        judge_node.runtime,
        {"runtime": "apptainer", "program": "", "version": "", "words": ""},
        {},
        FAILED,
        "there is no apptainer on PATH",
    ),
    (
        judge_node.runtime,
        {"runtime": "pyxis", "program": "", "version": "", "words": ""},
        {},
        FAILED,
        "the Pyxis plugin is not installed",
    ),
    (
        judge_node.runtime,
        {"runtime": "modules", "program": "", "version": "", "words": ""},
        {},
        FAILED,
        "slurm.setup",
    ),
    (
        judge_node.runtime,
        {
            "runtime": "enroot",
            "program": "/bin/enroot",
            "version": "",
            "words": "Permission denied",
        },
        {},
        FAILED,
        "does not run",
    ),
    (judge_node.image, IMAGE, {}, OK, "5.0 GiB, sha256 abababababab…; the first launch records"),
    (judge_node.image, IMAGE, {"recorded": "ab" * 32}, OK, "as recorded"),
    (judge_node.image, IMAGE, {"recorded": "cd" * 32}, FAILED, "launched with cdcdcdcdcdcd…"),
    (
        lambda fact: judge_node.image(fact, may_change=True),
        IMAGE,
        {"recorded": "cd" * 32},
        WARNING,
        "launched with",
    ),
    (judge_node.image, IMAGE, {"kind": ""}, FAILED, "does not exist on this node"),
    (judge_node.image, IMAGE, {"kind": "", "is_name": True}, NOT_ASKED, "is a name"),
    (judge_node.image, IMAGE, {"readable": False}, FAILED, "chmod"),
    (judge_node.image, IMAGE, {"sha256": None}, OK, "digest not asked"),
    (
        judge_node.image,
        IMAGE,
        {"kind": "folder", "sha256": None, "python": False},
        FAILED,
        "bin/python",
    ),
    (judge_node.image, IMAGE, {"kind": "folder", "sha256": None}, OK, "a folder"),
    (judge_node.binds, {"binds": [BIND]}, {}, OK, "/data:/data"),
    (judge_node.binds, {"binds": [{**BIND, "reads": False}]}, {}, FAILED, "may not read /data"),
    (judge_node.binds, {"binds": [{**BIND, "exists": False}]}, {}, FAILED, "does not exist"),
    (
        judge_node.binds,
        {"binds": [{**BIND, "exists": False, "is_made": True}, BIND]},
        {},
        WARNING,
        "will be made by the first task",
    ),
    (judge_node.binds, {"binds": [{**BIND, "writes": False}]}, {}, WARNING, "append :ro"),
    (judge_node.binds, {"binds": [{**BIND, "writes": False, "read_only": True}]}, {}, OK, "/data"),
    (judge_node.space, SPACE, {}, OK, "1.0 TiB free, 5,000,000 inodes"),
    (judge_node.space, SPACE, {"free_inodes": None}, OK, "1.0 TiB free"),
    (judge_node.space, SPACE, {"free_bytes": 50 << 20}, FAILED, "nearly full"),
    (judge_node.space, SPACE, {"free_bytes": 1 << 30}, WARNING, "little for checkpoints"),
    (judge_node.space, SPACE, {"error": "Disk quota exceeded"}, FAILED, "Disk quota exceeded"),
    (
        lambda fact: judge_node.space(fact, trials=1000),
        SPACE,
        {"free_inodes": 500},
        FAILED,
        "too few for 1000 trials",
    ),
    (lambda fact: judge_node.space(fact, "scratch"), SPACE, {"free_bytes": 1}, WARNING, "TMPDIR"),
    (judge_services.database, DATABASE, {}, OK, "PostgreSQL 16.2, answers in 1.2 ms"),
    (judge_services.database, DATABASE, {"latency_s": 0.5}, WARNING, "slow"),
    (
        judge_services.database,
        DATABASE,
        {"error": "refused", "hint": "Start it."},
        FAILED,
        "Start it",
    ),
    (judge_services.database, DATABASE, {"error": "timed out"}, FAILED, "nodes reach that host"),
    (judge_services.database, {"embedded": True, "version": 18}, {}, NOT_ASKED, "starts at launch"),
    (connections, DATABASE, {}, OK, "53 needed for 50 trials at once, 93 free"),
    (connections, DATABASE, {"max_connections": 50}, FAILED, "Write max_parallel: 40"),
    (connections, {"embedded": True, "version": 18}, {}, NOT_ASKED, "was not asked"),
    (connections, DATABASE, {"role_limit": 10}, FAILED, "your role may have 10"),
    (connections, DATABASE, {"database_limit": 20}, FAILED, "the database takes 20"),
    (
        lambda fact: judge_services.connections(fact, 50, is_cap=False),
        DATABASE,
        {"role_limit": 10},
        WARNING,
        "max_parallel: 7",
    ),
    (clock, CLOCK, {}, OK, "within 0.1 s of the machine where sweep was called and the file sys"),
    (clock, CLOCK, {"now_s": 994.0}, WARNING, "differs by 6 s (or more) from the machine"),
    (clock, CLOCK, {"now_s": 4610.0}, FAILED, "differs by 3600 s"),
    (clock, CLOCK, {"files_skew_s": -3.0}, WARNING, "from the file system"),
    (clock, CLOCK, {"database": 100.0}, FAILED, "from the database"),
    (judge_services.task_signal, {"came": True, "after_s": 0.3}, {}, OK, "0.3 s"),
    (judge_services.task_signal, {"came": False, "after_s": 15}, {}, FAILED, "must `exec` sweep"),
    (judge_node.gpus, GPUS, {}, OK, "1 on the node: NVIDIA H200 (143771 MiB), driver 570.1"),
    (judge_node.gpus, GPUS, {"error": "No such file"}, FAILED, "nvidia-smi does not work"),
    (judge_node.gpus, GPUS, {"error": "No such file", "rocm": True}, NOT_ASKED, "AMD"),
    (judge_node.gpus, GPUS, {"wanted": 2}, FAILED, "2 asked for"),
    (judge_node.gpus, GPUS, {"visible": ""}, FAILED, "this task has 0, 1 asked for"),
    (judge_node.compute_mode, GPUS, {}, OK, "Default"),
    (judge_node.compute_mode, GPUS, {"gpus": []}, NOT_ASKED, "no GPU"),
    (judge_node.compute_mode, GPUS, {"gpus": [{**GPU, "mode": "Exclusive_Process"}]}, OK, "Exclu"),
    (
        judge_node.compute_mode,
        GPUS,
        {"shard": 16, "gpus": [{**GPU, "mode": "Exclusive_Process"}]},
        FAILED,
        "resources.shard has trials share it",
    ),
    (judge_node.compute_mode, GPUS, {"shard": 16}, OK, "which trials may share"),
    (judge_node.compute_mode, GPUS, {"gpus": [{**GPU, "mode": "Prohibited"}]}, FAILED, "no proc"),
    (lambda fact: judge_services.interface(fact, 2), NETWORK, {}, OK, "eth0 10.0.0.1"),
    (lambda fact: judge_services.interface(fact, 1), NETWORK, {}, NOT_ASKED, "one node"),
    (
        lambda fact: judge_services.interface(fact, 2),
        NETWORK,
        {"wanted": "ib9", "missing": ["ib9"]},
        FAILED,
        "n1 has no interface ib9; it has lo 127.0.0.1, eth0 10.0.0.1, ib0 10.1.0.1",
    ),
    (judge_services.ports, {"low": 2, "high": 9, "asked": 8, "free": 8}, {}, OK, "8 of 8"),
    (judge_services.ports, {"low": 2, "high": 41, "asked": 40, "free": 1}, {}, WARNING, "1 of 40"),
    (
        judge_services.ports,
        {"low": 2, "high": 9, "asked": 8, "free": 0},
        {},
        FAILED,
        "none from 2 to",
    ),
    (environment, {"python": {"version": "3.8.1", "executable": "/p"}}, {}, OK, "3.8.1 (/p)"),
    (environment, {"python": {"version": "3.6.9", "executable": "/p"}}, {}, WARNING, "3.8 or new"),
    (environment, {"error": "exit code 255", "tail": "FATAL: no image"}, {}, FAILED, "FATAL"),
    (environment, {"none": True, "tail": "not found"}, {}, FAILED, "The command needs it"),
    (
        lambda fact: judge_training.environment(fact, runs_python=False),
        {"none": True, "tail": "not found"},
        {},
        WARNING,
        "$SWEEP_METRICS",
    ),
    (judge_training.reporter, {"file": "/x"}, {}, OK, "can be imported"),
    (judge_training.reporter, {"error": "E", "pythonpath": ""}, {}, FAILED, "PYTHONPATH"),
    (torch, TORCH, {}, OK, "2.5.1 (CUDA 12.4), imported in 4.2 s"),
    (torch, {"error": "No module named torch", "missing": True}, {}, FAILED, "imports it"),
    (torch, {"error": "libcudart.so.12", "missing": False}, {}, FAILED, "cannot be imported"),
    (
        lambda fact: judge_training.torch(fact, ""),
        {"error": "no", "missing": True},
        {},
        WARNING,
        "well if training does not use it",
    ),
    (paths, PATH, {}, OK, "/data:/data"),
    (paths, PATH, {"error": "Read-only file system"}, FAILED, "Bind it without :ro"),
    (paths, PATH, {"exists": False}, FAILED, "environment.binds"),
    (judge_training.training_signal, {"signal": "SIGTERM", "after_s": 0.1}, {}, OK, "0.1 s"),
    (judge_training.training_signal, {"error": "nothing came"}, {}, FAILED, "`exec`"),
    (reduced, REDUCED, {}, OK, "nccl, 4 ranks on 2 hosts: first sum after 1.5 s, then 8.4 GiB/s"),
    (
        reduced,
        {"error": "killed", "hangs": True, "tail": "NCCL WARN"},
        {},
        FAILED,
        "no sum within 60 s\nNCCL WARN Set ddp.interface to the network between the nodes (of lo, ",
    ),
    (reduced, REDUCED, {"right": False}, FAILED, "another run's ranks"),
    (
        reduced,
        REDUCED,
        {
            "ranks": [
                {"host": "n1", "torch": "2.5.1", "interface": "ib0"},
                {"host": "n2", "torch": "2.4.0", "interface": "ib0"},
            ]
        },
        FAILED,
        "torch differs: 2.4.0, 2.5.1",
    ),
]


@pytest.mark.parametrize(("judge", "facts", "changes", "state", "words"), TABLE)
def test_line(
    judge: Any, facts: Mapping[str, Any], changes: Mapping[str, Any], state: str, words: str
) -> None:
    """The state and the words of each case; what is not well says what to do."""
    line = judge({**facts, **changes})
    assert line.state == state, line
    assert words in f"{line.text} {line.advice}"
    assert bool(line.advice) == (state in (WARNING, FAILED))


@pytest.mark.parametrize(
    ("changes", "states", "words"),
    [
        ({}, [OK, OK, OK], "torch sees 1 of 1"),
        (
            {"cuda": {"devices": [], "visible": "0"}},
            [OK, FAILED, NOT_ASKED],
            "environment.gpu: nvidia",
        ),
        (
            {"cuda": {"devices": [], "visible": "0"}, "torch": {**TORCH, "cuda": None}},
            [OK, FAILED, NOT_ASKED],
            "was built for CPUs",
        ),
        ({"smi": {"error": "there is no nvidia-smi"}}, [WARNING, OK, OK], "environment.gpu"),
        (
            {"cuda": {"devices": [{**DEVICE, "right": False}], "visible": "0"}},
            [OK, OK, FAILED],
            "wrong result",
        ),
        (
            {"cuda": {"devices": [{"name": "x", "error": "out of memory"}], "visible": "0"}},
            [OK, OK, FAILED],
            "GPU 0: out of memory",
        ),
    ],
)
def test_gpus_inside(changes: Mapping[str, Any], states: list[str], words: str) -> None:
    """nvidia-smi, torch's GPUs and the matrix product each have a line."""
    facts = {
        "smi": {"gpus": ["GPU 0: NVIDIA H200"]},
        "torch": TORCH,
        "cuda": {"devices": [DEVICE], "visible": "0"},
    }
    lines = judge_training.cuda({**facts, **changes}, 1)
    assert [line.state for line in lines] == states
    assert words in table(lines)


@pytest.mark.parametrize(
    ("fact", "states"),
    [
        ({"scontrol": "", "sbatch": "", "may_submit": True}, [OK, OK]),
        ({"scontrol": "", "sbatch": "", "may_submit": False}, [OK, FAILED]),
        (
            {"scontrol": "exit code 1", "sbatch": "denied", "hint": "", "may_submit": True},
            [FAILED, FAILED],
        ),
    ],
)
def test_slurm_commands(fact: Mapping[str, Any], states: list[str]) -> None:
    lines = judge_services.slurm_commands(fact)
    assert [line.state for line in lines] == states
    assert all(line.advice for line in lines if line.state == FAILED)


@pytest.mark.parametrize(
    ("mode", "grace_time_s", "signals", "state", "words"),
    [
        ("", 0, False, OK, "not preempted"),
        ("SUSPEND", 20, False, OK, "go on later"),
        ("REQUEUE", 0, True, OK, "5 s before SIGKILL"),
        ("REQUEUE", 20, True, OK, "20 s before (GraceTime)"),
        (
            "CANCEL",
            20,
            False,
            WARNING,
            "5 s before SIGKILL (KillWait), not when the GraceTime of 20",
        ),
    ],
)
def test_preemption(mode: str, grace_time_s: int, signals: bool, state: str, words: str) -> None:
    """How long before its end a training hears of it, and what the site must set."""
    fact = {"mode": mode, "grace_time_s": grace_time_s, "signals": signals, "kill_wait_s": 5}
    line = judge_services.preemption(fact)
    assert (line.name, line.state) == ("preemption", state)
    assert words in line.text
    assert ("PreemptParameters=send_user_signal" in line.advice) is (state == WARNING)
    commands = {"scontrol": "", "sbatch": "", "may_submit": True, "preemption": fact}
    assert judge_services.slurm_commands(commands)[-1] == line


@pytest.mark.parametrize("changes", [{"error": "No such file"}, {"wanted": 2}])
def test_on_this_machine_nobody_is_sent_to_slurm(changes: Mapping[str, Any]) -> None:
    assert "sinfo" in judge_node.gpus({**GPUS, **changes}).advice
    assert "sinfo" not in judge_node.gpus({**GPUS, **changes}, on_slurm=False).advice


def test_what_was_not_asked_is_never_ok() -> None:
    """No fact, or a probe's own word, gives "not asked: why"."""
    assert judged("x", None, judge_node.command, "no job") == Line("x", NOT_ASKED, "no job")
    line = judged("x", {"not_asked": "no GPU"}, judge_node.command, "no job")
    assert line == Line("x", NOT_ASKED, "no GPU")


def test_a_failure_without_advice_cannot_be_made() -> None:
    for state in (WARNING, FAILED):
        with pytest.raises(ValueError, match="says what to do"):
            Line("x", state, "bad")


def test_table_puts_advice_below() -> None:
    lines = [Line("image", OK, "there"), Line("gpus", FAILED, "none\nat all", "Buy some.")]
    assert table(lines) == (
        "image  ok         there\ngpus   failed     none\n                  at all\n"
        "                  → Buy some."
    )


def test_launch_refuses_what_failed_only() -> None:
    """Warnings are passed on; a failure stops, and says how to launch all the same."""
    ok, warning = Line("a", OK, "x"), Line("b", WARNING, "y", "do")
    assert refuse([ok, warning]) == [warning]
    with pytest.raises(CheckFailed, match="--no-check") as caught:
        refuse([ok, Line("c", FAILED, "z", "do that")])
    assert "do that" in caught.value.message and caught.value.exit_code == 1


def test_sizes() -> None:
    """Bytes as people write them: KiB are 1,024."""
    assert [size(n) for n in (5, 2048, 830 << 20, 3 << 40)] == [
        "5 B",
        "2.0 KiB",
        "830 MiB",
        "3.0 TiB",
    ]
