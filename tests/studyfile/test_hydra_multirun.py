"""Sweeps of Hydra on a command line of a script of bash."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core.errors import InputError
from sweep.studyfile import loads
from tests.studyfile.test_sbatch_words import commands_of, converted


def test_a_multirun_is_a_grid(tmp_path: Path) -> None:
    """Its own sweeper goes through all combinations; what is no sweep stays in the command."""
    script = """#SBATCH --time=60
python src/run.py -m --config-name cfg \\
  metric=dsc,nsd kernel=wide "data.sizes=[1,2]" seed=range(3) hydra.sweep.dir=out
"""
    found = converted(tmp_path, script, "")
    study = loads(found.text, "study.yaml")
    assert {p.name: p.choices or range(int(p.low), int(p.high) + 1) for p in study.space} == {
        "metric": ("dsc", "nsd"),
        "seed": range(3),
    }
    assert (study.sampler.type, study.trials) == ("grid", 6)
    assert " ".join(study.command) == (
        "python src/run.py --config-name cfg kernel=wide data.sizes=[1,2] {overrides} "
        "hydra.run.dir={trial_dir}"
    )
    assert study.resources.time_limit_s == 3600
    assert any(line.startswith("hydra.sweep.dir: was left out") for line in found.lost)


def test_its_sweeper_and_launcher_are_read(tmp_path: Path) -> None:
    """What the command line says of Optuna's sweeper and submitit's launcher holds."""
    script = (
        "python train.py --multirun hydra/sweeper=optuna hydra.sweeper.n_trials=30 "
        "hydra.sweeper.direction=maximize hydra/launcher=submitit_slurm "
        "hydra.launcher.timeout_min=120 hydra.launcher.gpus_per_node=1 "
        "'model.lr=tag(log, interval(1e-5,1e-1))' +experiment=base\n"
    )
    found = converted(tmp_path, script, "")
    study = loads(found.text, "study.yaml")
    (lr,) = study.space
    assert (lr.name, lr.low, lr.high, lr.log) == ("model.lr", 1e-5, 0.1, True)
    assert (study.trials, study.sampler.type) == (30, "tpe")
    assert study.objectives[0].direction == "maximize"
    assert (study.resources.time_limit_s, study.resources.gpus) == (7200, 1)
    assert "hydra.launcher" not in " ".join(study.command)


def test_a_loop_around_it_varies_too(tmp_path: Path) -> None:
    """The combinations of the loop's values and of Hydra's are all there."""
    script = "for n in 1 2; do\npython -m pkg.train -m n=$n model=a,b seed=3,4\ndone\n"
    lines = commands_of(converted(tmp_path, script, ""), tmp_path)
    assert lines == [
        f"python -m pkg.train n={n} model={model} seed={seed} hydra.run.dir={tmp_path}"
        for n in (1, 2)
        for model in "ab"
        for seed in (3, 4)
    ]


def test_tasks_of_an_array_each_with_a_multirun(tmp_path: Path) -> None:
    """What the tasks pick and what Hydra goes through are one grid; of points, it is said."""
    script = "python train.py -m seed=$SLURM_ARRAY_TASK_ID model=a,b"
    found = converted(tmp_path, script, "4-5")
    assert commands_of(found, tmp_path) == [
        f"python train.py seed={seed} model={model} hydra.run.dir={tmp_path}"
        for seed in (4, 5)
        for model in "ab"
    ]
    pairs = (
        f"n=(1 2)\nm=(3 4)\n{script} n=${{n[$SLURM_ARRAY_TASK_ID]}} m=${{m[$SLURM_ARRAY_TASK_ID]}}"
    )
    found = converted(tmp_path, pairs, "0-1")
    assert loads(found.text, "study.yaml").command[-1] == "EDIT_ME"
    assert any(line.startswith("-m model: Hydra goes through these") for line in found.lost)


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
def test_what_its_configuration_varies_is_said(flag: str, tmp_path: Path) -> None:
    """Where the command line has no sweep, the file that has it is to be converted."""
    with pytest.raises(InputError) as caught:
        converted(tmp_path, f"python train.py {flag} hparams_search=mnist_optuna", "")
    assert f"{flag}: Hydra takes what it varies from its configuration" in str(caught.value)


def test_a_module_is_no_multirun(tmp_path: Path) -> None:
    """-m of Python names a module; commas in the values of other programs are no sweep."""
    found = converted(tmp_path, "for lr in 1 2; do python -m train --lr $lr --x=1,2; done", "")
    assert commands_of(found, tmp_path) == [f"python -m train --lr {lr} --x=1,2" for lr in (1, 2)]
