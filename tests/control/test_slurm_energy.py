"""The energy of attempts: NVML's counters, sacct's rows, and how a task's part is shared out."""

from __future__ import annotations

import ctypes
import time
from datetime import timedelta
from typing import Any

import pytest

from sweep.control.slurm_energy import share
from sweep.core.scheduler import TaskEnergy
from sweep.core.study import Resources
from sweep.core.system.gpu_energy import Counters
from sweep.core.trial import Attempt
from sweep.schedulers.slurm.text.consumed_energy import energy_argv, parse_energy
from sweep.storage.energy import Energy, parse
from tests.core import nvml_stub
from tests.study_rows import NOON, make_study


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The stand-in is there under NVML's name, in this process."""
    pytest.importorskip("pynvml")
    folder = nvml_stub.build(tmp_path_factory.mktemp("nvml"))
    ctypes.CDLL(str(folder / "libnvidia-ml.so.1"), ctypes.RTLD_GLOBAL)


@pytest.mark.parametrize(
    ("gpus", "cards", "environ", "watts"),
    [
        ({"gpus": 1}, "100000,200000", {"CUDA_VISIBLE_DEVICES": "1"}, 200),
        ({"gpus": 2}, "100000,200000", {"CUDA_VISIBLE_DEVICES": "0,1"}, 300),
        ({"gpus": "a100:1"}, "100000,200000", {"CUDA_VISIBLE_DEVICES": "GPU-00000001"}, 200),
        # Cards of one kind by index; of several only by the bus's order, or by UUID.
        ({"gpus": 1}, "100000:H100,200000:T4", {"CUDA_VISIBLE_DEVICES": "0"}, None),
        (
            {"gpus": 1},
            "100000:H100,200000:T4",
            {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            200,
        ),
        ({"gpus": 1}, "100000:H100,200000:T4", {"CUDA_VISIBLE_DEVICES": "GPU-00000000-stub"}, 100),
        # Not the attempt's alone, or not known to be.
        ({"gpus": 0}, "100000", {"CUDA_VISIBLE_DEVICES": "0"}, None),
        ({"gpus": 2}, "100000,200000", {"CUDA_VISIBLE_DEVICES": "0"}, None),
        ({"gpus": 1}, "100000,200000", {"CUDA_VISIBLE_DEVICES": "0,1"}, None),
        ({"gpus": 1, "nodes": 2}, "100000", {"CUDA_VISIBLE_DEVICES": "0"}, None),
        ({"shard": 4}, "100000", {"CUDA_VISIBLE_DEVICES": "0"}, None),
        ({"gpus": 1, "mps": 50}, "100000", {"CUDA_VISIBLE_DEVICES": "0"}, None),
        ({"gpus": 1}, "100000", {"CUDA_VISIBLE_DEVICES": "MIG-1234"}, None),
        ({"gpus": 1}, "100000:A100+mig", {"CUDA_VISIBLE_DEVICES": "0"}, None),
        ({"gpus": 1}, "100000", {"CUDA_VISIBLE_DEVICES": "3"}, None),
        # A card from before Volta.
        ({"gpus": 1}, "0", {"CUDA_VISIBLE_DEVICES": "0"}, None),
        ({"gpus": 2}, "100000,0", {"CUDA_VISIBLE_DEVICES": "0,1"}, None),
        ({"gpus": 1}, "", {"CUDA_VISIBLE_DEVICES": "0"}, None),
    ],
)
def test_which_counters_are_an_attempts(
    gpus: dict[str, Any],
    cards: str,
    environ: dict[str, str],
    watts: int | None,
    nvml: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whole GPUs of one node that count; joules are watts times seconds, from millijoules."""
    monkeypatch.setenv("NVML_STUB", cards)
    counters = Counters.find(make_study(resources=Resources(**gpus)), environ)
    if watts is None:
        assert counters is None
        return
    assert counters is not None
    outer = time.monotonic()
    meter = counters.start()
    begin = time.monotonic()
    time.sleep(0.05)
    least = time.monotonic() - begin
    joules = meter.joules()
    most = time.monotonic() - outer
    assert joules is not None
    assert watts * least - 0.01 <= joules <= watts * most + 0.01


def test_a_counter_that_was_reset_says_nothing(nvml: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that was loaded anew counts from zero; and one that is gone does not count."""
    monkeypatch.setenv("NVML_STUB", "100000")
    counters = Counters.find(make_study(resources=Resources(gpus=1)), {"CUDA_VISIBLE_DEVICES": "0"})
    assert counters is not None
    meter = counters.start()
    monkeypatch.setenv("NVML_STUB", "1")
    assert meter.joules() is None
    monkeypatch.setenv("NVML_STUB", "0")
    assert meter.joules() is None


SACCT = """\
41_0|2026-03-01T12:00:00|2026-03-01T12:10:00|
41_0.batch|2026-03-01T12:00:00|2026-03-01T12:10:00|6000
41_0.extern|2026-03-01T12:00:00|2026-03-01T12:10:00|0
41_0.0|2026-03-01T12:01:00|2026-03-01T12:09:00|5000
41_1|2026-03-01T12:00:00|2026-03-01T12:05:00|
41_1.batch|2026-03-01T12:00:00|2026-03-01T12:05:00|1.50K
41_1|2026-03-01T12:06:00|2026-03-01T12:09:00|900
41_1.batch|2026-03-01T12:06:00|2026-03-01T12:09:00|900
41_2|2026-03-01T12:00:00|2026-03-01T12:09:00|0
41_2.batch|2026-03-01T12:00:00|2026-03-01T12:09:00|0
41_3|2026-03-01T12:00:00|2026-03-01T12:09:00|18446744073709551614
41_4|2026-03-01T12:00:00|Unknown|700
41_[5-9]|Unknown|Unknown|
42|2026-03-01T12:00:00|2026-03-01T12:09:00|2M
no row of sacct's
"""


def test_sacct_rows_of_energy() -> None:
    """Each run of a task, the greatest of its steps; nothing where nothing was measured."""
    found = [(run.job, run.index, run.started[11:16], run.joules) for run in parse_energy(SACCT)]
    assert found == [
        ("41", 0, "12:00", 6000.0),
        ("41", 1, "12:00", 1500.0),
        ("41", 1, "12:06", 900.0),
        ("42", 0, "12:00", 2e6),
    ]
    assert energy_argv(["41", "42"])[-2:] == ["-j", "41,42"]


def attempt(trial: int, job: str, index: int, start_min: float, end_min: float) -> Attempt:
    claimed, ended = (NOON + timedelta(minutes=minute) for minute in (start_min, end_min))
    return Attempt(trial, trial, 1, f"{trial}", job, index, "n1", None, claimed, ended, ended)


def test_a_tasks_energy_is_shared_by_time() -> None:
    """Among the attempts of that run: not those of an earlier run, or of another task."""
    noon_s = NOON.timestamp()
    used = [
        TaskEnergy("41", 0, noon_s, noon_s + 600, 600.0),
        TaskEnergy("41", 0, noon_s + 1200, noon_s + 1800, 100.0),
        TaskEnergy("41", 7, noon_s, noon_s + 600, 50.0),
    ]
    attempts = [
        attempt(0, "41", 0, 0, 6),
        attempt(1, "41", 0, 6, 9),
        attempt(2, "41", 0, 20, 29),
        attempt(3, "41", 1, 0, 9),
        attempt(4, "42", 0, 0, 9),
    ]
    assert share(used, attempts) == pytest.approx({"0": 400.0, "1": 200.0, "2": 100.0})


@pytest.mark.parametrize("text", ["[1]", "3", '{"x": 1}', '{"1": {"joules": "a"}}', "null"])
def test_a_notebooks_attribute_under_our_key(text: str) -> None:
    """It is passed over."""
    assert parse(text) == {}
    assert parse('{"2": {"joules": 1.5, "by": "nvml"}}') == {2: Energy(1.5, "nvml")}
