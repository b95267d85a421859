"""``--parallel fsdp``: the run that DDP makes, saved in shards, resumed by any number of ranks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from sweep.report import decode  # noqa: E402
from sweep.training.checkpoints import newest  # noqa: E402
from tests.trainer.ranks_of_trainer import QUICK, finish, start  # noqa: E402
from trainer import checkpoint, config, evaluate, loop  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.long]

MORE = (*QUICK, "--dropout", "0", "--optimizer", "adamw", "--lr", "0.01", "--schedule", "constant")
# Sums over ranks are taken in another order than by DDP, or by one process.
TOLERANCE = 1e-4


def curve(folder: Path) -> dict[int, dict[str, float]]:
    found = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        step, _, metrics = decode(line)
        metrics.pop("epoch_s")
        found[step] = metrics
    return found


def test_shards(tmp_path: Path) -> None:
    """One curve however it is divided, saved and resumed; a shard that is missing is noticed."""
    whole, ddp, again = tmp_path / "whole", tmp_path / "ddp", tmp_path / "again"
    runs = [start(2, whole, *MORE, "--parallel", "fsdp"), start(2, ddp, *MORE, "--parallel", "ddp")]
    for run in runs:
        finish(run)
    saves = whole / "checkpoints"
    names = sorted(path.name for path in saves.iterdir())
    assert names == ["epoch-0003-sharded", "epoch-0004-sharded"]
    assert newest(saves) == saves / "epoch-0004-sharded"
    for step, metrics in curve(ddp).items():
        assert curve(whole)[step] == pytest.approx(metrics, abs=TOLERANCE)
    # The evaluated network is the one that was measured in training.
    network, loaded, _, state = evaluate.load_network(saves, device="cpu")
    found = evaluate.measure(network, loaded.validation, loaded.classes)
    last = curve(whole)[4]
    assert found["accuracy"] == pytest.approx(last["val_accuracy"], abs=1e-9)
    assert found["loss"] == pytest.approx(last["val_loss"], abs=TOLERANCE)
    assert state["epoch"] == 4
    # The newest is not whole: it is passed over, and epoch 4 is trained again, to the same numbers.
    (saves / "epoch-0004-sharded/.metadata").unlink()
    assert newest(saves) == saves / "epoch-0003-sharded"
    shutil.copytree(saves, again / "checkpoints")
    finish(start(2, again, *MORE, "--parallel", "fsdp", "--resume", str(again / "checkpoints")))
    assert curve(again) == {4: last}
    # One process goes on from shards, and ranks that divide it from one process's file.
    options = config.parse([*MORE, "--resume", str(saves), "--output", str(tmp_path / "alone")])
    alone = loop.train(options, loop.Reporter({}))
    assert alone.metrics == pytest.approx({**last}, abs=TOLERANCE)
    (file,) = [path for path in checkpoint.find(ddp / "checkpoints") if "0003" in path.name]
    finish(start(2, tmp_path / "third", *MORE, "--parallel", "fsdp", "--resume", str(file)))
    assert curve(tmp_path / "third")[4] == pytest.approx(curve(ddp)[4], abs=TOLERANCE)
