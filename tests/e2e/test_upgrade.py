"""sweep is upgraded while a study runs: its tasks end as they began, and the study goes on."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from sweep.storage import studies
from sweep.storage.connection import Database
from tests.conftest import Sweep, sweep_environment
from tests.needs import EARLIER, look_for_history, skip_or_fail
from tests.toys import write_toy
from tests.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
HERE = "this version"  # with the format of another
PARTS = ("sweep", "templates", "trainer")
TRIALS = 6

# Reports, and then trains until the file is there, or one of its own.
TRAINING = """
import os, sys, time
from sweep.report import Reporter

reporter = Reporter()
reporter.log(step=1, score=0.0)
gates = (sys.argv[2], sys.argv[2] + os.environ["SWEEP_TRIAL"])
while not any(map(os.path.exists, gates)):
    time.sleep(0.05)
reporter.log(step=2, score=float(sys.argv[1]))
"""


def install(which: str, folder: Path) -> Path:
    """Return a folder that holds an older sweep, as it is installed beside others."""
    folder.mkdir()
    if which == HERE:
        for part in PARTS:
            shutil.copytree(
                ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__")
            )
        formats = folder / "sweep/core/scheduler.py"
        text = formats.read_text()
        formats.write_text(text.replace("\nTASK_FORMAT = ", "\nTASK_FORMAT = -"))
        assert formats.read_text() != text
        return folder
    done = subprocess.run(["git", "-C", ROOT, "archive", which, *PARTS], capture_output=True)
    if done.returncode:
        skip_or_fail("history", look_for_history().what)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("which", [EARLIER, pytest.param(HERE, marks=pytest.mark.long)])
def test_an_upgrade_in_mid_study(
    which: str, sweep: Sweep, tmp_path: Path, runs: Path, fresh_url: str, no_process_left: None
) -> None:
    """The package changes under two running tasks and a third that begins; then drain, launch.

    The finaliser of the old array is the new version's, and so are status, stop and collect.
    """
    site, release = tmp_path / "site", tmp_path / "release"
    site.symlink_to(install(which, tmp_path / "old"))
    env = {"PYTHONPATH": str(site), "SWEEP_STORAGE": fresh_url}
    study = write_toy(
        tmp_path / "work",
        workdir=tmp_path / "work",
        trials=TRIALS,
        training=TRAINING,
        command=f"[python, train.py, '{{x}}', '{release}']",
        trials_per_task=1,
        tasks=2,
        parallel=3,
    )

    def begun() -> int:
        return len(list((runs / "toy").glob("trials/*/attempts/1/metrics.jsonl")))

    def running() -> int:
        return int(json.loads(sweep("status", "toy", "--json", env=env).out)["counts"]["running"])

    launched = sweep("launch", study, "--json", env=env)
    assert launched.code == 0, launched
    job = json.loads(launched.out)["wave"]["job"]
    wait_for(lambda: begun() == 2, "two trials")

    upgraded = tmp_path / "upgraded"
    upgraded.symlink_to(ROOT)
    upgraded.replace(site)
    # One that had waited in the queue.
    place = {"SWEEP_JOB": job, "SWEEP_ARRAY_INDEX": str(TRIALS)}
    task = subprocess.Popen(
        [sys.executable, "-m", "sweep.task", str(runs / "toy")],
        env=sweep_environment(runs, {**env, **place}),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: begun() == 3, "a third trial")
    assert running() == 3

    before = (runs / "toy/study.json").read_text()
    refused = sweep("launch", study, "--set", "trials=8", env=env)
    assert refused.code == 1
    assert f"an older version of sweep serve the study 'toy' (job {job})" in refused.err
    assert "sweep stop toy --drain" in refused.err
    assert (runs / "toy/study.json").read_text() == before

    assert sweep("stop", "toy", "--drain", env=env).code == 0
    # First it: the array does not know it, so that the array's finaliser would take it for dead.
    release.with_name(f"{release.name}2").write_text("")
    assert "trial 2, attempt 1: complete" in task.communicate(timeout=PATIENCE_S)[0]
    release.write_text("")
    wait_for(lambda: running() == 0, "the trials to end", pause_s=1.0)
    with closing(Database(fresh_url)) as db:
        study_id = studies.find_study(db, "toy")
        assert study_id is not None
        # Its finaliser, which marks it as over, is the last that runs of it.
        wait_for(
            lambda: all(wave.over for wave in studies.read_waves(db, study_id)), "the old finaliser"
        )
    assert json.loads(sweep("status", "toy", "--json", env=env).out)["counts"]["complete"] == 3

    ran = sweep("launch", study, "--set", "trials=8", "--wait", env=env)
    assert ran.code == 0, ran
    rows = json.loads(sweep("collect", "toy", "--format", "json", env=env).out)
    assert sorted(row["trial"] for row in rows) == list(range(8))
    assert all(row["value"] == row["params"]["x"] for row in rows)
    assert len(list((runs / "toy").glob("trials/*/attempts/2"))) == 0
