"""Steps that training does not give, over a trial's attempts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.scene import Scene

pytestmark = pytest.mark.real

# The file of the first attempt's last report is newer than its checkpoint by several ticks.
UNGIVEN = """
import os, signal, time
from sweep.report import Reporter
r = Reporter()
start = int(open(r.resume).read()) if r.resume else 0
path = os.path.join(r.checkpoint_dir, "last.pt")
for epoch in range(start, 6):
    r.log(loss=10.0 + epoch)
    with open(path + ".tmp", "w") as stream:
        stream.write(str(epoch + 1))
    os.rename(path + ".tmp", path)
    if epoch == 2 and not start:
        time.sleep(0.2)
        r.log(loss=1.0)  # beyond the checkpoint: the next attempt does that again
        os.kill(os.getpid(), signal.SIGKILL)
"""
PRINTED = """
import os, signal
first = os.environ["SWEEP_ATTEMPT"] == "1"
with open(os.path.join(os.environ["SWEEP_CHECKPOINT_DIR"], "last.pt"), "w") as stream:
    stream.write("x")
for epoch in range(4):
    print("loss:", 1.0 if first else 2.0 + epoch, flush=True)
    if first and epoch == 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def scene(tmp_path: Path, runs: Path, sweep: Any, fresh_url: str) -> Scene:
    return Scene(tmp_path, runs, sweep, fresh_url, trials=1, parallel=1)


def test_they_go_on_after_the_checkpoint(scene: Scene) -> None:
    """What the checkpoint has seen keeps its step; what came after it is replaced."""
    scene.write(f"python {scene.name}-train.py", UNGIVEN).launch()
    scene.wait()
    record = scene.record()
    assert [attempt.first_step for attempt in record.attempts] == [0, 3]
    assert record.metrics["loss"] == [(n, 10.0 + n) for n in range(6)]
    assert record.values == (15.0,)


def test_what_takes_no_checkpoint_begins_anew(scene: Scene) -> None:
    """There is one, and nothing reads it: all that was printed before is replaced."""
    scene.write(f"python {scene.name}-train.py", PRINTED)
    plain = "objective: {metric: loss,"
    pattern = f"{plain} from: {{stdout: 'loss: ([0-9.]+)'}},"
    scene.file.write_text(scene.file.read_text().replace(plain, pattern))
    scene.launch()
    scene.wait()
    record = scene.record()
    assert [attempt.first_step for attempt in record.attempts] == [0, 0]
    assert record.metrics["loss"] == [(n, 2.0 + n) for n in range(4)]
    assert record.values == (5.0,)
