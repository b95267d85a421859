"""Trials that share a GPU, on the local executor, with a stand-in for the card."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sweep.core.paths import Runs
from sweep.core.system import mps
from sweep.core.system.processes import live_processes
from tests.cli.commands import collected
from tests.conftest import Sweep, run_sweep
from tests.packed_gpu import PackedGpu, nvml_library, packed_gpu, write_training  # noqa: F401
from tests.toys import write_toy
from tests.waiting import text_of, wait_for


@pytest.fixture
def machine(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    """A machine with one GPU, of which its driver says nothing."""
    env = {"SWEEP_STORAGE": fresh_url, "CUDA_VISIBLE_DEVICES": "7"}
    return partial(run_sweep, runs=runs, cwd=tmp_path, env=env)


# Needs more than what others on the card leave it; the others end once they have seen that.
HUNGRY = """\
import os, pathlib, sys, time
from sweep.report import Reporter

folder = pathlib.Path(sys.argv[1])
trial, attempt = os.environ["SWEEP_TRIAL"], os.environ["SWEEP_ATTEMPT"]
here = folder / "here"
here.mkdir(exist_ok=True)
mine = here / trial
mine.touch()
while attempt == "1" and len(list(here.iterdir())) < 3 and not (folder / "short").exists():
    time.sleep(0.02)
Reporter().log(step=0, score=float(len(list(here.iterdir()))))
if trial == "0" and attempt == "1":
    (folder / "short").touch()
    mine.unlink()
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
while not (folder / "short").exists():
    time.sleep(0.02)
with open(folder / "seen.txt", "a") as stream:
    names = ("CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_PREALLOCATE", "SWEEP_SEAT")
    names += ("SWEEP_SHARED_GPU",)
    stream.write(" ".join(os.environ.get(name, "-") for name in names) + "\\n")
for step in range(1, 5):
    most = len(list(here.iterdir()))
    Reporter().log(step=step, score=float(most))
    time.sleep(0.05)
mine.unlink()
"""


def test_what_ran_out_of_memory_beside_others_goes_on_alone(
    machine: Sweep, tmp_path: Path, runs: Path
) -> None:
    """It is no failure of its own, not even with one attempt allowed. Each knows its GPU, and no
    framework takes all of it."""
    write_toy(
        tmp_path,
        trials=6,
        parallel=3,
        training=HUNGRY,
        resources="{gpus: 1, share: 3}",
        command=f"[python, train.py, '{tmp_path}']",
        retry="{max_attempts: 1}",
    )
    said = machine("launch", "study.yaml", "--wait")
    assert said.code == 0, said.err
    rows = {row["trial"]: row for row in collected(machine)}
    assert [rows[trial]["state"] for trial in range(6)] == ["complete"] * 6
    assert [rows[trial]["attempts"] for trial in range(6)] == [2, 1, 1, 1, 1, 1]
    assert rows[0]["value"] == 1.0  # nobody else was there
    attempts = (Runs(runs).study("toy").root / "trials/00000/attempts").iterdir()
    assert {path.name for path in attempts} == {"1", "2"}
    assert max(rows[trial]["value"] for trial in range(1, 6)) <= 3.0
    seen = (tmp_path / "seen.txt").read_text().splitlines()
    assert seen == ["7 false - 1"] * 6
    assert json.loads((Runs(runs).study("toy").cards / "levels.json").read_text())


def write_packed(folder: Path, share: str, trials: int, flags: str, **more: Any) -> None:
    """Write a study of trainings on the modelled card, whose parameter x is not their speed's."""
    write_toy(
        folder,
        trials=trials,
        parallel=16,
        resources=f"{{gpus: 1, share: {share}}}",
        command=f"python train.py {flags} {{params}}",
        **more,
    )
    write_training(folder)


@pytest.mark.long
def test_what_others_hold_is_left_to_them(
    tmp_path: Path,
    runs: Path,
    packed_gpu: PackedGpu,  # noqa: F811
    fresh_url: str,
) -> None:
    """Beside a neighbour two fit: none runs out of memory; seconds and joules are the card's."""
    packed_gpu.set(total=10 * 10**9, neighbour=6 * 10**9, progress={1: 1.0, 16: 16.0})
    write_packed(tmp_path, "auto", 6, "--epochs 8 --epoch-s 0.3 --memory 1.6e9 --late 0")
    env = {**packed_gpu.env, "SWEEP_STORAGE": fresh_url}
    sweep = partial(run_sweep, runs=runs, cwd=tmp_path, env=env)
    said = sweep("launch", "study.yaml", "--wait")
    assert said.code == 0, said.err
    rows = collected(sweep)
    assert [(row["state"], row["attempts"]) for row in rows] == [("complete", 1)] * 6
    used_s = sum(row["gpu_hours"] for row in rows) * 3600
    assert 0.0 < used_s <= sum(row["duration_s"] for row in rows)
    # 300 W, counted from one look of a second to the next.
    assert sum(row["energy_j"] for row in rows) == pytest.approx(300 * used_s, abs=300 * 6)


@pytest.mark.long
@pytest.mark.parametrize(
    ("card", "names"),
    [
        ({}, "0"),
        ({"hidden": 1}, "0"),  # the driver lists no process, or the host's numbers
        ({"hidden": 2, "neighbour": 2 * 10**9}, "0"),
        ({"slices": 2, "total": 20 * 10**9}, "MIG-00000000-0,MIG-00000000-1"),
    ],
    ids=["plain", "hidden", "host's numbers and a neighbour", "slices"],
)
def test_memory_that_grows_late(
    card: dict[str, int],
    names: str,
    tmp_path: Path,
    runs: Path,
    packed_gpu: PackedGpu,  # noqa: F811
    fresh_url: str,
) -> None:
    """What it comes to is seen when it is too late for some: those go on alone, and none fails."""
    packed_gpu.set(**{"total": 10 * 10**9, **card}, progress={1: 1.0, 16: 16.0})
    write_packed(
        tmp_path,
        "auto",
        8,
        "--epochs 8 --epoch-s 0.3 --memory 3e9 --late 4",
        retry="{max_attempts: 1}",
    )
    env = {**packed_gpu.env, "CUDA_VISIBLE_DEVICES": names, "SWEEP_STORAGE": fresh_url}
    sweep = partial(run_sweep, runs=runs, cwd=tmp_path, env=env)
    said = sweep("launch", "study.yaml", "--wait")
    assert said.code == 0, said.err
    assert [row["state"] for row in collected(sweep)] == ["complete"] * 8


@pytest.mark.long
def test_a_gpu_that_is_lost(
    tmp_path: Path,
    runs: Path,
    packed_gpu: PackedGpu,  # noqa: F811
    fresh_url: str,
) -> None:
    """Nothing more begins there, nothing waits for ever, and a launch after the repair goes on."""
    write_packed(tmp_path, "2", 6, "--epochs 20 --epoch-s 0.3")
    env = {**packed_gpu.env, "SWEEP_STORAGE": fresh_url}
    sweep = partial(run_sweep, runs=runs, cwd=tmp_path, env=env)
    assert sweep("launch", "study.yaml").code == 0
    wait_for(lambda: len(packed_gpu.live()) == 2, "two trainings")

    def logs() -> list[Path]:
        return list(Runs(runs).study("toy").local.glob("*/finaliser.log"))

    packed_gpu.set(lost=True)
    said = "ended without a trial"
    wait_for(lambda: any(said in text_of(log) for log in logs()), "the end of the tasks")
    found = json.loads(sweep("status", "--json").out)
    assert found["state"] == "held"
    assert found["counts"]["complete"] >= 2 and found["counts"]["waiting"] >= 1
    assert found["counts"]["complete"] + found["counts"]["waiting"] == 6
    assert [(gpu["gpu"], gpu["why"]) for gpu in found["gpus"]] == [("0", "lost")]
    packed_gpu.set(lost=False)
    assert sweep("launch", "study.yaml", "--wait").code == 0
    assert [row["state"] for row in collected(sweep)] == ["complete"] * 6


@pytest.mark.long
def test_a_fault_under_mps(
    tmp_path: Path,
    runs: Path,
    packed_gpu: PackedGpu,  # noqa: F811
    fresh_url: str,
) -> None:
    """MPS names no culprit: who trained beside it goes on alone and ends well, what faults alone
    has failed. MPS is the study's own, and nothing is left of it."""
    packed_gpu.install_mps()
    gate = tmp_path / "gate"
    flags = f"--epochs 4 --epoch-s 0.2 --fault-above 0.75 --gate {gate}"
    write_packed(tmp_path, "3", 4, flags, points="[{x: 0.9}, {x: 0.1}, {x: 0.2}, {x: 0.3}]")
    text = (tmp_path / "train.py").read_text()
    # Those that do not fault train until the gate opens: they are there when it does.
    waits = "    while epoch >= 1 and not pathlib.Path(flags.gate).exists():\n"
    waits += "        server.look()\n        time.sleep(TICK_S)\n"
    mark = "    if flags.x > flags.fault_above"
    (tmp_path / "train.py").write_text(text.replace(mark, waits + mark, 1))
    env = {**packed_gpu.env, "SWEEP_STORAGE": fresh_url}
    sweep = partial(run_sweep, runs=runs, cwd=tmp_path, env=env)
    assert sweep("launch", "study.yaml").code == 0
    wait_for(lambda: len(packed_gpu.live()) == 3, "three trainings")

    def gpus() -> Any:
        return json.loads(sweep("status", "--json").out)["gpus"]

    wait_for(lambda: any(gpu["mps"] == "on" for gpu in gpus()), "what serves them")
    journals = [
        Runs(runs).study("toy").root / f"trials/{n:05}/attempts/1/metrics.jsonl" for n in range(3)
    ]
    wait_for(lambda: all(text_of(path).count("\n") for path in journals), "their first epochs")
    gate.touch()
    assert sweep("launch", "study.yaml", "--wait").code in (0, 1)
    found = collected(sweep, "--state", "complete", "--state", "failed")
    rows = {row["trial"]: row for row in found}
    assert [rows[n]["state"] for n in range(4)] == ["failed", *["complete"] * 3]
    # The culprit: beside others, from its checkpoint, from nothing.
    assert [rows[n]["attempts"] for n in range(4)] == [3, 2, 2, 1]
    assert "unspecified launch failure" in rows[0]["reason"]
    wait_for(lambda: not pipes(), "the end of MPS")


def pipes() -> list[str]:
    """Return the pipe folders of daemons and servers of the stand-in that live."""
    found = [
        process.environment().get(mps.PIPE, "")
        for process in live_processes()
        if text_of(Path(f"/proc/{process.pid}/comm")).startswith(mps.PROGRAM[:15])
    ]
    return [pipe for pipe in found if pipe]
