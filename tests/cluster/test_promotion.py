"""A promotion study on a real Slurm, its trainings and tasks killed: it ends right."""

from __future__ import annotations

import json
import os
import pwd
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.user import User
from tests.storage.test_promotion import TRAINING

pytestmark = pytest.mark.slurm

# Nobody ends before all faults have happened.
LAST_STEP = """    while step == 9 and not os.path.exists(sys.argv[3]):
        time.sleep(0.05)
"""


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with User(slurm, slurm.home / f"{tmp_path.name}-{os.getpid()}").leaving_nothing() as someone:
        yield someone


def find(user: User, word: str) -> list[int]:
    """Return the pids of the user's processes whose command line holds a word."""
    uid, found = pwd.getpwnam(user.cluster.user).pw_uid, []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if entry.stat().st_uid == uid and word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("trials", "parallel", "kills", "step_s"),
    [(9, 4, 2, "0.05"), pytest.param(40, 8, 25, "1.0", marks=pytest.mark.long)],
)
def test_promotion_with_kills(
    user: User, fresh_url: str, trials: int, parallel: int, kills: int, step_s: str
) -> None:
    """Every other victim is a task's worker: its trial goes on elsewhere. N holds, the best trial
    of a noiseless study is complete, no step is lost, and what is paused keeps its checkpoint."""
    env = {"SWEEP_STORAGE": fresh_url}
    logs = "    reporter.log("
    assert logs in TRAINING
    training = TRAINING.replace("range(30)", "range(16)").replace(logs, f"{LAST_STEP}{logs}")
    script, gate = user.write("promoted.py", training), user.folder / "gate"
    path = user.study(
        "promoted",
        [str(user.bin / "python"), str(script), "{x}", step_s, str(gate)],
        objective={"metric": "score", "direction": "maximize"},
        trials=trials,
        max_parallel=parallel,
        retry={"max_attempts": 100},
        pruner={"type": "promotion", "min_resource": 1, "max_resource": 9},
    )
    user.sweep("launch", path, env=env)
    chance, done, give_up_at = random.Random(trials), 0, time.monotonic() + 300 + 20 * trials
    while True:
        status = json.loads(user.sweep("status", "promoted", "--json", env=env).stdout)
        if status["state"] == "finished":
            break
        assert time.monotonic() < give_up_at, user.explain()
        victims = find(user, "promoted.py" if done % 2 == 0 else "sweep.task")
        if done < kills and find(user, "promoted.py") and victims:
            done += kill(chance.choice(victims))
        if done == kills:
            gate.touch()
        time.sleep(chance.uniform(0.2, 1.0))
    assert done == kills, "too few faults to mean anything"
    assert sum(status["counts"].values()) == trials
    states = ("complete", "pruned", "failed", "cancelled")
    chosen = [part for state in states for part in ("--state", state)]
    rows = json.loads(
        user.sweep("collect", "promoted", "--format", "json", *chosen, env=env).stdout
    )
    assert len(rows) == trials and {row["state"] for row in rows} == {"complete", "pruned"}, rows
    assert max(rows, key=lambda row: row["params"]["x"])["state"] == "complete"
    for row in rows:
        folder = user.runs / f"promoted/trials/{row['trial']:05}/attempts/{row['attempts']}"
        last = round(row["value"] / row["params"]["x"])
        assert last == 9 or row["state"] == "pruned"
        if row["state"] == "pruned":
            assert int((folder / "checkpoints/last").read_text()) == last
    resumed = [row for row in rows if row["attempts"] > 1]
    assert resumed, "none was promoted or taken up again"
    user.wait_empty(120)
