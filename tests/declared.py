"""The main job once with the packages of another environment: what is declared works.

``python -m tests.declared PYTHON``: PYTHON has the lowest declared versions, or the newest. Sweep
itself is that of this checkout. `.ci/declared` makes the environments, with
``python -m tests.declared --wanted lowest``.
"""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.toys import write_toy

ROOT = Path(__file__).parents[1]
SHOWN = ("optuna", "sqlalchemy", "pandas", "scipy", "numpy", "click", "rich", "psycopg2-binary")


class Failed(Exception):
    """A command did not do what it should."""


class Scene:
    """A folder, and the command line of that environment in it."""

    def __init__(self, python: str, folder: Path) -> None:
        self.python = python
        self.folder = folder
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SWEEP_", "PYTHON"))}
        self.env = kept | {
            "PATH": f"{Path(python).parent}{os.pathsep}{kept['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SWEEP_RUNS": str(folder / "runs"),
            "SWEEP_SITE_CONFIG": "",
            "SWEEP_USER_CONFIG": "",
            "NO_COLOR": "1",
            # Warnings of old packages about their own age are no matter of ours.
            "PYTHONWARNINGS": "ignore",
        }

    def sweep(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run a command and return its output.

        Raises:
            Failed: It ended with another code than 0.
        """
        began = time.monotonic()
        done = subprocess.run(
            [self.python, "-m", "sweep", *arguments],
            cwd=cwd or self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        print(f"  {time.monotonic() - began:5.1f} s  sweep {' '.join(arguments)}", flush=True)
        if done.returncode != 0:
            crashes = self.folder.glob("runs/.crashes/*")
            texts = "\n".join(path.read_text() for path in crashes)
            raise Failed(f"exit code {done.returncode}\n{done.stdout}{done.stderr}{texts}")
        return done.stdout

    def study(self, name: str, trials: int, **more: str) -> None:
        """Run a study of small trainings to its end."""
        file = write_toy(self.folder / name, name=name, trials=trials, **more)
        text = file.read_text().replace("sampler: random\n", "")
        file.write_text(text + ("" if "sampler" in more else "sampler: random\n"))
        self.sweep("launch", file.name, "--wait", cwd=file.parent)
        status = json.loads(self.sweep("status", name, "--json"))
        ended = status["counts"]["complete"] + status["counts"]["pruned"]
        expect(ended == trials, f"{name}: {ended} of {trials} trials ended well", status["counts"])


def expect(holds: bool, what: str, found: object) -> None:
    if not holds:
        raise Failed(f"{what}: {found}")


def run(scene: Scene) -> None:
    """The demo's study in short, a Gaussian process, promotion; then what is read from them."""
    digits = str(ROOT / "studies/digits.yaml")
    fewer = ("--set", "trials=4", "--set", "fixed.epochs=2")
    scene.sweep("launch", digits, "--wait", "--executor", "local", *fewer, cwd=ROOT)
    rows = json.loads(scene.sweep("collect", "digits", "--format", "json"))
    expect(len(rows) == 4, "digits: trials", rows)
    scene.sweep("collect", "digits", "--top", "3", "--no-plots")
    scene.sweep("collect", "digits", "--format", "csv", "-o", "digits.csv")
    again = json.loads(scene.sweep("rerun-best", "digits", "--wait", "--json"))
    expect(again["verdict"] == "reproduced", "digits: the re-run", again)
    scene.study("gp", 8, sampler="{type: gp, startup_trials: 4}")
    pruner = "{type: promotion, min_resource: 1, max_resource: 3, reduction_factor: 2}"
    scene.study("promotion", 4, pruner=pruner)
    scene.sweep("report", "gp", "-o", "gp.html")
    expect((scene.folder / "gp.html").stat().st_size > 10_000, "gp: the page", "is too small")


EXTRAS = ("trainer", "report")  # what the trainings and the page need, but for torch


def wanted(which: str) -> list[str]:
    """Return what pip is to install: the lowest declared versions, or any above them."""
    read = configparser.ConfigParser()
    read.read(ROOT / "setup.cfg")
    texts = [read["options"]["install_requires"]]
    texts += [read["options.extras_require"][extra] for extra in EXTRAS]
    lines = [line for text in texts for line in text.split("\n") if line]
    lines = [line for line in lines if not line.startswith("torch")]
    return [line.replace(">=", "==") if which == "lowest" else line for line in lines]


def main(arguments: list[str]) -> int:
    if arguments[0] == "--wanted":
        print("\n".join(wanted(arguments[1])))
        return 0
    python = str(Path(arguments[0]).absolute())  # it is called from other folders
    code = (
        "import sys\nfrom importlib.metadata import version\n"
        "print(*(f'{name} {version(name)}' for name in sys.argv[1:]), sep=', ')"
    )
    subprocess.run([python, "-c", code, *SHOWN], check=True)
    folder = Path(tempfile.mkdtemp(prefix="sweep-declared-"))
    scene = Scene(python, folder)
    try:
        run(scene)
    except Failed as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    finally:
        subprocess.run(
            [python, "-m", "sweep", "db", "stop"], env=scene.env, cwd=folder, capture_output=True
        )
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
