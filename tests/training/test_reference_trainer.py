"""The reference trainer has two names: a command that uses the one that is not here is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sweep.core.study import Objective, Slurm, Space, Study
from sweep.training.command.assembly import find_missing
from sweep.training.command.environment import TrialValues
from sweep.training.command.reference_trainer import explain_gone

OLD, NEW = "trainer/train.py", "sweep/trainer/train.py"
CODE = "raise SystemExit('a package was run')\n"


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder of programs: a Python that finds what PYTHONPATH names alone, and a torchrun."""
    folder = tmp_path / "bin"
    folder.mkdir()
    write_program(folder / "python", f'exec {sys.executable} -S "$@"')
    write_program(folder / "torchrun", "exit 1")
    return folder


def write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def write_package(top: Path, module: str) -> None:
    """Write a module and its packages, none of which may be run."""
    path = top / module
    path.parent.mkdir(parents=True)
    path.write_text(CODE)
    for folder in path.relative_to(top).parents[:-1]:
        (top / folder / "__init__.py").write_text(CODE)


@pytest.mark.parametrize(
    ("installed", "mine", "command", "right"),
    [
        # An older study beside a new wheel, in all the ways in which a trainer is started.
        (NEW, None, "python -m trainer.train", "sweep.trainer.train"),
        (NEW, None, "python -u -m trainer.train --data digits", "sweep.trainer.train"),
        (NEW, None, "torchrun --nproc-per-node=2 -m trainer.train", "sweep.trainer.train"),
        (
            NEW,
            None,
            "python -m torch.distributed.run --nproc-per-node=2 -m trainer.train",
            "sweep.trainer.train",
        ),
        # The project's own trainer is another one, and is not run to find that out.
        (NEW, "trainer/mine.py", "python -m trainer.train", "sweep.trainer.train"),
        # A study written for the wheel, in a checkout.
        (OLD, None, "python -m sweep.trainer.train", "trainer.train"),
        (None, OLD, "python -m sweep.trainer.train", "trainer.train"),
    ],
)
def test_the_name_that_is_not_here_is_told_the_other(
    tmp_path: Path,
    bin_folder: Path,
    installed: str | None,
    mine: str | None,
    command: str,
    right: str,
) -> None:
    """The message names the interpreter, the module, where it was looked for, and the command."""
    got = ask(tmp_path, bin_folder, installed, mine, command)
    named = command.split("-m ")[-1].split()[0]
    assert got == (
        f"command: {bin_folder}/python finds no module {named} (nor is it in {tmp_path}/work). "
        f"The reference trainer is run by `python -m {right}` here."
    )


@pytest.mark.parametrize("command", ["python -m trainer.export", "python -m sweep.trainer.export"])
def test_where_there_is_none_it_says_how_to_get_it(
    tmp_path: Path, bin_folder: Path, command: str
) -> None:
    """Another module of the packages does not count as the one that is wanted."""
    got = ask(tmp_path, bin_folder, NEW, OLD, command)
    assert got and got.endswith(
        "The reference trainer is run by `python -m sweep.trainer.export` where that Python has "
        "sweep installed (pip install 'sweep-hpo[trainer]'), and by `python -m trainer.export` "
        "from within a checkout of sweep."
    )


@pytest.mark.parametrize(
    ("installed", "mine", "command"),
    [
        (OLD, None, "python -m trainer.train"),  # a package of that name, whosever
        (NEW, OLD, "python -m trainer.train"),  # the project's own, or a checkout
        (NEW, None, "python -m sweep.trainer.train"),
        (NEW, None, "python -m trainer.mine"),  # never was the reference trainer's
        (NEW, None, "python train.py trainer.train"),
        (NEW, None, "srun python -m trainer.train"),  # another program chooses the interpreter
        (NEW, None, "broken/python -m trainer.train"),  # does not answer
    ],
)
def test_what_is_there_or_unknown_is_left_alone(
    tmp_path: Path, bin_folder: Path, installed: str | None, mine: str | None, command: str
) -> None:
    """Only what certainly cannot start is refused."""
    (tmp_path / "work/broken").mkdir(parents=True)
    write_program(tmp_path / "work/broken/python", "exit 3")
    assert ask(tmp_path, bin_folder, installed, mine, command) is None


def ask(
    top: Path, bin_folder: Path, installed: str | None, mine: str | None, command: str
) -> str | None:
    """Explain a command where these modules are among the packages, and in the working folder."""
    for folder, module in (("site", installed), ("work", mine)):
        (top / folder).mkdir(exist_ok=True)
        if module:
            write_package(top / folder, module)
    env = {"PATH": f"{bin_folder}:/usr/bin:/bin", "PYTHONPATH": str(top / "site")}
    return explain_gone(command.split(), env, top / "work")


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({}, True),
        ({"launcher": "torchrun", "executor": "local"}, True),
        ({"executor": "slurm"}, True),
        # What the site's lines bring to a task's Python, this machine cannot tell.
        ({"executor": "slurm", "slurm": Slurm(setup=("module load trainer",))}, False),
    ],
)
def test_launch_asks_before_anything_starts(
    tmp_path: Path, bin_folder: Path, more: dict[str, object], refused: bool
) -> None:
    """find_missing, which check, launch and re-runs go by, includes the question."""
    study = Study(
        name="s",
        command=("python", "-m", "trainer.train"),
        objectives=(Objective("loss", "minimize"),),
        space=Space(()),
        trials=1,
        workdir=str(tmp_path),
        **more,  # type: ignore[arg-type]
    )
    values = TrialValues(
        number=0,
        attempt=1,
        seed=0,
        params={},
        config=tmp_path,
        trial_dir=tmp_path,
        checkpoint_dir=tmp_path,
        resume=None,
        metrics=tmp_path,
        control=tmp_path,
        token="",
    )
    base = {"PATH": f"{bin_folder}:/usr/bin:/bin", "VIRTUAL_ENV": "/somewhere"}
    missing = find_missing(study, values, base, tmp_path)
    assert bool(missing and "finds no module trainer.train" in missing) == refused
