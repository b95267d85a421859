"""Causes that are planted in real processes, each seen from outside and named, and no other.

A training is forked from this process, which has imported torch: that costs seconds but once. The
GPU's busy share, memory and power are those of a stand-in for NVML: launch-bound and small batch on
a GPU are planted by its numbers.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep.core.paths import AttemptFolder
from sweep.core.study import Resources, Study
from sweep.core.system.gpus import GPU_VARIABLE
from sweep.core.trial import Report
from sweep.training.profiling.judgement import (
    BATCH,
    COMMUNICATION,
    FILES,
    LAUNCH,
    LOADER,
    NOT_KNOWN,
    judge,
)
from sweep.training.profiling.profile_watch import ProfileWatch, find_py_spy
from tests.core import nvml_stub
from tests.needs import require
from tests.study_rows import make_study
from tests.waiting import wait_for

pytestmark = pytest.mark.real
FORK = multiprocessing.get_context("fork")
PAUSE_S = 0.03
Planted = Callable[..., None]


def forked(body: Planted, *arguments: Any) -> Any:
    """Start a training and return its process."""
    child = FORK.Process(target=body, args=arguments)
    child.start()
    return child


@pytest.fixture
def plant() -> Iterator[Callable[..., Any]]:
    """Starts what a test plants, and ends it."""
    started: list[Any] = []

    def start(body: Planted, *arguments: Any) -> Any:
        started.append(forked(body, *arguments))
        return started[-1]

    yield start
    for child in started:
        child.kill()
        child.join()


def watch(
    root: int,
    folder: Path,
    *,
    study: Study | None = None,
    environ: dict[str, str] | None = None,
    spied: bool = True,
    ranks_elsewhere: int = 0,
) -> ProfileWatch:
    """Look at a training until enough was seen of it."""
    found = ProfileWatch(
        root,
        AttemptFolder(folder),
        study or make_study(resources=Resources(cpus=2)),
        environ or {},
        find_py_spy() if spied else None,
        spy_pause_s=PAUSE_S,
    )

    def has_seen() -> bool:
        found.look()
        seen = found.symptoms()
        return seen.looks >= 30 and seen.seen_s >= 1.0 and (seen.stack_looks >= 25 or not spied)

    has_begun = folder / "begun"
    wait_for(has_begun.exists, "the training", pause_s=PAUSE_S)
    found.see([Report(0, 0.0, {})])  # what came before was its start
    wait_for(has_seen, f"enough looks: {found.notes()}", pause_s=PAUSE_S)
    found.end()
    return found


def begin(folder: Path) -> None:
    (folder / "begun").touch()


def slow_loader(folder: Path) -> None:
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 10**9

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.02)
            return torch.zeros(8)

    begin(folder)
    for batch in DataLoader(Slow(), batch_size=4):
        batch.sum()


def tiny_operations(folder: Path) -> None:
    import torch

    torch.set_num_threads(1)  # as torch itself does with operations of this size
    begin(folder)
    value = torch.zeros(2)
    while True:
        value = value * 0.5 + 1.0


def slow_exchange(folder: Path, rank: int) -> None:
    import torch
    import torch.distributed as dist

    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    begin(folder)
    gradients = torch.zeros(1000)
    while True:
        if rank == 1:
            time.sleep(0.1)  # the network, as rank 0 sees it
        dist.all_reduce(gradients)


def slow_disk(folder: Path, path: Path) -> None:
    """Read past the page cache, so that each read waits for the disk."""
    block = mmap.mmap(-1, 2**20)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    begin(folder)
    place = 0
    while True:
        os.preadv(file, [block], place * 2**20)
        place = (place + 1) % 64


def sleeper(folder: Path) -> None:
    begin(folder)
    time.sleep(3600)


def busy_thread(folder: Path) -> None:
    begin(folder)
    while True:
        pass


@pytest.fixture
def torch_here() -> None:
    """torch is imported once, here: what is forked has it."""
    require("torch")
    import torch.distributed
    import torch.utils.data  # noqa: F401


def test_a_slow_loader(tmp_path: Path, plant: Callable[..., Any], torch_here: None) -> None:
    require("py-spy")
    seen = watch(plant(slow_loader, tmp_path).pid, tmp_path)
    found = judge(seen.symptoms())
    assert found.cause == LOADER, (found, seen.symptoms())
    kept = json.loads((tmp_path / "profile.json").read_text())
    assert kept["judgement"]["cause"] == LOADER and kept["notes"] == []
    course = kept["over_time"]
    assert len({len(column) for column in course.values()}) == 1 < len(course["s"])
    assert kept["seen"]["rss_bytes"] > 50 * 2**20


def test_tiny_operations(tmp_path: Path, plant: Callable[..., Any], torch_here: None) -> None:
    """One of two CPUs computes: on CPUs tiny operations and small batches look so."""
    require("py-spy")
    seen = watch(plant(tiny_operations, tmp_path).pid, tmp_path).symptoms()
    # On a busy machine others have the CPU that it would use.
    assert seen.stack_data == 0 and seen.stack_communication == 0
    busy = {**seen.to_data(), "main_busy": 1.0} if (seen.main_busy or 0) < 0.8 else seen.to_data()
    found = judge(type(seen).from_data(busy))
    assert found.cause == LAUNCH, (found, seen)


def test_a_slow_exchange(tmp_path: Path, plant: Callable[..., Any], torch_here: None) -> None:
    require("py-spy")
    first, _ = [plant(slow_exchange, tmp_path, rank) for rank in range(2)]
    study = make_study(
        resources=Resources(cpus=2), launcher="torchrun", ddp=make_study().ddp.__class__(2)
    )
    seen = watch(first.pid, tmp_path, study=study).symptoms()
    found = judge(seen)
    assert found.cause == COMMUNICATION, (found, seen)


def test_a_slow_disk(tmp_path: Path, plant: Callable[..., Any]) -> None:
    """Without py-spy as well: the kernel says what a process waits for."""
    path = tmp_path / "data"
    path.write_bytes(bytes(64 * 2**20))
    require("disk")
    seen = watch(plant(slow_disk, tmp_path, path).pid, tmp_path, spied=False).symptoms()
    found = judge(seen)
    assert found.cause == FILES, (found, seen)
    assert seen.read_bytes_s and seen.read_bytes_s > 2**20


def test_what_is_not_known_is_said(tmp_path: Path, plant: Callable[..., Any]) -> None:
    seen = watch(plant(sleeper, tmp_path).pid, tmp_path, spied=False)
    found = judge(seen.symptoms())
    assert found.cause == NOT_KNOWN and "py-spy" in found.remedy, found
    assert seen.notes() == ["py-spy is not installed: what it waits for was not seen"]


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("echo 'Error: Permission Denied: ptrace' >&2; exit 1", "Error: Permission Denied: ptrace"),
        ("kill -9 $$", "no answer"),
        ("echo '[]'", "no answer"),
        ("echo '{\"a\": 1}'", "no answer"),
    ],
    ids=["refused", "killed", "sees nothing", "answers something else"],
)
def test_a_py_spy_that_cannot_look(
    tmp_path: Path, plant: Callable[..., Any], does: str, said: str
) -> None:
    """Nothing of it reaches the training, and the profile says why it is not known."""
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    child = plant(sleeper, tmp_path)
    flame = tmp_path / "flame.svg"
    found = ProfileWatch(
        child.pid, AttemptFolder(tmp_path), make_study(), {}, str(program), 0.0, flame
    )

    def has_given_up() -> bool:
        found.look()
        return any("could not look" in note for note in found.notes())

    wait_for(has_given_up, "py-spy not to be asked again", pause_s=0.001)
    found.end()
    kept = json.loads((tmp_path / "profile.json").read_text())
    assert f"py-spy could not look into it: {said}" in kept["notes"]
    assert "py-spy has written no flame graph" in kept["notes"]
    assert kept["judgement"]["cause"] == NOT_KNOWN and child.is_alive()


INSIDE = """
import pathlib, sys, threading
wait = threading.Event()
threading.Thread(target=wait.wait, daemon=True).start()
pathlib.Path(sys.argv[1]).touch()
wait.wait()
"""


def test_in_a_container_with_process_numbers_of_its_own(tmp_path: Path) -> None:
    """Its stacks are seen all the same: of its first thread, which has number 1 in there."""
    require("py-spy")
    require("pid-namespace")
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    child = subprocess.Popen([*argv, sys.executable, "-c", INSIDE, str(tmp_path / "begun")])
    try:
        seen = watch(child.pid, tmp_path).symptoms()
    finally:
        child.kill()
        child.wait()
    assert (seen.stack_data, seen.stack_communication) == (0.0, 0.0)
    assert seen.stack_looks >= 25 and seen.main_waits is not None


def test_a_py_spy_that_cannot_be_started(tmp_path: Path) -> None:
    missing, flame = str(tmp_path / "missing"), tmp_path / "flame.svg"
    found = ProfileWatch(
        os.getpid(), AttemptFolder(tmp_path), make_study(), {}, missing, 0.0, flame
    )
    found.look()
    found.end()
    assert f"{missing} cannot be started: No such file or directory" in found.notes()
    assert "no flame graph: No such file or directory" in found.notes()


def test_a_fault_of_a_look_is_not_the_trainings(tmp_path: Path) -> None:
    class Faulty(ProfileWatch):
        def _look_now(self) -> None:
            raise ValueError("what /proc says is odd")

    found = Faulty(os.getpid(), AttemptFolder(tmp_path), make_study(), {}, None)
    found.look()
    found.look()
    found.end()
    said = "looking ended early (ValueError: what /proc says is odd)"
    assert json.loads((tmp_path / "profile.json").read_text())["notes"].count(said) == 1


def test_what_is_no_share_is_not_taken_for_one(tmp_path: Path) -> None:
    """A metric of another meaning, or no number: PostgreSQL's JSON takes no NaN, either."""
    found = ProfileWatch(os.getpid(), AttemptFolder(tmp_path), make_study(), {}, None)
    for value in (float("nan"), float("inf"), 37.0, -1.0):
        found.see([Report(0, 0.0, {"share_data": value})])
    assert found.symptoms().own_data is None
    found.see([Report(1, 0.0, {"share_data": 0.25})])
    assert found.symptoms().own_data == 0.25
    json.dumps(found.data(), allow_nan=False)


@pytest.mark.parametrize(
    ("card", "body", "cause"),
    [
        ({"busy": 30, "milliwatts": 150_000}, busy_thread, LAUNCH),
        ({"busy": 95, "milliwatts": 200_000}, sleeper, BATCH),
    ],
    ids=["tiny kernels", "small batch"],
)
def test_a_gpu(
    tmp_path: Path,
    plant: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    card: dict[str, float],
    body: Planted,
    cause: str,
) -> None:
    """By the stand-in's numbers: its card is as busy as they say, and the processes are real."""
    require("py-spy")
    child = plant(body, tmp_path)
    library = nvml_stub.build(tmp_path / "library")
    model = {"total": 141e9, "neighbour": 0, "slices": 0, "limit_milliwatts": 700_000, **card}
    (tmp_path / "card/0").mkdir(parents=True)
    (tmp_path / "card/0.json").write_text(json.dumps(model))
    (tmp_path / "card/0" / str(child.pid)).write_text(json.dumps({"bytes": 5e9, "slice": -1}))
    answers = FORK.SimpleQueue()

    def look() -> None:  # NVML is loaded once a process: in one of its own
        import ctypes

        ctypes.CDLL(str(library / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
        os.environ["NVML_STUB_MODEL"] = str(tmp_path / "card")
        study = make_study(resources=Resources(gpus=1, cpus=2))
        seen = watch(child.pid, tmp_path, study=study, environ={GPU_VARIABLE: "0"})
        answers.put(seen.symptoms().to_data())

    plant(look)
    wait_for(lambda: not answers.empty(), "what was seen", pause_s=PAUSE_S)
    from sweep.training.profiling.symptoms import Symptoms

    seen = Symptoms.from_data(answers.get())
    assert seen.gpu_busy == card["busy"] / 100
    assert seen.gpu_power == pytest.approx(card["milliwatts"] / 700_000, abs=0.001)
    assert seen.gpu_memory == pytest.approx(5 / 141, abs=0.001)
    busy = {**seen.to_data(), "main_busy": 1.0} if body is busy_thread else seen.to_data()
    found = judge(Symptoms.from_data(busy))
    assert found.cause == cause, (found, seen)
