"""The example studies run as they are: real trainings, the real trainer, real data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Sweep, run_sweep
from tests.needs import skip_or_fail

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "studies"


@pytest.fixture
def sweep(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    """Run the command line on a database of the test's own, on the server that all share."""
    return partial(run_sweep, runs=runs, cwd=tmp_path, env={"SWEEP_STORAGE": fresh_url})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the studies and the trainer, as in a checkout."""
    folder = tmp_path / "checkout"
    for name in ("studies", "trainer"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_any_command(sweep: Sweep, checkout: Path) -> None:
    """A script that knows nothing of sweep is searched by what it prints."""
    source = (checkout / "studies/scripts/plain_train.py").read_text()
    assert "import sweep" not in source and "from sweep" not in source
    code, out, err = sweep(
        "launch",
        "studies/any_command.yaml",
        "--wait",
        "--executor",
        "local",
        "--set",
        "trials=6",
        cwd=checkout,
    )
    assert code == 0, out + err
    rows = json.loads(sweep("collect", "--format", "json", cwd=checkout).out)
    assert len(rows) == 6
    assert max(row["value"] for row in rows if row["value"] is not None) > 0.5
    assert {"lr", "hidden", "activation"} <= set(rows[0]["params"])


@pytest.mark.long  # cli/test_run trains, evaluates and exports it in every form
def test_digits(sweep: Sweep, checkout: Path) -> None:
    """The demo's study, four trials of it: real networks on real digits, the best run again."""
    code, out, err = sweep(
        "launch",
        "studies/digits.yaml",
        "--wait",
        "--executor",
        "local",
        "--set",
        "trials=4",
        cwd=checkout,
    )
    assert code == 0, out + err
    best = json.loads(sweep("collect", "--top", "1", "--format", "json", cwd=checkout).out)[0]
    assert best["value"] > 0.8
    verdict = json.loads(sweep("rerun-best", "--wait", "--json", cwd=checkout).out)
    assert (verdict["verdict"], verdict["relative_difference"]) == ("reproduced", 0.0)
    assert verdict["steps"][0] == verdict["steps"][1]


@pytest.mark.long
@pytest.mark.mnist
def test_mnist(sweep: Sweep, checkout: Path, tmp_path: Path) -> None:
    """20 small CNNs on the 60,000 images, chosen on a validation split; 98.5 % on the test set.

    The test set is opened once, after the search, by the trainer's evaluation of the best
    checkpoint.
    """
    if "SWEEP_DATA" not in os.environ:
        skip_or_fail("mnist", "the files are not here: python -m trainer.data fetch mnist")
    code, out, err = sweep(
        "launch", "studies/mnist.yaml", "--wait", "--executor", "local", cwd=checkout
    )
    assert code == 0, out + err
    rows = json.loads(sweep("collect", "--format", "json", cwd=checkout).out)
    assert len(rows) == 20
    log = (checkout / "..").resolve().rglob("log.txt")
    assert not any("test_accuracy" in path.read_text() for path in log)
    best = next(row for row in rows if row["rank"] == 1)
    metrics = tmp_path / "test.json"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "trainer.evaluate",
            best["checkpoint"],
            "--split",
            "test",
            "--output",
            str(metrics),
        ],
        cwd=checkout,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{checkout}:{ROOT}"},
    )
    assert json.loads(metrics.read_text())["accuracy"] >= 0.985
