"""Whatever stands where a command is to write, it does as ``cat >`` would, and nothing is replaced:
each writer, onto devices, FIFOs, folders and links."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweep.cli import run_command
from tests.conftest import Sweep
from tests.needs import skip_or_fail

pytestmark = pytest.mark.real

FORMATS = ("table", "json", "csv", "parquet", "markdown", "latex")
# Each writes to the path that it is given, whose name is that of the file which the command makes.
WRITERS: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    **{
        f"collect {name}": (
            f"out.{name}",
            lambda path, name=name: ["collect", "toy", "--no-plots", "--format", name, "-o", path],
        )
        for name in FORMATS
    },
    "report": ("page.html", lambda path: ["report", "toy", "-o", path]),
    "figures": (
        "history.svg",
        lambda path: [
            *("report", "toy", "-o", "/dev/null", "--figure-format", "svg"),
            *("--figures", path.parent),
        ],
    ),
    "init": ("study.yaml", lambda path: ["init", "--force", "--dir", path.parent]),
    "templates": (
        "task.sh.j2",
        lambda path: ["templates", "--force", "--copy", "task.sh.j2", path.parent.parent],
    ),
}


@pytest.fixture
def at_the_study(finished: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process are those of the folder whose study has ended."""
    told = finished.keywords  # type: ignore[attr-defined]
    for name, value in {**told["env"], "SWEEP_RUNS": str(told["runs"])}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(told["cwd"])


@contextmanager
def read_from(fifo: Path) -> Iterator[list[bytes]]:
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
    reader.start()
    yield got
    reader.join()


@pytest.mark.parametrize(
    "writer",
    [pytest.param(name, marks=pytest.mark.long if name == "figures" else ()) for name in WRITERS],
)
@pytest.mark.usefixtures("at_the_study")
def test_what_stands_there_stays_what_it_is(
    writer: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name, words = WRITERS[writer]
    if writer == "collect parquet":
        pytest.importorskip("pyarrow")

    def place(kind: str) -> Path:
        folder = tmp_path / kind / "templates"
        folder.mkdir(parents=True)
        return folder / name

    def write(path: Path) -> tuple[int, str]:
        code = run_command(list(map(str, words(path))))
        return code, capfd.readouterr().err

    plain = place("plain")
    assert write(plain)[0] == 0
    content = plain.read_bytes()
    assert content and stat.S_ISREG(plain.lstat().st_mode)
    beside = sorted(os.listdir(plain.parent))

    device = place("device")
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.read_bytes()
    except OSError as error:
        skip_or_fail("root", f"no device can be made here: {error}")
    assert write(device)[0] == 0
    assert stat.S_ISCHR(device.lstat().st_mode) and device.read_bytes() == b""

    for kind, before in (("link", b"before"), ("link to none", None), ("two links", b"before")):
        link, target = place(kind), tmp_path / kind / "target"
        if before is not None:
            target.write_bytes(before)
        if kind == "two links":
            (tmp_path / kind / "other").symlink_to(target)
        link.symlink_to("../other" if kind == "two links" else "../target")
        assert write(link)[0] == 0, kind
        assert link.is_symlink() and stat.S_ISREG(target.lstat().st_mode)
        assert len(target.read_bytes()) == pytest.approx(len(content), abs=200), kind
        assert sorted(os.listdir(link.parent)) == beside  # and no temporary file

    folder, loop = place("folder"), place("loop")
    folder.mkdir()
    (folder / "kept").write_text("kept")
    loop.symlink_to(loop.name)
    for path in (folder, loop):
        code, said = write(path)
        assert code in (1, 2) and name in said and "Error: " in said, said
    assert (folder / "kept").read_text() == "kept" and loop.is_symlink()

    fifo = place("fifo")
    os.mkfifo(fifo)
    with read_from(fifo) as got:
        assert write(fifo)[0] == 0
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert len(got[0]) == pytest.approx(len(content), abs=200)
