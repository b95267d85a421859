"""Files of a study's folder are damaged: each command names the file and what to do, or goes on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from sweep.cli import run_command
from tests.cli.commands import wait_for_runners
from tests.conftest import run_sweep, stop_runs
from tests.postgres_fixture import Server
from tests.toys import write_toy

pytestmark = pytest.mark.real

NAME = "damaged"


def other_shape(before: bytes) -> bytes:
    return b'{"a": [1]}' if before[:1] != b"{" else b'[1, {"a": null}]'


def other_types(before: bytes) -> bytes:
    """Each value of a JSON object of a type that does not belong there."""
    try:
        found = json.loads(before)
    except ValueError:
        return b"7"
    if not isinstance(found, dict):
        return b"7"
    return json.dumps(
        {k: 7 if isinstance(v, dict | list | str) else [v] for k, v in found.items()}
    ).encode()


CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda before: before[: max(1, len(before) // 2)],
    "empty": lambda _: b"",
    "binary": lambda _: bytes(range(256)) * 20,
    "of another shape": other_shape,
    "of other types": other_types,
    "null": lambda _: b"null",
}
PLACES: dict[str, Callable[[Path], None]] = {
    "a folder": lambda path: path.mkdir(),
    "a FIFO": os.mkfifo,
    "a link to nowhere": lambda path: path.symlink_to("/nonexistent/place"),
    "gone": lambda path: None,
}
DAMAGES = [*CONTENTS, *PLACES]
COMMANDS: dict[str, list[str]] = {
    "status": ["status", NAME],
    "status of the last": ["status", "--json"],
    "collect": ["collect", NAME, "--no-plots"],
    "logs": ["logs", NAME, "1"],
    "report": ["report", NAME, "-o", "page.html"],
    "diff": ["diff", "0", "1"],
    "rerun-best": ["rerun-best", NAME, "--report"],
    "stop": ["stop", NAME],
    "check": ["check", "study.yaml"],
    "launch": ["launch", "study.yaml"],
}
ATTEMPT = "trials/00001/attempts/1"
FILES = [
    *("study.json", "storage.json", "manifest.json", "identity.json", "../.last"),
    *("code/*.json", "code/*.sha256", "trials", "code", "local", "logs", "reruns", "python"),
    *(f"{ATTEMPT}/{name}" for name in ("metrics.jsonl", "exit.json", "manifest.json", "log.txt")),
    *("trials/00001/config.yaml", "reruns/1/metrics.jsonl"),
    *(
        f"local/*/{name}"
        for name in ("runner.json", "request.json", "events.jsonl", "control.jsonl")
    ),
]


@dataclass
class Scene:
    """A study that has ended, and its folder as it was then."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "runs" / NAME

    def restore(self) -> None:
        shutil.rmtree(self.folder / "runs")
        shutil.copytree(self.folder / "whole", self.folder / "runs", symlinks=True)

    def damage(self, file: str, how: str) -> Path:
        """Restore the folder, then damage a file of it."""
        self.restore()
        path = sorted(self.root.glob(file))[0] if "*" in file else self.root / file
        before = path.read_bytes() if path.is_file() else b"abc"
        mode = path.stat().st_mode & 0o777
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        if how in CONTENTS:
            path.write_bytes(CONTENTS[how](before))
            path.chmod(mode & 0o666)
        else:
            PLACES[how](path)
        return path


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, postgres_server: Server) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("damaged")
    postgres_server.sql("CREATE DATABASE damaged")
    url = postgres_server.url("damaged")
    call = partial(run_sweep, runs=folder / "runs", cwd=folder, env={"SWEEP_STORAGE": url})
    command = "[python, train.py, --x, '{x}', '{seed}']"
    training = "import sys\nfrom sweep.report import Reporter\nfor step in range(3):\n"
    training += "    Reporter().log(step=step, score=float(sys.argv[2]))\nprint('done')\n"
    write_toy(folder, name=NAME, trials=3, command=command, training=training)
    assert call("launch", "study.yaml", "--wait").code == 0
    assert call("rerun-best", "--wait").code == 0
    wait_for_runners(folder / "runs" / NAME)
    shutil.copytree(folder / "runs", folder / "whole", symlinks=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEP_STORAGE", url)
        patch.setenv("SWEEP_RUNS", str(folder / "runs"))
        patch.setenv("COLUMNS", "300")
        patch.chdir(folder)
        made = Scene(folder)
        yield made
        made.restore()
    stop_runs(folder / "runs")
    postgres_server.sql("DROP DATABASE damaged WITH (FORCE)")


def look(scene: Scene, capfd: pytest.CaptureFixture[str], file: str, how: str, name: str) -> str:
    """Run a command over a damaged file; return what it said where it is not as it must be."""
    path = scene.damage(file, how)
    code = run_command(COMMANDS[name])
    err = capfd.readouterr().err
    case = f"{file} is {how}: {name}: exit code {code}\n{err}"
    if code not in (0, 1, 2) or "Traceback" in err:
        return case
    if code == 0:
        return ""
    said = err[err.index("Error: ") :]
    # By its name, or by what it names.
    is_named = path.name in said or os.path.normpath(path.parent) in said
    has_advice = len(said.strip().splitlines()) > 1
    return "" if is_named and has_advice else case


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_damaged_file_is_named_or_done_without(
    scene: Scene, file: str, every: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the short form every second damage meets one command, others for each file."""
    names, wrong = list(COMMANDS), []
    for number, how in enumerate(DAMAGES):
        if not every and (FILES.index(file) + number) % 2:
            continue
        chosen = names if every else [names[(FILES.index(file) + 3 * number) % len(names)]]
        wrong += [look(scene, capfd, file, how, name) for name in chosen]
    assert [one for one in wrong if one] == []


@pytest.mark.parametrize("file", ["study.json", "storage.json", "identity.json", ".last"])
@pytest.mark.parametrize(
    "how",
    [
        *("truncated", "of other types", "gone"),
        *(pytest.param(how, marks=pytest.mark.long) for how in ("empty", "binary")),
        *(pytest.param(how, marks=pytest.mark.long) for how in ("of another shape", "null")),
    ],
)
def test_a_launch_mends_it(
    scene: Scene, file: str, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """From what the database knows; until then the other commands end with 1, naming the file."""
    file = "../.last" if file == ".last" else file
    path = scene.damage(file, how)
    broken = run_command(["status"])
    said = capfd.readouterr().err
    if file != "identity.json" and not (file == "../.last" and how in CONTENTS):
        assert (broken, path.name in said or how == "gone") == (
            1 if file != "../.last" else 2,
            True,
        )
    assert run_command(["launch", "study.yaml"]) == 0, capfd.readouterr()
    capfd.readouterr()
    assert run_command(["status", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["counts"]["complete"] == 3
    assert run_command(["collect", "--no-plots"]) == 0
