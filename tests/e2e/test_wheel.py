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

from tests.needs import as_other_user, skip_or_fail
from tests.processes import end_processes, find_processes, wait_until_gone

ROOT = Path(__file__).parents[2]
SOURCES = ("sweep", "trainer", "templates", "setup.cfg", "pyproject.toml", "README.md")
# What `pip install sweep-hpo` without extras does not bring, and the checkout's own entries.
NOT_INSTALLED = re.compile(
    r"torch|functorch|sklearn|scikit_learn|matplotlib|pyarrow|optuna_dashboard|pytest|_pytest|mypy"
    r"|ruff|build|jsonschema|sweep|trainer|__editable__|_?distutils|pip\b|.*\.pth$|__pycache__"
)


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

    def run(self, *argv: str | Path, code: int = 0) -> str:
        """Run a program as the user in the home, with nothing of ours in the environment."""
        done = subprocess.run(
            [*self.become, *map(str, argv)],
            cwd=self.home,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        crashes = [path.read_text() for path in self.home.glob("runs/.crashes/*")]
        assert done.returncode == code, (argv, done.stdout, done.stderr, crashes)
        return done.stdout


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
        found.home.mkdir()
        if become:
            nobody = pwd.getpwnam("nobody")
            os.chown(found.home, nobody.pw_uid, nobody.pw_gid)
        make_environment(top / "venv", python_for_others(become), wheel)
        yield found
    finally:
        end_processes(top)
        shutil.rmtree(top)


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


def make_environment(venv: Path, python: Path, wheel: Path) -> None:
    """Make a virtual environment: the wheel installed, its requirements linked from ours."""
    subprocess.run([python, "-m", "venv", "--without-pip", venv], check=True)
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python"]
    quiet = ["--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]
    subprocess.run([*pip, "install", *quiet, "--no-deps", "--no-index", wheel], check=True)
    (target,) = venv.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not NOT_INSTALLED.match(entry.name):
            (target / entry.name).symlink_to(entry)


def test_wheel_holds_what_runs(wheel: Path) -> None:
    """Templates, starter files and every subpackage are in the wheel; nothing compiled is."""
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        str(path.relative_to(ROOT))
        for package in ("sweep", "trainer")
        for path in (ROOT / package).rglob("*.py")
    } | {
        f"sweep/{path.relative_to(ROOT)}"
        for path in (ROOT / "templates").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sorted(wanted - names) == []
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
    assert installed.run(sweep, "db", "stop") == "stopped\n"

    # Home is this folder here; matplotlib keeps its list of fonts in ~/.cache.
    made = sorted(path.name for path in installed.home.iterdir() if path.name != ".cache")
    assert made == ["runs", "study.yaml", "train.py"]
    wait_until_gone(installed.top, 10.0)
    assert [process.command for process in find_processes(installed.top)] == []


def test_batch_script_template_is_found(installed: Installed) -> None:
    """The Slurm batch script's template lies inside the installed package."""
    code = "from sweep.template import own_folder; print(own_folder())"
    folder = Path(installed.run(installed.bin / "python", "-c", code).strip())
    assert folder.is_relative_to(installed.top)
    assert (folder / "task.sh.j2").is_file()
