"""Re-runs in real images: what an image holds is recorded once, and a changed one is named."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sweep.core.paths import Runs
from sweep.provenance import manifest
from tests import apptainer
from tests.conftest import Sweep, run_sweep
from tests.needs import ensure_apptainer
from tests.toys import TRAINING, write_toy
from tests.training.test_containers import SHELL_TRAINING

PYTHON = os.path.realpath(sys.executable)
BINDS = ["/usr", sys.base_prefix]
# The result hangs on a file of the image, as it would on a library there.
IN_IMAGE = TRAINING.replace("step + 2)\n", 'step + 2) + float(open("/opt/shift").read())\n')
SITE = {"PYTHONPATH": "/opt/site"}


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images of one kind: ``shift`` differs in a file, ``package`` in that and in a
    package; ``shell`` has no Python."""
    ensure_apptainer()
    folder = tmp_path_factory.mktemp("rerun-images")
    for name, shift, version in (
        ("first", "0.0", "1.0"),
        ("shift", "0.5", "1.0"),
        ("package", "0.5", "1.1"),
    ):
        tree = apptainer.make_tree(folder / f"{name}-tree")
        (tree / "opt/shift").write_text(shift)
        (tree / f"opt/site/torchlike-{version}.dist-info").mkdir(parents=True)
        apptainer.make_sif(tree, folder / f"{name}.sif")
    shell = apptainer.make_tree(folder / "shell-tree", ("sh", "mv", "sleep"))
    apptainer.make_sif(shell, folder / "shell.sif")
    return folder


@pytest.fixture
def sweep(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    return partial(run_sweep, runs=runs, cwd=tmp_path, env={"SWEEP_STORAGE": fresh_url})


def launch(
    sweep: Sweep, folder: Path, image: Path, *, trials: int = 1, **environment: object
) -> Path:
    """Run a study in a copy of an image; return the copy."""
    own = folder / "own.sif"
    shutil.copy(image, own)
    given = {"runtime": "apptainer", "image": str(own), "binds": BINDS, "env": SITE, **environment}
    write_toy(
        folder,
        trials=trials,
        training=IN_IMAGE,
        command=f"[{PYTHON}, train.py, '{{params}}']",
        environment=json.dumps(given),
    )
    done = sweep("launch", "study.yaml", "--wait")
    assert done.code == 0, done.err
    return own


def again(sweep: Sweep, *words: str) -> Any:
    ran = sweep("rerun-best", "--wait", "--json", *words)
    assert ran.code == 0, ran
    return json.loads(ran.out)


def inside(runs: Path) -> list[dict[str, Any]]:
    """Return what was found within the images of the study."""
    folder = Runs(runs).study("toy").inside
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    return [json.loads(path.read_text()) for path in folder.glob("*.json")]


@pytest.mark.parametrize(
    "changed", ["nothing", pytest.param("shift", marks=pytest.mark.long), "package"]
)
def test_a_changed_image_is_named(
    changed: str, sweep: Sweep, tmp_path: Path, runs: Path, images: Path
) -> None:
    """The image was replaced under its name: its content, and what is installed in it, differ."""
    own = launch(sweep, tmp_path, images / "first.sif")
    if changed != "nothing":
        shutil.copy(images / f"{changed}.sif", tmp_path / "new")
        (tmp_path / "new").rename(own)
    one = again(sweep)
    if changed == "nothing":
        assert (one["verdict"], one["relative_difference"]) == ("reproduced", 0.0)
        assert (one["axes"], one["differences"]) == ([], [])
        return
    assert (one["verdict"], one["axes"]) == ("explained", ["environment"])
    assert one["rerun"] == pytest.approx(one["original"] + 0.5)
    content, *packages = one["differences"]
    assert content.startswith("environment: the image's content was ")
    assert packages == (
        ["environment: torchlike was 1.0 and is 1.1."] if changed == "package" else []
    )


def test_a_package_that_is_bound_is_named(
    sweep: Sweep, tmp_path: Path, runs: Path, images: Path
) -> None:
    """The image is the same; a folder of packages bound into it is not."""
    site, shift = tmp_path / "site", tmp_path / "shift"
    (site / "torchlike-1.0.dist-info").mkdir(parents=True)
    shift.write_text("0.0")
    binds = [*BINDS, f"{site}:/opt/site", f"{shift}:/opt/shift"]
    launch(sweep, tmp_path, images / "first.sif", binds=binds)
    (site / "torchlike-1.0.dist-info").rename(site / "torchlike-1.2.dist-info")
    shift.write_text("0.5")
    one = again(sweep)
    assert (one["verdict"], one["axes"]) == ("explained", ["environment"])
    assert one["differences"] == ["environment: torchlike was 1.0 and is 1.2."]


def test_what_an_image_holds_is_asked_once(
    sweep: Sweep, tmp_path: Path, runs: Path, images: Path
) -> None:
    """Four trials, one answer; each trial's record has it, and no attempt's file repeats it."""
    launch(sweep, tmp_path, images / "first.sif", trials=4)
    (found,) = inside(runs)
    assert found["python"] == platform.python_version()
    assert found["packages"]["torchlike"] == "1.0"
    folder = Runs(runs).study("toy")
    for number in range(4):
        environment = manifest.of_trial(folder, number)["environment"]
        assert environment["packages"] == found["packages"]
        assert "torchlike" not in folder.attempt(number, 1).provenance.read_text()
    assert "SWEEP_TOKEN" not in json.dumps(found)


def test_an_image_without_python_says_so(
    sweep: Sweep, tmp_path: Path, runs: Path, images: Path
) -> None:
    """And where one with a Python takes its place, that is said too."""
    (tmp_path / "train.sh").write_text(SHELL_TRAINING.replace("STEPS", "3"))
    own = tmp_path / "own.sif"
    shutil.copy(images / "shell.sif", own)
    given = {"runtime": "apptainer", "image": str(own), "env": {"PATH": "/usr/bin"}}
    write_toy(tmp_path, trials=1, command="[sh, train.sh]", environment=json.dumps(given))
    assert sweep("launch", "study.yaml", "--wait").code == 0
    assert inside(runs) == [{"python": "none", "packages": {}}]
    one = again(sweep)
    assert (one["verdict"], one["differences"]) == ("reproduced", [])


def test_a_missing_image_is_refused_by_name(sweep: Sweep, tmp_path: Path, images: Path) -> None:
    """The file that is gone is named, and nothing else."""
    own = launch(sweep, tmp_path, images / "first.sif")
    own.unlink()
    ran = sweep("rerun-best", "--wait")
    assert ran.code == 2, ran
    gone = [line for line in ran.err.splitlines() if line.startswith("  ")]
    assert gone == [f"  image: {own} is gone."], ran.err
    assert "--anyway" in ran.err
    anyway = sweep("rerun-best", "--wait", "--anyway")
    assert "is gone" not in anyway.err
    assert f"environment.image: {own} does not exist" in anyway.err, anyway
