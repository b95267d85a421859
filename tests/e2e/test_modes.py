"""Under umask 000 all that sweep writes is the user's alone, unless it is shared on purpose."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweep.core.paths import Runs
from sweep.core.sharing import closed, share
from sweep.core.space import Space
from sweep.core.study import Study
from sweep.core.system.crash import write_crash
from tests.cli.commands import wait_for_runners
from tests.conftest import run_sweep, stop_runs
from tests.toys import write_toy

Run = Callable[..., str]
# What anybody may read: the reporter, which any account in a container must be able to import.
OPEN = ("toy/python",)
# What training itself writes keeps the modes that it gives: the folders around it are closed.
OF_TRAINING = "checkpoints/*"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which a whole study was run under umask 000."""
    folder = tmp_path_factory.mktemp("modes")
    write_toy(folder, name="toy", trials=2, command="[python, train.py, --x, '{x}', --api-key, s3]")
    text = (folder / "train.py").read_text()
    more = "flags = parser.parse_known_args()[0]"
    (folder / "train.py").write_text(text.replace("flags = parser.parse_args()", more))
    (folder / "package/inner").mkdir(parents=True)
    (folder / "package/inner/module.py").write_text("a = 1\n")
    (folder / "train.py").chmod(0o777)
    for words in (
        ["launch", "study.yaml", "--wait"],
        ["collect", "--top", "2"],
        ["report"],
        ["rerun-best", "--wait"],
        ["logs", "toy", "0"],
        ["db", "status"],
    ):
        run(folder, *words)
    wait_for_runners(folder / "runs/toy")
    yield folder
    stop_runs(folder / "runs")


def run(folder: Path, *words: str) -> None:
    """Run a command under umask 000."""
    before = os.umask(0)
    try:
        ran = run_sweep(*words, runs=folder / "runs", cwd=folder)
    finally:
        os.umask(before)
    assert ran.code == 0, (words, ran.err)


def modes(root: Path) -> Iterator[tuple[Path, int]]:
    """Yield all files and folders below one, and it, with their modes; no links."""
    for path in [root, *sorted(root.rglob("*"))]:
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue  # the server removed it meanwhile
        if not stat.S_ISLNK(found.st_mode):
            yield path, stat.S_IMODE(found.st_mode)


def test_all_of_a_study_is_private(place: Path) -> None:
    """Database, code, attempts, logs, pictures, the page; and a crash file."""
    runs = place / "runs"
    before = os.umask(0)
    try:
        write_crash(runs, ValueError("x"), ["launch"])
    finally:
        os.umask(before)
    shared = [
        f"{mode:o} {path.relative_to(runs)}"
        for path, mode in modes(runs)
        if mode & 0o077
        and not str(path.relative_to(runs)).startswith(OPEN)
        and not path.match(OF_TRAINING)
    ]
    assert shared == []
    names = {str(path.relative_to(runs)) for path, _ in modes(runs)}
    for name in ("toy/results/report.html", "toy/results/curves.png", "toy/reruns/1/curves.png",
                 "toy/environment.json", "toy/trials/00001/config.yaml"):  # fmt: skip
        assert name in names, "it was not looked at"
    assert any(name.startswith("toy/code/") and name.endswith("inner/module.py") for name in names)
    assert any(name.startswith(".crashes/crash-") for name in names)
    assert ".postgres/pgdata/PG_VERSION" in names


def test_a_shared_study_is_read_by_the_group(place: Path) -> None:
    """All but secrets and the database; nobody writes, and others have nothing."""
    runs, folder = place / "runs", Runs(place / "runs").study("toy")
    text = (place / "study.yaml").read_text()
    (place / "study.yaml").write_text(f"{text}share: group\n")
    run(place, "launch", "study.yaml", "--set", "trials=3", "--wait")
    assert Study.read(folder.study).share == "group"
    wait_for_runners(folder.root)  # the array's last job shares the logs
    assert runs.stat().st_mode & 0o777 == 0o710
    kept = {folder.secrets, folder.storage, folder.local}
    assert kept <= closed(folder)
    for path, mode in modes(folder.root):
        if kept & {path, *path.parents}:
            assert not mode & 0o077, path
        elif "checkpoints" not in path.parts and "python" not in path.parts:
            assert mode & 0o077 == (0o050 if path.is_dir() or mode & 0o100 else 0o040), path
    assert not any(mode & 0o077 for _, mode in modes(runs / ".postgres"))


def test_what_is_not_shared_stays_as_it_is(tmp_path: Path) -> None:
    """Without the key, behind a link, and in what is not a study's."""
    folder = Runs(tmp_path / "runs").study("toy")
    folder.root.mkdir(parents=True, mode=0o700)
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o600)
    (folder.root / "link").symlink_to(outside)
    (folder.root / "file").touch(mode=0o600)
    study = Study(name="toy", command=("x",), objectives=(), space=Space(()))
    share(study, folder)
    assert (folder.root / "file").stat().st_mode & 0o777 == 0o600
    share(dataclasses.replace(study, share="group"), folder)
    assert (folder.root / "file").stat().st_mode & 0o777 == 0o640
    assert outside.stat().st_mode & 0o777 == 0o600
