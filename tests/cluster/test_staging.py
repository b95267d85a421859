"""Copies of data on a real Slurm: each node makes one, and training reads it.

The nodes of the tests' cluster are one machine: each has a folder named as it for its disk.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.test_launch import FROM_OUTPUT, no_elements, watch
from tests.cluster.user import User

pytestmark = pytest.mark.slurm

NODES = ("n1", "n2", "n3", "n4")
TRIALS = 24
READS = (
    "import os, sys, time; time.sleep(1); "
    "print('read', sys.argv[2], os.environ['SLURMD_NODENAME']); "
    "print('value=' + str(len(open(sys.argv[2] + '/x', 'rb').read())))"
)


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with User(slurm, slurm.home / f"{tmp_path.name}-{os.getpid()}").leaving_nothing() as someone:
        yield someone


def test_each_node_copies_once(user: User, fresh_url: str) -> None:
    """Many trials at once on four nodes: one copy a node, which its trials read; none fails."""
    data, disks = user.make(user.folder / "data"), user.make(user.folder / "disks")
    (data / "x").write_bytes(os.urandom(3_000_000))
    (data / "x").chmod(0o644)
    for node in NODES:
        user.make(disks / node)
    path = user.study(
        "staged",
        ["/usr/bin/python3", "-c", READS, "{x}", "{data.d}"],
        objective=FROM_OUTPUT,
        trials=TRIALS,
        max_parallel=12,
        data={"d": {"path": str(data), "stage": "node"}},
        staging={"place": f"{disks}/$SLURMD_NODENAME"},
    )
    user.sweep("launch", path, env={"SWEEP_STORAGE": fresh_url})
    watch(user, no_elements(user), 600)
    status = user.wait_state("staged", "finished")
    assert status["counts"]["complete"] == TRIALS
    assert all(trial["value"] == 3_000_000 for trial in user.trials("staged"))

    logs = [log.read_text() for log in (user.runs / "staged/logs").glob("[0-9]*_[0-9]*.log")]
    copied = Counter(
        line.rpartition(f"{disks}/")[2].partition("/")[0]
        for text in logs
        for line in text.splitlines()
        if ": copying " in line
    )
    trained = (user.runs / "staged/trials").glob("*/attempts/*/log.txt")
    read = [log.read_text().partition("read ")[2].split()[:2] for log in trained]
    assert all(Path(where).is_relative_to(disks / node) for where, node in read)
    assert copied == dict.fromkeys({node for _, node in read}, 1)
    assert len(copied) > 1


BOTH = """
import os, subprocess, sys
step = ["srun", "--overlap", "--nodes=2", "--ntasks-per-node=1", "cat", sys.argv[2] + "/x"]
read = subprocess.run(step, capture_output=True, check=True).stdout
print("read", sys.argv[2], os.environ["SLURMD_NODENAME"])
print("value=" + str(len(read)))
"""


@pytest.mark.parametrize("is_one_path", [True, False])
def test_a_trial_on_two_nodes(user: User, fresh_url: str, is_one_path: bool) -> None:
    """A step stages on each. Its copies count where they lie at one path; else all read the shared
    one, and it is said."""
    data, disks = user.make(user.folder / "data"), user.make(user.folder / "disks")
    (data / "x").write_bytes(b"12345")
    (data / "x").chmod(0o644)
    for node in NODES:
        user.make(disks / node)
    path = user.study(
        "wide",
        ["/usr/bin/python3", str(user.write("both.py", BOTH)), "{x}", "{data.d}"],
        objective=FROM_OUTPUT,
        trials=2,
        max_parallel=1,
        data={"d": {"path": str(data), "stage": "node"}},
        staging={"place": str(disks) if is_one_path else f"{disks}/$SLURMD_NODENAME"},
        resources={"time": "00:20:00", "nodes": 2, "cpus": 1, "memory": "200M"},
        launcher="python",
    )
    user.sweep("launch", path, env={"SWEEP_STORAGE": fresh_url})
    watch(user, no_elements(user), 600)
    status = user.wait_state("wide", "finished")
    assert status["counts"]["complete"] == 2
    assert all(trial["value"] == 10 for trial in user.trials("wide"))  # once on each node
    logs = (user.runs / "wide/trials").glob("*/attempts/*/log.txt")
    read = {log.read_text().partition("read ")[2].split()[0] for log in logs}
    (where,) = read
    assert Path(where).is_relative_to(disks) if is_one_path else where == str(data)
    said = "the trial's nodes have no path in common" in user.logs("wide")
    assert said is not is_one_path
    assert not list((user.runs / "wide/data").glob("step-*"))


FETCHES = (
    "import os, pathlib, sys, time\n"
    "while not os.path.exists(sys.argv[2]): time.sleep(0.2)\n"
    "word = pathlib.Path(sys.argv[2]).read_text()\n"
    "print(word, flush=True)\n"
    "if word != 'go': sys.exit(3)\n"
    "pathlib.Path(sys.argv[1]).mkdir()\n"
    "pathlib.Path(sys.argv[1], 'x').write_bytes(b'12345')\n"
)


def test_data_are_fetched_before_the_array_starts(user: User, fresh_url: str) -> None:
    """No task starts before. A job that fails takes the array with it, and the study is held with
    the reason; the next launch fetches again, and goes on."""
    data, gate = user.make(user.folder / "data") / "birds", user.folder / "gate"
    path = user.study(
        "fetched",
        ["/usr/bin/python3", "-c", READS, "{x}", "{data.d}"],
        objective=FROM_OUTPUT,
        trials=2,
        max_parallel=2,
        data={"d": {"path": str(data), "fetch": fetch_command(gate)}},
    )
    env = {"SWEEP_STORAGE": fresh_url}
    user.sweep("launch", path, env=env)
    fetches = user.status("fetched")["notes"]
    assert any("the data are being fetched before any task starts: job " in one for one in fetches)
    user.wait_pending("Dependency")
    user.write("gate", "no such host")
    held = user.wait_state("fetched", "held", timeout_s=300)
    assert f"data.d was not fetched to {data}" in held["reason"]
    assert held["counts"]["waiting"] == 2
    user.wait_empty()

    user.write("gate", "go")
    user.sweep("launch", path, env=env)
    watch(user, no_elements(user), 600)
    status = user.wait_state("fetched", "finished")
    assert status["counts"]["complete"] == 2
    assert all(trial["value"] == 5 for trial in user.trials("fetched"))
    record = json.loads((user.runs / "fetched/manifest.json").read_text())["data"][str(data)]
    assert (record["files"], record["bytes"]) == (1, 5)


def fetch_command(gate: Path) -> list[str]:
    return ["/usr/bin/python3", "-c", FETCHES, "{target}", str(gate)]


def test_data_are_fetched_in_a_job_that_is_waited_for(user: User) -> None:
    """``sweep data fetch --job``, with nothing launched."""
    data = user.make(user.folder / "data") / "birds"
    command = fetch_command(user.write("gate", "go"))
    path = user.study("s", ["true"], data={"d": {"path": str(data), "fetch": command}})
    done = user.sweep("data", "fetch", path, "--job")
    assert done.stdout == f"data.d {data}\n"
    assert (data / "x").read_bytes() == b"12345"
    user.write("gate", "no such host")
    path = user.study("s", ["true"], data={"d": {"path": f"{data}2", "fetch": command}})
    failed = user.sweep("data", "fetch", path, "--job", code=1)
    assert "no such host" in failed.stderr
    assert not (user.runs / ".fetches").exists()
