"""Each framework's example, as docs/frameworks.md has it: metric, prune, kill, stop, run again."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Sweep
from tests.frameworks import scene
from tests.frameworks.scene import GATE, Scene, Which


def rank(name: str) -> Which:
    """Choose the second of several processes, by its launcher's variable."""
    return lambda command, environ: environ.get(name) == "1"


def script(name: str) -> Which:
    """Choose the process that runs this script."""
    return lambda command, environ: name in command


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        needs: Packages, and programs.
        study: Its file's name.
        metric: The objective.
        killed: Which process is killed.
        last: The last step that is reported.
        sets: What is changed in the study file.
        first: The first step.
        interval: Steps between two reports.
        saved: Steps between two saves.
    """

    needs: tuple[str, ...]
    study: str
    metric: str
    killed: Which
    last: int = 5
    sets: tuple[str, ...] = ()
    first: int = 0
    interval: int = 1
    saved: int = 1


TWO = ("resources.cpus=2", "ddp.ranks_per_node=2")
CASES = {
    "lightning": Case(("lightning",), "lightning", "val_loss", script("train_lightning")),
    "lightning_own_ddp": Case(
        ("lightning",),
        "lightning",
        "val_loss",
        rank("LOCAL_RANK"),
        sets=("fixed.devices=2", "resources.cpus=2"),
    ),
    "lightning_torchrun": Case(
        ("lightning",), "lightning", "val_loss", rank("RANK"), sets=("fixed.devices=2", *TWO)
    ),
    "transformers": Case(
        ("transformers", "accelerate"),
        "transformers",
        "eval_loss",
        script("train_transformers"),
        first=8,
        last=48,
        interval=8,
        saved=8,
    ),
    "transformers_torchrun": Case(
        ("transformers", "accelerate"),
        "transformers",
        "eval_loss",
        rank("RANK"),
        first=4,
        last=24,
        interval=4,
        saved=4,
        sets=TWO,
    ),
    "accelerate": Case(("accelerate",), "accelerate", "val_loss", rank("RANK")),
    "sklearn": Case(("sklearn",), "sklearn", "val_accuracy", script("train_sklearn")),
    "fsdp": Case(("torch",), "fsdp", "val_loss", rank("RANK")),
    "deepspeed": Case(("deepspeed",), "deepspeed", "val_loss", rank("RANK")),
    "flax": Case(("flax", "orbax"), "flax", "val_loss", script("train_flax")),
    "flax_mpi": Case(
        ("flax", "orbax", "mpi4py", "mpirun"), "flax_mpi", "val_loss", rank("PMI_RANK")
    ),
    "equinox": Case(("equinox", "orbax"), "equinox", "val_loss", script("train_equinox")),
    "spawn": Case(("torch",), "spawn", "val_loss", script("spawn_main")),
    "mpi": Case(("mpi4py", "mpirun"), "mpi", "loss", rank("PMI_RANK")),
    "hydra": Case(("hydra",), "hydra", "loss", script("train_hydra")),
    "papermill": Case(("papermill", "ipykernel"), "papermill", "loss", script("train.ipynb")),
    "bash": Case(
        (), "bash", "loss", script("train.sh"), sets=(f"environment.env.BASH_ENV={GATE}/bash_env",)
    ),
    "r": Case(
        ("Rscript",),
        "r",
        "loss",
        script("train.R"),
        sets=(f"environment.env.R_PROFILE_USER={GATE}/profile.R",),
    ),
    "keras": Case(("keras",), "keras", "val_loss", script("train_keras")),
    "keras_ddp": Case(("keras",), "keras_ddp", "val_loss", rank("RANK")),
    "xgboost": Case(
        ("xgboost",), "xgboost", "valid-rmse", script("train_xgboost"), last=59, saved=10
    ),
    "lightgbm": Case(
        ("lightgbm",), "lightgbm", "valid_0-l2", script("train_lightgbm"), last=59, saved=10
    ),
    "xgboost_dask": Case(
        ("xgboost", "distributed"),
        "xgboost_dask",
        "valid-rmse",
        script("spawn_main"),
        last=59,
        saved=10,
    ),
    "lightgbm_mpi": Case(
        ("lightgbm", "mpi4py", "mpirun"),
        "lightgbm_mpi",
        "valid_0-l2",
        rank("PMI_RANK"),
        last=59,
        saved=10,
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """One of CASES."""
    found = CASES[request.param]
    scene.need(*found.needs)
    return found


@pytest.fixture
def study(sweep: Sweep, tmp_path: Path, runs: Path, case: Case) -> Scene:
    """Its example."""
    return Scene(sweep, tmp_path, runs, case.study, case.metric, *case.sets)


def test_metric_and_rerun(study: Scene, case: Case) -> None:
    """A trial reports every step once; run again, it gives the same value."""
    study.check_metric_and_rerun(list(range(case.first, case.last + 1, case.interval)))


def test_prune(study: Scene, case: Case) -> None:
    """A pruner's verdict ends the training before its time."""
    study.check_prune(at=case.first + 2 * case.interval, last=case.last)


def test_kill_and_stop(study: Scene, case: Case) -> None:
    """One process is killed, the trial goes on; it is stopped, launched again, and ends whole."""
    study.check_kill_and_stop(case.killed, case.first, case.last, case.interval, case.saved)


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_a_callback_is_of_the_lightning_that_the_script_has(name: str) -> None:
    """One project under two names, whose Trainers take callbacks of their own name."""
    scene.need(name.partition(".")[0])
    code = (
        f"import {name} as pl\n"
        "from sweep.integrations.lightning import SweepCallback\n"
        "callback = SweepCallback()\n"
        "assert isinstance(callback, pl.Callback)\n"
        "pl.Trainer(callbacks=[callback], enable_checkpointing=False, logger=False)\n"
        "assert SweepCallback.resume() is None"
    )
    subprocess.run([sys.executable, "-c", code], cwd=scene.ROOT, check=True)


SCRIPTS = {"bash": "train.sh", "r": "train.R", "papermill": "train.ipynb"}


@pytest.mark.parametrize("name", sorted({case.study for case in CASES.values()}))
def test_what_init_writes_runs(sweep: Sweep, tmp_path: Path, runs: Path, name: str) -> None:
    """`sweep init` on each example gives a study whose trial completes, as it is written."""
    case = next(case for case in CASES.values() if case.study == name)
    scene.need(*case.needs)
    study = Scene(sweep, tmp_path, runs, name, case.metric)
    script = study.folder / "studies/frameworks" / SCRIPTS.get(name, f"train_{name}.py")
    study.sweep("init", script)
    study.sweep("launch", "study.yaml", "--wait", "--executor", "local", "--set", "trials=1")
    trial = json.loads(study.sweep("collect", "--format", "json").out)[0]
    assert (trial["state"], trial["value"] is not None) == ("complete", True)


# They start their ranks themselves, on this host beside each other's.
OWN_LAUNCHERS = (
    *("accelerate", "deepspeed", "flax_mpi", "keras_ddp", "lightgbm_mpi", "lightning_own_ddp"),
    *("mpi", "spawn", "xgboost_dask"),
)


@pytest.mark.parametrize("name", OWN_LAUNCHERS)
def test_trials_beside_each_other(sweep: Sweep, tmp_path: Path, runs: Path, name: str) -> None:
    """Ranks of three trials at once meet none of another's, whatever port they take by default."""
    case = CASES[name]
    scene.need(*case.needs)
    study = Scene(sweep, tmp_path, runs, case.study, case.metric, *case.sets)
    study.launch("max_parallel=3", "trials=3")
    rows = study.trials()
    assert [(row["state"], row["attempts"]) for row in rows] == [("complete", 1)] * 3, study.logs()
    assert all(row["value"] is not None for row in rows)


def test_each_example_is_a_row() -> None:
    """No study of studies/frameworks is without its tests."""
    files = {path.stem for path in (scene.ROOT / "studies/frameworks").glob("*.yaml")}
    assert files == {case.study for case in CASES.values()}


def test_three_lines_are_for_sweep() -> None:
    """As the table says: an example which an integration serves marks them."""
    for path in (scene.ROOT / "studies/frameworks").glob("train_*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        if any("sweep.integrations" in line for line in lines):
            assert sum(line.endswith("  # sweep") for line in lines) <= 3, path.name


def test_machines_that_nothing_connects_are_refused(tmp_path: Path) -> None:
    """LightGBM tells nobody which process is the first one: each would report and save."""
    scene.need("lightgbm")
    code = (
        "import types\nfrom sweep.integrations.lightgbm import SweepCallback\n"
        "env = types.SimpleNamespace(iteration=0, begin_iteration=0, evaluation_result_list=[],\n"
        "    params={'num_machines': 2}, model=None)\n"
        "SweepCallback(10)(env)"
    )
    environ = {"SWEEP_METRICS": str(tmp_path / "m.jsonl"), "PYTHONPATH": str(scene.ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "trains on 2 machines" in done.stderr
    assert not (tmp_path / "m.jsonl").exists()
