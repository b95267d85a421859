"""A server on another host that was never stopped: proved dead, alive, or perhaps asleep.

The other host is this one under another name (that resolves) and boot id, in namespaces of its own,
and the shared file system a ramfs (whose kind nothing says is one kernel's alone). All else is
real.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.core.errors import CouldNotAsk, SweepError
from sweep.core.scheduler import JobFate
from sweep.core.system.processes import find_process
from sweep.storage.embedded import start_stop
from sweep.storage.embedded.folder import Folder, Starter, is_locked, read_record
from sweep.storage.embedded.lease import PERIOD_S, PERIODS, Lease
from sweep.storage.embedded.server import Server, connected, running
from sweep.storage.embedded.server_processes import Child
from tests.needs import require
from tests.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.real

HOME = Path(start_stop.__file__).resolve().parents[3]
OTHER_BOOT = "00000000-1111-2222-3333-444444444444"
# As another host: serve as a job does, and say so. The server is this process's child.
SERVE = """
import signal, sys, threading
from pathlib import Path
from sweep.storage.embedded import start_stop
from sweep.storage.embedded.folder import Starter
from sweep.storage.embedded.lease import Lease
from sweep.storage.embedded.server_processes import Child
from tests.needs import require
folder, child = Path(sys.argv[1]), Child()
lease = Lease(folder)
lease.take()
within = start_stop.Within(Starter("77", "n7"), lease, child.spawn)
server = start_stop.start(folder, listen="*", idle_stop_s=None, within=within)
print(server.pid, flush=True)
signal.sigwait([signal.SIGTERM])
"""


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """Give a data folder on a file system that other hosts might have mounted."""
    require("mount")
    mount = tmp_path / "shared"
    mount.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "ramfs", str(mount)], check=True)
    try:
        yield mount / "runs" / ".postgres"
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


class OtherHost:
    """A job on another host that serves a data folder; its server hangs with it, or dies."""

    def __init__(self, data_dir: Path, tmp_path: Path) -> None:
        boot = tmp_path / "boot_id"
        boot.write_text(f"{OTHER_BOOT}\n")
        data_dir.mkdir(parents=True)
        self.job = subprocess.Popen(
            [
                *("unshare", "--mount", "--uts", "/bin/sh", "-c"),
                'mount --bind "$1" /proc/sys/kernel/random/boot_id && hostname localhost && shift'
                ' && exec "$@"',
                *("sh", str(boot), sys.executable, "-c", SERVE, str(data_dir)),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HOME)},
        )
        assert self.job.stdout is not None
        self.server = int(self.job.stdout.readline())

    def signal(self, number: int) -> None:
        """Send a signal to the server and to the job."""
        for pid in (self.server, self.job.pid):
            os.kill(pid, number)

    def end(self) -> None:
        self.job.kill()
        self.job.wait()
        wait_gone(self.server)


@pytest.fixture
def other(shared: Path, tmp_path: Path) -> Iterator[OtherHost]:
    host = OtherHost(shared, tmp_path)
    yield host
    for pid in (host.server, host.job.pid):
        if find_process(pid) is not None:
            os.kill(pid, signal.SIGCONT)
    host.end()


@pytest.fixture
def child() -> Iterator[Child]:
    """Give what our own server is started by; it ends with the test."""
    child = Child()
    yield child
    child.end()


def wait_gone(pid: int, limit_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + limit_s
    while find_process(pid) is not None:
        assert time.monotonic() < deadline, f"process {pid} lives"
        time.sleep(0.05)


def grow_old(data_dir: Path) -> None:
    """Let the lease be as old as if nobody had renewed it for three periods."""
    then = time.time() - PERIODS * PERIOD_S - 5
    os.utime(Lease(data_dir).path, (then, then))


def successor(data_dir: Path, child: Child) -> start_stop.Within:
    lease = Lease(data_dir)
    assert lease.is_free()
    lease.take()
    return start_stop.Within(Starter("78", "n8"), lease, child.spawn)


def start(
    data_dir: Path, fate: JobFate | Exception, within: start_stop.Within | None = None
) -> Server:
    """Start our server after the other, of whose job a scheduler says this."""

    def ask(starter: Starter) -> JobFate:
        assert starter == Starter("77", "n7")
        if isinstance(fate, Exception):
            raise fate
        return fate

    return start_stop.start(data_dir, ask_fate=ask, within=within)


def query(server: Server, statement: str) -> list[tuple[object, ...]]:
    with connected(server) as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


def test_a_job_that_is_killed_takes_its_server_along(shared: Path, other: OtherHost) -> None:
    """It is the job's child; nothing that outlives a job can write to the data."""
    record = read_record(Folder(shared))
    assert record is not None
    assert (record.place.host, record.starter) == ("localhost", Starter("77", "n7"))
    found = running(shared)
    assert found is not None and found.pid == 0  # seen over the network alone
    os.kill(other.job.pid, signal.SIGKILL)
    wait_gone(other.server)
    other.job.wait()


def test_a_server_proved_dead_is_followed_in_place(
    shared: Path, other: OtherHost, child: Child
) -> None:
    seen = running(shared)
    assert seen is not None
    query(seen, "CREATE TABLE kept AS SELECT 7 AS x")
    other.signal(signal.SIGKILL)
    wait_gone(other.server)
    # Its children see that it is gone, and let go of what shows that somebody may write.
    wait_for(lambda: not is_locked(Folder(shared).alive_file), "the server's children to end")
    grow_old(shared)
    server = start(shared, JobFate.ENDED, successor(shared, child))
    assert query(server, "SELECT x FROM kept") == [(7,)]
    assert Folder(shared).generation == 1
    record = read_record(Folder(shared))
    assert record is not None and record.starter == Starter("78", "n8")


@pytest.mark.parametrize("wakes", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_server_that_may_wake_up_is_left_its_folder(
    shared: Path, other: OtherHost, child: Child, wakes: bool
) -> None:
    """The successor serves a copy; what the sleeper writes later reaches nobody, and it ends."""
    seen = running(shared)
    assert seen is not None
    query(seen, "CREATE TABLE kept AS SELECT 7 AS x")
    other.signal(signal.SIGSTOP)
    grow_old(shared)
    server = start(shared, JobFate.UNPROVED, successor(shared, child))
    assert query(server, "SELECT x FROM kept") == [(7,)]
    assert server.port != seen.port or server.host != seen.host
    folder = Folder(shared)
    assert folder.generation == 2 and folder.pgdata_of(1).is_dir()
    assert running(shared) == server
    if wakes:
        other.signal(signal.SIGCONT)
        wait_gone(other.server)  # PostgreSQL looks for its postmaster.pid once a minute
    query(server, "INSERT INTO kept VALUES (8)")
    assert query(server, "SELECT x FROM kept ORDER BY x") == [(7,), (8,)]


@pytest.mark.parametrize(
    ("fate", "words"),
    [
        pytest.param(JobFate.LIVES, "scancel 77", marks=pytest.mark.long),
        (CouldNotAsk("squeue got no answer from Slurm."), "no answer from Slurm"),
    ],
)
def test_a_job_that_lives_or_cannot_be_asked_for_is_waited_for(
    shared: Path, other: OtherHost, child: Child, fate: JobFate | Exception, words: str
) -> None:
    other.signal(signal.SIGSTOP)
    grow_old(shared)
    with pytest.raises(SweepError, match=words):
        start(shared, fate, successor(shared, child))
    assert Folder(shared).generation == 1


def test_a_command_waits_for_the_lease(shared: Path, other: OtherHost) -> None:
    """A server that renews it lives, though it does not answer."""
    other.signal(signal.SIGSTOP)
    Lease(shared).take()
    with pytest.raises(SweepError, match="passes within 30 s"):
        start(shared, JobFate.UNPROVED)
    assert Folder(shared).generation == 1


def test_a_generation_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "generation").write_text("two\n")
    with pytest.raises(SweepError, match="holds 'two"):
        start_stop.start(tmp_path)
