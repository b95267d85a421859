"""Causes planted in whole trainings on CPUs, each named by ``profile: true``, and no other.

    .venv/bin/python -m pytest -q --long tests/e2e/test_held_back.py

Best alone on the machine: where others have its CPUs, a training is rightly called short of them.
As root the trainings are preferred to others; else a test waits for a quiet machine, for a quarter
of an hour at most. What was judged wrongly while others were at work is trained again, and at last
skipped with a word.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from sweep.training.profiling.judgement import COMMUNICATION, FILES, LAUNCH, LEAST_LOOKS, LOADER
from tests.conftest import Sweep
from tests.needs import look_for_quiet, require
from tests.toys import write_toy
from tests.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.long]

TRIES = 3
PATIENCE_S, TRAINING_S = 900.0, 600.0

# Each trains until the gate is there. One thread for each process, as with jobs of one CPU a rank.
BEGINS = """\
import mmap, os, pathlib, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from sweep.report import Reporter

torch.set_num_threads(1)
try:  # as root: others' work is none of its causes
    os.nice(-15)
    pathlib.Path("/proc/self/autogroup").write_text("-15")
except OSError:
    pass
gate, data = pathlib.Path(sys.argv[2]), sys.argv[3]
reporter = Reporter()

class Endless(Dataset):
    def __len__(self):
        return 10**9

    def __getitem__(self, index):
        return torch.full((64,), float(index % 7))

def train(loader, network, every_s=1.0, every=1):
    # Reports, and looks for the gate, once in so many seconds and steps.
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-6)
    said = time.monotonic()
    reporter.log(step=0, score=0.0)
    for step, batch in enumerate(loader, 1):
        loss = (network(batch) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0 and time.monotonic() - said >= every_s:
            said = time.monotonic()
            reporter.log(step=step, score=float(loss.detach()))
            stop = torch.tensor(float(gate.exists()))
            if torch.distributed.is_initialized():
                torch.distributed.all_reduce(stop)
            if stop:
                return

small = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
"""
SLOW_LOADER = """
class Slow(Endless):
    def __getitem__(self, index):
        time.sleep(0.01)
        return super().__getitem__(index)

train(DataLoader(Slow(), batch_size=8), small)
"""
TINY_OPERATIONS = """
class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.ones(64))

    def forward(self, batch):
        for _ in range(300):
            batch = batch * self.weights + 0.1
        return batch

train(DataLoader(Endless(), batch_size=8), Tiny())
"""
SMALL_BATCH = """
train(DataLoader(Endless(), batch_size=1), nn.Sequential(*[
    layer for _ in range(40) for layer in (nn.Linear(64, 64), nn.ReLU())
]))
"""
# The network is large and its batch small: gradients of 34 MB go from rank to rank in each step.
SLOW_EXCHANGE = """
torch.distributed.init_process_group("gloo")
large = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 131072)))
train([torch.ones(1, 64)] * 10**6, large, every_s=0.0, every=5)
"""
# Past the page cache, so that each read waits for the disk.
SLOW_DISK = """
class OnDisk(Endless):
    block = mmap.mmap(-1, 4 << 20)
    file = os.open(data, os.O_RDONLY | os.O_DIRECT)

    def __getitem__(self, index):
        os.preadv(self.file, [self.block], (index % 64) * (4 << 20))
        return super().__getitem__(index)

train(DataLoader(OnDisk(), batch_size=8), small)
"""
# On CPUs a small batch looks as small operations do (docs/profiling.md).
PLANTED = [
    pytest.param(SLOW_LOADER, 1, LOADER, id="slow loader"),
    pytest.param(TINY_OPERATIONS, 1, LAUNCH, id="tiny kernels"),
    pytest.param(SMALL_BATCH, 1, LAUNCH, id="small batch"),
    pytest.param(SLOW_EXCHANGE, 2, COMMUNICATION, id="slow exchange"),
    pytest.param(SLOW_DISK, 1, FILES, id="slow disk"),
]


def wait_for_quiet() -> None:
    """Wait until others leave the machine alone; skip with a word where they do not."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not look_for_quiet().there and time.monotonic() < give_up_at:
        pass  # each look takes its time
    require("quiet")


def look(sweep: Sweep, folder: Path, runs: Path, training: str, ranks: int) -> dict[str, Any]:
    """Train under ``profile: true`` until enough was seen; return the attempt's profile."""
    data, gate = folder / "data", folder / "gate"
    code = folder / "code"
    code.mkdir(parents=True)
    data.write_bytes(os.urandom(256 << 20) if training is SLOW_DISK else b"")
    command = ["python", "train.py", "{x}", str(gate), str(data)]
    more: dict[str, str] = {}
    if ranks > 1:
        more = {"launcher": "torchrun", "ddp": json.dumps({"ranks_per_node": ranks})}
    file = write_toy(
        code,
        name=folder.name,
        trials=1,
        command=json.dumps(command),
        training=BEGINS + training,
        profile="true",
        workdir=str(code),
        resources=json.dumps({"cpus": 2}),
        **more,
    )
    assert sweep("launch", file).code == 0
    path = runs / folder.name / "trials/00000/attempts/1/profile.json"

    def seen() -> dict[str, Any]:
        """It is kept twice a minute."""
        return json.loads(path.read_text())["seen"] if path.exists() else {}

    def is_enough() -> bool:
        now = seen()
        return now.get("stack_looks", 0) > LEAST_LOOKS and now["looks"] > LEAST_LOOKS

    try:
        wait_for(is_enough, f"enough looks: {path}", limit_s=TRAINING_S, pause_s=1.0)
    finally:
        gate.touch()
    waited = sweep("launch", file, "--wait")
    assert waited.code == 0, waited
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize(("training", "ranks", "cause"), PLANTED)
def test_a_planted_cause(
    sweep: Sweep, tmp_path: Path, runs: Path, training: str, ranks: int, cause: str
) -> None:
    require("torch")
    require("py-spy")
    if training is SLOW_DISK:
        require("disk")
    for number in range(TRIES):
        if os.geteuid() != 0:
            wait_for_quiet()
        found = look(sweep, tmp_path / f"try{number}", runs, training, ranks)
        print(json.dumps({"cause": cause, **found["seen"]}))
        said = found["judgement"]
        if said["cause"] == cause:
            return
        # It has ended: what is in use now is others'.
        assert not look_for_quiet().there, (said, found["seen"])
    require("quiet")
    pytest.fail(f"others were at work each time; at last: {said}")
