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
