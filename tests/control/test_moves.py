"""A study that is launched under another executor: never two arrays at once, each settled by its
own scheduler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweep.control.open_study import Opened, open_study
from sweep.core import executors
from sweep.core.paths import Runs
from sweep.core.scheduler import Wave
from sweep.storage import studies
from tests.chaos.scene import kill
from tests.conftest import ROOT
from tests.processes import find_processes
from tests.schedulers import spool_scheduler
from tests.toys import write_toy
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

FILE = spool_scheduler.__file__


class Mover:
    """A study whose trials wait for a gate, and the command line that knows two schedulers."""

    def __init__(self, folder: Path, runs: Path, url: str) -> None:
        self.folder, self.runs, self.url = folder, runs, url
        self.gate = folder / "gate"
        command = json.dumps(["python", "train.py", "{params}", "--gate", str(self.gate)])
        write_toy(folder, trials=4, parallel=2, command=command, grace="30s")

    def sweep(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, FILE, "sweep", *arguments, "--runs", str(self.runs)],
            cwd=self.folder,
            env={**os.environ, "SWEEP_STORAGE": self.url, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done
        return done

    def launch(self, executor: str) -> subprocess.CompletedProcess[str]:
        return self.sweep("launch", "study.yaml", "--executor", executor)

    def ask(self, work: Callable[[Opened], Any]) -> Any:
        opened = open_study(Runs(self.runs), "toy")
        try:
            return work(opened)
        finally:
            opened.ledger.db.close()

    def waves(self) -> list[Wave]:
        return list(self.ask(lambda o: studies.read_waves(o.ledger.db, o.ledger.study_id)))

    def trainings(self) -> list[int]:
        return [p.pid for p in find_processes(self.folder) if "train.py" in p.command]

    def wait(self, done: Callable[[], Any], limit_s: float = PATIENCE_S) -> Any:
        give_up_at = time.monotonic() + limit_s
        while not (found := done()):
            assert time.monotonic() < give_up_at, self.sweep("status", "toy").stdout
            time.sleep(0.1)
        return found

    def finish(self) -> list[int]:
        """Open the gate and wait for the end; return how many attempts each trial took."""
        self.gate.touch()
        status = self.wait(lambda: self.ended())
        assert status["counts"]["complete"] == 4
        attempts = self.ask(lambda o: o.ledger.all_attempts())
        return [max(a.number for a in attempts if a.trial == trial) for trial in range(4)]

    def ended(self) -> dict[str, Any] | None:
        if self.ask(lambda o: o.ledger.unfinished()):
            return None  # a command takes longer to say so
        status = json.loads(self.sweep("status", "toy", "--json").stdout)
        return status if status["state"] == "finished" else None


@pytest.fixture
def mover(
    tmp_path: Path,
    runs: Path,
    fresh_url: str,
    no_process_left: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Mover:
    monkeypatch.setitem(executors._kinds, "spool", spool_scheduler.SpoolScheduler)
    return Mover(tmp_path / "work", runs, fresh_url)


@pytest.mark.parametrize(
    ("one", "other"), [("spool", "local"), pytest.param("local", "spool", marks=pytest.mark.long)]
)
def test_while_an_array_lives_the_study_stays(mover: Mover, one: str, other: str) -> None:
    """There is no second array beside it, and its own executor ends the study."""
    mover.launch(one)
    mover.wait(lambda: len(mover.trainings()) == 2)
    said = mover.launch(other)
    (wave,) = mover.waves()
    assert (wave.executor, wave.size) == (one, 3 if one == "spool" else 4)
    assert f"job {wave.job} of the study 'toy' is at work on" in said.stderr.lower()
    assert "sweep stop toy" in said.stderr and f", {one})" in said.stdout
    assert len(mover.trainings()) == 2
    assert mover.ask(lambda o: o.study.executor) == one
    assert mover.finish() == [1] * 4
    assert {wave.executor for wave in mover.waves()} == {one}


def test_a_stopped_study_moves(mover: Mover) -> None:
    """At once: the tasks that still leave are waited for, and each trial goes on."""
    mover.launch("local")
    mover.wait(lambda: len(mover.trainings()) == 2)
    mover.sweep("stop", "toy")
    mover.launch("spool")
    first, second = mover.waves()[:2]
    assert (first.executor, first.over, second.executor) == ("local", True, "spool")
    attempts = mover.finish()
    assert sorted(attempts) == [1, 1, 2, 2]


def test_what_an_earlier_executor_left_is_settled_by_it(mover: Mover) -> None:
    """Its runner and all its tasks are dead: their trials are taken up in the next executor."""
    mover.launch("local")
    mover.wait(lambda: len(mover.trainings()) == 2)
    (wave,) = mover.waves()
    found = find_processes(mover.runs / "toy")
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none sees that another one is gone
        for process in found:
            kill(process.pid, number)
    mover.wait(lambda: not mover.trainings())
    mover.launch("spool")
    attempts = [a for a in mover.ask(lambda o: o.ledger.all_attempts()) if a.job == wave.job]
    assert {a.outcome for a in attempts} == {"node failed"}
    assert sorted(mover.finish()) == [1, 1, 2, 2]
