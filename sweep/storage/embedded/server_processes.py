"""The server's processes: start one that outlives us, and find the one that serves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from sweep.core.system.processes import die_with, find_process

# Passed on to the server's programs and the watcher. All else stays out, so that no secret of the
# user's shell sits in /proc/PID/environ of a long-lived process, and no PG* variable bends ours.
KEPT_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True)
class Account:
    """As whom the server's programs run.

    Args:
        prefix: Words in front of their argv.
        uid: The user to become; None to stay who we are.
        gid: The group to become.
    """

    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None

    def popen_options(self) -> dict[str, Any]:
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


AS_OURSELVES = Account()


@dataclass(frozen=True)
class Postmaster:
    """What PostgreSQL wrote about its main process into ``postmaster.pid``."""

    pid: int
    started: int
    port: int
    ready: bool


def plain_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the few variables that the server's programs need."""
    kept = {name: environ[name] for name in KEPT_VARIABLES if name in environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def detach(
    argv: Sequence[str | os.PathLike[str]],
    *,
    log: IO[bytes],
    environment: Mapping[str, str],
    account: Account = AS_OURSELVES,
    keep: Sequence[int] = (),
) -> int:
    """Start a process that outlives us and return its number.

    It has a session of its own, so that neither Ctrl-C nor a closed terminal reaches it, holds
    none of our files (a pipe that it held would make ``sweep launch | cat`` wait for it), and is
    nobody's child, so that it leaves no zombie behind in a long-lived parent.

    Args:
        argv: The program, by absolute path, and its arguments.
        log: The open file for what it prints.
        environment: All of its environment.
        account: As whom it runs.
        keep: Descriptors that it inherits.
    """
    done = subprocess.run(
        # The words reach the shell as arguments, never as its text.
        ["/bin/sh", "-c", '"$@" </dev/null >&2 & echo $!', "sh", *account.prefix, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
        pass_fds=keep,
        env=dict(environment),
        cwd="/",
        check=True,
        **account.popen_options(),
    )
    return int(done.stdout)


class Spawn(Protocol):
    """Starts a server's main process; see ``detach``."""

    def __call__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        log: IO[bytes],
        environment: Mapping[str, str],
        account: Account,
        keep: Sequence[int],
    ) -> int: ...


class Child:
    """A server's main process as our own child: in our job, and ended when we end."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def spawn(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        log: IO[bytes],
        environment: Mapping[str, str],
        account: Account = AS_OURSELVES,
        keep: Sequence[int] = (),
    ) -> int:
        """Start it; what the arguments are, ``detach`` says.

        QUIT, by which the system ends it when we are killed, is PostgreSQL's immediate shutdown.
        """
        self.process = subprocess.Popen(
            [*account.prefix, *argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=keep,
            env=dict(environment),
            cwd="/",
            preexec_fn=die_with(os.getpid(), signal.SIGQUIT),
            **account.popen_options(),
        )
        return self.process.pid

    def is_process(self, pid: int) -> bool:
        """Tell whether it is this process, and lives."""
        return self.process is not None and self.process.pid == pid and self.process.poll() is None

    def end(self, *, at_once: bool = False) -> None:
        """End it, if it lives.

        Args:
            at_once: Without a last checkpoint: the data may be another's by now.
        """
        if self.process is None:
            return
        steps = [(signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0)]
        for number, wait_s in steps if at_once else [(signal.SIGINT, 60.0), *steps]:
            if self.process.poll() is not None:
                return
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(wait_s)


def read_postmaster(pgdata: Path) -> Postmaster | None:
    """Return the main process of the server that runs on this data directory here, if one does.

    The number in ``postmaster.pid`` alone proves nothing: after a crash it may belong to any
    process. A PostgreSQL process always works in its data directory, so that is compared.
    """
    try:
        lines = (pgdata / "postmaster.pid").read_text().splitlines()
        pid = abs(int(lines[0]))
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        works_in = os.stat(f"/proc/{pid}/cwd")
        if not program.startswith("postgres") or not os.path.samestat(works_in, pgdata.stat()):
            return None
    except (OSError, ValueError, IndexError):
        return None
    if find_process(pid) is None:
        return None
    # Lines as in PostgreSQL's miscadmin.h: pid, data directory, start time, port, socket folder,
    # listen address, shared memory key, status. The later ones come while it starts.
    lines += [""] * (8 - len(lines))
    return Postmaster(
        pid=pid,
        started=int(lines[2] or 0),
        port=int(lines[3] or 0),
        ready=lines[7].strip() == "ready",
    )
