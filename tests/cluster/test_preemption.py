"""A preemption's GraceTime reaches training, whatever KillWait is, and nothing is killed before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faulty import studying
from tests.cluster.fixture import own_cluster
from tests.cluster.processes import wait_for

pytestmark = pytest.mark.slurm

# It takes SAVE_S to save when it is told to leave, and notes when it was told.
SAVES = """
import json, os, signal, sys, time
from sweep.report import Reporter

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm's, at the end, reaches every process

save_s, gate = float(sys.argv[1]), sys.argv[2]
reporter = Reporter()
done = int(open(reporter.resume).read()) if reporter.resume else 0
for step in range(done + 1, 5):
    reporter.log(step=step, value=step / 10)
    while step == 2 and not reporter.resume and not reporter.should_stop():
        time.sleep(0.05)
    if reporter.should_stop():
        began = time.time()
        while time.time() < began + save_s:  # slowly, up to its last moment
            time.sleep(0.1)
            with open(os.path.join(reporter.checkpoint_dir, "took"), "w") as stream:
                stream.write(json.dumps(time.time() - began))
        with open(os.path.join(reporter.checkpoint_dir, "last.tmp"), "w") as stream:
            stream.write(str(step))
        os.rename(stream.name, stream.name[:-4])
        sys.exit(0)
"""
SAVE_S = 8.0
LOW = {"partition": "preempt"}


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster of its own, that each test configures."""
    with own_cluster(nodes=1) as cluster:
        yield cluster


def preempt(cluster: Cluster, slurm: dict[str, Any]) -> None:
    how = ["-p", "high"] if "partition" in slurm else ["--qos", "urgent"]
    cluster.submit("sleep 2", *how, "-c8", "-o", "/dev/null")


SCENES = {
    "partition": ({"preempt_grace_s": 20, "kill_wait_s": 5, "preempt_signals": True}, LOW),
    "reverse": ({"preempt_grace_s": 5, "kill_wait_s": 20, "preempt_signals": True}, LOW),
    "qos": ({"preempt": "qos", "kill_wait_s": 5, "preempt_signals": True}, {"qos": "scavenger"}),
    # Without the signal SIGTERM says it, at the end of the GraceTime: KillWait is what there is.
    "late": ({"preempt_grace_s": 5, "kill_wait_s": 20, "preempt_signals": False}, LOW),
}


@pytest.mark.parametrize(
    "name",
    ["partition", *(pytest.param(n, marks=pytest.mark.long) for n in ("reverse", "qos", "late"))],
)
def test_training_has_the_grace_time(site: Cluster, fresh_url: str, name: str) -> None:
    """One that takes longer to save than ``grace`` and KillWait gets done what GraceTime allows."""
    settings, slurm = SCENES[name]
    site.configure(**{"preempt": "partition_prio", **settings})
    with studying(site, fresh_url) as study:
        script = study.user.write("saves.py", SAVES)
        python = str(study.user.bin / "python")
        study.launch(
            command=[python, str(script), str(SAVE_S), str(study.gate)],
            trials=1,
            grace="3s",
            resources={"time": "20min", "cpus": 8, "memory": "200M"},
            slurm=slurm,
        )
        study.steps = 4
        study.wait_steps(2, trials=1)
        preempt(site, slurm)
        wait_for(lambda: len(study.of(0)) > 1, 180, "the next attempt")
        study.wait_end(180)
        first, *_, last = study.of(0)
        assert (first.outcome, last.outcome) == ("interrupted", "finished"), study.tell()
        assert last.steps[0] == 3, "it has saved, and goes on from there"
        told = study.user.runs / study.name / "trials/00000/attempts/1/checkpoints/took"
        assert json.loads(told.read_text()) >= SAVE_S - 0.2


@pytest.mark.parametrize(
    ("signals", "state", "words"),
    [
        (True, "ok", "20 s before (GraceTime)"),
        pytest.param(False, "warning", "5 s before SIGKILL (KillWait)", marks=pytest.mark.long),
    ],
)
def test_a_check_says_what_is_so_here(
    site: Cluster, fresh_url: str, signals: bool, state: str, words: str
) -> None:
    """On the node's own report: whether training hears of the beginning of a GraceTime."""
    site.configure(
        preempt="partition_prio", preempt_grace_s=20, kill_wait_s=5, preempt_signals=signals
    )
    with studying(site, fresh_url) as study:
        path = study.user.study("asked", ["true"], slurm=LOW)
        done = study.user.sweep("check", path, "--on-node", "--json", env=study.env, code=None)
        found = {line["name"]: line for line in json.loads(done.stdout)["lines"]}
        assert found["preemption"]["state"] == state, done.stdout
        assert words in found["preemption"]["text"]
