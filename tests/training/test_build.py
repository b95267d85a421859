"""What a task makes ready before it trains."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sweep.core.errors import SweepError
from sweep.core.study import Environment, Resources, Study
from sweep.training.build import make_ready
from tests.study_rows import make_study


def binding(folder: Path, *binds: str, make: bool = True, nodes: int = 1) -> Study:
    given = Environment("apptainer", "a.sif", binds=binds, make_binds=make)
    return dataclasses.replace(
        make_study(),
        environment=given,
        workdir=str(folder),
        resources=Resources(nodes=nodes),
        executor="slurm" if nodes > 1 else "local",
    )


def test_missing_folders_of_binds_are_made(tmp_path: Path) -> None:
    """Where the study says so, with all above them; a read-only one is never made."""
    (tmp_path / "there").mkdir()
    binds = ("there", "out/deep:/out", "data:/data:ro")
    said: list[str] = []
    make_ready(binding(tmp_path, *binds, make=False), {}, said.append)
    assert not said and not (tmp_path / "out").exists()
    make_ready(binding(tmp_path, *binds), {}, said.append)
    assert said == [f"made the folder {tmp_path}/out/deep, which environment.binds names"]
    assert (tmp_path / "out/deep").is_dir() and not (tmp_path / "data").exists()
    make_ready(binding(tmp_path, *binds), {}, said.append)
    assert len(said) == 1


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SweepError, match=r"make_binds: .*/file/x cannot be made: Not a directory"):
        make_ready(binding(tmp_path, "file/x:/x"), {}, pytest.fail)


def test_folders_are_made_on_each_node(tmp_path: Path) -> None:
    """By one step of srun's; what it said is told where it fails."""
    asked = tmp_path / "asked"
    srun = tmp_path / "srun"
    srun.write_text(f'#!/bin/sh\necho "$*" >> {asked}\necho no space here\nexit 1\n')
    srun.chmod(0o755)
    study = binding(tmp_path, "out:/out", "data:/data:ro", nodes=2)
    with pytest.raises(SweepError, match="not on each node: no space here"):
        make_ready(study, {"PATH": f"{tmp_path}:/usr/bin:/bin"}, lambda _: None)
    assert asked.read_text().split() == [
        *("--nodes=2", "--ntasks-per-node=1", "--overlap"),
        *("mkdir", "-p", "--", f"{tmp_path}/out"),
    ]
