"""``sweep check --on-node`` on a real Slurm: all well on a good study, each fault on its own line.

Planted faults that do not hide each other share a job; the long form plants each alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_for
from tests.cluster.test_containers import make_image
from tests.cluster.test_launch import FROM_OUTPUT, wrap_sbatch
from tests.cluster.user import User
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slurm

PLAIN = ["/usr/bin/python3", "train.py", "{x}"]
# Leaves the task's own interpreter alone but has it live an hour ahead.
AHEAD = """
import time
_now = time.time
time.time = lambda: _now() + 3600
"""


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with User(slurm, slurm.home / f"check-{tmp_path.name}").leaving_nothing() as someone:
        someone.write("train.py", "import sys\nprint('value=' + sys.argv[1])\n")
        yield someone


@pytest.fixture
def url(fresh_url: str) -> dict[str, str]:
    return {"SWEEP_STORAGE": fresh_url}


def check(user: User, path: Path, env: Mapping[str, str], code: int) -> dict[str, dict[str, str]]:
    """Run the check; return its lines by name."""
    done = user.sweep("check", path, "--on-node", "--json", env=env, code=code)
    found = json.loads(done.stdout)
    assert found["ok"] == (code == 0)
    return {line["name"]: line for line in found["lines"]}


def test_a_good_study_is_ok(user: User, url: dict[str, str]) -> None:
    """Two ranks on two nodes: every line is ok, or says why it was not asked; nothing is left."""
    path = user.study(
        "good",
        ["python", "train.py", "{x}", "--seed={seed}"],
        objective=FROM_OUTPUT,
        max_parallel=5,
        resources={"time": "00:20:00", "nodes": 2, "cpus": 1, "memory": "1G"},
        slurm={"setup": ["export GOOD=1", "if true; then", "  :", "fi"]},
    )
    lines = check(user, path, url, 0)
    states = {name: line["state"] for name, line in lines.items()}
    not_asked = {name for name, state in states.items() if state == "not asked"}
    assert not_asked == {"runtime", "image", "binds", "gpus", "compute mode"}
    assert set(states.values()) == {"ok", "not asked"}, lines
    assert "gloo, 2 ranks" in lines["all-reduce"]["text"]
    assert lines["interface"]["text"].startswith("gloo and NCCL choose among lo 127.0.0.1")
    assert "2 lines" in lines["setup"]["text"]
    user.check_nothing_left()
    assert not user.runs.exists()


@pytest.mark.long
def test_a_good_study_in_an_image_is_ok(user: User, url: dict[str, str]) -> None:
    """The ranks of two nodes reduce within the containers; nothing fails, nothing is left."""
    python = user.bin / "python"
    own = Path(os.path.realpath(python)).parents[1]
    places = {"/usr", str(own), str(user.cluster.root), sysconfig.get_paths()["purelib"]}
    binds = [f"{place}:{place}:ro" for place in sorted(places)]
    image = make_image(user)
    path = user.study(
        "boxed",
        [str(python), "train.py", "{x}"],
        objective=FROM_OUTPUT,
        max_parallel=5,
        resources={"time": "00:20:00", "nodes": 2, "cpus": 1, "memory": "1G"},
        environment={"runtime": "apptainer", "image": str(image), "binds": binds},
    )
    lines = check(user, path, url, 0)
    states = {name: line["state"] for name, line in lines.items()}
    not_asked = {name for name, state in states.items() if state == "not asked"}
    assert not_asked == {"setup", "gpus", "compute mode"}
    assert set(states.values()) == {"ok", "not asked"}, lines
    assert "gloo, 2 ranks" in lines["all-reduce"]["text"]
    assert "sha256" in lines["image"]["text"]
    user.check_nothing_left()
    assert not user.runs.exists()


@dataclass
class Fault:
    """A planted fault: what is changed, and the line that must name it.

    Attributes:
        plant: Changes the user's surroundings until the check is over; yields environment.
    """

    line: str
    words: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    plant: Callable[[User], Any] | None = None


def binary(user: User) -> str:
    """A file that only root may read."""
    path = user.folder / "secret"
    path.mkdir(exist_ok=True)
    path.chmod(0o700)
    return str(path)


@contextmanager
def no_database(user: User) -> Iterator[dict[str, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # it does not listen, and nobody else can
        port = probe.getsockname()[1]
        yield {"SWEEP_STORAGE": f"postgresql://sweep@127.0.0.1:{port}/sweep"}


@contextmanager
def taken_ports(user: User) -> Iterator[dict[str, str]]:
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):  # other tests on this machine may have taken them as well
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind(("0.0.0.0", 23451))
        second.bind(("0.0.0.0", 23452))
        first.listen()
        second.listen()
        yield {}


@contextmanager
def full_disk(user: User) -> Iterator[dict[str, str]]:
    """A runs folder on a file system of 4 MiB."""
    where = user.make(user.folder / "small")
    size = "size=4m,mode=0777"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(where)], check=True)
    try:
        yield {"SWEEP_RUNS": str(user.make(where / "runs"))}
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


@contextmanager
def nodes_may_not_submit(user: User) -> Iterator[dict[str, str]]:
    refuse = "if [ -n \"$SWEEP_JOB\" ]; then echo 'sbatch: error: Access denied' >&2; exit 1; fi\n"
    yield wrap_sbatch(user, refuse + 'exec "$real" "$@"')


@contextmanager
def ahead(user: User) -> Iterator[dict[str, str]]:
    user.make(user.folder / "ahead")
    user.write("ahead/sitecustomize.py", AHEAD)
    yield {}


@contextmanager
def old_digest(user: User) -> Iterator[dict[str, str]]:
    """An image that is not the one of the last launch."""
    user.write("train.sif", "another image")
    record = {"environment": {"image": "train.sif", "image_sha256": "0" * 64}}
    user.make(user.runs)
    user.make(user.runs / "fault")
    user.write("runs/fault/manifest.json", json.dumps(record))
    yield {}


@contextmanager
def interpreter_goes(user: User) -> Iterator[dict[str, str]]:
    """sweep is called from an environment that is gone once its job starts."""
    venv = user.folder / "gone"
    shutil.copytree(user.bin.parent, venv, symlinks=True)
    (venv / "bin/sweep").write_text(f'#!/bin/sh\nexec {venv}/bin/python -m sweep "$@"\n')
    env = wrap_sbatch(user, f'rm -f {venv}/bin/python\nexec "$real" "$@"')
    subprocess.run(["chown", "-R", user.cluster.user, str(venv)], check=True)
    before, user.bin = user.bin, venv / "bin"
    try:
        yield env
    finally:
        user.bin = before


def faults(user: User) -> dict[str, Fault]:
    """Return the faults by name."""
    apptainer = {"runtime": "apptainer", "image": "train.sif"}
    two = {"ddp": {"ranks_per_node": 2}, "resources": {"cpus": 2, "memory": "500M"}}
    return {
        "image missing": Fault(
            "image",
            "missing.sif does not exist",
            {"environment": {"runtime": "apptainer", "image": "missing.sif"}},
        ),
        "wrong digest": Fault(
            "image",
            "the study was launched with 000000000000…",
            {"environment": apptainer},
            old_digest,
        ),
        "bind without rights": Fault(
            "binds",
            "you may not read",
            {
                "environment": {
                    "runtime": "apptainer",
                    "image": "missing.sif",
                    "binds": [f"{binary(user)}:/data:ro"],
                }
            },
        ),
        "no torch": Fault("torch", "a trial has 2 processes", two),
        "database unreachable": Fault("database", "refused", plant=no_database),
        "K over the connections": Fault(
            "connections", "103 needed for 100 trials at once", {"max_parallel": 100, "trials": 200}
        ),
        "ports taken": Fault(
            "ports",
            "none from 23451 to 23452 is free",
            {"ddp": {"ranks_per_node": 2, "port_range": [23451, 23452]}, "resources": {"cpus": 2}},
            taken_ports,
        ),
        "disk full": Fault("space", "nearly full", plant=full_disk),
        "submit not allowed": Fault(
            "sbatch", "the node may not submit", plant=nodes_may_not_submit
        ),
        "unknown module": Fault(
            "setup",
            "'module load nothing/9.9' fails",
            {"slurm": {"setup": ["module load nothing/9.9"]}},
        ),
        "wrong interface": Fault(
            "interface",
            "has no interface nope0",
            {"ddp": {"ranks_per_node": 2, "interface": "nope0"}, "resources": {"cpus": 2}},
        ),
        "clock skew": Fault(
            "clock",
            "differs by 36",
            {"slurm": {"setup": [f"export PYTHONPATH={user.folder}/ahead:$PYTHONPATH"]}},
            ahead,
        ),
        "interpreter missing": Fault(
            "interpreter", "does not start on node n", plant=interpreter_goes
        ),
        "program missing": Fault("command", "no program named trian", {"command": ["trian"]}),
        "no GPU": Fault(
            "gpus",
            "nvidia-smi does not work",
            {"resources": {"gpus": 2, "cpus": 2, "memory": "500M"}},
        ),
        "workdir missing": Fault("workdir", "is no folder", {"workdir": "/nowhere/at/all"}),
        "never starts": Fault(
            "job", "did not start within 2 s", {"slurm": {"partition": "gpu", "extra": ["--hold"]}}
        ),
    }


def merge(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **one,
        **{
            key: merge(one[key], value) if isinstance(one.get(key), Mapping) else value
            for key, value in other.items()
        },
    }


def plant(user: User, chosen: list[Fault], url: Mapping[str, str]) -> None:
    """Check a study with these faults, and find each on its line."""
    settings: dict[str, Any] = {"objective": FROM_OUTPUT, "command": PLAIN}
    env = dict(url)
    with ExitStack() as planted:
        for one in chosen:
            settings = merge(settings, one.settings)
            if one.plant is not None:
                env |= planted.enter_context(one.plant(user))
        path = user.study("fault", settings.pop("command"), **settings)
        patience = ["--patience", "2"] if chosen[0].line == "job" else []
        done = user.sweep("check", path, "--on-node", "--json", *patience, env=env, code=1)
        lines = {line["name"]: line for line in json.loads(done.stdout)["lines"]}
        for one in chosen:
            line = lines[one.line]
            assert line["state"] == "failed" and one.words in line["text"], (line, lines)
            assert line["advice"]
        user.wait_empty()


# What does not hide each other shares a job.
GROUPS = [
    [
        "image missing",
        "bind without rights",
        "database unreachable",
        "ports taken",
        "submit not allowed",
        "unknown module",
        "wrong interface",
        "no GPU",
    ],
    ["no torch", "K over the connections", "disk full", "clock skew"],
    ["program missing", "workdir missing"],
    ["wrong digest"],
    ["interpreter missing"],
    ["never starts"],
]
NAMES = sorted(name for group in GROUPS for name in group)


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: " + ".join(names[:2]))
def test_each_fault_has_its_line(user: User, url: dict[str, str], names: list[str]) -> None:
    """Each planted fault is named on its own line, with what to do; exit code 1."""
    known = faults(user)
    assert sorted(known) == NAMES and len(NAMES) >= 15
    plant(user, [known[name] for name in names], url)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_each_fault_alone(user: User, url: dict[str, str], name: str) -> None:
    """Each by itself makes the exit code 1."""
    plant(user, [faults(user)[name]], url)


def test_ctrl_c_leaves_nothing(user: User, url: dict[str, str]) -> None:
    """Interrupted while its job waits, the check cancels it and removes its folder."""
    path = user.study("left", PLAIN, objective=FROM_OUTPUT, slurm={"extra": ["--hold"]})
    child = user.start("check", path, "--on-node", env=url)
    wait_for(lambda: bool(user.queue()), 60, "the job to be queued")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130 and "Interrupted" in err, out + err
    assert not user.runs.exists()
    user.check_nothing_left()
