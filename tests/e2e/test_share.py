"""Trials that share a GPU, on the local executor, with a stand-in for the card."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sweep.core.paths import Runs
from tests.cli.commands import collected
from tests.conftest import Sweep, run_sweep
from tests.toys import write_toy

# Trains while it holds a place among those that do, and says how many it saw at most. Two that are
# told to meet wait for each other: they can only where they train at once.
TRAINING = """\
import os, pathlib, sys, time
from sweep.report import Reporter

here = pathlib.Path(sys.argv[2], "here")
here.mkdir(exist_ok=True)
mine = here / os.environ["SWEEP_TOKEN"]
mine.touch()
most, wanted = 0, int(sys.argv[1])
reporter = Reporter()
step = 0
while most < wanted:
    most = max(most, len(list(here.iterdir())))
    time.sleep(0.02)
for step in range(3):
    most = max(most, len(list(here.iterdir())))
    reporter.log(step=step, score=float(most))
    time.sleep(0.02)
mine.unlink()
with open(here.parent / "seen.txt", "a") as stream:
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]
    shy = os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"]
    stream.write(f"{os.environ['SWEEP_TRIAL']} {gpu} {most} {shy}\\n")
"""


@pytest.fixture
def machine(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    """A machine with one GPU, of which its driver says nothing."""
    env = {"SWEEP_STORAGE": fresh_url, "CUDA_VISIBLE_DEVICES": "7"}
    return partial(run_sweep, runs=runs, cwd=tmp_path, env=env)


def write(folder: Path, share: str, trials: int, wanted: int, **more: Any) -> None:
    write_toy(
        folder,
        trials=trials,
        training=TRAINING,
        resources=f"{{gpus: 1, share: {share}}}",
        command=f"[python, train.py, '{wanted}', '{folder}']",
        **more,
    )


def test_so_many_share_a_gpu(machine: Sweep, tmp_path: Path, runs: Path) -> None:
    """Three at once on one card, never more; each knows its GPU, and all together use no more
    GPU-seconds than the card had."""
    write(tmp_path, "3", trials=6, wanted=3)
    text = (tmp_path / "study.yaml").read_text()
    (tmp_path / "study.yaml").write_text(text.replace("max_parallel: 2\n", ""))
    said = machine("launch", "study.yaml", "--wait")
    assert said.code == 0, said.err
    seen = [line.split() for line in (tmp_path / "seen.txt").read_text().splitlines()]
    assert sorted(int(trial) for trial, *_ in seen) == list(range(6))
    assert {(gpu, most, shy) for _, gpu, most, shy in seen} == {("7", "3", "false")}
    rows = collected(machine)
    assert [row["state"] for row in rows] == ["complete"] * 6
    assert json.loads((Runs(runs).study("toy").cards / "levels.json").read_text())
