"""``sweep clean``: what takes room and is not needed goes, and nothing else."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from sweep.control import cleaning
from sweep.core.paths import Runs
from tests.cli.commands import collected, wait_for_runners
from tests.conftest import Sweep
from tests.toys import TRAINING, write_toy

FAILS_LATE = TRAINING.replace(
    "    # The test decides",
    "    assert flags.kind == 'a' or step < 1, 'kind b is broken'\n    # The test decides",
)


def attempts(runs: Path, trial: int) -> list[str]:
    return sorted(p.name for p in (runs / "toy/trials" / f"{trial:05d}" / "attempts").iterdir())


def test_what_goes_and_what_stays(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """Old attempts and checkpoints of losers go; those of the best, and each result, stay."""
    path = write_toy(tmp_path, trials=6, training=FAILS_LATE, keep=1)
    assert sweep("launch", path, "--wait").code == 0
    failed = [row["trial"] for row in collected(sweep, "--state", "failed")]
    (tmp_path / "train.py").write_text(TRAINING)
    assert sweep("launch", path, "--retry", "failed", "--wait").code == 0
    wait_for_runners(runs / "toy")  # a task removes losers' checkpoints after its trial's end
    rows = collected(sweep)
    best = rows[0]["trial"]
    loser = next(number for number in failed if number != best)
    dropped = runs / "toy/trials" / f"{loser:05d}" / "attempts/2/checkpoints"
    dropped.mkdir(exist_ok=True)
    (dropped / "large").write_bytes(b"x" * 5000)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").touch()
    (dropped / "link").symlink_to(outside)
    ran = sweep("clean", "--dry-run")
    assert ran.code == 0, ran.err
    assert f"trial {loser}, attempt 1" in ran.out and "nothing was removed" in ran.out
    assert f"trial {loser} (complete), 2/checkpoints" in ran.out
    assert attempts(runs, loser) == ["1", "2"]
    ran = sweep("clean")
    assert ran.code == 2 and "Give --yes" in ran.err
    ran = sweep("clean", "--yes")
    assert ran.code == 0 and ran.out.splitlines()[-1].endswith(" removed")
    assert attempts(runs, loser) == ["2"] and not dropped.exists()
    assert (outside / "data").exists()
    kept = runs / "toy/trials" / f"{best:05d}" / "attempts"
    assert list(kept.glob("*/checkpoints/last"))
    again = collected(sweep)
    assert [(row["trial"], row["value"]) for row in again] == [
        (row["trial"], row["value"]) for row in rows
    ]
    assert sweep("clean", "--yes").out == "study toy: nothing to clean\n"
    assert sweep("rerun-best", "--wait").code == 0
    # A trial that goes on from its checkpoint still can.
    assert sweep("logs", str(loser)).code == 0


def test_images_that_no_study_names(tmp_path: Path) -> None:
    """Of old ones; where a study's record cannot be read, none goes."""
    runs = Runs(tmp_path)
    runs.images.mkdir()
    old = time.time() - 2 * cleaning.YOUNG_S
    for name in ("used-1.sif", "unused-2.sif", "young-3.sif"):
        (runs.images / name).write_bytes(b"x" * 1000)
        record = runs.images / f"{name}.json"
        record.write_text("{}")
        if not name.startswith("young"):
            os.utime(record, (old, old))
    study = runs.study("toy")
    study.root.mkdir()
    study.study.write_text(json.dumps({"environment": {"built": str(runs.images / "used-1.sif")}}))
    found, notes = cleaning.of_images(runs)
    assert ([item.path.name for item in found], notes) == (["unused-2.sif"], [])
    study.provenance.write_bytes(b"\xff\xfe unused-2.sif")
    nothing, notes = cleaning.of_images(runs)
    assert nothing == [] and "cannot be read" in notes[0]
    assert [item.size for item in cleaning.carry_out(found)] == [1000]
    left = sorted(path.name for path in runs.images.iterdir() if not path.name.startswith("."))
    assert left == ["used-1.sif", "used-1.sif.json", "young-3.sif", "young-3.sif.json"]
