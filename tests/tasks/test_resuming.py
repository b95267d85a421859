"""Trials that go on after a kill, with real processes: from what, and what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.scene import Scene

pytestmark = pytest.mark.real

# Its two newest saves cannot be loaded, which nothing but the training can tell; then it is killed.
DAMAGED = """
import json, os, signal
from sweep.report import Reporter

r = Reporter()
start = json.load(open(os.path.join(r.resume, "state.json")))["epoch"] if r.resume else 0
for epoch in range(start, 6):
    r.log(step=epoch, loss=float(epoch))
    folder = os.path.join(r.checkpoint_dir, "epoch-%d" % epoch)
    os.mkdir(folder)
    bad = epoch in (3, 4) and not r.resume
    json.dump({"bad": epoch} if bad else {"epoch": epoch + 1}, open(folder + "/state.json", "w"))
    if epoch == 4 and not r.resume:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def scene(tmp_path: Path, runs: Path, sweep: Any, fresh_url: str) -> Scene:
    return Scene(tmp_path, runs, sweep, fresh_url, trials=1, parallel=1)


def test_a_checkpoint_that_cannot_be_loaded_costs_a_step_back(scene: Scene) -> None:
    """The trial goes on from the third newest and is complete; each attempt is shown."""
    scene.write(f"python {scene.name}-train.py", DAMAGED).launch("--wait")
    (record,) = scene.records()
    folder = scene.attempt(0, 1).checkpoints
    assert [(a.outcome, a.resumed_from) for a in record.attempts] == [
        ("killed", None),
        ("resume failed", str(folder / "epoch-4")),
        ("resume failed", str(folder / "epoch-3")),
        ("finished", str(folder / "epoch-2")),
    ]
    assert record.state == "complete"
    assert record.metrics["loss"] == [(epoch, float(epoch)) for epoch in range(6)]
    assert sorted(path.name for path in folder.iterdir()) == [f"epoch-{n}" for n in range(5)]
