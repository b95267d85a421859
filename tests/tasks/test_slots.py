"""Slots as text: a slot's share of its task, and the argv of its step."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from sweep.control.place import SLOT_VARIABLE, place_from
from sweep.core.paths import StudyFolder
from sweep.core.study import Resources
from sweep.schedulers.slurm.own_task import threads_per_core
from sweep.schedulers.slurm.scheduler import SlurmScheduler
from sweep.schedulers.slurm.text.steps import (
    names_memory,
    parse_held,
    seat_argv,
    step_argv,
    step_environment,
)
from sweep.tasks.slots import STEP_END_S, Slots
from tests.waiting import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from sweep.tasks.context import Context


@pytest.mark.parametrize(
    ("environ", "gpus", "held_mb", "threads", "expected"),
    [
        (
            {"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "1200"},
            "a100:1",
            None,
            1,
            ["--cpus-per-task=2", "--mem=300M", "--gres=gpu:a100:1"],
        ),
        (
            {"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_CPU": "500"},
            2,
            None,
            1,
            ["--cpus-per-task=2", "--mem-per-cpu=500M", "--gres=gpu:2"],
        ),
        # Nothing says how much memory: what Slurm says the job holds is shared.
        (
            {"SLURM_CPUS_ON_NODE": "9"},
            0,
            8000,
            1,
            ["--cpus-per-task=2", "--mem=2000M", "--gres=none"],
        ),
        # Whole cores, where a slot has one.
        ({"SLURM_CPUS_ON_NODE": "14"}, 0, None, 2, ["--cpus-per-task=2", "--gres=none"]),
        ({"SLURM_CPUS_ON_NODE": "4"}, 0, None, 2, ["--cpus-per-task=1", "--gres=none"]),
    ],
)
def test_share_of_four_slots(
    environ: dict[str, str], gpus: int | str, held_mb: int | None, threads: int, expected: list[str]
) -> None:
    """CPUs and memory are a quarter of what the task holds; GPUs what a trial needs."""
    argv = step_argv(environ, 4, gpus, held_mb, threads)
    assert argv[:4] == ["srun", "--exact", "--nodes=1", "--ntasks=1"]
    assert argv[4:-2] == expected
    assert argv[-2:] == ["--input=none", "--mpi=none"]


def test_a_seat_has_all_that_its_task_has() -> None:
    """Workers that share GPUs hold nothing for themselves: no step waits for another's memory."""
    argv = seat_argv({"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "1200"}, "a100:2")
    assert argv[:4] == ["srun", "--overlap", "--nodes=1", "--ntasks=1"]
    assert argv[4:7] == ["--cpus-per-task=8", "--mem=0", "--gres=gpu:a100:2"]


def test_the_step_is_not_told_of_the_task_by_its_environment() -> None:
    """Variables that srun takes for options are dropped; those that name the job stay."""
    environ = {
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_TRES_PER_TASK": "cpu:1",
        "SLURM_MEM_PER_NODE": "9",
        "SLURM_NTASKS": "4",
        "SLURM_NTASKS_PER_NODE": "4",
        "SLURM_NPROCS": "4",
        "SLURM_GPUS_PER_NODE": "4",
        "SLURM_EXPORT_ENV": "NONE",
        "SLURM_CPU_BIND_TYPE": "mask_cpu:",
    }
    kept = {
        "SLURM_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": "1",
        "SLURM_CONF": "/c",
        "PATH": "/bin",
        "SLURM_GPUS_ON_NODE": "4",
        "SLURMD_NODENAME": "n1",
        "SLURM_JOB_NODELIST": "n1",
    }
    assert step_environment(environ | kept) == kept


@pytest.mark.parametrize(
    ("gpus", "expected"), [(0, 0), (1, 4), ("a100:2", "a100:8"), ("1g.5gb:1", "1g.5gb:4")]
)
def test_multiply_gpus(gpus: int | str, expected: int | str) -> None:
    needs = Resources(gpus=gpus)
    assert needs.so_many_gpus(4 * needs.gpu_count) == expected


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("JobId=3 TRES=cpu=8,mem=8000M,node=1,billing=8,gres/gpu=4 Socks/Node=*", 8000),
        ("JobId=3 ReqTRES=cpu=4,mem=1M AllocTRES=cpu=8,mem=7.5G,node=1,billing=8", 7680),
        ("slurm_load_jobs error: Invalid job id specified", None),
    ],
)
def test_held_memory(printed: str, expected: int | None) -> None:
    """What a job holds, of Slurm 22.05 and of newer ones; not what it asked for."""
    assert parse_held(printed) == expected


def test_names_memory() -> None:
    """A memory of 0 says nothing: it stands for the whole node's."""
    assert names_memory({"SLURM_MEM_PER_NODE": "100"})
    assert names_memory({"SLURM_MEM_PER_CPU": "100"})
    assert not names_memory({"SLURM_MEM_PER_NODE": "0"})


@pytest.mark.parametrize(("text", "expected"), [("0\n", 1), ("0,64\n", 2), ("0-3\n", 4)])
def test_threads_per_core(tmp_path: Path, text: str, expected: int) -> None:
    """The kernel's list of a core's threads is counted; without one a core has one."""
    (tmp_path / "list").write_text(text)
    assert threads_per_core(tmp_path / "list") == expected
    assert threads_per_core(tmp_path / "none") == 1


def test_a_worker_knows_its_slot() -> None:
    environ = {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    assert place_from(environ, SlurmScheduler).slot is None
    assert place_from({**environ, "SWEEP_SLOT": "7_1.3"}, SlurmScheduler).slot == 3


def test_a_step_that_waits_for_a_worker_that_is_gone(tmp_path: Path) -> None:
    """Where Slurm's own process of a step was killed its srun waits for ever: it is ended. One
    whose worker has not come yet is left alone."""
    said: list[str] = []
    environ = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"}
    context = SimpleNamespace(
        folder=StudyFolder(tmp_path),
        ledger=None,
        schedule=None,
        place=place_from(environ, SlurmScheduler),
        end_time_s=None,
        say=said.append,
    )
    slots = Slots(cast("Context", context), 2, {})
    first, second = slots.slots
    worker = subprocess.Popen(["sleep", "600"], env={SLOT_VARIABLE: slots.key(first)})
    first.step, second.step = (subprocess.Popen(["sleep", "600"]) for _ in range(2))

    def look() -> None:
        slots.look_at = 0.0
        slots.end_deserted([first, second])

    try:
        wait_for(lambda: look() or first.has_worked, "the worker to be seen")
        worker.kill()
        worker.wait()
        look()
        assert first.gone_at is not None and first.step.poll() is None
        first.gone_at -= STEP_END_S
        look()
        assert first.step.wait(PATIENCE_S) == -signal.SIGTERM
        assert said == ["slot 0: its step has no worker any more, and is ended"]
        look()
        assert second.gone_at is None and second.step.poll() is None
    finally:
        for child in (worker, first.step, second.step):
            child.kill()
            child.wait()
