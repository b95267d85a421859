"""Run a function of ours in a child, as if it had been started as a program of its own.

A Python process computes for a fifth of a second before it does anything. Where many start at once
on few cores, all of them begin late; a child that is forked from a process that has imported
everything begins at once. Only for a process of one thread, and for functions of sweep.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweep.core.system.processes import PASSING_ERRORS, NotStarted, die_with, load_libc

PR_SET_NAME = 15  # linux/prctl.h
# What a Python program that has just begun does not have at the default.
_FRESH: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGPIPE: signal.SIG_IGN,
    signal.SIGXFSZ: signal.SIG_IGN,
}


class Forked:
    """A child, with what its parent needs of ``subprocess.Popen``.

    It does nothing before ``release``, so that it can be written down first; where the parent dies
    before, it ends.
    """

    def __init__(self, pid: int, gate: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._gate = gate

    def release(self) -> None:
        """Let it begin."""
        with contextlib.suppress(BrokenPipeError):  # killed already
            os.write(self._gate, b"1")
        os.close(self._gate)

    def wait(self) -> int:
        """Wait for its end; return its exit code, or the negative number of its signal."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def fork(
    work: Callable[[], int],
    *,
    name: str,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    stdout: Path,
    death_signal: int | None = signal.SIGKILL,
) -> Forked:
    """Fork a child that runs ``work`` and exits with what it returns.

    As with ``process.spawn`` it has a session and group of its own, reads nothing, writes to a log,
    inherits no open file, and all signals are as in a program that has just begun. What /proc shows
    as its environment and command line is its parent's.

    Args:
        name: Shown by ``ps -c`` and ``top``; 15 bytes.
        stdout: A file that is appended to, made with mode 0600.
        death_signal: Sent to it when this thread ends; None for none.

    Raises:
        NotStarted: The folder or the log cannot be opened, or there is no memory or slot.
    """
    parent = os.getpid()
    arm = None if death_signal is None else die_with(parent, death_signal)
    load_libc()
    with contextlib.ExitStack() as opened:
        where = _open(opened, cwd, os.O_RDONLY | os.O_DIRECTORY)
        log = _open(opened, stdout, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        null = _open(opened, os.devnull, os.O_RDONLY)
        ready, gate = os.pipe2(os.O_CLOEXEC)
        opened.callback(os.close, ready)
        sys.stdout.flush()
        sys.stderr.flush()
        before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        try:
            pid = os.fork()
            if not pid:
                _be_child(work, arm, name, env, (where, log, null, ready, gate))
        except OSError as error:
            os.close(gate)
            raise NotStarted(
                f"A task cannot be started: {error.strerror}.",
                passing=error.errno in PASSING_ERRORS,
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return Forked(pid, gate)


def _open(opened: contextlib.ExitStack, path: str | os.PathLike[str], flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NotStarted(
            f"{os.fspath(path)} cannot be opened: {error.strerror}.",
            passing=error.errno in PASSING_ERRORS,
        ) from error
    opened.callback(os.close, descriptor)
    return descriptor


def _be_child(
    work: Callable[[], int],
    arm: Callable[[], None] | None,
    name: str,
    env: Mapping[str, str],
    descriptors: tuple[int, int, int, int, int],
) -> None:
    """Turn the forked process into one of its own, run the work, and exit; never returns."""
    code = 1
    try:
        where, log, null, ready, gate = descriptors
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, _FRESH.get(number, signal.SIG_DFL))
        if arm is not None:
            arm()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(gate)
        if not os.read(ready, 1):
            os._exit(126)
        os.fchdir(where)
        for standard, descriptor in enumerate((null, log, log)):
            os.dup2(descriptor, standard)
        for entry in os.listdir("/proc/self/fd"):
            if int(entry) > 2:
                with contextlib.suppress(OSError):  # the one that read this list
                    os.close(int(entry))
        os.environ.clear()
        os.environ.update(env)
        load_libc().prctl(PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)
        code = work()
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
