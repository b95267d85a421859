"""Data are fetched once, get their name when they are whole, and are begun again otherwise."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sweep.core.study import DataSet, Study
from sweep.training import fetched, fetching
from sweep.training.fetching import FetchFailed
from tests.study_rows import make_study
from tests.waiting import wait_for


def given(folder: Path, *words: str) -> Study:
    birds = DataSet("data/birds", fetch=words)
    return dataclasses.replace(
        make_study(), workdir=str(folder), datasets={"birds": birds}, data=("data/birds",)
    )


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "import os, pathlib, sys\n" + code, "{target}")


def fetch(study: Study) -> list[str]:
    said: list[str] = []
    fetching.fetch(study, fetched.missing(study), dict(os.environ), said.append)
    return said


WRITES = "place = pathlib.Path(sys.argv[1]); place.mkdir(); (place / 'x').write_text('1')"


def test_a_command(tmp_path: Path) -> None:
    """It is run once, in the working folder; what it made lies at the path, whole."""
    study = given(tmp_path, *python(WRITES + "; print(os.getcwd(), os.environ['SWEEP_TARGET'])"))
    assert fetched.missing(study) == ["birds"]
    first, last = fetch(study)
    path = tmp_path / "data/birds"
    assert first == f"data.birds: fetching {path} (log: {fetched.log_of(path)})"
    assert last.startswith("data.birds: fetched in ")
    assert (path / "x").read_text() == "1"
    cwd, target = fetched.log_of(path).read_text().split()
    assert (cwd, Path(target).name, target == str(path)) == (str(tmp_path), "birds", False)
    assert fetched.missing(study) == []
    fetching.fetch(study, ["birds"], {}, lambda _: None)  # would not find its interpreter's modules
    assert sorted(one.name for one in (tmp_path / "data").iterdir()) == [
        ".birds.sweep-fetch",
        "birds",
    ]


def test_a_command_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Its last words are told; the next one begins in an empty folder, and gets there."""
    fails = WRITES + "; print('no such host'); sys.exit(3)"
    with pytest.raises(FetchFailed, match=r"ended with code 3\.\n  \| no such host"):
        fetch(given(tmp_path, *python(fails)))
    assert not (tmp_path / "data/birds").exists()
    fetch(given(tmp_path, *python(WRITES)))
    assert (tmp_path / "data/birds/x").read_text() == "1"


def test_a_command_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    """What it had made by then is no part of the data."""
    dies = WRITES + "; (place / 'half').touch(); os.kill(os.getpid(), 9)"
    with pytest.raises(FetchFailed, match="ended with code -9"):
        fetch(given(tmp_path, *python(dies)))
    fetch(given(tmp_path, *python(WRITES)))
    assert os.listdir(tmp_path / "data/birds") == ["x"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (python("pass"), "made nothing at {target}"),
        (("no-such-program-here", "{target}"), "No such file or directory"),
        (("file:///no/such/file",), "file:///no/such/file could not be fetched"),
    ],
)
def test_what_fetches_nothing(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(FetchFailed) as caught:
        fetch(given(tmp_path, *words))
    assert said in caught.value.message
    assert not (tmp_path / "data/birds").exists()


class Cuts(SimpleHTTPRequestHandler):
    """Serves files; of ``cut`` it says more than it sends, the first time."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/cut" and self.asked.count("/cut") == 1:
            self.send_response(200)
            self.send_header("Content-Length", "9")
            self.end_headers()
            self.wfile.write(b"12")
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """A folder, its address, and what was asked for."""
    folder = tmp_path / "served"
    folder.mkdir()
    asked: list[str] = []
    handler = type("Handler", (Cuts,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_addresses(tmp_path: Path, served: tuple[Path, str, list[str]]) -> None:
    """One is a file, several are a folder; one that broke off is told, the whole ones are kept."""
    folder, address, asked = served
    (folder / "a b").write_text("1")
    (folder / "cut").write_text("2")
    (folder / "c").write_text("3")
    study = given(tmp_path, f"{address}/a%20b", f"{address}/cut")
    with pytest.raises(FetchFailed, match="broke off after 2 of 9 bytes"):
        fetch(study)
    assert not (tmp_path / "data/birds").exists()
    fetch(study)
    assert asked == ["/a%20b", "/cut", "/cut"]
    path = tmp_path / "data/birds"
    assert {one.name: one.read_text() for one in path.iterdir()} == {"a b": "1", "cut": "2"}
    alone = dataclasses.replace(
        given(tmp_path), datasets={"c": DataSet("c.txt", fetch=(f"{address}/c",))}
    )
    fetch(alone)
    assert (tmp_path / "c.txt").read_text() == "3"


def test_what_was_half_fetched_in_another_way_goes(tmp_path: Path) -> None:
    """Files of other addresses are no part of the data."""
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    here = f"file://{tmp_path}"
    with pytest.raises(FetchFailed):
        fetch(given(tmp_path, f"{here}/a", f"{here}/gone"))
    fetch(given(tmp_path, f"{here}/b", f"{here}/b"))
    assert os.listdir(tmp_path / "data/birds") == ["b"]


def test_data_that_were_fetched_in_another_way(tmp_path: Path) -> None:
    """They stay, and it is said; those that were always there are the user's."""
    before, after = given(tmp_path, *python(WRITES)), given(tmp_path, *python(WRITES + "; 1"))
    fetch(before)
    assert fetched.notes(before) == []
    (note,) = fetched.notes(after)
    assert note.startswith(f"data.birds: {tmp_path}/data/birds was fetched in another way")
    (tmp_path / "data/.birds.sweep-fetch/done.json").unlink()
    assert fetched.notes(after) == []


def test_two_at_once_fetch_it_once(tmp_path: Path) -> None:
    """The second waits for the first, in another process as another job would be."""
    counts = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
    waits = f"import time\nwhile not os.path.exists({str(tmp_path / 'gate')!r}): time.sleep(0.02)"
    study = given(tmp_path, *python(f"{counts}\n{waits}\n{WRITES}"))
    code = (
        "import os, sys; from sweep.core.study import Study; from sweep.training import fetching\n"
        "fetching.fetch(Study.from_json(sys.argv[1]), ['birds'], dict(os.environ), print)"
    )
    jobs = [subprocess.Popen([sys.executable, "-c", code, study.to_json()]) for _ in range(2)]
    # One fetches, and the other one waits for its lock.
    wait_for((tmp_path / "count").exists, "one to fetch")
    wait_for(lambda: any(waits_for_a_lock(job.pid) for job in jobs), "the other one to wait")
    (tmp_path / "gate").touch()
    assert [job.wait() for job in jobs] == [0, 0]
    assert (tmp_path / "count").read_text() == "x"


def waits_for_a_lock(pid: int) -> bool:
    """Tell whether a process waits for a lock of a file: the system shows it with an arrow."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and str(pid) in line.split() for line in lines)
