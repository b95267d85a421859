"""The whole exercise on a real Slurm: 200 trials, 20 at a time, ranked, the winner run again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.cluster.cluster import Cluster
from tests.cluster.test_launch import run_to_its_end
from tests.cluster.user import ROOT, User
from tests.needs import look_for_mnist, skip_or_fail

pytestmark = [pytest.mark.slurm, pytest.mark.long]

# Standard library only, so that 20 of them run at once on a small machine: logistic regression on
# points that the seed draws, from the configuration's file, with a checkpoint an epoch.
LEARNING = """
import json, math, os, random, sys
from sweep.report import Reporter

config = {}
for line in open(sys.argv[1]):
    name, _, value = line.partition(":")
    if value.strip():
        config[name.strip()] = float(value)
draw = random.Random(int(config["seed"]))
points = [(draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(200)]
labels = [float(3 * a - b + draw.gauss(0, 0.5) > 0) for a, b in points]
reporter = Reporter()
weights, start = [0.0, 0.0], 0
if reporter.resume:
    start, weights = json.load(open(reporter.resume))
for epoch in range(start + 1, 4):
    for (a, b), label in zip(points[:150], labels):
        error = label - 1 / (1 + math.exp(-(weights[0] * a + weights[1] * b)))
        weights = [weights[0] + config["lr"] * error * a, weights[1] + config["lr"] * error * b]
    logits = [weights[0] * a + weights[1] * b for a, b in points[150:]]
    loss = sum(math.log1p(math.exp(-z if y else z)) for z, y in zip(logits, labels[150:])) / 50
    path = os.path.join(reporter.checkpoint_dir, "last")
    with open(path + ".tmp", "w") as stream:
        json.dump([epoch, weights], stream)
    os.rename(path + ".tmp", path)
    reporter.log(step=epoch, value=-loss)
"""
LR = {"lr": {"type": "float", "low": 1e-3, "high": 0.3, "log": True}}


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with User(slurm, slurm.home / f"{tmp_path.name}-{os.getpid()}").leaving_nothing() as someone:
        yield someone


def rank_and_run_again(user: User, name: str, env: dict[str, str] | None = None) -> None:
    """Check the five best, and that the best one's re-run, a job of Slurm's, says the same."""
    top = json.loads(user.sweep("collect", name, "--top", "5", "--format", "json").stdout)
    values = [trial["value"] for trial in top]
    assert len(values) == 5 and values == sorted(values, reverse=True)
    done = user.sweep("rerun-best", name, "--wait", "--json", env=env, timeout_s=600)
    verdict = json.loads(done.stdout)
    assert (verdict["verdict"], verdict["relative_difference"]) == ("reproduced", 0)


def test_200_trials_20_at_once(user: User) -> None:
    """The database is a job too; K is never exceeded; few files; nothing stays behind."""
    script = user.write("learn.py", LEARNING)
    command = [str(user.bin / "python"), str(script), "{config}"]
    path = user.study("many", command, space=LR, trials=200, max_parallel=20)
    run_to_its_end(user, path, "many", 200, 20)
    files = sum(found.is_file() for found in (user.runs / "many").rglob("*"))
    assert files <= 6 * 200 + 50
    rank_and_run_again(user, "many")
    user.check_nothing_left()


@pytest.mark.mnist
def test_mnist_on_the_cluster(user: User) -> None:
    """The reference trainer on the real images: above nine in ten, and the best reproduces."""
    if not look_for_mnist().there:
        skip_or_fail("mnist", look_for_mnist().what)
    command = [str(user.bin / "python"), "-m", "trainer.train", "--data", "mnist"]
    command += ["--config", "{config}"]
    path = user.study(
        "mnist",
        command,
        space=LR,
        trials=6,
        max_parallel=2,
        fixed={"epochs": 1, "train_fraction": 0.1, "batch_size": 64},
        objective={"metric": "val_accuracy", "direction": "maximize"},
        resources={"time": "00:30:00", "cpus": 1, "memory": "1G"},
    )
    data = {"SWEEP_DATA": os.environ["SWEEP_DATA"], "OMP_NUM_THREADS": "1"}
    run_to_its_end(user, path, "mnist", 6, 2, data)
    best = json.loads(user.sweep("collect", "--top", "1", "--format", "json").stdout)[0]
    assert best["value"] > 0.9
    rank_and_run_again(user, "mnist", data)


@pytest.mark.mnist
def test_200_mnist_trials_20_at_once(user: User) -> None:
    """studies/mnist.yaml with 200 short trials: a small network on a part of the real images."""
    if not look_for_mnist().there:
        skip_or_fail("mnist", look_for_mnist().what)
    spec = YAML(typ="safe").load(ROOT / "studies" / "mnist.yaml")
    spec |= {
        "trials": 200,
        "max_parallel": 20,
        "executor": "slurm",
        "fixed": {
            "model": "mlp",
            "layers": 1,
            "epochs": 1,
            "augment": "none",
            "train_fraction": 0.05,
        },
        "resources": {"time": "00:30:00", "gpus": 0, "cpus": 1, "memory": "1G"},
    }
    path = user.write("mnist.yaml", json.dumps(spec))
    data = {"SWEEP_DATA": os.environ["SWEEP_DATA"], "OMP_NUM_THREADS": "1"}
    run_to_its_end(user, path, "mnist", 200, 20, data, timeout_s=3600)
    best = json.loads(user.sweep("collect", "--top", "1", "--format", "json").stdout)[0]
    assert best["value"] > 0.6
    print(f"best: {best['value']}, {best['params']}")
    rank_and_run_again(user, "mnist", data)
    user.check_nothing_left()
