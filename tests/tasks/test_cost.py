"""What a task may cost: statements and transactions a trial, and what it imports on its way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweep.control.launch import launch
from sweep.core.paths import Runs, StudyFolder
from sweep.core.scheduler import ArrayJob
from sweep.schedulers.local.scheduler import LocalScheduler
from sweep.search.samplers import STARTUP
from sweep.studyfile import load
from tests.test_architecture import HEAVY, ROOT
from tests.toys import TRAINING

pytestmark = pytest.mark.real

# Runs one task to its end in its own process, counting what it asks of the database.
TASK = """
import json, os, sys, time
from sweep.core.system import processes
from sweep.tasks import main as task
from sweep.storage.connection import Database

asked, run = [], Database._run

def count(self, connection, sql, *rest, **more):
    asked.append(" ".join(sql.split())[:60])
    return run(self, connection, sql, *rest, **more)

Database._run = count
at_spawn, given, spawn = [], [], processes.spawn

def spawn_noted(*args, **options):
    at_spawn.append([time.process_time(), *sys.modules])
    given.append(options["env"].get("OPENBLAS_NUM_THREADS"))
    return spawn(*args, **options)

processes.spawn = spawn_noted
code = task.main([sys.argv[1]])
tops = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"code": code, "asked": asked, "modules": tops, "all": sorted(sys.modules),
                  "spawn": at_spawn[:1], "cpu_s": time.process_time(),
                  "threads": len(os.listdir("/proc/self/task")), "given": given[-1:]}))
"""

MOST_CPU_S = 2.4  # four times the limit, which an idle machine keeps to: benchmarks.orchestration


class Unstarted(LocalScheduler):
    """Takes an array and runs none of it: the test is its only task."""

    def submit(self, job: ArrayJob) -> str:
        return job.token

    def find(self, token: str) -> list[str]:
        return [token]


def run_task(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    """Launch a study and run all its trials in one task."""
    folder.mkdir()
    (folder / "train.py").write_text(TRAINING)
    spec = {
        "name": f"cost-{folder.name}",
        "workdir": str(folder),
        "command": [sys.executable, "train.py", "--x", "{x}", "--steps", "1"],
        "objective": {"metric": "score", "direction": "maximize"},
        "space": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
        "sampler": "random",
        "executor": "local",
        "max_parallel": 1,
    }
    (folder / "study.yaml").write_text(json.dumps(spec | changes))
    study = load(folder / "study.yaml")
    runs = Runs(folder / "runs")
    monkeypatch.setenv("SWEEP_STORAGE", url)
    launch(study, runs, lambda found: Unstarted(found.local), os.environ)
    home: StudyFolder = runs.study(study.name)
    found = ask_task(home.root)
    assert f"{study.trials} attempts made" in found["said"]
    return found


def ask_task(study: Path) -> Any:
    """Run one task of a study and return what it says of itself."""
    done = subprocess.run(
        [sys.executable, "-c", TASK, str(study)], cwd=ROOT, capture_output=True, text=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["code"] == 0, done.stdout + done.stderr
    return found | {"said": done.stdout}


def test_statements_a_trial(
    tmp_path: Path, fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 25 statements a trial that reports once, in at most 3 transactions of several."""
    few = run_task(tmp_path / "few", fresh_url, monkeypatch, trials=2)["asked"]
    many = run_task(tmp_path / "many", fresh_url, monkeypatch, trials=8)["asked"]
    assert (len(many) - len(few)) / 6 <= 25, many
    assert (many.count("BEGIN") - few.count("BEGIN")) / 6 <= 3
    # One connection at a time; a session is closed while a training takes its time.
    assert sum(sql.startswith("SET timezone") for sql in many) <= 8


def test_a_fixed_design_imports_nothing_heavy(
    tmp_path: Path, fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first pull to the last, with conditions and points of the user's."""
    space = {
        "x": {"type": "float", "low": 0.0, "high": 1.0},
        "kind": {"type": "categorical", "choices": ["a", "b"]},
        "m": {"type": "int", "low": 1, "high": 3, "when": {"kind": "a"}},
    }
    found = run_task(
        tmp_path / "light", fresh_url, monkeypatch, trials=3, space=space, points=[{"x": 0.5}]
    )
    assert sorted(set(found["modules"]) & set(HEAVY)) == []


def test_a_first_pull_imports_what_it_needs(
    tmp_path: Path, fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing heavy until a training runs; none with nothing to pull."""
    found = run_task(tmp_path / "first", fresh_url, monkeypatch, trials=1)
    cpu_s, *modules = found["spawn"][0]
    assert sorted({name.partition(".")[0] for name in modules} & set(HEAVY)) == []
    assert cpu_s < MOST_CPU_S
    home = Runs(tmp_path / "first" / "runs").study("cost-first")
    empty = ask_task(home.root)
    assert empty["spawn"] == []
    assert sorted(set(empty["modules"]) & set(HEAVY)) == []
    assert empty["cpu_s"] < MOST_CPU_S


def test_an_adaptive_sampler_needs_optuna_and_no_more(
    tmp_path: Path, fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna and NumPy, and nothing of the command line's or of Optuna's own storage."""
    trials = STARTUP + 1  # the first ones are laid out at launch
    found = run_task(tmp_path / "tpe", fresh_url, monkeypatch, trials=trials, sampler="tpe")
    assert sorted(set(found["modules"]) & set(HEAVY)) == ["numpy", "optuna"]
    # NumPy's BLAS has one thread, and training keeps the environment that it was given.
    assert (found["threads"], found["given"]) == (1, [None])
