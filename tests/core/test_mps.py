"""CUDA's MPS for one GPU, with a stand-in for NVIDIA's control program."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweep.core.system import mps
from sweep.core.system.mps import (
    AUTO,
    EXCLUSIVE,
    LOG,
    OFF,
    ON,
    PIPE,
    PROGRAM,
    PROHIBITED,
    Control,
    Facts,
    Identity,
    Mps,
    end_clients,
    end_stale,
    find_facts,
    why_not,
)
from sweep.core.system.own_folder import PLACES, own_path
from sweep.core.system.processes import find_process
from tests import mps_stub
from tests.waiting import wait_for

pytestmark = pytest.mark.real

GPU = Identity("GPU-1")


@pytest.mark.parametrize(
    ("wanted", "facts", "why"),
    [
        (AUTO, Facts("/usr/bin/x", GPU), ""),
        (ON, Facts("/usr/bin/x", GPU), ""),
        (OFF, Facts("/usr/bin/x", GPU), "the study file says mps: off"),
        (AUTO, Facts(None, GPU), f"there is no {PROGRAM} on PATH"),
        (AUTO, Facts("x", None), "the GPU cannot be asked"),
        (AUTO, Facts("x", GPU, pipe="/tmp/mine"), f"{PIPE} is set"),
        (AUTO, Facts("x", Identity("MIG-1")), "a MIG slice"),
        (ON, Facts("x", Identity("GPU-1", PROHIBITED)), f"compute mode is {PROHIBITED}"),
        (ON, Facts("x", GPU, foreign=["process 7 of root"]), "process 7 of root serves this GPU"),
        (AUTO, Facts("x", Identity("GPU-1", "Default", [7])), ""),
        (AUTO, Facts("x", Identity("GPU-1", EXCLUSIVE)), ""),
        (AUTO, Facts("x", Identity("GPU-1", EXCLUSIVE, [7])), "and process 7 has it"),
    ],
)
def test_whether_it_may_be_started(wanted: str, facts: Facts, why: str) -> None:
    found = why_not(wanted, facts)
    assert why in found and bool(why) == bool(found)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The stand-in's folder, which is on PATH, and a place of the test's own for pipes: what killed
    processes have left is looked for, and ended, in all that a user has on a machine."""
    folder = mps_stub.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv(PIPE, raising=False)
    monkeypatch.setattr(mps, "QUIT_S", 0)
    monkeypatch.setattr(mps, "FOLDER", f"mps-{os.getpid()}")
    yield folder
    for place in PLACES:
        shutil.rmtree(own_path(mps.FOLDER, place), ignore_errors=True)


@pytest.fixture
def begin(programs: Path) -> Iterator[Callable[..., Mps]]:
    """Returns MPS for a GPU, begun; it is ended after the test."""
    made: list[Mps] = []

    def build(wanted: str = AUTO, gpu: Identity = GPU) -> Mps:
        made.append(Mps(wanted, lambda: find_facts(gpu, os.environ)))
        made[-1].begin()
        print("MPS:", made[-1].why or "on")  # shown where a test fails
        return made[-1]

    yield build
    for one in made:
        one.end()


def control_of(one: Mps) -> Control:
    return Control(PROGRAM, one.variables())


class Client:
    """A training that is served."""

    def __init__(self, variables: dict[str, str], pid: int | None = None) -> None:
        self.pid = os.getpid() if pid is None else pid
        self.link = socket.socket(socket.AF_UNIX)
        self.link.connect(variables[PIPE] + "/control")
        self.link.settimeout(60)
        self.link.sendall(b"client %d" % self.pid)
        self.said = self.link.recv(100).decode().strip()

    def hear(self) -> str:
        return self.link.recv(100).decode().strip()


class Hurried:
    """A clock on which each pause takes ten seconds more."""

    def __init__(self) -> None:
        self.more_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.more_s

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        self.more_s += 10.0


def test_it_is_the_tasks_own(begin: Callable[..., Mps]) -> None:
    """With short paths that only this user can enter; nothing is left of it at the end."""
    one = begin()
    assert (one.is_on, one.why, one.word) == (True, "", "on")
    given = one.variables()
    assert given["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert Path(given[LOG]).is_dir()
    folder = Path(given[PIPE]).parent
    assert folder.stat().st_mode & 0o077 == 0
    assert len(given[PIPE] + "/nvidia-cuda-mps-control.pid") < 100  # a socket's path
    servers = control_of(one).servers()
    assert servers and len(servers) == 1
    one.begin()  # it is begun already
    assert one.variables() == given
    one.end()
    assert find_process(servers[0]) is None and not folder.exists()
    assert one.variables() == {} and one.word == "off"


def test_what_keeps_it_from_starting(
    begin: Callable[..., Mps], programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control program's own words; with "on" nothing may train then."""
    mps_stub.set_refusals(programs, start="refuse")
    one = begin()
    assert not one.is_on and "Failed to start: the GPU is in use" in one.why
    assert one.refused == ""
    assert "Failed to start" in begin(ON).refused
    mps_stub.set_refusals(programs, server="refuse")
    with monkeypatch.context() as patched:
        patched.setattr(mps, "time", Hurried())
        assert "its server did not start" in begin().why
    (programs / PROGRAM).write_text("#!/bin/sh\n[ $# = 0 ] || exec sleep 600\nexit 1\n")
    monkeypatch.setattr(mps, "START_S", 1.0)
    assert "did not start within 1 s" in begin().why


def test_an_exclusive_gpu_takes_one_without_it(begin: Callable[..., Mps], programs: Path) -> None:
    assert not begin(AUTO, Identity("GPU-1", EXCLUSIVE)).takes_one
    mps_stub.set_refusals(programs, start="refuse")
    assert begin(AUTO, Identity("GPU-1", EXCLUSIVE)).takes_one
    assert not begin().takes_one


def test_what_a_killed_process_left_is_ended_by_the_next(begin: Callable[..., Mps]) -> None:
    """Daemon and server, also where the daemon was killed too; what others have is let be."""
    alive = begin()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        for _ in range(2):
            one = Mps(AUTO, lambda: Facts(PROGRAM, GPU))
            one.begin()
            servers = Control(PROGRAM, one.variables()).servers() or []
            os.write(writer, f"{one.variables()[PIPE]} {servers[0]} ".encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    first, first_server, second, second_server = os.read(reader, 4096).decode().split()
    os.close(reader)
    os.close(writer)
    daemons = [p for p in mps.live_processes() if p.environment().get(PIPE) == second]
    for daemon in daemons:
        if daemon.pid != int(second_server):
            daemon.signal(signal.SIGKILL)
    assert find_process(int(first_server)) and find_process(int(second_server))
    assert set(end_stale()) == {str(Path(first).parent), str(Path(second).parent)}
    assert find_process(int(first_server)) is find_process(int(second_server)) is None
    assert not Path(first).exists()
    assert control_of(alive).servers()
    assert end_stale() == []


def test_a_daemon_of_somebody_elses_is_let_be(
    begin: Callable[..., Mps], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "theirs"
    pipe.mkdir()
    theirs = Control(PROGRAM, {PIPE: str(pipe)})
    subprocess.run([PROGRAM, "-d"], env=theirs.environ, check=True)
    theirs.ask("start_server -uid 0")
    servers = wait_for(theirs.servers, "their server")
    found = begin(AUTO, Identity("GPU-1", "Default", servers)).why
    assert f"process {servers[0]} of " in found and "serves this GPU" in found
    one = begin()  # on another GPU
    assert one.is_on
    one.end()
    end_stale()
    assert theirs.servers() == servers
    monkeypatch.setenv(PIPE, str(pipe))
    assert PIPE in begin().why
    theirs.ask("quit -t 0")
    wait_for(lambda: theirs.servers() is None, "the end of theirs")


def test_a_client_is_let_go(begin: Callable[..., Mps], programs: Path) -> None:
    """That one alone; where the server does not, that is told."""
    one = begin()
    ours, other = Client(one.variables()), Client(one.variables(), 1)
    assert end_clients(one.variables(), [ours.pid, 999_999])
    assert ours.hear() == "terminated"
    assert control_of(one).clients() == {1}
    mps_stub.set_refusals(programs, terminate="refuse")
    again = Client(one.variables())
    assert not end_clients(one.variables(), [again.pid])
    assert end_clients(one.variables(), [999_999])
    other.link.close()
    again.link.close()
    assert not end_clients({PIPE: "/nonexistent"}, [1])


def test_a_fault_reaches_all_and_the_server_comes_back(begin: Callable[..., Mps]) -> None:
    """As the stand-in has it: nobody is served until the last of them is gone."""
    one = begin()
    first, second = Client(one.variables()), Client(one.variables(), 1)
    first.link.sendall(b"fault")
    assert first.hear() == second.hear() == "fault"
    assert Client(one.variables()).said == "not ready"
    first.link.close()
    second.link.close()
    wait_for(lambda: control_of(one).clients() == set(), "their end")
    one.look()
    assert Client(one.variables()).said.isdigit()
    assert one.generation == 0


def test_what_does_not_live_is_renewed(begin: Callable[..., Mps]) -> None:
    """A daemon that was killed, and a server that serves the dead; the server alone comes back."""
    one = begin()
    (server,) = control_of(one).servers() or []
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: control_of(one).servers() == [], "its end")
    one.look()
    assert Client(one.variables()).said.isdigit() and one.generation == 0
    pipe = one.variables()[PIPE]
    for process in mps.live_processes():
        if process.environment().get(PIPE) == pipe:
            process.signal(signal.SIGKILL)
    wait_for(lambda: control_of(one).servers() is None, "the daemon's end")
    one.look()
    assert (one.is_on, one.generation) == (True, 1)
    assert Client(one.variables()).said.isdigit()


def test_a_daemon_that_is_dead_is_seen_before_a_training_begins(begin: Callable[..., Mps]) -> None:
    """CUDA would go on without MPS, and say nothing; a server alone is the daemon's to renew."""
    one = begin()
    pipe = one.variables()[PIPE]
    (server,) = control_of(one).servers() or []
    one.check()
    assert one.generation == 0
    daemons = [p for p in mps.live_processes() if p.environment().get(PIPE) == pipe]
    for process in daemons:
        if process.pid != server:
            process.signal(signal.SIGKILL)
    wait_for(lambda: control_of(one).servers() is None, "the daemon's end")
    one.check()
    assert (one.is_on, one.generation) == (True, 1)
    assert Client(one.variables()).said.isdigit()
    one.check()
    assert one.generation == 1


# Lines of real logs, as users have shown them; the second's control program starts a server anew.
SERVER_LOG = """\
[2024-04-29 11:22:10.421 Other   425] Startup
[2024-04-29 11:22:10.421 Other   425] Connecting to control daemon on socket: /mps/pipe/control
[2024-04-29 11:22:10.424 Other   425] Initializing server process
[2024-04-29 11:22:10.440 Legacy Server   425] Failed to start : invalid argument
"""
CONTROL_LOG = """\
[2024-12-10 06:38:01.120 Control    64] User did not send valid credentials
[2024-12-10 06:38:01.120 Control    64] NEW CLIENT 0 from user 1001: Server is not ready
[2024-12-10 06:38:01.120 Control    64] Starting new server 92 for user 1001
[2024-12-10 06:38:01.158 Control    64] Server encountered a fatal exception. Shutting down
[2024-12-10 06:38:01.170 Control    64] Server 92 exited with status 1
[2024-12-10 06:38:01.170 Control    64] Starting new server 95 for user 1001
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (SERVER_LOG, "Failed to start : invalid argument"),
        (CONTROL_LOG, "Server 92 exited with status 1"),
        (
            "[2026-02-06 09:34:17.770 Control   261] CUDA MPS Control binary version: 13000\n\n",
            None,
        ),
        ("Cannot find MPS control daemon process\n", "Cannot find MPS control daemon process"),
        ("", ""),
    ],
)
def test_what_a_log_says(text: str, line: str | None, tmp_path: Path) -> None:
    """Why, wherever it stands, without its time; else the last line."""
    path = tmp_path / "server.log"
    path.write_text(text)
    assert mps.read_log(path) == (
        "CUDA MPS Control binary version: 13000" if line is None else line
    )
    assert mps.read_log(tmp_path / "absent") == ""


def test_a_server_that_ends_at_once(
    begin: Callable[..., Mps], programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for one whose end the control program has logged; its words are told."""
    monkeypatch.setattr(mps, "START_S", 600.0)
    mps_stub.set_refusals(programs, server="fail")
    one = begin()
    assert not one.is_on
    assert one.why == "its server did not start (Failed to start : invalid argument)"


def test_what_is_said_beside_numbers_is_no_process(tmp_path: Path) -> None:
    """Lines that are a number each name processes; words do not, whatever stands in them."""
    program = tmp_path / PROGRAM
    answer = "case $command in get_client_list*) echo Server 17 is not active; echo 4 ;; *) echo 17"
    program.write_text(f"#!/bin/sh\nread command\n{answer} ;; esac\n")
    program.chmod(0o755)
    control = Control(str(program), {})
    assert (control.servers(), control.clients()) == ([17], {4})


def test_a_dead_client_that_stays(
    begin: Callable[..., Mps], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is renewed, and who was served is told."""
    monkeypatch.setattr(mps, "END_S", 3.0)  # the daemon has as long to tell its clients
    one = begin()
    dead, other = Client(one.variables(), 999_999), Client(one.variables())
    one.look()
    assert one.generation == 1
    assert dead.hear() == other.hear() == "lost"
    assert control_of(one).clients() == set()


def test_it_is_given_up(begin: Callable[..., Mps]) -> None:
    """After three failures without a success; "on" trains nothing without it."""
    one = begin(ON)
    one.look(failed=True)
    one.look(failed=True)
    one.note_complete()
    one.look(failed=True)
    one.look(failed=True)
    assert one.is_on and one.refused == ""
    client = Client(one.variables())
    one.look(failed=True)
    assert not one.is_on and "failed 3 times" in one.why and one.refused == one.why
    client.link.setblocking(False)
    with pytest.raises(BlockingIOError):  # it trains on
        client.link.recv(1)
    one.end()
    one.begin()
    assert not one.is_on and "failed 3 times" in one.why
