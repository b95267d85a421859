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


# As frameworks do with "resume from last": the highest checkpoint-N in their own folder, which is
# written into again. It knows nothing of $SWEEP_RESUME. Killed in the middle of its fourth save.
BY_ITSELF = """
import json, os, signal
from sweep.report import Reporter

reporter, folder = Reporter(), os.environ["SWEEP_CHECKPOINT_DIR"]
found = sorted(int(name.split("-")[1]) for name in os.listdir(folder) if name[:5] == "check")
start = 0
if found:
    last = os.path.join(folder, "checkpoint-%d" % found[-1], "trainer_state.json")
    start = json.load(open(last))["epoch"]
    print("found", found, "resume", os.path.dirname(last) == reporter.resume, flush=True)
    open(last, "a").write(" ")
for epoch in range(start + 1, 7):
    reporter.log(step=epoch, loss=float(epoch))
    save = os.path.join(folder, "checkpoint-%d" % epoch)
    os.mkdir(save)
    open(save + "/model.safetensors", "w").write("weights of %d" % epoch)
    if epoch == 4 and not found:
        os.kill(os.getpid(), signal.SIGKILL)
    json.dump({"epoch": epoch}, open(save + "/trainer_state.json", "w"))
"""


def test_a_framework_that_looks_into_its_own_folder(scene: Scene) -> None:
    """``resume: folder``: the newest whole one is there, and the earlier attempt's untouched."""
    scene.more = "resume: folder\n"
    scene.write(f"python {scene.name}-train.py", BY_ITSELF).launch("--wait")
    (record,) = scene.records()
    first, second = record.attempts
    assert (first.outcome, second.outcome, record.state) == ("killed", "finished", "complete")
    before = scene.attempt(0, 1).checkpoints / "checkpoint-3"
    assert second.resumed_from == first.checkpoint == str(before)
    assert (before / "trainer_state.json").read_text() == '{"epoch": 3}'
    assert scene.log(0, 2) == "found [3] resume True\n"
    assert record.metrics["loss"] == [(epoch, float(epoch)) for epoch in range(1, 7)]
    assert not list(scene.attempt(0, 2).root.glob(".*"))
