"""Lightning: on one device, with its own DDP launcher, and under torchrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Sweep
from tests.frameworks import scene
from tests.frameworks.scene import Scene

METRIC = "val_loss"
# How the processes are started: one; Lightning's own launcher; torchrun, by sweep.
WAYS: dict[str, list[str]] = {
    "one": [],
    "own": ["fixed.devices=2", "resources.cpus=2"],
    "torchrun": ["fixed.devices=2", "resources.cpus=2", "ddp.ranks_per_node=2"],
}
# Which process is killed: of several the second rank.
KILLED = {
    "one": lambda command, env: "train_lightning" in command,
    "own": lambda command, env: env.get("LOCAL_RANK") == "1",
    "torchrun": lambda command, env: env.get("RANK") == "1",
}


@pytest.fixture(params=sorted(WAYS))
def way(request: pytest.FixtureRequest) -> str:
    """One of WAYS."""
    scene.need("lightning")
    return str(request.param)


@pytest.fixture
def study(sweep: Sweep, tmp_path: Path, runs: Path, way: str) -> Scene:
    """Its example."""
    return Scene(sweep, tmp_path, runs, "lightning", *WAYS[way])


def test_metric_and_rerun(study: Scene) -> None:
    scene.check_metric_and_rerun(study, METRIC, list(range(6)))


def test_prune(study: Scene) -> None:
    scene.check_prune(study, METRIC, at=2, last=5)


def test_kill_and_stop(study: Scene, way: str) -> None:
    scene.check_kill_and_stop(study, METRIC, KILLED[way], last=5)
