"""A Python function on a real Slurm: launched by a script, killed, added to, stopped."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_for
from tests.cluster.user import User
from tests.waiting import PATIENCE_S, text_of

pytestmark = pytest.mark.slurm

# First attempts of trials 0, 3 and 4 stay at their second step until somebody ends them.
SCRIPT = """
import json
import os
import sys
import time
from pathlib import Path

import sweep


def train(config, reporter):
    trial, attempt = os.environ["SWEEP_TRIAL"], os.environ["SWEEP_ATTEMPT"]
    start = int(Path(reporter.resume).read_text()) if reporter.resume else 0
    print("from step", start, flush=True)
    for step in range(start, 4):
        reporter.log(step, loss=config["x"] + 1.0 / (step + 1))
        saved = Path(reporter.checkpoint_dir, "step")
        saved.with_suffix(".tmp").write_text(str(step + 1))
        saved.with_suffix(".tmp").replace(saved)
        if step == 1 and trial in ("0", "3", "4") and attempt == "1":
            pid = Path(config["folder"], f"pid-{trial}")
            pid.with_suffix(".tmp").write_text(str(os.getpid()))
            pid.with_suffix(".tmp").rename(pid)
            while not reporter.should_stop():
                time.sleep(0.1)
            return None
    return config["x"]


def say(what, value):
    print(json.dumps([what, value]), flush=True)


def launch():
    return sweep.launch(
        train, objective={"metric": "loss", "direction": "minimize", "at": "last"},
        space={"x": {"type": "float", "low": 0.0, "high": 1.0}}, trials=3, max_parallel=2,
        name="function", sampler="random", executor="slurm", fixed={"folder": os.getcwd()},
        resources={"time": "00:20:00", "cpus": 1, "gpus": 0, "memory": "200M"},
    )


if __name__ == "__main__":
    study = launch()
    for trial in study:
        say("ended", trial)
    say("status", study.wait().counts)
    say("best", study.best)
    say("logs", study.logs(0))
    say("verdict", study.rerun_best().verdict)
    say("added", study.add([{"x": 0.25}]))
    study = launch()
    while not Path("pid-3").exists():
        time.sleep(0.1)
    study.stop(3)
    say("status", study.wait().counts)
    study.add([{"x": 0.5}])
    study = launch()
    study.stop()
    say("state", study.wait().state)
"""


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """The cluster's user, in a folder of his own; his jobs are cancelled afterwards."""
    with User(slurm, slurm.home / f"{tmp_path.name}-{os.getpid()}").leaving_nothing() as someone:
        yield someone


def test_a_script_launches_its_own_function(user: User, fresh_url: str) -> None:
    """Results come as trials end; a killed training goes on; what was added is stopped."""
    script = user.write("search.py", SCRIPT)
    env = user.env({"SWEEP_STORAGE": fresh_url})
    child = user.cluster.start(
        f"exec {user.bin}/python {script} 2>{user.folder}/said",
        user=user.cluster.user,
        env=env,
        cwd=user.folder,
    )
    assert child.stdout is not None
    lines = (json.loads(line) for line in child.stdout)

    def heard(what: str) -> Any:
        found = next(lines, None)
        assert found is not None and found[0] == what, (found, text_of(user.folder / "said"))
        return found[1]

    try:
        # The others end, and are told of, while trial 0 is still at work.
        ended = [heard("ended"), heard("ended")]
        assert sorted(trial["trial"] for trial in ended) == [1, 2]
        wait_for((user.folder / "pid-0").exists, 60, "trial 0's second step")
        os.kill(int((user.folder / "pid-0").read_text()), signal.SIGKILL)
        ended.append(heard("ended"))
        assert all(trial["value"] == trial["params"]["x"] for trial in ended)
        counts = heard("status")
        assert (counts["complete"], sum(counts.values())) == (3, 3)
        assert heard("best")["value"] == min(trial["value"] for trial in ended)
        assert [line for line in heard("logs").splitlines() if line.startswith("from step")] == [
            "from step 0",
            "from step 2",
        ]
        assert heard("verdict") == "reproduced"
        assert heard("added") == [3]
        counts = heard("status")
        assert (counts["complete"], counts["cancelled"], sum(counts.values())) == (3, 1, 4)
        assert heard("state") == "stopped"
        assert child.wait(timeout=PATIENCE_S) == 0, text_of(user.folder / "said")
    finally:
        child.kill()
        child.wait()
    status = user.status("function")
    assert (status["state"], status["trials"]) == ("stopped", 5)
