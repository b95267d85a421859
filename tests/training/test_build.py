"""What a task makes ready before it trains."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sweep.core.errors import InputError, SweepError
from sweep.core.paths import Runs
from sweep.core.study import Environment, Resources, Study
from sweep.training import build
from sweep.training.command.containers import image_of, split_bind
from sweep.training.images import BuildPlan
from sweep.training.ready import make_ready
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


def test_home_in_an_image_and_a_bind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``~`` is the user's, as a shell has it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.sif").touch()
    study = dataclasses.replace(make_study(), environment=Environment("apptainer", "~/a.sif"))
    assert image_of(study) == str(tmp_path / "a.sif")
    assert split_bind(study, "~/d:/d:ro") == (f"{tmp_path}/d", "/d", True)


@pytest.mark.parametrize(
    ("executor", "has_srun", "environ", "first", "in_job"),
    [
        ("slurm", True, {}, "apptainer", True),
        ("slurm", False, {}, "apptainer", False),  # nothing starts a job here
        ("slurm", True, {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}, "apptainer", False),
        ("slurm", True, {}, "srun", False),  # Pyxis: building is a job already
        ("local", True, {}, "apptainer", False),
    ],
)
def test_where_auto_builds(
    tmp_path: Path, executor: str, has_srun: bool, environ: dict[str, str], first: str, in_job: bool
) -> None:
    """In a job where a cluster is configured, and not in a job of one's own, or on one machine."""
    assert Environment().build == build.AUTO
    if has_srun:
        (tmp_path / "srun").write_text("#!/bin/sh\n")
        (tmp_path / "srun").chmod(0o755)
    study = dataclasses.replace(make_study(), executor=executor)
    planned = BuildPlan("a", tmp_path / "a.sif", [[first, "build"]], tmp_path, {})
    assert build._wants_job(study, planned, {"PATH": str(tmp_path), **environ}) is in_job


@pytest.mark.parametrize(
    ("executor", "where", "environ", "is_later"),
    [
        ("slurm", "auto", {}, True),
        ("slurm", "job", {}, True),
        ("slurm", "here", {}, False),
        ("slurm", "job", {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}, False),
        ("local", "job", {}, False),
    ],
)
def test_what_launch_leaves_to_a_job(
    tmp_path: Path, executor: str, where: str, environ: dict[str, str], is_later: bool
) -> None:
    """It names what will be there and builds nothing; the job, or a task, builds just that."""
    writes = 'for word; do case $word in *.tmp) : > "$word";; esac; done; touch built'
    programs = {"apptainer": f"#!/bin/sh\n{writes}\n", "srun": "#!/bin/sh\nexit 3\n"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "a.def").write_text("Bootstrap: docker\n")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", **environ}
    given = Environment("apptainer", "a.def", build=where)
    study = dataclasses.replace(
        make_study(), executor=executor, environment=given, workdir=str(tmp_path)
    )
    said: list[str] = []
    runs = Runs(tmp_path / "runs")
    try:
        named, found = build.ensure(study, runs, env, said.append, later=True)
    except build.BuildFailed:  # by srun, which is waited for
        assert not is_later and where == "job"
        return
    assert build.is_missing(named) is is_later and (found is None) is is_later
    assert (tmp_path / "built").exists() is not is_later
    if is_later:
        assert said == ["a job of Slurm's builds a.def before any task starts"]
        build.build_missing(named, env, said.append)
        assert not build.is_missing(named) and (tmp_path / "built").exists()
        (tmp_path / "a.def").write_text("Bootstrap: localimage\n")
        build.build_missing(named, env, pytest.fail)  # it is there
        Path(str(named.environment.built)).unlink()
        with pytest.raises(InputError, match=r"is not there, and a\.def has changed since"):
            build.build_missing(named, env, pytest.fail)


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
