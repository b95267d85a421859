"""Programs of ours without the seconds that a Python takes to import what they need.

Hundreds of commands of sweep are run in the tests, and dozens of trainings. Each is a process of
its own, with its own environment, folder and pipes; but it is forked from one that has imported
sweep (or torch) and has done nothing else. What an interpreter reads only when it starts cannot be
set that way: see ``can_serve``. With ``--long`` every command is started as a user starts it.

``python -m tests.fork_server SOCKET PIPE MODULE…`` is that process: it serves the socket with that
file descriptor until nobody holds the other end of the pipe.
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
from typing import IO, Any

ROOT = Path(__file__).parents[1]
# Variables that our programs read when they need them. An interpreter or a library may read others
# as soon as it starts.
READ_LATE = ("SWEEP_", "PG", "PYTEST_")
READ_LATE_NAMES = ("PATH", "COLUMNS", "NO_COLOR")


class Forked:
    """A process that was forked, with what tests use of ``subprocess.Popen``."""

    def __init__(self, asked: socket.socket, out: int, err: int) -> None:
        self.stdout: IO[str] = open(out, encoding="utf-8")  # noqa: SIM115
        self.stderr: IO[str] = open(err, encoding="utf-8")  # noqa: SIM115
        self.returncode: int | None = None
        self._asked = asked
        self._answers = asked.makefile("r")
        said = self._answers.readline()
        if not said:
            self._answers.close()
            self._asked.close()
            raise ConnectionError(f"nothing was forked: {self.stderr.read() or 'nobody says why'}")
        self.pid = int(said)

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Return what it printed, once nobody holds its output any more and it has ended.

        Raises:
            subprocess.TimeoutExpired: It took longer. It is not killed.
        """
        deadline = time.monotonic() + timeout
        texts: dict[IO[str], str] = {}

        def read(stream: IO[str]) -> None:
            with stream:
                texts[stream] = stream.read()

        streams = (self.stdout, self.stderr)
        readers = [threading.Thread(target=read, args=(s,), daemon=True) for s in streams]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))
        ended, _, _ = select.select([self._asked], [], [], max(0.0, deadline - time.monotonic()))
        if not ended or any(reader.is_alive() for reader in readers):
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        self.returncode = int(self._answers.readline())
        self._answers.close()
        self._asked.close()
        return texts[self.stdout], texts[self.stderr]


class ForkServer:
    """The process from which others are forked.

    Args:
        environ: Of the process: what is set when its modules are imported.
        modules: Those that it imports.
    """

    def __init__(self, environ: Mapping[str, str], modules: Sequence[str]) -> None:
        self.environ = dict(environ)
        self.address = f"\0sweep-tests-{os.getpid()}-{os.urandom(8).hex()}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.address)
        listener.listen(64)
        end, self._life = os.pipe()
        held = (listener.fileno(), end)
        with listener:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, *map(str, held), *modules],
                cwd=ROOT,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                pass_fds=held,
            )
        os.close(end)

    def can_serve(self, environ: Mapping[str, str]) -> bool:
        """Tell whether a process with this environment may be forked."""
        names = {*environ, *self.environ}
        changed = {name for name in names if environ.get(name) != self.environ.get(name)}
        return all(name.startswith(READ_LATE) or name in READ_LATE_NAMES for name in changed)

    def start(
        self, argv: Sequence[str], *, code: str = "", cwd: str, environ: Mapping[str, str]
    ) -> Forked:
        """Start a module, as ``python -m argv…`` does, or the code with these arguments."""
        given = {"argv": list(argv), "code": code, "cwd": cwd, "environ": dict(environ)}
        given["umask"] = _umask()
        text = json.dumps(given).encode()
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        asked = socket.socket(socket.AF_UNIX)
        asked.connect(self.address)
        socket.send_fds(asked, [f"{len(text):010d}".encode()], [its_out, its_err])
        os.close(its_out)
        os.close(its_err)
        asked.sendall(text)
        return Forked(asked, out, err)

    def close(self) -> None:
        """End it; what was forked is left alone."""
        os.close(self._life)
        self.process.wait()


def main(held: int, life: int, modules: Sequence[str]) -> None:
    """Import all, then fork a process for each that connects, and tell it how that has ended."""
    for name in modules:
        with contextlib.suppress(ImportError):  # of an extra that is not here: who needs it says so
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
            try:
                pid = os.fork()
            except OSError as error:  # no memory for one more, say: the next may find some
                refuse(asked, error)
                continue
            if pid == 0:
                listener.close()
                os.close(life)
                for other, (_, theirs) in running.items():
                    os.close(other)
                    theirs.close()
                become(asked)
            descriptor = os.pidfd_open(pid)
            running[descriptor] = (pid, asked)
            poller.register(descriptor, select.POLLIN)


def refuse(asked: socket.socket, error: OSError) -> None:
    """Say on the standard error that was sent along why nothing is forked."""
    with asked:
        length, (out, err), _, _ = socket.recv_fds(asked, 10, 2)
        _receive(asked, int(length))
        os.write(err, f"{error}\n".encode())
        os.close(out)
        os.close(err)


def become(asked: socket.socket) -> None:
    """Become the program that is asked for; never returns."""
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
        os.umask(given["umask"])
        os.environ.clear()
        os.environ.update(given["environ"])
        sys.path[0] = given["cwd"]  # as ``python -m`` has it
        code = _run(given["argv"], given["code"])
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run(argv: list[str], code: str) -> int:
    try:
        if code:
            sys.argv = ["-c", *argv]
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = argv
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def _umask() -> int:
    """Return this process's umask, without the moment at which asking for it sets another one."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("\nUmask:")[2].split()[0], 8)


def _receive(asked: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = asked.recv(length - len(data))
        if not part:
            raise EOFError("who asked is gone")
        data += part
    return data


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
