"""What the driver says of GPUs, by NVML's stand-in, and the trainings that live on its model."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweep.core.packing.card import CardState
from sweep.core.system import nvml
from sweep.core.system.mps import Identity
from sweep.core.system.nvml import Cards, Sample
from tests.conftest import ROOT
from tests.packed_gpu import PackedGpu, nvml_library, packed_gpu, write_training  # noqa: F401
from tests.waiting import text_of, wait_for

pytestmark = pytest.mark.real
GB = 10**9
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def gpu(
    packed_gpu: PackedGpu,  # noqa: F811
    nvml_library: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> PackedGpu:
    """The stand-in answers in this process."""
    ctypes.CDLL(str(nvml_library / "libnvidia-ml.so.1"), ctypes.RTLD_GLOBAL)
    monkeypatch.setenv("NVML_STUB_MODEL", packed_gpu.env["NVML_STUB_MODEL"])
    monkeypatch.setattr(nvml, "_is_first_namespace", lambda: True)
    return packed_gpu


@pytest.fixture
def start(gpu: PackedGpu, tmp_path: Path) -> Iterator[Start]:
    """Start a training on the model; those that live in the end are ended."""
    started: list[subprocess.Popen[str]] = []
    script = write_training(tmp_path)

    def run(*flags: str, card: str = "0") -> subprocess.Popen[str]:
        env = {**os.environ, **gpu.env, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": card}
        env["SWEEP_METRICS"] = str(tmp_path / f"metrics-{len(started)}.jsonl")
        started.append(
            subprocess.Popen(
                [sys.executable, str(script), *flags], env=env, stderr=subprocess.PIPE, text=True
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


cards_of = Cards.open  # opens the library, and no file that may not be there yet


def look(names: str = "0", number: int = 0) -> Sample:
    """Return a look at the cards of these names."""
    cards = cards_of(names.split(","), {"CUDA_VISIBLE_DEVICES": names})
    assert cards is not None
    return cards.sample(number)


def holds(process: subprocess.Popen[str], count: int) -> Callable[[], bool]:
    """Return a check whether the driver sees that a process holds so many bytes."""
    return lambda: look().memory_of([process.pid]) == count


def test_an_idle_card(gpu: PackedGpu) -> None:
    """Its memory, nothing that runs, its counter of energy."""
    sample = look()
    assert (sample.total_bytes, sample.used_bytes, sample.busy) == (80 * GB, 0, 0.0)
    assert sample.processes == {} and sample.trouble == "" and not sample.is_lost
    assert sample.energy_mj is not None and look().energy_mj >= sample.energy_mj  # type: ignore[operator]


def test_what_mps_is_decided_by(gpu: PackedGpu) -> None:
    """Its UUID, its compute mode, who computes on it; nothing of one that is lost."""
    found = cards_of(["0"], {"CUDA_VISIBLE_DEVICES": "0"})
    assert found is not None
    assert found.identity(0) == Identity("GPU-00000000-stub", "Default", [])
    gpu.set(mode=3, neighbour=GB)
    assert found.identity(0) == Identity("GPU-00000000-stub", "Exclusive_Process", [os.getpid()])
    gpu.set(mode=2)
    assert (identity := found.identity(0)) is not None and identity.mode == "Prohibited"
    gpu.set(lost=True)
    assert found.identity(0) is None


def test_whose_memory_it_is(gpu: PackedGpu, start: Start) -> None:
    """Of trainings that live, and of a neighbour; a training's grows late."""
    gpu.set(neighbour=20 * GB)
    gate = ("--epoch-s", "1000")
    one = start("--memory", "8e9", "--late", "0", *gate)
    other = start("--memory", "6e9", "--late", "1", *gate)
    wait_for(holds(one, 8 * GB), "the first training's memory")
    wait_for(holds(other, 3 * GB), "the other's, before it grows")
    sample = look()
    assert sample.used_bytes == 31 * GB and sample.busy == pytest.approx(0.24)
    assert sample.memory_of([one.pid, other.pid]) == 11 * GB
    assert sample.card([one.pid, other.pid]) == CardState(80 * GB, 31 * GB, 20 * GB)
    assert sample.card([one.pid]) == CardState(80 * GB, 31 * GB, 23 * GB)
    one.kill()
    one.communicate()
    assert look().memory_of([one.pid]) == 0


@pytest.mark.parametrize("hidden", [1, 2])
def test_hidden_process_numbers(
    gpu: PackedGpu, start: Start, monkeypatch: pytest.MonkeyPatch, hidden: int
) -> None:
    """None listed, or numbers of the host: nobody's memory is told, and that is said."""
    one = start("--memory", "8e9", "--late", "0", "--epoch-s", "1000")
    wait_for(holds(one, 8 * GB), "the training's memory")
    gpu.set(hidden=hidden)
    monkeypatch.setattr(nvml, "_is_first_namespace", lambda: False)
    sample = look()
    assert sample.processes is None and sample.memory_of([one.pid]) is None
    assert "namespace" in sample.trouble
    assert sample.card([one.pid]) == CardState(80 * GB, 8 * GB, None)


def test_slices(gpu: PackedGpu, start: Start) -> None:
    """Each has memory and trainings of its own; neither a busy share nor energy is told."""
    gpu.set(slices=4)
    one = start("--memory", "8e9", "--late", "0", "--epoch-s", "1000", card="MIG-00000000-2")
    wait_for(lambda: look("MIG-00000000-2").used_bytes, "the training's memory")
    sample = look("MIG-00000000-1,MIG-00000000-2", 1)
    assert (sample.total_bytes, sample.used_bytes) == (20 * GB, 8 * GB)
    assert sample.memory_of([one.pid]) == 8 * GB
    assert (sample.busy, sample.energy_mj) == (None, None)
    assert "busy share" in sample.trouble and "energy" in sample.trouble
    assert look("MIG-00000000-1").used_bytes == 0
    for names in ("0", "MIG-00000000-4", "MIG-what", "GPU-9", "9"):
        assert Cards.open([names], {"CUDA_VISIBLE_DEVICES": names}) is None


def test_a_lost_card(gpu: PackedGpu) -> None:
    """It is said, whenever it goes; the other one goes on."""
    gpu.set(card=1)
    cards = Cards.open(["0", "1"], {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert cards is not None and len(cards) == 2
    gpu.set(lost=True)
    lost = cards.sample(0)
    assert lost.is_lost and lost.total_bytes is None and "lost" in lost.trouble
    assert lost.card([1]) == CardState(None, None, None)
    assert not cards.sample(1).is_lost and cards.energy_mj() is None


def test_a_card_that_tells_nothing(gpu: PackedGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not supported is not lost."""
    monkeypatch.delenv("NVML_STUB_MODEL")
    monkeypatch.setenv("NVML_STUB", "0")
    sample = look()
    assert not sample.is_lost and sample.total_bytes is None
    assert "memory" in sample.trouble
    monkeypatch.setenv("NVML_STUB", "")
    assert Cards.open(["0"], {}) is None


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package there are no cards."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Cards.open(["0"], {}) is None


def test_trainings_share_the_model(gpu: PackedGpu, start: Start, tmp_path: Path) -> None:
    """They fail as PyTorch does where memory is short, and leave no trace."""
    gpu.set(total=10 * GB, progress={1: 1.0, 2: 2.0})
    waits = start("--memory", "6e9", "--late", "0", "--epochs", "1", "--epoch-s", "1000")
    wait_for(lambda: gpu.live() == [waits.pid], "the first training")
    late = start("--memory", "5e9", "--late", "1", "--epochs", "2", "--epoch-s", "0.001")
    assert "torch.OutOfMemoryError: CUDA out of memory." in late.communicate()[1]
    assert late.returncode == 1
    said = [json.loads(line) for line in text_of(tmp_path / "metrics-1.jsonl").splitlines()]
    assert [each["step"] for each in said] == [0]  # its first epoch needed half of it
    gpu.set(progress={1: 1e9})
    assert waits.communicate()[1] == "" and waits.returncode == 0
    assert [path for path in (gpu.folder / "0").iterdir() if path.name == str(waits.pid)] == []
