"""A forked child starts as a program would: its own session, log, environment and signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.core.system.fork import fork
from sweep.core.system.processes import NotStarted, is_alive, start_time
from tests.waiting import PATIENCE_S, wait_for

PROJECT = Path(__file__).parents[2]

# A program that forks one child, as a local array's runner does: pytest's own output is no file.
PARENT = """
import json, os, signal, sys, time
from pathlib import Path
from sweep.core.system.fork import fork

folder, what = Path(sys.argv[1]), sys.argv[2]
held = os.open(os.devnull, os.O_RDONLY)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: None)

def tell():
    found = {
        "leads": os.getpgrp() == os.getpid() == os.getsid(0),
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "held": os.path.exists(f"/proc/self/fd/{held}"),
        "input": sys.stdin.read(),
        "usr1": signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL,
        "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "name": Path("/proc/self/comm").read_text(),
    }
    print(json.dumps(found))
    return 7

def fail():
    raise ValueError("no such thing")

def sleep():
    Path("ran").touch()
    time.sleep(60)
    return 0

work = {"tell": tell, "fail": fail}.get(what, sleep)
child = fork(work, name="child", cwd=folder, env={"A": "1"}, stdout=folder / "log")
print(child.pid, flush=True)
if what == "die before":
    os.kill(os.getpid(), 9)
child.release()
if work is sleep:
    while not (folder / "ran").exists():
        time.sleep(0.01)
    os.kill(os.getpid() if what == "die after" else child.pid, 9 if "die" in what else 15)
print(child.wait())
"""


def run(folder: Path, what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PARENT, str(folder), what],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_it_starts_as_a_program_would(tmp_path: Path) -> None:
    """Session, folder, variables, descriptors and signals are its own, not its parent's."""
    assert run(tmp_path, "tell").stdout.split()[1] == "7"
    assert json.loads((tmp_path / "log").read_text()) == {
        "leads": True,
        "cwd": str(tmp_path),
        "env": {"A": "1"},
        "held": False,
        "input": "",
        "usr1": True,
        "blocked": 0,
        "name": "child\n",
    }
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_an_exception_is_in_its_log(tmp_path: Path) -> None:
    """And its exit code is 1, as a program's."""
    assert run(tmp_path, "fail").stdout.split()[1] == "1"
    assert "ValueError: no such thing" in (tmp_path / "log").read_text()


def test_a_signal_ends_it(tmp_path: Path) -> None:
    """Also one that its parent handles."""
    assert run(tmp_path, "signal").stdout.split()[1] == str(-signal.SIGTERM)


@pytest.mark.parametrize("when", ["before", "after"])
def test_it_ends_with_its_parent(when: str, tmp_path: Path) -> None:
    """A parent that dies before it has let its child begin leaves nothing that ran."""
    parent = run(tmp_path, f"die {when}")
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    child = int(parent.stdout)
    wait_for(lambda: not is_alive(child, start_time(child)), "its end")
    assert (tmp_path / "ran").exists() == (when == "after")


@pytest.mark.parametrize(("cwd", "log"), [("/nonexistent", "log"), (".", "/nonexistent/log")])
def test_what_cannot_start_says_so(cwd: str, log: str, tmp_path: Path) -> None:
    """No folder, no log: nothing is forked."""
    with pytest.raises(NotStarted, match=r"nonexistent.* cannot be opened: No such file"):
        fork(lambda: 0, name="x", cwd=tmp_path / cwd, env={}, stdout=tmp_path / log)
