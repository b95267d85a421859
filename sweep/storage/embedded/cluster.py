"""The data directory: made once, whole or not at all, and configured before each start."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from ipaddress import ip_address
from pathlib import Path

from sweep.core.errors import SweepError
from sweep.storage.embedded.folder import Folder, write
from sweep.storage.embedded.server_processes import Account, plain_environment

ROLE = "sweep"
DATABASE = "sweep"
LOOPBACK = "127.0.0.1"
LOWEST_PORT, HIGHEST_PORT = 20000, 32000

SETTINGS = """\
# Written by sweep before each start. Settings of your own: postgresql.conf, below the include.
listen_addresses = '{listen}'
port = {port}
# TCP serves all; the path of a socket may be longer than the 107 bytes that the system allows.
unix_socket_directories = ''
password_encryption = 'scram-sha-256'
max_connections = 200
shared_buffers = 64MB
max_wal_size = 256MB
fsync = on
# At a logout systemd may remove a user's shared memory (RemoveIPC); the server outlives logouts.
dynamic_shared_memory_type = mmap
max_parallel_workers_per_gather = 0
jit = off
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
log_checkpoints = off
log_line_prefix = '%m [%p] '
# A statement in the log would bring its values with it.
log_min_error_statement = panic
# Sessions of hosts that vanished must not count as clients for hours.
tcp_keepalives_idle = 60
tcp_keepalives_interval = 20
tcp_keepalives_count = 6
"""

ACCESS = """\
# Written by sweep before each start: a password always, also from this machine.
local all all scram-sha-256
host  all all {addresses} scram-sha-256
"""


def create_password(folder: Folder) -> None:
    """Write a new password, unless there is one (as after a start that was cut off)."""
    if not folder.password_file.exists():
        write(folder.password_file, secrets.token_urlsafe(24) + "\n")


def remove_leftovers(folder: Folder) -> None:
    """Remove what a command that was killed while it made data has left, before or after they had
    their place; it has a copy of the password."""
    for leftover in folder.root.glob("new-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def create_data(folder: Folder, binaries: Path, account: Account) -> None:
    """Run initdb beside the final place, then rename: a crash leaves no half-made data directory.

    Raises:
        SweepError: initdb failed, with its words.
    """
    new = folder.root / f"new-{secrets.token_hex(4)}"
    new.mkdir(mode=0o700)
    try:
        if account.uid is not None and account.gid is not None:
            os.chown(new, account.uid, account.gid)
        write(new / "password", folder.password_file.read_text())
        done = subprocess.run(
            [
                *account.prefix,
                str(binaries / "initdb"),
                f"--pgdata={new / 'pgdata'}",
                f"--username={ROLE}",
                f"--pwfile={new / 'password'}",
                "--auth-local=scram-sha-256",
                "--auth-host=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--data-checksums",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            env=plain_environment(),
            **account.popen_options(),
        )
        if done.returncode != 0:
            tail = "\n".join(done.stdout.strip().splitlines()[-8:])
            raise SweepError(f"The database could not be made in {folder.root}:\n{tail}")
        with (new / "pgdata" / "postgresql.conf").open("a") as file:
            file.write("\ninclude 'sweep.conf'\n")
        (new / "pgdata").rename(folder.pgdata)
        _sync(folder.root)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def data_version(folder: Folder) -> int:
    """Return the major version of PostgreSQL that wrote the data."""
    return int((folder.pgdata / "PG_VERSION").read_text())


def configure(folder: Folder, *, listen: str, port: int) -> None:
    """Write the settings and the access rules for the next start."""
    near = listen != "*" and ip_address(listen).is_loopback
    addresses = "samehost" if near else "all"
    write(folder.pgdata / "sweep.conf", SETTINGS.format(listen=listen, port=port))
    write(folder.pgdata / "pg_hba.conf", ACCESS.format(addresses=addresses))


def choose_port(folder: Folder, listen: str) -> int:
    """Return the port of the last start if it is free, else another one that is.

    Below the range that the kernel gives to outgoing connections, so that it is likely to be free
    again at the next start; drawn at random, because many users share a login node.

    Raises:
        SweepError: The address cannot be listened on, or no port is free.
    """
    try:
        tries = [int(folder.port_file.read_text())]
    except (FileNotFoundError, ValueError):
        tries = []
    tries += [LOWEST_PORT + secrets.randbelow(HIGHEST_PORT - LOWEST_PORT) for _ in range(50)]
    address = "0.0.0.0" if listen == "*" else listen
    problem = ""
    for port in tries:
        try:
            [(family, kind, _, _, where), *_] = socket.getaddrinfo(
                address, port, type=socket.SOCK_STREAM
            )
            with socket.socket(family, kind) as probe:
                # As PostgreSQL does: sessions of the last run that are still closing don't matter.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
                probe.listen(1)
            return port
        except OSError as error:
            problem = str(error)
    raise SweepError(f"The database cannot listen on {listen}: {problem}.")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
