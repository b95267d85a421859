"""A trial on several nodes: each stages, and one path counts for all of them.

What stands for srun starts the command once for each node, here.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.core.files import make_private
from sweep.core.scheduler import ENDED, RUNNING, TaskState
from sweep.core.study import Resources, Staging, Study
from sweep.core.system import processes
from sweep.tasks.staging import on_nodes
from sweep.tasks.staging.cache import Cache
from sweep.tasks.staging.making import DataDiffer, Left
from sweep.tasks.staging.stage import Staged, Stager
from tests.tasks.staging.test_stage import Node
from tests.waiting import wait_for

SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
for number in 0 1; do SLURM_PROCID=$number SLURMD_NODENAME=n$number "$@" & done
wait
"""


class TwoNodes(Node):
    """A study whose trials take two nodes, and a srun."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.staged: list[Staged] = []
        (root / "bin").mkdir()
        self.srun(SRUN)

    def srun(self, text: str) -> None:
        (self.root / "bin/srun").write_text(text)
        (self.root / "bin/srun").chmod(0o755)

    @property
    def study(self) -> Study:
        return dataclasses.replace(super().study, executor="slurm", resources=Resources(nodes=2))

    def stage_all(self, *, is_strict: bool = True, leaves: bool = False) -> Staged:
        path = f"{self.root}/bin:{os.environ['PATH']}"
        environ = {**os.environ, "PATH": path}
        stager = Stager(self.study, self.folder, environ, self.said.append, is_strict=is_strict)
        self.staged.append(stager.stage(self.study.data_paths, lambda: leaves))
        return self.staged[-1]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TwoNodes]:
    made = TwoNodes(tmp_path)
    yield made
    for staged in made.staged:  # of a test that has failed
        staged.close()


def test_one_path_for_all(node: TwoNodes) -> None:
    """Each node has a copy there, and keeps it until the trial has ended."""
    staged = node.stage_all()
    (place,) = staged.data.values()
    assert place.is_relative_to(node.disk) and staged.notes == []
    assert (place / "train/x").read_bytes() == (node.data / "train/x").read_bytes()
    cache = Cache(node.disk)
    assert [one.is_used for one in cache.entries()] == [True]
    staged.close()
    assert [one.is_used for one in cache.entries()] == [False]
    assert list(node.folder.data.glob("step-*")) == []


def test_no_path_in_common(node: TwoNodes) -> None:
    """All read the shared path, and it is said which each would have had."""
    for name in ("n0", "n1"):
        (node.disk / name).mkdir()
    node.staging = Staging(f"{node.disk}/$SLURMD_NODENAME")
    staged = node.stage_all()
    staged.close()
    assert staged.data == {"mnist": node.data}
    (note,) = staged.notes
    assert "the trial's nodes have no path in common (n0: " in note
    assert f"{node.disk}/n1/" in note


def test_a_node_that_sees_other_data(node: TwoNodes) -> None:
    """The trial does not train, as on one node; a re-run reads the shared path."""
    (node.data / "more").touch()
    with pytest.raises(DataDiffer, match=r"n\d: .*is not what the launch recorded"):
        node.stage_all()
    staged = node.stage_all(is_strict=False)
    staged.close()
    assert staged.data == {"mnist": node.data}


def test_a_step_that_does_not_start(node: TwoNodes) -> None:
    """Nothing fails by it: the shared path is read, with srun's words."""
    node.srun("#!/bin/sh\necho 'srun: error: no step for you'\nexit 1\n")
    staged = node.stage_all()
    assert staged.data == {"mnist": node.data}
    (note,) = staged.notes
    assert "the step on its nodes ended: srun: error: no step for you" in note


def test_what_a_killed_task_has_left(node: TwoNodes) -> None:
    """It is removed by the next one, where the owner is gone: its process from this machine, or its
    task from Slurm's queue. What lives stays, and what nobody can tell of."""
    child = subprocess.Popen(["sleep", "600"])
    here = {"boot": processes.boot_id(), "pid": child.pid}
    here["start"] = processes.start_time(child.pid)
    away = {"boot": "of another node", "pid": 1, "start": 1}
    owners = {
        "here": here,
        "runs": {**away, "job": "7", "index": 3},
        "ended": {**away, "job": "7", "index": 4},
        "gone": {**away, "job": "5", "index": None},
        "unknown": away,
    }
    for name, owner in owners.items():
        place = make_private(node.folder.data / f"step-{name}")
        (place / "hold").touch()
        (place / "owner.json").write_text(json.dumps(owner))
    schedule: Any = SimpleNamespace(
        queued=lambda _: {("7", 3): TaskState(RUNNING), ("7", 4): TaskState(ENDED)}
    )

    def left() -> set[str]:
        return {path.name.removeprefix("step-") for path in node.folder.data.glob("step-*")}

    try:
        on_nodes.clear_dead(node.folder, schedule)
        assert left() == {"here", "runs", "unknown"}
    finally:
        child.kill()
        child.wait()
    on_nodes.clear_dead(node.folder, schedule)
    assert left() == {"runs", "unknown"}


def test_the_next_task_clears_up(node: TwoNodes) -> None:
    """A task is killed while its nodes stage; Slurm ends the step, and its folder stays."""
    script = (
        "import os, sys\nfrom sweep.core.paths import StudyFolder\nfrom pathlib import Path\n"
        "from sweep.core.study import Study\nfrom sweep.tasks.staging.stage import Stager\n"
        "folder = StudyFolder(Path(sys.argv[1]))\nstudy = Study.from_json(sys.stdin.read())\n"
        "Stager(study, folder, os.environ, print).stage(study.data_paths)\n"
    )
    node.srun("#!/bin/sh\nexec sleep 600\n")
    environ = {**os.environ, "PATH": f"{node.root}/bin:{os.environ['PATH']}"}
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(node.folder.root)],
        stdin=subprocess.PIPE,
        env=environ,
        start_new_session=True,
        text=True,
    )
    assert child.stdin is not None
    child.stdin.write(node.study.to_json())
    child.stdin.close()
    try:
        wait_for(lambda: list(node.folder.data.glob("step-*/log.txt")), "its step")
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    (left,) = node.folder.data.glob("step-*")
    node.srun(SRUN)
    staged = node.stage_all()
    assert not left.exists() and staged.data["mnist"].is_relative_to(node.disk)
    staged.close()
    assert list(node.folder.data.glob("step-*")) == []


def test_a_task_that_is_to_end_meanwhile(node: TwoNodes) -> None:
    node.srun("#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(Left):
        node.stage_all(leaves=True)
    assert list(node.folder.data.glob("step-*")) == []
