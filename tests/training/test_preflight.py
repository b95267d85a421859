"""What is missing is told with advice that fits it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sweep.core.errors import InputError
from sweep.core.study import DataSet, Environment
from sweep.training.command.preflight import check_command, check_data
from tests.study_rows import make_study


@pytest.mark.parametrize("what", ["command", "image", "runtime", "binds"])
def test_the_advice_is_of_what_is_missing(what: str, tmp_path: Path) -> None:
    """ "Correct `command`" is none for an image, a runtime or a bind that is not there."""
    (tmp_path / "apptainer").touch(mode=0o755)
    (tmp_path / "there.sif").touch()
    image = tmp_path / ("gone.sif" if what == "image" else "there.sif")
    environment = Environment("apptainer", str(image), binds=(f"{tmp_path}/gone:/x",))
    command = ("python", "gone.py") if what == "command" else ("python", "-m", "x")
    study = dataclasses.replace(
        make_study(),
        command=command,
        environment=environment,
        workdir=str(tmp_path),
        executor="local",
    )
    path = "/nonexistent" if what == "runtime" else str(tmp_path)
    with pytest.raises(InputError) as raised:
        check_command(study, {"PATH": path})
    key = what if what == "command" else f"environment.{what}"
    assert raised.value.message.startswith(f"{key}: ")
    assert ("Correct `command`" in raised.value.hint) == (what == "command")


@pytest.mark.parametrize(("mode", "is_refused"), [("", False), (":rw", False), (":ro", True)])
def test_binds_that_will_be_made_are_not_missed(
    mode: str, is_refused: bool, tmp_path: Path
) -> None:
    """But for those that are read only: an empty folder is of no use there."""
    (tmp_path / "apptainer").touch(mode=0o755)
    (tmp_path / "there.sif").touch()
    environment = Environment("apptainer", "there.sif", binds=(f"gone:/x{mode}",), make_binds=True)
    study = dataclasses.replace(
        make_study(),
        command=("python", "-m", "x"),
        environment=environment,
        workdir=str(tmp_path),
        executor="local",
    )
    if not is_refused:
        check_command(study, {"PATH": str(tmp_path)})
        return
    with pytest.raises(InputError, match=r"environment\.binds: .*/gone does not exist"):
        check_command(study, {"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("executor", "stage", "is_refused"),
    [("local", "none", True), ("slurm", "none", False), ("slurm", "node", True)],
)
def test_data_that_are_not_there(
    executor: str, stage: str, is_refused: bool, tmp_path: Path
) -> None:
    """What nodes alone see may be read there; what they are to copy is recorded at launch."""
    data = {"here": DataSet(str(tmp_path), stage), "m": DataSet("gone", stage)}
    study = dataclasses.replace(
        make_study(), datasets=data, executor=executor, workdir=str(tmp_path)
    )
    if not is_refused:
        check_data(study)
        return
    with pytest.raises(InputError, match=r"data\.m: .*/gone does not exist") as raised:
        check_data(study)
    assert "correct data.m " in raised.value.hint
