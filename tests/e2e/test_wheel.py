"""From a wheel, in an empty folder, as a user who isn't root, without torch: all of it works."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.commands import wait_for_runners
from tests.needs import as_other_user, skip_or_fail
from tests.processes import end_processes, wait_until_gone
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
SOURCES = ("sweep", "trainer", "templates", "setup.cfg", "pyproject.toml", "README.md")
# The checkout's own entries, and what `pip install sweep-hpo` without extras does not bring.
CHECKOUT = r"sweep|trainer|__editable__|_?distutils|pip\b|.*\.pth$|__pycache__"
WITH_TRAINER = re.compile(CHECKOUT)
WITHOUT_EXTRAS = re.compile(
    rf"{CHECKOUT}|torch|functorch|sklearn|scikit_learn|matplotlib|pyarrow|optuna_dashboard|pytest"
    r"|_pytest|mypy|ruff|build|jsonschema"
)
OWN_TRAINER = "WHOSE = 'the project'\n"


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel in it, and a user's empty home."""

    top: Path
    become: list[str]

    @property
    def home(self) -> Path:
        return self.top / "home of an ordinary user"

    @property
    def bin(self) -> Path:
        return self.top / "venv" / "bin"

    @property
    def packages(self) -> Path:
        """The folder into which the wheel was installed."""
        (found,) = (self.top / "venv").glob("lib/python*/site-packages")
        return found

    @property
    def project(self) -> Path:
        """A folder of the user's with a package of its own that is called trainer."""
        return self.top / "project"

    def make_folder(self, folder: Path) -> None:
        """Make a folder that belongs to the user."""
        folder.mkdir()
        if self.become:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)

    def run(self, *argv: str | Path, code: int = 0, folder: Path | None = None) -> str:
        """Run a program as the user, with nothing of ours in the environment.

        Args:
            folder: Where; the home when None.

        Returns:
            What it printed; where it should fail, what it said of that too.
        """
        done = subprocess.run(
            [*self.become, *map(str, argv)],
            cwd=folder or self.home,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        crashes = [path.read_text() for path in self.home.glob("runs/.crashes/*")]
        assert done.returncode == code, (argv, done.stdout, done.stderr, crashes)
        return done.stdout + done.stderr if code else done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources, so that the checkout stays clean."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name)
        else:
            shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", out, source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Installed]:
    """The wheel in an environment of its own that holds no torch, for another user."""
    become = as_other_user()
    top = Path(tempfile.mkdtemp(prefix="sweep-wheel-", dir="/tmp"))
    try:
        top.chmod(0o755)  # pytest's own folders are closed to others
        found = Installed(top, become)
        found.make_folder(found.home)
        make_project(found)
        make_environment(top / "venv", python_for_others(become), wheel, WITHOUT_EXTRAS)
        yield found
    finally:
        end_processes(top)
        shutil.rmtree(top)


@pytest.fixture(scope="module")
def with_torch(
    installed: Installed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """What ``installed`` holds, with the extra ``trainer``, for this user."""
    pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")
    found = Installed(tmp_path_factory.mktemp("with-torch"), [])
    found.make_folder(found.home)
    make_project(found)
    python = Path(sys.executable).resolve()
    make_environment(found.top / "venv", python, installed.packages, WITH_TRAINER)
    (found.bin / "sweep").write_text(f'#!/bin/sh\nexec {found.bin}/python -m sweep "$@"\n')
    (found.bin / "sweep").chmod(0o755)
    yield found
    end_processes(found.top)


def make_project(installed: Installed) -> None:
    """Write a project of the user's that has a package called trainer."""
    installed.make_folder(installed.project)
    package = installed.project / "trainer"
    installed.make_folder(package)
    (package / "__init__.py").write_text(OWN_TRAINER)


def python_for_others(become: list[str]) -> Path:
    """Return an interpreter of our version that the user can run: ours may lie in root's home."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    packages = sysconfig.get_path("purelib")
    ours = Path(sys.executable).resolve()
    system = (Path(folder) / f"python{version}" for folder in ("/usr/bin", "/usr/local/bin"))
    for python in (ours, *system):
        code = f"import os, sys; sys.path.append({packages!r}); import click, psycopg2"
        argv = [*become, str(python), "-c", code]
        try:
            done = subprocess.run(argv, cwd="/", capture_output=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return python
    skip_or_fail("other_user", f"no Python {version} here that a user who isn't root can run")


def make_environment(venv: Path, python: Path, sweep: Path, left_out: re.Pattern[str]) -> None:
    """Make a virtual environment, its requirements linked from ours.

    Args:
        sweep: The wheel, which is installed; or the folder with an installed one, which is copied.
    """
    subprocess.run([python, "-m", "venv", "--without-pip", venv], check=True)
    (target,) = venv.glob("lib/python*/site-packages")
    if sweep.is_dir():
        shutil.copytree(sweep / "sweep", target / "sweep")
    else:
        pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python"]
        quiet = ["--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]
        subprocess.run([*pip, "install", *quiet, "--no-deps", "--no-index", sweep], check=True)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not left_out.match(entry.name):
            (target / entry.name).symlink_to(entry)


def test_wheel_holds_what_runs(wheel: Path) -> None:
    """Templates, starter files and every subpackage are in the wheel; nothing compiled is."""
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {str(path.relative_to(ROOT)) for path in (ROOT / "sweep").rglob("*.py")} | {
        f"sweep/{path.relative_to(ROOT)}"
        for top in ("templates", "trainer")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sorted(wanted - names) == []
    # Any other top-level name would hide, or overwrite, a package of the user's.
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"sweep"}
    assert [name for name in names if name.endswith(".pyc") or name.startswith("tests")] == []


def test_newcomer_as_an_ordinary_user(installed: Installed) -> None:
    """init, edit, launch, collect, rerun-best: in an empty folder, not as root, without torch."""
    sweep = installed.bin / "sweep"
    python = installed.bin / "python"
    assert list(installed.home.iterdir()) == []
    where = "import os, sweep.cli; print(os.geteuid(), sweep.__file__)"
    user, file = installed.run(python, "-c", where).split(maxsplit=1)
    assert user != "0"
    assert Path(file.strip()).is_relative_to(installed.top)
    installed.run(python, "-c", "import torch", code=1)

    assert installed.run(sweep, "init").splitlines()[:2] == ["wrote study.yaml", "wrote train.py"]
    edit = ["-e", "s/^trials: 20 /trials: 5 /", "-e", "s/epochs: 15/epochs: 4/"]
    installed.run("sed", "-i", *edit, "study.yaml")
    installed.run(sweep, "check", "study.yaml")
    # Named, because a Slurm without a cluster may be installed where the tests run.
    installed.run(sweep, "launch", "study.yaml", "--executor", "local", "--wait")
    status = json.loads(installed.run(sweep, "status", "--json"))
    assert (status["state"], sum(status["counts"].values())) == ("finished", 5)
    top = json.loads(installed.run(sweep, "collect", "--top", "3", "--format", "json"))
    assert [row["rank"] for row in top] == list(range(1, len(top) + 1))
    assert len(top) >= 1
    again = json.loads(installed.run(sweep, "rerun-best", "--wait", "--json"))
    assert (again["verdict"], again["relative_difference"]) == ("reproduced", 0.0)
    assert again["original"] == top[0]["value"]
    wait_for_runners(installed.home / "runs/first-study")  # which would start it anew
    assert installed.run(sweep, "db", "stop") == "stopped\n"

    # Home is this folder here; matplotlib keeps its list of fonts in ~/.cache.
    made = sorted(path.name for path in installed.home.iterdir() if path.name != ".cache")
    assert made == ["runs", "study.yaml", "train.py"]
    assert [process.command for process in wait_until_gone(installed.top)] == []


WITHOUT_RIGHTS = """
import contextlib, io, json, os, pathlib, sys
from sweep.cli import run_command

said = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as stderr, contextlib.redirect_stdout(stderr):
        code = run_command(words)
    said.append([code, stderr.getvalue()])
print(json.dumps(said))
"""


def test_folders_that_may_not_be_written(installed: Installed) -> None:
    """Whatever is to be made there: a sentence that names the place and what to do, never 70."""
    empty = installed.top / "of others"
    empty.mkdir(mode=0o555)
    sweep = installed.bin / "sweep"
    installed.make_folder(home := installed.top / "a study's")
    installed.run(sweep, "init", folder=home)
    edit = ["-e", "s/^trials: 20 /trials: 2 /", "-e", "s/epochs: 15/epochs: 1/"]
    installed.run("sed", "-i", *edit, "study.yaml", folder=home)
    installed.run(sweep, "launch", "study.yaml", "--executor", "local", "--wait", folder=home)
    installed.run(sweep, "report", folder=home)
    kept, name = home / "kept.csv", "first-study"
    wait_for_runners(home / "runs" / name)
    kept.write_text("kept")
    kept.chmod(0o444)
    results = home / f"runs/{name}/results"
    calls = {
        ("init", "--dir", empty): empty / "study.yaml",
        ("init", "--dir", empty / "new"): empty / "new",
        ("templates", "--copy", "task.sh.j2", empty): empty / "templates",
        ("launch", home / "study.yaml", "--runs", empty): empty,
        ("launch", home / "study.yaml", "--runs", empty / "runs"): empty / "runs",
        ("try", home / "study.yaml", "--runs", empty / "runs"): empty / "runs",
        ("db", "start", "--runs", empty / "runs"): empty / "runs",
        ("collect", name, "--format", "csv", "-o", empty / "x.csv"): empty / "x.csv",
        ("collect", name, "--format", "latex", "-o", empty / "x"): empty / "x",
        ("collect", name, "--format", "json", "-o", kept): kept,
        ("report", name, "-o", empty / "x.html"): empty / "x.html",
        ("report", name, "-o", kept): kept,
        ("report", name, "-o", home / "page", "--figures", empty): empty,
        ("report", name, "-o", home / "page", "--figures", empty / "new"): empty / "new",
        ("report", name): results / "report.html",
    }
    words = json.dumps([[str(word) for word in call] for call in calls])
    python = installed.bin / "python"
    results.chmod(0o555)
    try:
        told = json.loads(installed.run(python, "-c", WITHOUT_RIGHTS, words, folder=home))
    finally:
        results.chmod(0o755)
    for (call, place), (code, text) in zip(calls.items(), told, strict=True):
        assert code in (1, 2) and text.count("Error: ") == 1, (call, code, text)
        said = text[text.index("Error: ") :].splitlines()
        assert str(place) in said[0] and "Permission denied" in said[0], (call, said)
        assert len(said) == 2, (call, said)
    assert list(empty.iterdir()) == [] and kept.read_text() == "kept"
    assert not list(home.rglob(".crashes"))
    installed.run(sweep, "db", "stop", folder=home)


def test_batch_script_template_is_found(installed: Installed) -> None:
    """The Slurm batch script's template lies inside the installed package."""
    code = "from sweep.core.templates import own_folder; print(own_folder())"
    folder = Path(installed.run(installed.bin / "python", "-c", code).strip())
    assert folder.is_relative_to(installed.top)
    assert (folder / "task.sh.j2").is_file()


def test_a_trainer_of_the_projects_stays_its_own(installed: Installed) -> None:
    """Beside the wheel `import trainer` gives the project's, and nothing where there is none."""
    python = installed.bin / "python"
    whose = "import trainer; print(trainer.WHOSE, trainer.__file__)"
    said = installed.run(python, "-c", whose, folder=installed.project)
    assert said.split() == ["the", "project", str(installed.project / "trainer/__init__.py")]
    assert "No module named 'trainer'" in installed.run(python, "-c", "import trainer", code=1)
    # sweep's is below sweep, calls itself so, and says how to use it without torch.
    said = installed.run(python, "-m", "sweep.trainer.train", "--help", folder=installed.project)
    assert said.startswith("usage: python -m sweep.trainer.train ")
    assert "python -m sweep.trainer.data fetch mnist" in said and "-m trainer" not in said


@pytest.mark.parametrize("beside", ["a project", pytest.param("nothing", marks=pytest.mark.long)])
def test_a_study_that_names_the_old_trainer_is_told_the_new_one(
    installed: Installed, beside: str
) -> None:
    """check and launch refuse it before anything is made; the project's own does not count."""
    folder = installed.top / f"old study beside {beside}"
    installed.make_folder(folder)
    if beside == "a project":
        shutil.copytree(installed.project / "trainer", folder / "trainer")
    shutil.copy(ROOT / "studies/digits.yaml", folder / "study.yaml")
    for verb in (["check"], ["launch", "--executor", "local", "--wait"]):
        said = installed.run(installed.bin / "sweep", *verb, "study.yaml", code=2, folder=folder)
        assert said == (
            f"Error: command: {installed.bin}/python finds no module trainer.train (nor is it in "
            f"{folder}). The reference trainer is run by `python -m sweep.trainer.train` here.\n"
            "Correct `command` (or `workdir`) in the study file.\n"
        )
    assert not (folder / "runs").exists()
    text = (folder / "study.yaml").read_text().replace("-m trainer.", "-m sweep.trainer.")
    (folder / "study.yaml").write_text(text)
    said = installed.run(installed.bin / "sweep", "check", "study.yaml", folder=folder)
    assert said.startswith("study.yaml: ok\n")


@pytest.mark.long  # in every form it trains and evaluates in the test below
def test_the_reference_trainer_trains_from_the_wheel(with_torch: Installed) -> None:
    """As the two ranks of a trial, with its evaluation, beside another trainer."""
    sweep, project = with_torch.bin / "sweep", with_torch.project
    text = (ROOT / "studies/digits.yaml").read_text().replace("-m trainer.", "-m sweep.trainer.")
    (project / "study.yaml").write_text(text)
    launch = ["launch", "study.yaml", "--executor", "local", "--wait", "--set", "trials=1"]
    for value in ("fixed.epochs=1", "pruner=none", "ddp.ranks_per_node=2", "resources.cpus=2"):
        launch += ["--set", value]
    with_torch.run(sweep, *launch, folder=project)
    rows = json.loads(with_torch.run(sweep, "collect", "--format", "json", folder=project))
    assert [row["state"] for row in rows] == ["complete"]
    log = project / "runs/digits/trials/00000/attempts/1/log.txt"
    assert re.search(r"\[rank0\]: .*best val_accuracy=0\.", log.read_text()), log.read_text()
    said = with_torch.run(sweep, "run", "evaluate", "--wait", "--json", folder=project)
    assert 0.1 < json.loads(said)["metrics"]["test_accuracy"] <= 1
    with_torch.run(sweep, "db", "stop", folder=project)


TALK = """
import contextlib, os, pathlib, sys
from sweep.trainer import evaluate, export, fetch, train

os.environ["SWEEP_CHECKPOINT_DIR"] = os.environ["HOME"]
assert train.main(["--data", "digits", "--epochs", "1"]) == 0
[path] = pathlib.Path.home().glob("*.pt")
assert evaluate.main([str(path), "--split", "validation"]) == 0

with contextlib.redirect_stderr(sys.stdout):
    for main in (evaluate.main, export.main, fetch.main):
        with contextlib.suppress(SystemExit):
            main(["--help"])
    train.main(["--data", "digits", "--parallel", "ddp"])
    train.main(["--data", "mnist", "--data-dir", "nowhere"])
"""


def test_the_reference_trainer_as_it_is_installed(with_torch: Installed) -> None:
    """It trains beside another trainer; what its messages say to type works where they say it."""
    said = with_torch.run(with_torch.bin / "python", "-c", TALK, folder=with_torch.project)
    (trained,) = re.findall(r"best val_accuracy=(0\.[0-9]+)", said)
    assert f"validation_accuracy={trained} " in said, said
    for name in ("evaluate", "export", "data"):
        assert f"usage: python -m sweep.trainer.{name} " in said
        assert f"example: python -m sweep.trainer.{name} " in said
    assert "(torchrun --standalone --nproc-per-node 2 -m sweep.trainer.train …)" in said
    assert "Get them with `python -m sweep.trainer.data fetch mnist`" in said
    assert "-m trainer." not in said
