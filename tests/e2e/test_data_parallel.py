"""A trial that uses several GPUs in one process, as DataParallel does: ``launcher: python``.

What sweep does for it is tested on any machine, with the names of four GPUs that are not there: the
local scheduler hands them out as it does real ones. That DataParallel spreads a batch over two is
tested where there are two.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep.core.system.gpus import GPU_VARIABLE
from tests.conftest import Sweep
from tests.needs import require
from tests.toys import write_toy
from tests.waiting import wait_for

pytestmark = pytest.mark.real

NOTES = """\
import json, os, pathlib, sys, time
from sweep.report import Reporter
folder = pathlib.Path(os.environ["SWEEP_TRIAL_DIR"])
here = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE")}
with open(folder / "started", "a") as stream:
    stream.write(json.dumps(here) + "\\n")
reporter = Reporter()
reporter.log(step=0, score=reporter.rank())
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
"""
SPREADS = """\
import os
import torch
from torch import nn
from sweep.report import Reporter

seen = set()

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 1)

    def forward(self, batch):
        seen.add((str(batch.device), len(batch)))
        return self.linear(batch)

network = nn.DataParallel(Network().cuda())
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
reporter = Reporter()
batch = torch.ones(64, 8, device="cuda")
for step in range(3):
    loss = ((network(batch) - 1) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    reporter.log(step=step, score=-float(loss.detach()))
print("spread", sorted(seen), "of", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
"""


def notes_of(folder: Path) -> list[dict[str, str | None]]:
    """Return what each process of a trial's has noted as it began."""
    (path,) = folder.glob("attempts/1/started")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_trial_is_one_process_with_two_gpus_of_its_own(
    sweep: Sweep, tmp_path: Path, runs: Path
) -> None:
    """Of four GPUs two trials get two each, and none is started twice; it alone reports."""
    gate = tmp_path / "gate"
    names = [f"GPU-{runs.parent.name}-{number}" for number in range(4)]
    (tmp_path / "code").mkdir()
    file = write_toy(
        tmp_path / "code",
        trials=3,
        parallel=3,
        command=json.dumps(["python", "train.py", "{x}", str(gate)]),
        training=NOTES,
        launcher="python",
        workdir=str(tmp_path / "code"),
        resources="{gpus: 2, cpus: 1}",
    )
    env = {GPU_VARIABLE: ",".join(names)}
    assert sweep("launch", file, env=env).code == 0
    trials = runs / "toy/trials"
    wait_for(lambda: len(list(trials.glob("*/attempts/1/started"))) == 2, "two trainings")
    wait_for(lambda: len(list(trials.glob("*/attempts/1/metrics.jsonl"))) == 2, "their reports")
    held = [notes_of(path.parents[2]) for path in trials.glob("*/attempts/1/started")]
    gate.touch()
    assert sweep("launch", file, "--wait", env=env).code == 0
    pairs = [(one[GPU_VARIABLE] or "").split(",") for (one,) in held]
    assert sorted(name for pair in pairs for name in pair) == sorted(names)
    for number in range(3):
        folder = trials / f"{number:05d}"
        (one,) = notes_of(folder)
        assert one["RANK"] is None and one["WORLD_SIZE"] is None
        assert len((one[GPU_VARIABLE] or "").split(",")) == 2
        assert len((folder / "attempts/1/metrics.jsonl").read_text().splitlines()) == 1


def test_a_batch_is_spread_over_two_gpus(sweep: Sweep, tmp_path: Path, runs: Path) -> None:
    require("two_gpus")
    file = write_toy(
        tmp_path,
        trials=1,
        command="[python, train.py, '{x}']",
        training=SPREADS,
        launcher="python",
        resources="{gpus: 2}",
    )
    assert sweep("launch", file, "--wait").code == 0
    log = (runs / "toy/trials/00000/attempts/1/log.txt").read_text()
    assert "spread [('cuda:0', 32), ('cuda:1', 32)] of" in log
