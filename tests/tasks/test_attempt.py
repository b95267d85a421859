"""An attempt that cannot go on by no fault of its training's ends, and its task goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Sweep
from tests.toys import TRAINING, write_toy

pytestmark = pytest.mark.real

# Where sweep is going to note the end, and to look why it ended.
ODD = """
folder = pathlib.Path(os.environ["SWEEP_TRIAL_DIR"])
(folder / "exit.json").mkdir()
(folder / "log.txt").unlink()
os.mkfifo(folder / "log.txt")
"""


def test_odd_files_stop_nobody(sweep: Sweep, tmp_path: Path, runs: Path) -> None:
    """A trial whose files cannot be written fails with the reason, all others are complete; what
    cannot be read is noted, and every command answers."""
    study = write_toy(tmp_path, trials=1, parallel=1, training=TRAINING + ODD)
    assert sweep("launch", study, "--wait").code == 0
    (runs / "toy/trials/00001/config.yaml").mkdir(parents=True)
    ran = sweep("launch", study, "--set", "trials=3", "--wait", "--json")
    assert ran.code == 0, ran.err
    status = json.loads(ran.out)
    assert (status["counts"]["complete"], status["counts"]["failed"]) == (2, 1)
    notes = [
        "exit.json cannot be read: is no regular file",
        "log.txt cannot be read: is no regular file",
    ]
    assert status["notes"] == [f"trial 0: {notes[0]} (2 more trials have such notes)"]
    ran = sweep("collect", "toy", "--state", "complete", "--state", "failed", "--format", "json")
    assert ran.code == 0, ran.err
    rows = {row["trial"]: row for row in json.loads(ran.out)}
    assert [rows[n]["state"] for n in range(3)] == ["complete", "failed", "complete"]
    assert rows[0]["notes"] == rows[2]["notes"] == notes
    assert "config.yaml cannot be written or read: Is a directory" in rows[1]["reason"]
    ran = sweep("logs", "toy", "0")
    assert ran.code == 0
    assert f"--- note: {notes[0]}" in ran.out
    assert "cannot be read: is no regular file" in ran.out
