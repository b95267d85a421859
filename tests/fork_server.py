"""Commands of sweep without the half second that a Python takes to import it.

Hundreds of commands are run in the tests. Each is a process of its own, with its own environment,
folder and pipes; but it is forked from one that has imported sweep and what sweep imports, and has
done nothing else. What an interpreter reads only when it starts cannot be set that way: see
``can_serve``. With ``--long`` every command is started as a user starts it.

``python -m tests.fork_server SOCKET PIPE`` is that process: it serves the socket with that file
descriptor until nobody holds the other end of the pipe.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
# What commands import late, and what they compute with.
IMPORTED = ("sweep.schedulers", "optuna", "sqlalchemy", "pandas", "rich.table", "matplotlib.pyplot")
# Variables that sweep reads when it needs them. An interpreter or a library may read others as soon
# as it starts.
READ_LATE = ("SWEEP_", "PG", "PYTEST_")
READ_LATE_NAMES = ("PATH", "COLUMNS", "NO_COLOR")


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


class ForkServer:
    """The process from which commands are forked; started when the first one is run."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # The threads of a library that computes would not live on in what is forked.
        self.environ = {**environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self.given = dict(environ)
        self.address = f"\0sweep-tests-{os.getpid()}-{os.urandom(8).hex()}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.address)
        listener.listen(64)
        end, self._life = os.pipe()
        with listener:
            held = (listener.fileno(), end)
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, *map(str, held)],
                cwd=ROOT,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                pass_fds=held,
            )
        os.close(end)

    def can_serve(self, environ: Mapping[str, str]) -> bool:
        """Tell whether a command with this environment may be forked."""
        names = {*environ, *self.given}
        changed = {name for name in names if environ.get(name) != self.given.get(name)}
        return all(name.startswith(READ_LATE) or name in READ_LATE_NAMES for name in changed)

    def run(
        self, argv: Sequence[str], *, cwd: str, environ: Mapping[str, str], timeout_s: float
    ) -> Ended:
        """Run ``sweep`` with these arguments, as ``subprocess.run`` would.

        It returns when nobody holds its output any more, as the shell's pipes do.

        Raises:
            subprocess.TimeoutExpired: It took longer, and was killed.
        """
        given = json.dumps({"argv": list(argv), "cwd": cwd, "environ": dict(environ)}).encode()
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(self.address)
            socket.send_fds(asked, [f"{len(given):010d}".encode()], [its_out, its_err])
            os.close(its_out)
            os.close(its_err)
            asked.sendall(given)
            texts: dict[int, bytes] = {}
            readers = [threading.Thread(target=_read, args=(fd, texts)) for fd in (out, err)]
            for reader in readers:
                reader.start()
            deadline = time.monotonic() + timeout_s
            answers = asked.makefile("r")
            pid = int(answers.readline())
            for reader in readers:
                reader.join(max(0.0, deadline - time.monotonic()))
            asked.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                late = any(reader.is_alive() for reader in readers)
                code = None if late else int(answers.readline())
            except TimeoutError:
                code = None
            if code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["sweep", *argv], timeout_s)
        return Ended(code, texts[out].decode("utf-8"), texts[err].decode("utf-8"))

    def close(self) -> None:
        """End it; commands that still run are left alone."""
        os.close(self._life)
        self.process.wait()


def _read(fd: int, texts: dict[int, bytes]) -> None:
    with open(fd, "rb") as stream:
        texts[fd] = stream.read()


def main(held: int, life: int) -> None:
    """Import all, then fork a process for each that connects, and tell it how that has ended."""
    import sweep.cli

    for name in sweep.cli.command_names():
        import_module(f"sweep.cli.{sweep.cli.module_of(name)}")
    for name in IMPORTED:
        import_module(name)
    listener = socket.socket(fileno=held)
    poller = select.poll()
    for fd in (held, life):
        os.set_inheritable(fd, False)
        poller.register(fd, select.POLLIN)
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor of the process
    while True:
        for fd, _ in poller.poll():
            if fd == life:
                return
            if fd in running:
                pid, asked = running.pop(fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                poller.unregister(fd)
                os.close(fd)
                with asked, contextlib.suppress(OSError):  # it was not waited for
                    asked.sendall(f"{code}\n".encode())
                continue
            asked, _ = listener.accept()
            pid = os.fork()
            if pid == 0:
                listener.close()
                os.close(life)
                for other, (_, theirs) in running.items():
                    os.close(other)
                    theirs.close()
                be_command(asked)
            descriptor = os.pidfd_open(pid)
            running[descriptor] = (pid, asked)
            poller.register(descriptor, select.POLLIN)


def be_command(asked: socket.socket) -> None:
    """Become the command that is asked for; never returns."""
    code = 1
    try:
        length, fds, _, _ = socket.recv_fds(asked, 10, 2)
        given: dict[str, Any] = json.loads(_receive(asked, int(length)))
        for number, fd in zip((1, 2), fds, strict=True):
            os.dup2(fd, number)
            os.close(fd)
        asked.sendall(f"{os.getpid()}\n".encode())
        asked.close()
        os.chdir(given["cwd"])
        sys.path[0] = given["cwd"]  # as ``python -m`` has it
        os.environ.clear()
        os.environ.update(given["environ"])
        sys.argv = ["sweep", *given["argv"]]
        code = _run_module()
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run_module() -> int:
    try:
        runpy.run_module("sweep", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def _receive(asked: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = asked.recv(length - len(data))
        if not part:
            raise EOFError("who asked is gone")
        data += part
    return data


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
