"""Energy of whole studies: GPUs' counters by a stand-in for NVML, Slurm's by sacct's text."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path

import pytest

from sweep.control.slurm_energy import note_tasks
from sweep.core.attributes import ENERGY
from sweep.core.outcomes import STATES
from sweep.core.paths import Runs
from sweep.results import ranking
from sweep.results.page import accounts, contents, source, tiles
from sweep.schedulers.slurm.scheduler import SlurmScheduler
from sweep.storage import energy, records
from tests.cli.commands import collected
from tests.conftest import Sweep, run_sweep
from tests.core import nvml_stub
from tests.postgres_fixture import database_url  # noqa: F401
from tests.schedulers.scripted_slurm import ScriptedSlurm
from tests.study_rows import NOON, Row, Tried, fill, make_study
from tests.toys import TRAINING, write_toy

WATTS = (250, 100)


@pytest.fixture
def sweep(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    """A machine with two GPUs, as far as the driver's tools say."""
    pytest.importorskip("pynvml")
    library = nvml_stub.build(tmp_path / "driver")
    tool = library / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA A100, 570.1'\necho 'NVIDIA A100, 570.1'\n")
    tool.chmod(0o755)
    env = {
        "SWEEP_STORAGE": fresh_url,
        "LD_LIBRARY_PATH": str(library),
        "PATH": f"{library}:{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NVML_STUB": ",".join(str(1000 * watts) for watts in WATTS),
    }
    return partial(run_sweep, runs=runs, cwd=tmp_path, env=env)


def test_what_gpus_used_is_in_collect_and_report(sweep: Sweep, tmp_path: Path, runs: Path) -> None:
    """Each trial has one of two GPUs of known power; a killed one counts both its attempts."""
    training = TRAINING.replace(
        "    if reporter.checkpoint_dir:",
        """\
    if step == 1 and flags.x < 0.4 and os.environ["SWEEP_ATTEMPT"] == "1":
        os.kill(os.getpid(), 9)
    if reporter.checkpoint_dir:""",
    )
    write_toy(
        tmp_path,
        trials=4,
        training=training,
        resources="{gpus: 1}",
        command="[python, train.py, '{params}', --pause, '0.3']",
    )
    assert sweep("launch", "study.yaml", "--wait").code == 0
    rows = collected(sweep)
    assert [row["state"] for row in rows] == ["complete"] * 4
    assert any(row["attempts"] == 2 for row in rows) and any(row["attempts"] == 1 for row in rows)
    for row in rows:
        # It is counted from a moment after the claim to the end of the process: three pauses.
        assert min(WATTS) * 0.9 < row["energy_j"] <= max(WATTS) * row["duration_s"]
    text = sweep("report", "-o", "page.html")
    assert text.code == 0
    page = (tmp_path / "page.html").read_text()
    assert (
        "GPUs alone, by NVML" in page
        and tiles.energy_text(sum(row["energy_j"] for row in rows)) in page
    )
    assert "energy_j" in sweep("collect", "--format", "markdown").out.replace("\\", "")


def test_cards_that_do_not_count(sweep: Sweep, tmp_path: Path) -> None:
    """Nothing is measured, and nothing is said that was not."""
    write_toy(tmp_path, trials=1, resources="{gpus: 1}")
    sweep = partial(sweep, env={**sweep.keywords["env"], "NVML_STUB": "0,0"})  # type: ignore[attr-defined]
    assert sweep("launch", "study.yaml", "--wait").code == 0
    assert [row["energy_j"] for row in collected(sweep)] == [None]
    assert "energy" not in sweep("collect", "--format", "markdown").out
    assert sweep("report", "-o", "page.html").code == 0
    assert "not reported" in (tmp_path / "page.html").read_text()


def test_what_slurm_accounts_for(database_url: str, tmp_path: Path) -> None:  # noqa: F811
    """A task's energy is shared among its attempts, but not with those that were measured."""
    study = make_study(trials=3)
    ledger = fill(
        database_url,
        study,
        [
            Row("COMPLETE", [0.5], attempts=[Tried("killed", took_s=60.0), Tried(took_s=30.0)]),
            Row("COMPLETE", [0.6], attempts=[Tried(took_s=60.0)]),
            Row("RUNNING", attempts=[Tried(None)]),
        ],
    )
    ledger.db.execute("UPDATE sweep_attempt SET job = '41'")
    ledger.db.execute("UPDATE sweep_attempt SET array_index = 0 WHERE token = '1-2'")
    began, ended = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(NOON.timestamp() + s)) for s in (-9, 180)
    )
    said = "".join(
        f"41_{index}|{began}|{ended}|\n41_{index}.batch|{began}|{ended}|{joules}\n"
        for index, joules in ((0, 900), (1, 77))
    )
    slurm = ScriptedSlurm(sacct=said)
    schedule = SlurmScheduler(Runs(tmp_path).study("digits"), study, {}, run=slurm)
    measured = json.dumps({"1": {"joules": 5.0, "by": "nvml"}})
    ledger.db.execute(
        "INSERT INTO trial_user_attributes (trial_id, key, value_json) SELECT trial_id, %s, %s "
        "FROM trials WHERE number = 1",
        (ENERGY, measured),
    )
    assert note_tasks(ledger, schedule) == 2
    assert note_tasks(ledger, schedule) == 0  # and Slurm was not asked again
    assert len(slurm.of("sacct")) == 1
    found = records.read_trials(ledger.db, ledger.study_id, study)
    assert [[(a.energy_j, a.energy_by) for a in record.attempts] for record in found] == [
        [(pytest.approx(600.0), "slurm"), (pytest.approx(300.0), "slurm")],
        [(5.0, "nvml")],
        [(None, "")],
    ]
    rows = ranking.rows(found, study, states=STATES)
    assert {row["trial"]: row["energy_j"] for row in rows} == {
        0: pytest.approx(900.0),
        1: 5.0,
        2: None,
    }
    made = source.make(study, found, [])
    used = accounts.energy(made)
    assert (used.joules, used.measured, used.attempts) == (pytest.approx(905.0), 3, 3)
    (tile,) = [tile for tile in contents.arrange(made).tiles if tile.name == "energy"]
    assert tile.value == "905 J"
    assert tile.note == "GPUs alone, by NVML and Slurm's accounting of the tasks"


def test_a_stale_attempt_notes_nothing(database_url: str) -> None:  # noqa: F811
    """The fence holds for energy too."""
    ledger = fill(database_url, make_study(trials=1), [Row("COMPLETE", [0.5])])
    energy.note(ledger.db, "1-1", 3.0)
    assert energy.read(ledger.db, ledger.study_id) == {}
