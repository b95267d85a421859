"""A third scheduler, in one short file: it keeps the contract, and whole studies run under it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.core.scheduler import ENDED
from tests.conftest import ROOT
from tests.schedulers import spool_scheduler
from tests.schedulers.scheduler_contract import SchedulerContract, wait_for
from tests.schedulers.spool_scheduler import SpoolScheduler
from tests.toys import write_toy
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

FILE = Path(spool_scheduler.__file__)
MOST_LINES = 150


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    return place


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[SpoolScheduler]:
    spool = SpoolScheduler(tmp_path / "spool")
    yield spool
    jobs = [path.name for path in spool.root.glob("*")]
    for job in jobs:
        spool.cancel(job)
    wait_for(lambda: all(s.state == ENDED for s in spool.poll(jobs).values()), PATIENCE_S)


@pytest.mark.long  # the contract itself is tested in every form, by the local scheduler
class TestSpool(SchedulerContract):
    """The contract."""

    python = sys.executable


def test_it_is_short() -> None:
    """A scheduler is little work: the base class has a default for most."""
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_a_whole_study(tmp_path: Path, runs: Path, fresh_url: str, no_process_left: None) -> None:
    """By the study file's word for it, over several waves, with the finaliser of each."""
    study = write_toy(tmp_path, trials=5, parallel=2, trials_per_task=1)
    study.write_text(study.read_text().replace("executor: local", "executor: spool"))

    def sweep(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(FILE), "sweep", *arguments, "--runs", str(runs)],
            cwd=tmp_path,
            env={**os.environ, "SWEEP_STORAGE": fresh_url, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )

    done = sweep("launch", "study.yaml", "--wait", "--json")
    assert done.returncode == 0, done
    status = json.loads(done.stdout)
    assert (status["state"], status["counts"]["complete"]) == ("finished", 5)
    waves = sorted((runs / "toy" / "spool").glob("*/job.json"))
    assert sorted(json.loads(path.read_text())["size"] for path in waves) == [2, 3]
    ranked = json.loads(sweep("collect", "--format", "json").stdout)
    assert len(ranked) == 5
