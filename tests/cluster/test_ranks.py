"""Trials of 2 × 2 ranks over two nodes of a real Slurm, through ``sweep launch``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faulty import parent
from tests.cluster.processes import wait_for
from tests.cluster.user import User
from tests.trainer.curves import read_curve

pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from sweep.report import Reporter
from trainer import config, loop

pytestmark = pytest.mark.slurm

# As in tests/trainer/test_ddp.py: sums are taken in another order.
TOLERANCE = 1e-4
FIXED = {"epochs": 8, "batch_size": 64, "width": 16, "optimizer": "adamw", "lr": 0.01}
# A training whose rank 3, on the second node, stops in its second epoch, and says when.
HANGS = """
import os, sys, time
from trainer import train
from trainer.run import Run

step = Run.step

def hang(self, index):
    if self.ranks.rank == 3 and self.sampler.epoch == 1:
        print("hangs at", time.time(), flush=True)
        time.sleep(3600)
    step(self, index)

Run.step = hang
sys.exit(train.main())
"""


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with User(slurm, slurm.home / f"{tmp_path.name}-{os.getpid()}").leaving_nothing() as someone:
        yield someone


def study(user: User, name: str, *command: str, **more: Any) -> Path:
    """Return a study of one trial of 2 × 2 ranks."""
    python = str(user.bin / "python")
    start = [python, *(command or ("-m", "trainer.train"))]
    given: dict[str, Any] = {
        "objective": {"metric": "val_accuracy", "direction": "maximize"},
        "space": {},
        "trials": 1,
        "fixed": FIXED,
        "ddp": {"ranks_per_node": 2, "timeout_s": 25},
        "resources": {"time": "00:20:00", "nodes": 2, "cpus": 2, "memory": "2G"},
        **more,
    }
    return user.study(name, [*start, "--data", "digits", "--config", "{config}"], **given)


def attempt(user: User, name: str, number: int = 1) -> Path:
    return user.runs / name / "trials/00000/attempts" / str(number)


def processes(folder: Path) -> list[tuple[int, list[str]]]:
    """Return the live processes of an attempt on all nodes, which are this machine: (pid,
    environment)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environ = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if f"SWEEP_TRIAL_DIR={folder}" in environ:
            found.append((int(entry.name), environ))
    return found


@pytest.mark.parametrize("launcher", ["auto", pytest.param("torchrun", marks=pytest.mark.long)])
def test_the_curve_of_one_process(
    user: User, fresh_url: str, tmp_path: Path, launcher: str
) -> None:
    """Four ranks on two nodes, started by srun or by a torchrun on each node."""
    path = study(user, "wide", launcher=launcher)
    user.sweep("launch", path, env={"SWEEP_STORAGE": fresh_url})
    user.wait_state("wide", "finished", timeout_s=300)
    (trial,) = user.trials("wide")
    log = (attempt(user, "wide") / "log.txt").read_text()
    assert trial["state"] == "complete", log + user.explain()
    alone = Reporter({"SWEEP_METRICS": str(tmp_path / "metrics.jsonl")})
    argv = [f"--{name.replace('_', '-')}={value}" for name, value in FIXED.items()]
    loop.train(config.parse([*argv, f"--seed={trial['seed']}"], {}), alone, lambda line: None)
    expected = read_curve(tmp_path / "metrics.jsonl")
    got = read_curve(attempt(user, "wide") / "metrics.jsonl")
    assert got.keys() == expected.keys() == set(range(1, 9))
    for step, metrics in expected.items():
        assert got[step] == pytest.approx(metrics, rel=TOLERANCE), step
    assert "0: epoch 1/8" in log or "0: [rank0]: epoch 1/8" in log


def test_a_killed_rank_ends_the_trial(user: User, fresh_url: str) -> None:
    """SIGKILL of rank 3 on the second node: over within a minute, and the rank is named."""
    path = study(user, "killed", fixed={**FIXED, "epochs": 9000}, retry={"max_attempts": 1})
    user.sweep("launch", path, env={"SWEEP_STORAGE": fresh_url})
    folder = attempt(user, "killed")
    wait_for((folder / "metrics.jsonl").exists, 120, "the first epoch")
    ranks = [pid for pid, environ in processes(folder) if "SLURM_PROCID=3" in environ]
    (rank,) = (pid for pid in ranks if parent(pid) not in ranks)  # not what it may have started
    os.kill(rank, 9)
    wait_for((folder / "exit.json").exists, 180, "the end of the trial")
    user.wait_state("killed", "finished", "held")
    (trial,) = user.trials("killed")
    assert trial["state"] == "failed"
    assert "rank 3 of 4 on n" in trial["reason"] and "killed by SIGKILL" in trial["reason"]
    assert "sweep: the last lines of rank 3:" in (folder / "log.txt").read_text()
    wait_for(lambda: not processes(folder), 60, "the end of all ranks")
    assert max(read_curve(folder / "metrics.jsonl")) < 9000


@pytest.mark.long
@pytest.mark.parametrize("timeout_s", [12, None])
def test_a_hung_rank_ends_the_trial(user: User, fresh_url: str, timeout_s: int | None) -> None:
    """Over within 60 s of the hang, by default too; its stack is in the failure."""
    user.write("hangs.py", HANGS)
    ddp = {"ranks_per_node": 2} | ({"timeout_s": timeout_s} if timeout_s else {})
    path = study(user, "hangs", "hangs.py", ddp=ddp)
    user.sweep("launch", path, env={"SWEEP_STORAGE": fresh_url})
    folder = attempt(user, "hangs")
    wait_for((folder / "exit.json").exists, 240, "the end of the trial")
    ended = json.loads((folder / "exit.json").read_text())["time"]
    log = (folder / "log.txt").read_text()
    hung = float(log.partition("hangs at ")[2].split()[0])
    assert ended - hung < 60
    (trial,) = user.trials("hangs")
    assert "rank 3 hangs; its last place was epoch 2, batch 1" in trial["reason"], trial["reason"]
    end = log.partition("sweep: the last lines of rank 3:")[2]
    assert "in hang" in end, log


@pytest.mark.parametrize(
    "where", ["ddp.interface", pytest.param("environment", marks=pytest.mark.long)]
)
def test_a_wrong_interface_is_diagnosed(user: User, fresh_url: str, where: str) -> None:
    """Planted in the study's own key or as gloo's variable: named, with what to set, at once."""
    more: dict[str, Any] = {"ddp": {"ranks_per_node": 2, "interface": "ib7"}}
    if where == "environment":
        more = {"environment": {"env": {"GLOO_SOCKET_IFNAME": "ib7"}}}
    path = study(user, "wrong", **more)
    user.sweep("launch", path, env={"SWEEP_STORAGE": fresh_url})
    folder = attempt(user, "wrong")
    wait_for(folder.exists, 60, "the attempt")
    user.wait_state("wrong", "held", "finished", timeout_s=120)
    (trial,) = user.trials("wrong")
    key = "ddp.interface" if where == "ddp.interface" else "GLOO_SOCKET_IFNAME"
    assert "ib7" in trial["reason"] and f"Set {key} to the one" in (
        trial["reason"] + (folder / "log.txt").read_text()
    )


@pytest.mark.long
def test_srun_told_to_end_ends_all_ranks(user: User, fresh_url: str) -> None:
    """SIGTERM to srun alone, as sweep ends a training: no rank is left, and the trial goes on."""
    path = study(user, "ended", fixed={**FIXED, "epochs": 400})
    user.sweep("launch", path, env={"SWEEP_STORAGE": fresh_url})
    first = attempt(user, "ended")
    wait_for(lambda: any((first / "checkpoints").glob("*.pt")), 120, "a checkpoint")
    for pid, environ in processes(first):
        if not any(line.startswith("SLURM_STEP_ID=") for line in environ):
            os.kill(pid, 15)
    wait_for(lambda: not processes(first), 20, "the end of all ranks")
    user.wait_state("ended", "finished", timeout_s=300)
    (trial,) = user.trials("ended")
    assert (trial["state"], trial["attempts"]) == ("complete", 2), user.explain()
    assert "resumed from" in (attempt(user, "ended", 2) / "log.txt").read_text()


@pytest.mark.long
def test_scaling_and_a_further_command_as_jobs(user: User, fresh_url: str) -> None:
    """One and two nodes, by srun; then the best trial's checkpoint in a job of its own."""
    text = (
        "import os, pathlib, sys\n"
        "from sweep.report import Reporter\n"
        "world = int(os.environ['SLURM_STEP_NUM_TASKS']) if 'SWEEP_CPUS' in os.environ else 1\n"
        "r = Reporter()\n"
        "r.log(step=0, value=1.0, samples_per_s=100.0 * world)\n"
        "if os.environ.get('SLURM_PROCID', '0') == '0' and r.checkpoint_dir:\n"
        "    pathlib.Path(r.checkpoint_dir, 'last').write_text(' '.join(sys.argv[1:]) or 'one')\n"
    )
    user.write("train.py", text)
    python = str(user.bin / "python")
    path = user.study(
        "jobs",
        [python, "train.py"],
        trials=1,
        space={},
        commands={"show": [python, "train.py", "{checkpoint}"]},
    )
    env = {"SWEEP_STORAGE": fresh_url}
    done = user.sweep("scaling", path, "--ranks", "1,2", "--per-node", "1", "--json", env=env)
    rows = json.loads(done.stdout)["rows"]
    assert [(row["ranks"], row["nodes"], row["efficiency"]) for row in rows] == [
        (1, 1, 1.0),
        (2, 2, 1.0),
    ], rows
    user.sweep("launch", path, env=env)
    user.wait_state("jobs", "finished")
    found = json.loads(user.sweep("run", "show", "jobs", "--wait", "--json").stdout)
    assert (found["state"], found["metrics"]["value"]) == ("finished", 1.0), found
    assert (user.runs / "jobs/reruns/1/checkpoints/last").read_text() == found["checkpoint"]
