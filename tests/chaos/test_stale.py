"""An attempt that was given up while it was stopped comes back: its writes are refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.control.reconcile import reconcile
from sweep.core.paths import Runs
from sweep.core.scheduler import Task, TaskState, Wave
from sweep.core.system import processes
from tests.chaos.scene import Scene, kill
from tests.conftest import sweep_environment
from tests.waiting import PATIENCE_S, text_of

# Values tell the attempts apart; there are no checkpoints, so that each begins at the first step.
TRAIN = """
import json, os, sys, time

attempt = int(os.environ["SWEEP_ATTEMPT"])
for step in range(20):
    # The first is slow, and never gets through.
    time.sleep(0.02 if attempt > 1 else 600.0 if step == 12 else float(sys.argv[1]))
    line = json.dumps({"step": step, "metrics": {"loss": 100.0 * attempt + step}})
    with open(os.environ["SWEEP_METRICS"], "a") as stream:
        stream.write(line + "\\n")
"""


class Gone:
    """A scheduler that knows of no task: the node is lost."""

    explains_late = False

    def has(self, wave: Wave) -> bool:
        return True

    def queued(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        return self.poll(jobs)

    def explain(
        self, jobs: Sequence[str], states: Mapping[Task, TaskState]
    ) -> dict[Task, TaskState]:
        return dict(states)

    def poll(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        return {}


def lines(scene: Scene, attempt: int) -> int:
    return len(text_of(scene.attempt(0, attempt).metrics).splitlines())


def test_a_stopped_training_comes_back(
    tmp_path: Path, runs: Path, sweep: Any, fresh_url: str
) -> None:
    """SIGSTOP, a second attempt elsewhere, SIGCONT: the series is the second attempt's alone."""
    scene = Scene(tmp_path, runs, sweep, fresh_url, trials=1, parallel=1)
    scene.write(f"python {scene.name}-train.py 0.5", TRAIN).launch()
    scene.wait_for(lambda: lines(scene, 1) >= 3)
    held = [*scene.workers(), *scene.trainings()]
    assert len(held) == 2
    for pid in held:
        kill(pid, signal.SIGSTOP)
    try:
        opened = scene.open()
        ledger = opened.ledger
        folder = Runs(runs).study(scene.name)
        found = reconcile(ledger, folder, Gone(), unseen_s=0.0, every_s=0.0, host="other-node")  # type: ignore[arg-type]
        assert found is not None
        assert [(t, n, end.outcome, state) for t, n, end, state in found.settled] == [
            (0, 1, "lost", "running")
        ]
        assert len(scene.trainings()) == 1  # it is out of reach, and lives
        stored = lines(scene, 1)
        subprocess.run(
            [sys.executable, "-m", "tests.chaos.other_node", str(scene.root)],
            env=sweep_environment(runs, {"SWEEP_STORAGE": fresh_url}),
            check=True,
            timeout=PATIENCE_S,
        )
        expected = [(step, 200.0 + step) for step in range(20)]
        assert ledger.lineage(ledger.all_attempts()[0].trial_id, "loss") == expected
    finally:
        for pid in held:
            kill(pid, signal.SIGCONT)
    scene.wait_for(lambda: not scene.processes())
    assert stored <= lines(scene, 1) < 20  # its worker has ended it before it was through
    rows = ledger.db.execute("SELECT attempt, COUNT(*) FROM sweep_metric GROUP BY 1 ORDER BY 1")
    assert rows == [(1, stored), (2, 20)]
    steps = ledger.db.execute(
        "SELECT step, intermediate_value FROM trial_intermediate_values ORDER BY step"
    )
    assert steps == expected
    record = scene.records()[0]
    assert (record.state, record.values) == ("complete", (219.0,))
    assert record.metrics["loss"] == expected
    assert [a.outcome for a in record.attempts] == ["lost", "finished"]
    logs = "".join(path.read_text() for path in scene.root.glob("logs/*") if path.is_file())
    assert "no longer owns its trial" in logs
    ledger.db.close()


# Each step is a checkpoint and then a report; the first attempt is slow.
SAVING = """
import os, sys, time
from sweep.report import Reporter

reporter = Reporter()
attempt = int(os.environ["SWEEP_ATTEMPT"])
start = int(open(reporter.resume).read()) + 1 if reporter.resume else 0
for step in range(start, 20):
    # The first is slow, and never gets through.
    time.sleep(0.02 if attempt > 1 else 600.0 if step == 12 else float(sys.argv[1]))
    path = os.path.join(reporter.checkpoint_dir, "last")
    with open(path + ".tmp", "w") as stream:
        stream.write(str(step))
    os.rename(path + ".tmp", path)
    reporter.log(step=step, loss=100.0 * attempt + step)
"""


def test_what_a_stale_training_went_on_reporting_is_not_lost(
    tmp_path: Path, runs: Path, sweep: Any, fresh_url: str
) -> None:
    """Given up, it trains on to a further checkpoint: the next attempt goes on from that, and
    takes over the steps before it, which the first was not allowed to store."""
    scene = Scene(tmp_path, runs, sweep, fresh_url, trials=1, parallel=1)
    scene.write(f"python {scene.name}-train.py 0.5", SAVING).launch()
    scene.wait_for(lambda: lines(scene, 1) >= 2)
    workers = scene.workers()
    for pid in workers:
        kill(pid, signal.SIGSTOP)
    try:
        opened = scene.open()
        ledger = opened.ledger
        folder = Runs(runs).study(scene.name)
        assert reconcile(ledger, folder, Gone(), unseen_s=0.0, every_s=0.0, host="other-node")  # type: ignore[arg-type]
        (stored,) = ledger.db.execute("SELECT COUNT(*) FROM sweep_metric")[0]
        scene.wait_for(lambda: lines(scene, 1) >= stored + 2)
        subprocess.run(
            [sys.executable, "-m", "tests.chaos.other_node", str(scene.root)],
            env=sweep_environment(runs, {"SWEEP_STORAGE": fresh_url}),
            check=True,
            timeout=PATIENCE_S,
        )
    finally:
        for pid in workers:
            kill(pid, signal.SIGCONT)
    scene.wait_for(lambda: not scene.processes())
    first, second = ledger.all_attempts()
    assert second.first_step is not None and second.first_step >= stored + 2
    expected = [(s, (100.0 if s < second.first_step else 200.0) + s) for s in range(20)]
    assert scene.records()[0].metrics["loss"] == expected
    assert (
        ledger.db.execute(
            "SELECT step, intermediate_value FROM trial_intermediate_values ORDER BY step"
        )
        == expected
    )
    own = ledger.db.execute("SELECT MAX(step) FROM sweep_metric WHERE attempt = 1")
    assert own == [(second.first_step - 1,)]  # nothing beyond, though it trained on
    assert (first.outcome, second.outcome) == ("lost", "finished")
    ledger.db.close()


# Its helper, a data loader say, is in a session of its own and would outlive everything.
HELPER = """
import subprocess
if os.environ["SWEEP_ATTEMPT"] == "1":
    wait = "import time; time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", wait, "study-train.py"], start_new_session=True)
"""


def test_what_a_dead_attempt_left_is_ended(
    tmp_path: Path, runs: Path, sweep: Any, fresh_url: str
) -> None:
    """Runner and worker are killed: before the trial goes on, all of its first attempt is gone."""
    scene = Scene(tmp_path, runs, sweep, fresh_url, trials=1, parallel=1)
    head, loop = TRAIN.split("attempt = ", 1)
    script = f"{head}{HELPER}\nattempt = {loop}"
    scene.write(f"python {scene.name}-train.py 0.5", script).launch()
    scene.wait_for(lambda: lines(scene, 1) >= 2)
    first = scene.trainings()
    assert len(first) == 2
    for pid in [*scene.runners(), *scene.workers()]:
        kill(pid)
    scene.launch()
    scene.wait()
    record = scene.records()[0]
    assert (record.state, len(record.attempts)) == ("complete", 2)
    assert record.metrics["loss"] == [(step, 200.0 + step) for step in range(20)]
    assert not set(first) & set(scene.trainings())


def test_a_group_that_was_never_recorded_is_found_by_its_token(tmp_path: Path) -> None:
    """The worker died between starting the training and saying so."""
    child = processes.spawn(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        cwd=tmp_path,
        env={processes.TOKEN_VARIABLE: "only-this-one"},
        stdout=tmp_path / "log",
    )
    assert processes.end_attempt_group(None, "only-this-one")
    assert child.wait(PATIENCE_S) == -signal.SIGKILL
