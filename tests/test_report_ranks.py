"""Who reports: of several processes the one of rank 0, whatever started them."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sweep.report import Reporter
from tests.needs import require

ROOT = Path(__file__).resolve().parents[1]
SLURM_0 = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1"}  # of a batch script

# What launchers say to their processes, and the rank that it means.
LAUNCHED: dict[str, tuple[dict[str, str], int]] = {
    "nothing": ({}, 0),
    "a batch script": (SLURM_0, 0),
    "torchrun": ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "GROUP_RANK": "1"}, 3),
    "torchrun of one": ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}, 0),
    "torchrun that ranks the nodes anew": (
        {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "SLURM_PROCID": "1"},
        0,
    ),
    "srun": ({"SLURM_PROCID": "1"}, 1),
    "srun, rank 0": ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, 0),
    "Lightning": ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2", **SLURM_0}, 1),
    "Lightning, second node": (
        {"LOCAL_RANK": "0", "NODE_RANK": "1", "WORLD_SIZE": "8", "NUM_NODES": "2"},
        4,
    ),
    "Lightning, size of a node": (
        {"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"},
        5,
    ),
    "Lightning, sizes unknown": ({"LOCAL_RANK": "1", "NODE_RANK": "1"}, 3),
    "Lightning in a PMIx step of one": (
        {"LOCAL_RANK": "1", "NODE_RANK": "0", "PMIX_RANK": "0", "PMI_RANK": "0", **SLURM_0},
        1,
    ),
    "Open MPI in a batch job": ({"OMPI_COMM_WORLD_RANK": "2", **SLURM_0}, 2),
    "Open MPI, rank 0, second node of srun": (
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "SLURM_PROCID": "1"},
        0,
    ),
    "Open MPI of one around torchrun": (
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "RANK": "1"},
        1,
    ),
    "MPICH": ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, 1),
    "MPICH, rank 0": ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, 0),
    "Intel MPI, a second node": ({"PMI_RANK": "4", "MPI_LOCALRANKID": "0", **SLURM_0}, 4),
    "PMIx": ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-1"}, 1),
    "MVAPICH": ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, 1),
    "MVAPICH 4": ({"MVP_COMM_WORLD_LOCAL_RANK": "1"}, 1),
    "Flux": ({"FLUX_TASK_RANK": "5", "FLUX_JOB_SIZE": "8", "SLURM_PROCID": "1"}, 5),
    "jsrun": ({"JSM_NAMESPACE_RANK": "2", "JSM_NAMESPACE_SIZE": "6", "PMIX_RANK": "2"}, 2),
    "PALS": ({"PALS_RANKID": "7", "PALS_LOCAL_RANKID": "1", "PALS_NODEID": "1"}, 7),
    "ALPS": ({"ALPS_APP_PE": "3"}, 3),
    "poe": ({"MP_CHILD": "1"}, 1),
    "Platform MPI": ({"MPI_RANKID": "1", "MPI_NRANKS": "2"}, 1),
    "horovodrun by gloo": ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", **SLURM_0}, 1),
    "MLX": ({"MLX_RANK": "1"}, 1),
    "Paddle": ({"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "2"}, 1),
    "jax": ({"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2"}, 1),
    "TensorFlow": (
        {
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
            )
        },
        1,
    ),
    "TensorFlow with a chief": (
        {
            "TF_CONFIG": json.dumps(
                {
                    "cluster": {"chief": ["a:1"], "worker": ["b:1"]},
                    "task": {"type": "worker", "index": 0},
                }
            )
        },
        1,
    ),
    "TensorFlow, no JSON": ({"TF_CONFIG": "none"}, 0),
    "a wrapper that tells the local rank": ({"LOCAL_RANK": "2"}, 2),
    "hydra's local rank": ({"MPI_LOCALRANKID": "1"}, 1),
    "no number": ({"RANK": "", "PMI_RANK": "x", "SLURM_PROCID": "-1"}, 0),
}


def writes(tmp_path: Path, environ: dict[str, str]) -> bool:
    metrics = tmp_path / "metrics.jsonl"
    Reporter({**environ, "SWEEP_METRICS": str(metrics)}).log(step=0, loss=1.0)
    return metrics.exists()


@pytest.mark.parametrize("name", LAUNCHED)
def test_launchers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables given to the reporter count, not the process's own."""
    environ, rank = LAUNCHED[name]
    monkeypatch.setenv("RANK", "9")
    monkeypatch.setenv("WORLD_SIZE", "10")
    assert Reporter(environ).rank() == rank
    assert writes(tmp_path, environ) == (rank == 0)


def test_variables_that_come_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher within the script (Lightning's) sets them after the reporter was made."""
    metrics = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("SWEEP_METRICS", str(metrics))
    one = Reporter()
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("NODE_RANK", "0")
    one.log(loss=1.0)
    assert one.rank() == 1 and not metrics.exists()


def module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """Put a module there as if training had imported it."""
    made = ModuleType(name)
    vars(made).update(content)
    monkeypatch.setitem(sys.modules, name, made)


def world(rank: int, size: int) -> Any:
    return SimpleNamespace(
        Get_rank=lambda: rank, Get_size=lambda: size, bcast=lambda word, root: f"from {root}"
    )


def alive(monkeypatch: pytest.MonkeyPatch, name: str, rank: int, size: int) -> None:
    if name == "torch.distributed":
        content: dict[str, Any] = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "get_rank": lambda: rank,
            "get_world_size": lambda: size,
        }
    elif name == "mpi4py.MPI":
        content = {
            "Is_initialized": lambda: True,
            "Is_finalized": lambda: False,
            "COMM_WORLD": world(rank, size),
        }
    elif name == "jax._src.distributed":
        state = SimpleNamespace(client=object(), process_id=rank, num_processes=size)
        content = {"global_state": state}
    elif name == "horovod.torch":
        content = {"is_initialized": lambda: True, "rank": lambda: rank, "size": lambda: size}
    elif name == "xgboost.collective":
        content = {"get_rank": lambda: rank, "get_world_size": lambda: size}
    else:
        context = SimpleNamespace(get_world_rank=lambda: rank, get_world_size=lambda: size)
        content = {"get_context": lambda: context}
    module(monkeypatch, name, **content)


@pytest.fixture
def nothing_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have imported torch or jax."""
    for name in ("torch.distributed", "mpi4py.MPI", "jax._src.distributed", "xgboost.collective"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("nothing_alive")
@pytest.mark.parametrize(
    "name",
    [
        "torch.distributed",
        "mpi4py.MPI",
        "jax._src.distributed",
        "horovod.torch",
        "xgboost.collective",
        "ray.train",
    ],
)
def test_what_is_alive_counts_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some processes have a rank only there; a world of one says nothing."""
    alive(monkeypatch, name, 1, 2)
    assert Reporter({}).rank() == 1
    assert Reporter({"RANK": "5", "WORLD_SIZE": "8"}).rank() == 1
    alive(monkeypatch, name, 0, 2)
    assert Reporter({"SLURM_PROCID": "1"}).rank() == 0
    alive(monkeypatch, name, 0, 1)
    assert Reporter({"RANK": "5", "WORLD_SIZE": "8"}).rank() == 5


@pytest.mark.usefixtures("nothing_alive")
def test_what_is_not_up_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module half imported, not initialised, or of another version, is no error of training's."""
    module(monkeypatch, "torch.distributed")
    module(monkeypatch, "mpi4py.MPI", Is_initialized=lambda: False)
    state = SimpleNamespace(client=None, process_id=1, num_processes=2)
    module(monkeypatch, "jax._src.distributed", global_state=state)
    assert Reporter({"RANK": "2"}).rank() == 2


@pytest.mark.usefixtures("nothing_alive")
def test_a_word_for_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what connects them; where nothing does, that is an error, and never a rank alone."""
    control = tmp_path / "control.json"
    control.write_text('{"stop": "pruned"}')
    files = {"SWEEP_METRICS": str(tmp_path / "m"), "SWEEP_CONTROL": str(control)}
    assert Reporter(files).should_stop(all_ranks=True) == "pruned"
    several = {**files, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    with pytest.raises(RuntimeError, match="one of 2 processes, and none of"):
        Reporter(several).should_stop(all_ranks=True)
    assert Reporter(several).should_stop() == "pruned"
    assert Reporter({"RANK": "1", "WORLD_SIZE": "2"}).should_stop(all_ranks=True) is None
    alive(monkeypatch, "mpi4py.MPI", 1, 2)
    assert Reporter(several).should_stop(all_ranks=True) == "from 0"


@pytest.mark.usefixtures("nothing_alive")
def test_a_word_by_xgboost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its communicator refuses to send None."""

    def broadcast(data: Any, root: int) -> Any:
        assert data is not None and root == 0
        return data

    module(
        monkeypatch,
        "xgboost.collective",
        get_rank=lambda: 0,
        get_world_size=lambda: 2,
        broadcast=broadcast,
    )
    control = tmp_path / "control.json"
    one = Reporter({"SWEEP_METRICS": str(tmp_path / "m"), "SWEEP_CONTROL": str(control)})
    assert one.should_stop(all_ranks=True) is None
    control.write_text('{"stop": "pruned"}')
    assert one.should_stop(all_ranks=True) == "pruned"


def lines_of(metrics: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def in_child(metrics: Path, gate: Any, done: Any, name: str) -> None:
    one = Reporter({"SWEEP_METRICS": str(metrics)})
    one.log(step=0, **{name: 2.0})
    done.set()
    gate.wait()
    one.log(step=1, **{name: 3.0})


@pytest.mark.parametrize(("name", "is_beside"), [("loss", True), ("accuracy", False)])
def test_two_processes(tmp_path: Path, name: str, is_beside: bool) -> None:
    """A metric that a live process reports is apart in another's lines, until that one has gone."""
    metrics = tmp_path / "metrics.jsonl"
    one = Reporter({"SWEEP_METRICS": str(metrics)})
    one.log(step=0, loss=1.0)
    context = multiprocessing.get_context("fork")
    gate, done = context.Event(), context.Event()
    child = context.Process(target=in_child, args=(metrics, gate, done, name))
    child.start()
    done.wait()
    one.log(step=1, loss=1.5)
    Reporter({"SWEEP_METRICS": str(metrics), "RANK": "1"}).log(step=1, loss=0.0)  # lets it go
    gate.set()
    child.join()
    one.log(step=2, loss=1.75)
    found = lines_of(metrics)
    assert [line["step"] for line in found] == [0, 0, 1, 1, 2]
    assert [line["by"].rpartition(":")[2] for line in found] == [
        str(pid) for pid in (os.getpid(), child.pid, os.getpid(), child.pid, os.getpid())
    ]
    first = {"beside": {name: 2.0}, "metrics": {}} if is_beside else {"metrics": {name: 2.0}}
    assert {**found[1], **first} == found[1]
    assert [line["metrics"] for line in (found[0], found[2], found[3], found[4])] == [
        {"loss": 1.0},
        {"loss": 1.5},
        {name: 3.0},
        {"loss": 1.75},
    ]
    assert ["beside" in line for line in found] == [False, is_beside, False, False, False]


def test_a_journal_that_is_replaced(tmp_path: Path) -> None:
    """Whoever moves the file away finds the next report in a new one."""
    metrics = tmp_path / "metrics.jsonl"
    one = Reporter({"SWEEP_METRICS": str(metrics)})
    one.log(loss=1.0)
    metrics.rename(tmp_path / "old")
    one.log(loss=2.0)
    (line,) = lines_of(metrics)
    assert line["metrics"] == {"loss": 2.0}


MPI_RANK = """
import sys
from sweep.report import Reporter
r = Reporter()
for step in range(3):
    r.log(step=step, loss=float(r.rank()))
sys.stdout.write("rank %d\\n" % r.rank())
"""


@pytest.mark.real
@pytest.mark.parametrize("program", ["mpirun.openmpi", "mpirun.mpich"])
def test_mpirun(program: str, tmp_path: Path) -> None:
    """Real ones, within what looks like a batch script of Slurm's."""
    require("mpi")
    script, metrics = tmp_path / "train.py", tmp_path / "metrics.jsonl"
    script.write_text(MPI_RANK)
    more = ["--allow-run-as-root", "--oversubscribe"] if "openmpi" in program else []
    env = {**os.environ, "SWEEP_METRICS": str(metrics), "PYTHONPATH": str(ROOT), **SLURM_0}
    done = subprocess.run(
        [program, *more, "-n", "2", sys.executable, str(script)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(done.stdout.split("\n")[:-1]) == ["rank 0", "rank 1"], done.stderr
    assert [line["metrics"] for line in lines_of(metrics)] == [{"loss": 0.0}] * 3


def spawned(rank: int, meeting: str, metrics: str, control: str, told: Any) -> None:
    import torch.distributed as dist

    early = Reporter({"SWEEP_METRICS": metrics, "SWEEP_CONTROL": control})
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    early.log(loss=float(rank))
    # Only the first one finds a word.
    here = Reporter({"SWEEP_METRICS": metrics, "SWEEP_CONTROL": control if rank == 0 else ""})
    words = [here.should_stop(all_ranks=True) for _ in range(3)]
    dist.destroy_process_group()
    told.put((rank, words))


@pytest.mark.real
def test_mp_spawn(tmp_path: Path) -> None:
    """Only torch.distributed knows who is who; all ranks are told what rank 0 is."""
    pytest.importorskip("torch")
    control, metrics = tmp_path / "control.json", tmp_path / "metrics.jsonl"
    control.write_text('{"stop": "checkpoint"}')
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    ranks = [
        context.Process(
            target=spawned, args=(rank, str(tmp_path / "meet"), str(metrics), str(control), told)
        )
        for rank in range(2)
    ]
    for process in ranks:
        process.start()
    found = sorted(told.get(timeout=120) for _ in ranks)
    for process in ranks:
        process.join()
    assert found == [(0, ["checkpoint"] * 3), (1, ["checkpoint"] * 3)]
    assert [line["metrics"] for line in lines_of(metrics)] == [{"loss": 0.0}]
