"""Conda, modules and (by stand-ins) enroot and Pyxis: whole studies, values, ends, named roots."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import platform
import sys
import tarfile
from functools import partial
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from sweep.core.paths import Runs
from sweep.core.study import Environment, Slurm
from sweep.provenance import manifest
from sweep.training import build, ready
from sweep.training.exit_reason import read_end
from tests.conftest import Sweep, run_sweep
from tests.needs import ensure_modules, require
from tests.toys import write_toy
from tests.training.container_stubs import write_enroot, write_micromamba, write_srun
from tests.training.test_containers import BINDS, HOSTILE, PRINT, PYTHON, make_study, run

pytestmark = pytest.mark.real

# An srun that starts its command here: one rank, no cluster.
SRUN = """\
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
"""


@pytest.fixture
def stubs(tmp_path: Path) -> dict[str, str]:
    """Variables with which enroot and Pyxis are the stand-ins; their log is tmp_path/stub.log."""
    folder, log = tmp_path / "stubs", tmp_path / "stub.log"
    write_enroot(folder, log)
    (folder / "plain-srun").write_text(SRUN)
    (folder / "plain-srun").chmod(0o755)
    write_srun(folder, log, tmp_path / "roots", str(folder / "plain-srun"))
    return {
        "PATH": f"{tmp_path}/stubs:{os.environ['PATH']}",
        "ENROOT_DATA_PATH": str(tmp_path / "roots"),
    }


@pytest.fixture
def sweep(tmp_path: Path, runs: Path, fresh_url: str, stubs: dict[str, str]) -> Sweep:
    path = f"{Path(sys.executable).parent}:{stubs['PATH']}"
    env = {**stubs, "PATH": path, "SWEEP_STORAGE": fresh_url}
    return partial(run_sweep, runs=runs, cwd=tmp_path, env=env)


def noted(folder: Path, what: str) -> list[dict[str, str]]:
    """Return what the stand-ins have noted of a kind."""
    path = folder / "stub.log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [entry for entry in map(json.loads, lines) if entry["what"] == what]


def image(folder: Path, **env: str) -> str:
    path = folder / "image.sqsh"
    path.write_text(json.dumps({"env": env}))
    return str(path)


@pytest.fixture
def conda(tmp_path: Path) -> Path:
    """A conda environment as its folder is: a Python, a variable, a script of activation."""
    prefix = tmp_path / "conda/envs/train"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/python").symlink_to(PYTHON)
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta/history").touch()
    (prefix / "conda-meta/state").write_text(json.dumps({"env_vars": {"OF_ENV": HOSTILE}}))
    scripts = prefix / "etc/conda/activate.d"
    scripts.mkdir(parents=True)
    (scripts / "a.sh").write_text('export FROM_SCRIPT="$CONDA_PREFIX/x"\n')
    return prefix


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A folder of modules with one, ``tool``, that sets a variable and prepends to PATH."""
    ensure_modules()
    (tmp_path / "modules").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "modules/tool").write_text(
        f"#%Module1.0\nsetenv TOOL yes\nprepend-path PATH {tmp_path}/tools\n"
    )
    return tmp_path / "modules"


def environment_for(
    runtime: str, value: str, folder: Path, request: pytest.FixtureRequest
) -> Environment:
    """Return a section for a runtime, with the variable ODD in it."""
    odd = {"ODD": value}
    if runtime == "none":
        return Environment(env=odd)
    if runtime == "venv":
        (folder / "venv/bin").mkdir(parents=True)
        (folder / "venv/bin/python").symlink_to(PYTHON)
        return Environment(runtime, "venv", env=odd)
    if runtime == "conda":
        return Environment(runtime, str(request.getfixturevalue("conda")), env=odd)
    if runtime == "modules":
        place = request.getfixturevalue("modules")
        lines = (f"module use '{place}'", "module load tool")
        return Environment(runtime, setup=lines, env=odd)
    if runtime in ("apptainer", "sandbox"):
        images = request.getfixturevalue("images")
        name = "tiny.sif" if runtime == "apptainer" else "tree"
        return Environment("apptainer", str(images / name), binds=tuple(BINDS), env=odd)
    return Environment(runtime, image(folder, ODD="the image's", FROM_IMAGE="yes"), env=odd)


RUNTIMES = ["none", "venv", "conda", "modules", "apptainer", "sandbox", "enroot", "pyxis"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_values_arrive_unchanged(
    runtime: str, tmp_path: Path, stubs: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """Parameters and variables, whatever is in them, under every runtime: line breaks too, apart
    from variables of enroot's, where they are refused."""
    (tmp_path / "show.py").write_text(PRINT)
    value = f"{HOSTILE}\n\tsecond line $(touch pwned)\n"
    in_env = HOSTILE if runtime == "enroot" else value
    given = environment_for(runtime, in_env, tmp_path, request)
    python = "python" if runtime in ("conda", "venv") else PYTHON
    study = make_study(tmp_path, [python, "show.py", "{odd}", "{params}"], given)
    if runtime == "pyxis":
        study = dataclasses.replace(study, executor="slurm")
    outer = {**stubs, "OTHER": "x", "SLURM_JOB_ID": "17"}
    done, _ = run(study, tmp_path, {"odd": value}, outer)
    assert done.returncode == 0, done.stdout
    argv, env, config, cwd = json.loads(done.stdout[done.stdout.index("[[") :])
    assert argv == [value, f"--odd={value}"]
    assert (env["ODD"], env["SLURM_JOB_ID"], cwd) == (in_env, "17", str(tmp_path))
    assert YAML(typ="safe").load(config) == {"odd": value}
    assert not (tmp_path / "pwned").exists()
    assert ("OTHER" in env) == (runtime != "enroot")
    if runtime == "conda":
        prefix = str(request.getfixturevalue("conda"))
        assert (env["CONDA_PREFIX"], env["OF_ENV"]) == (prefix, HOSTILE)
        assert env["FROM_SCRIPT"] == f"{prefix}/x" and env["PATH"].startswith(f"{prefix}/bin:")
    elif runtime == "modules":
        assert env["TOOL"] == "yes" and env["PATH"].startswith(f"{tmp_path}/tools:")
    elif runtime in ("enroot", "pyxis"):
        assert env["FROM_IMAGE"] == "yes"


def test_a_conda_environment_has_a_name(tmp_path: Path, conda: Path, stubs: dict[str, str]) -> None:
    """It is looked for where conda keeps its environments."""
    study = make_study(tmp_path, ["sh", "-c", "echo $CONDA_PREFIX"], Environment("conda", "train"))
    done, _ = run(study, tmp_path, env={"CONDA_ENVS_DIRS": str(conda.parent)})
    assert done.stdout.strip() == str(conda)


@pytest.mark.parametrize(
    ("runtime", "setup", "words"),
    [("modules", "module load no-such-module", "no-such-module"), ("enroot", "false", "failed")],
)
def test_a_line_of_setup_that_fails(
    runtime: str, setup: str, words: str, tmp_path: Path, stubs: dict[str, str]
) -> None:
    """The command does not start, and the reason is the line, not the command."""
    ensure_modules()
    given = Environment(runtime, image(tmp_path) if runtime == "enroot" else None, setup=(setup,))
    study = make_study(tmp_path, ["sh", "-c", "echo started"], given)
    done, attempt = run(study, tmp_path, env=stubs)
    assert "started" not in done.stdout
    end = read_end(study, attempt, done.returncode, None, "")
    assert end.outcome == "not started" and "environment.setup failed" in end.reason
    assert words in done.stdout


@pytest.mark.parametrize(
    ("more", "argv", "outcome", "reason"),
    [
        ({"image": "/no/such.sqsh"}, ["true"], "not started", "No such file or directory"),
        ({"binds": ("/no/such",)}, ["true"], "not started", "failed to mount"),
        ({}, ["sh", "-c", "exit 1"], "error", "exit code 1"),
        ({}, ["sh", "-c", "kill -9 $$"], "killed", "SIGKILL"),
        ({}, ["no-such-program"], "error", "exit code 127"),
    ],
)
def test_whose_exit_code_it_is(
    more: dict[str, object],
    argv: list[str],
    outcome: str,
    reason: str,
    tmp_path: Path,
    stubs: dict[str, str],
) -> None:
    """Enroot's own failures are told from the command's."""
    given = Environment("enroot", **{"image": image(tmp_path), **more})  # type: ignore[arg-type]
    study = make_study(tmp_path, argv, given)
    done, attempt = run(study, tmp_path, env=stubs)
    code = done.returncode
    end = read_end(study, attempt, code if code >= 0 else None, -code if code < 0 else None, "")
    assert (end.outcome, reason in end.reason) == (outcome, True), (end, done.stdout)


@pytest.mark.parametrize(
    ("more", "argv", "outcome", "reason"),
    [
        ({"image": "/no/such.sqsh"}, ["true"], "not started", "No such file or directory"),
        ({"binds": ("/no/such",)}, ["true"], "not started", "failed to mount"),
        (
            {"image": "", "name": "never-made"},
            ["true"],
            "not started",
            "--container-image is not set",
        ),
        ({}, ["no-such-program"], "not started", "Command not found: no-such-program"),
        ({}, ["sh", "-c", "exit 1"], "error", "exit code 1"),
        ({}, ["sh", "-c", "exit 2"], "error", "exit code 2"),
        ({}, ["sh", "-c", "exit 127"], "error", "exit code 127"),
        ({}, ["sh", "-c", "kill -9 $$"], "killed", "SIGKILL"),
    ],
)
def test_whose_exit_code_it_is_in_pyxis(
    more: dict[str, object],
    argv: list[str],
    outcome: str,
    reason: str,
    tmp_path: Path,
    stubs: dict[str, str],
) -> None:
    """Pyxis's own failures, with 1 and 2, are told from the command's."""
    given = Environment("pyxis", **{"image": image(tmp_path), **more})  # type: ignore[arg-type]
    study = dataclasses.replace(make_study(tmp_path, argv, given), executor="slurm")
    done, attempt = run(study, tmp_path, env=stubs)
    code = done.returncode
    end = read_end(study, attempt, code if code >= 0 else None, -code if code < 0 else None, "")
    assert (end.outcome, reason in end.reason) == (outcome, True), (end, done.stdout)


def test_a_study_in_enroot_from_a_registry(sweep: Sweep, tmp_path: Path, runs: Path) -> None:
    """One import before the tasks; a named root is made once on this node, by the first task."""
    path = write_toy(
        tmp_path,
        trials=6,
        parallel=6,
        command=f"[{PYTHON}, train.py, '{{params}}']",
        environment="{runtime: enroot, image: docker://toy:1, name: toy-root}",
    )
    ran = sweep("launch", path, "--wait")
    assert ran.code == 0, ran.err
    assert json.loads(sweep("status", "--json").out)["counts"]["complete"] == 6
    assert [entry["source"] for entry in noted(tmp_path, "import")] == ["docker://toy:1"]
    assert [entry["name"] for entry in noted(tmp_path, "root")] == ["toy-root"]
    provenance = json.loads((runs / "toy/manifest.json").read_text())["environment"]
    assert provenance["built"].startswith("toy-1-") and len(provenance["image_sha256"]) == 64


@pytest.mark.parametrize(
    "runtime", ["conda", pytest.param("modules", marks=pytest.mark.long), "enroot"]
)
def test_what_is_installed_is_recorded(
    runtime: str, sweep: Sweep, tmp_path: Path, runs: Path, request: pytest.FixtureRequest
) -> None:
    """Python and packages as training sees them: of the folder of conda, else asked within."""
    given = environment_for(runtime, "", tmp_path, request)
    section: dict[str, object] = {"runtime": runtime, "image": given.image}
    if runtime == "modules":
        section = {"runtime": runtime, "setup": list(given.setup)}
    site = tmp_path / "site"
    (site / "torchlike-1.0.dist-info").mkdir(parents=True)
    section["env"] = {"PYTHONPATH": str(site)}
    if runtime == "conda":
        meta = Path(str(given.image)) / "conda-meta"
        for name in ("python-3.11.9-h0_0_cpython", "torchlike-1.0-py311_0", "cuda-12.4-0"):
            (meta / f"{name}.json").write_text("{}")
    python = "python" if runtime == "conda" else PYTHON
    path = write_toy(
        tmp_path,
        trials=1,
        command=f"[{python}, train.py, '{{params}}']",
        environment=json.dumps(section),
    )
    ran = sweep("launch", path, "--wait")
    assert ran.code == 0, ran.err
    found = manifest.of_trial(Runs(runs).study("toy"), 0)["environment"]
    here = "3.11.9" if runtime == "conda" else platform.python_version()
    assert found["python"] == here
    assert found["packages"]["torchlike"] == "1.0"
    assert ("cuda" in found["packages"]) == (runtime == "conda")


def test_an_import_that_fails(sweep: Sweep, tmp_path: Path) -> None:
    """What enroot said is shown."""
    path = write_toy(
        tmp_path,
        command=f"[{PYTHON}, train.py, '{{params}}']",
        environment="{runtime: enroot, image: docker://no-such}",
    )
    ran = sweep("launch", path)
    assert ran.code == 1 and "manifest unknown" in ran.err


def test_an_image_is_built_in_a_job_on_a_cluster(tmp_path: Path, stubs: dict[str, str]) -> None:
    """Unless it is said, or this is a job already; the job is told all of it, after its setup."""
    environ = {**os.environ, **stubs}
    given = make_study(tmp_path, ["true"], Environment("enroot", "docker://toy:1"))
    study = dataclasses.replace(
        given,
        executor="slurm",
        source="/gone/study.yaml",  # or another study by now, or changed by --set
        slurm=Slurm(partition="gpu", setup=(f"touch '{tmp_path}/set up'",)),
    )
    said: list[str] = []
    _, found = build.ensure(study, Runs(tmp_path / "runs"), environ, said.append)
    assert found is not None and found.path.is_file()
    assert said == ["building docker://toy:1 in a job of Slurm's"]
    assert (tmp_path / "set up").exists()
    (asked,) = noted(tmp_path, "import")
    assert asked["source"] == "docker://toy:1"
    assert not list(found.path.parent.glob(".*.plan"))
    in_a_job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    here = dataclasses.replace(study.environment, build="here")
    for number, (more, env) in enumerate(
        [
            ({}, environ | in_a_job),
            ({"environment": here}, environ),
            ({"executor": "local"}, environ),
        ]
    ):
        said.clear()
        other = dataclasses.replace(study, **more)
        build.ensure(other, Runs(tmp_path / f"runs{number}"), env, said.append)
        assert not [text for text in said if "in a job" in text] and "building" in said[0]


def test_a_build_that_fails_in_its_job(tmp_path: Path, stubs: dict[str, str]) -> None:
    """What the job said is shown, and what to do where nodes have no network."""
    given = make_study(tmp_path, ["true"], Environment("enroot", "docker://no-such"))
    study = dataclasses.replace(given, executor="slurm")
    with pytest.raises(build.BuildFailed, match="manifest unknown") as raised:
        build.ensure(study, Runs(tmp_path / "runs"), {**os.environ, **stubs})
    assert "--where here" in raised.value.hint


def test_a_half_made_root_is_made_anew(tmp_path: Path, stubs: dict[str, str]) -> None:
    """What a killed task has left of a named root breaks no later one."""
    name = f"root-{os.getpid()}"
    given = Environment("enroot", image(tmp_path), name=name)
    study = make_study(tmp_path, ["true"], given)
    environ = {**os.environ, **stubs}
    (tmp_path / "roots" / name).mkdir(parents=True)
    done, attempt = run(study, tmp_path, env=stubs)
    assert read_end(study, attempt, done.returncode, None, "").outcome == "not started"
    locks = Path(f"/tmp/sweep-roots-{os.geteuid()}")
    try:
        locks.mkdir(mode=0o700, exist_ok=True)
        (locks / f"{name}.making").touch()
        said: list[str] = []
        ready.make_ready(study, environ, said.append)
        assert said == [f"removing the root {name}, which was half made"]
        assert len(noted(tmp_path, "root")) == 1
        assert run(study, tmp_path, env=stubs)[0].returncode == 0
    finally:
        for path in locks.glob(f"{name}.*"):
            path.unlink()


def test_a_root_of_pyxis_that_belongs_to_its_job(tmp_path: Path, stubs: dict[str, str]) -> None:
    """With ``container_scope=job`` it has the job's number in its name: what a killed task has left
    half made is found all the same."""
    (tmp_path / "roots").mkdir()
    (tmp_path / "roots/scope-job").touch()
    given = Environment("pyxis", image(tmp_path), name="mine")
    study = dataclasses.replace(
        make_study(tmp_path, ["sh", "-c", "echo it trains"], given), executor="slurm"
    )
    environ = {**os.environ, **stubs, "SLURM_JOB_ID": "7"}
    (tmp_path / "roots/pyxis_7_mine").mkdir()
    said: list[str] = []
    ready.make_ready(study, environ, said.append)
    assert said == ["the root pyxis_mine could not be made; once more without what is left of it"]
    assert [one["name"] for one in noted(tmp_path, "root")] == ["pyxis_7_mine"]
    done, _ = run(study, tmp_path, env={**stubs, "SLURM_JOB_ID": "7"})
    assert done.stdout == "it trains\n"


def test_a_container_of_pyxis_that_the_user_made(tmp_path: Path, stubs: dict[str, str]) -> None:
    """By its name alone: nothing is imported or made, and it is asked for no image."""
    root = tmp_path / "roots/pyxis_mine"
    root.mkdir(parents=True)
    (root / "image").write_text(json.dumps({"env": {"FROM_IMAGE": "mine"}}))
    (root / "whole").touch()
    study = make_study(
        tmp_path, ["sh", "-c", "echo $FROM_IMAGE"], Environment("pyxis", name="mine")
    )
    study = dataclasses.replace(study, executor="slurm")
    ready.make_ready(study, {**os.environ, **stubs}, pytest.fail)
    done, _ = run(study, tmp_path, env=stubs)
    assert done.stdout == "mine\n"
    assert not noted(tmp_path, "root") and not noted(tmp_path, "import")


def write_package(folder: Path, text: str) -> str:
    """Write a package of conda's with one program, ``tiny``; return its line for a lock file."""
    path = folder / "tiny-1.0-0.tar.bz2"
    index = {
        "name": "tiny",
        "version": "1.0",
        "build": "0",
        "build_number": 0,
        "depends": [],
        "subdir": "noarch",
        "arch": None,
        "platform": None,
    }
    files = {
        "info/index.json": json.dumps(index),
        "info/files": "bin/tiny\n",
        "info/has_prefix": "/placeholder text bin/tiny\n",
        "info/paths.json": json.dumps({"paths": [], "paths_version": 1}),
        "bin/tiny": text,
    }
    with tarfile.open(path, "w:bz2") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content.encode()))
    return f"file://{path}#{hashlib.md5(path.read_bytes()).hexdigest()}"


@pytest.mark.parametrize("program", ["real", "stand-in"])
def test_a_conda_environment_from_a_lock_file(
    program: str, sweep: Sweep, tmp_path: Path, runs: Path
) -> None:
    """Made once, by launch, from a package that lies on this disk; what fails leaves nothing.

    By a real micromamba, mamba or conda, and by a stand-in for micromamba.
    """
    if program == "real":
        require("conda")
    else:
        write_micromamba(tmp_path / "stubs", tmp_path / "stub.log")
    package = write_package(
        tmp_path, '#!/bin/sh\ntest "$CONDA_PREFIX" = /placeholder || exit 9\necho score=7\n'
    )
    lock = tmp_path / "lock.txt"
    lock.write_text(f"@EXPLICIT\n{package[:-1]}{'0' if package[-1] != '0' else '1'}\n")
    path = write_toy(
        tmp_path, trials=2, command="[tiny]", environment="{runtime: conda, image: lock.txt}"
    )
    path.write_text(
        path.read_text().replace("at: last}", "at: last, from: {stdout: 'score=([0-9]+)'}}")
    )
    ran = sweep("launch", path, "--wait")
    assert ran.code == 1 and "could not be built" in ran.err, ran.err
    assert not list((runs / ".images").glob("lock-*-conda")) and not (runs / "toy").exists()
    lock.write_text(f"@EXPLICIT\n{package}\n")
    ran = sweep("launch", path, "--wait")
    assert ran.code == 0, ran.err
    (prefix,) = (runs / ".images").glob("lock-*-conda")
    assert (prefix / "conda-meta/tiny-1.0-0.json").exists()
    assert json.loads(sweep("status", "--json").out)["best"]["value"] == 7
    if program == "stand-in":
        made = noted(tmp_path, "create")
        assert [entry["prefix"] for entry in made][-1] == str(prefix)
        assert all(entry["root"].startswith(str(runs / ".images")) for entry in made)
