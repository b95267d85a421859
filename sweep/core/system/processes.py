"""Processes of this machine: who they are, how one is started, how a group of them is ended.

A pid alone names nobody, because numbers are used again; a process is named by its pid and its
start time, on one boot of one machine. Linux only: everything is read from ``/proc``, and not by
psutil, which gives no process group and no start time that stays the same while the clock is set.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.errors import SweepError

TOKEN_VARIABLE = "SWEEP_TOKEN"
PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
FIRST_LOOK_S = 0.01
LONGEST_LOOK_S = 0.2
PF_KTHREAD = 0x00200000  # linux/sched.h: a thread of the kernel, no process of anybody
EXEC_LOOKS = 5
MOST_LOOKS = 50  # at /proc in one go, on a machine that starts processes all the time
MOST_DESCENDANTS = 256  # of a training, at which a look at its state ends
KILL_PATIENCE_S = 10.0  # a killed process that is still there then sits in the kernel
# Failures to start that may pass by themselves: no memory, no slot, no space.
PASSING_ERRORS = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}
)

_libc: Any = None
_adopter: int | None = None  # its pid: a forked child has not adopted anything


class NotStarted(SweepError):
    """A command could not be started; nothing of it ran.

    Attributes:
        exit_code_of_shell: What a shell would have returned: 127 not found, 126 otherwise.
        passing: Whether it may work later (no memory, no free slot, no space).
    """

    def __init__(self, message: str, hint: str = "", *, code: int = 126, passing: bool = False):
        super().__init__(message, hint)
        self.exit_code_of_shell = code
        self.passing = passing


@dataclass(frozen=True)
class Process:
    """A live process: its pid, its start time (clock ticks since boot) and its process group."""

    pid: int
    start: int
    group: int

    def environment(self) -> dict[str, str]:
        """Return the environment it was started with; empty if it is not ours to read."""
        return read_environment(self.pid)

    def signal(self, number: int) -> None:
        """Send a signal, unless the process is gone or its pid is another's by now."""
        if start_time(self.pid) == self.start:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)


def boot_id() -> str:
    """Return the name of this boot of this machine; pids and start times mean nothing beyond it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot, or None where there is none."""
    fields = _read_stat(pid)
    return None if fields is None else int(fields[19])


def find_process(pid: int) -> Process | None:
    """Return the live process that has this number now, or None.

    A zombie does not live (where process 1 reaps none, as in many containers, it stays for ever);
    a process whose first thread alone has ended does. A thread of the kernel is nobody's process.
    """
    fields = _read_stat(pid)
    if fields is None or int(fields[6]) & PF_KTHREAD:
        return None
    if fields[0] in (b"Z", b"X", b"x") and int(fields[17]) <= 1:
        return None
    return Process(pid, int(fields[19]), int(fields[2]))


def is_stopped(pid: int) -> bool:
    """Tell whether a process, or one that descends from it, is stopped: it does not run."""
    found, place = [pid], 0
    while place < min(len(found), MOST_DESCENDANTS):
        fields = _read_stat(found[place])
        if fields is not None and fields[0] in (b"T", b"t"):
            return True
        found += children_of(found[place]) or ()
        place += 1
    return False


def children_of(pid: int) -> list[int] | None:
    """Return the children of a process's first thread; None where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as stream:
            return [int(word) for word in stream.read().split()]
    except OSError:
        return None


def is_alive(pid: int, start: int | None) -> bool:
    """Tell whether this very process still runs.

    Args:
        start: Its start time; with None, no process matches.
    """
    found = find_process(pid)
    return found is not None and found.start == start


def live_processes() -> Iterator[Process]:
    """Yield every live process of this machine that we can see.

    A process that is forked while we look, by one that ends before we come to it, is seen too: we
    look again until nothing new has come.
    """
    looked_at: set[str] = set()
    for _ in range(MOST_LOOKS):
        new = [name for name in os.listdir("/proc") if name.isdecimal() and name not in looked_at]
        if not new:
            return
        looked_at.update(new)
        yield from filter(None, (find_process(int(name)) for name in new))


def read_environment(pid: int) -> dict[str, str]:
    """Return the environment a process of ours was started with; empty for anybody else's."""
    content = b""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return {}
        for _ in range(EXEC_LOOKS):
            with open(f"/proc/{pid}/environ", "rb") as stream:
                content = stream.read()
            if content:
                break
            time.sleep(0.001)  # nearly always a process in the middle of exec
    except OSError:
        return {}
    return dict(entry.partition("=")[::2] for entry in os.fsdecode(content).split("\0") if entry)


def processes_with(name: str, value: str) -> list[Process]:
    """Return our live processes that were started with this variable in their environment."""
    return [found for found in live_processes() if found.environment().get(name) == value]


def values_of(name: str) -> set[str]:
    """Return what a variable is in the environments of our live processes."""
    found = (process.environment().get(name) for process in live_processes())
    return {value for value in found if value is not None}


def spawn(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    stdout: Path | int,
    stdin: int = subprocess.DEVNULL,
    die_with_parent: bool = True,
    death_signal: int = signal.SIGKILL,
    inherited: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a command in a session and process group of its own.

    It reads nothing (/dev/null) unless told to, inherits no other open file, and starts with every
    signal at its default and none blocked, whatever the caller does with signals.

    Args:
        argv: The command; nothing of it is seen by a shell.
        stdout: Where standard output and error go: a file that is appended to (made with mode
            0600), or an open file descriptor.
        stdin: As ``subprocess.Popen`` takes it.
        die_with_parent: Have the kernel send it ``death_signal`` when the thread that called
            ``spawn`` ends. So call from a thread that lives as long as the child may.
        death_signal: The signal for that.
        inherited: Descriptors that it gets as they are: locks, say.

    Raises:
        NotStarted: The command, its interpreter or the folder is missing or cannot be used.
    """
    handled = [n for n in signal.valid_signals() if signal.getsignal(n) is not signal.SIG_DFL]
    handled = [n for n in handled if n not in (signal.SIGKILL, signal.SIGSTOP)]
    parent = os.getpid()
    die = die_with(parent, death_signal) if die_with_parent else None

    def prepare() -> None:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        if die is not None:
            die()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    # Blocked from before the fork until the handlers are the defaults: a signal that reaches the
    # child in between would otherwise run the parent's handler there and be lost.
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    opened: int | None = None
    try:
        if isinstance(stdout, int):
            log = stdout
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            try:
                log = opened = os.open(stdout, flags, 0o600)
            except OSError as error:
                raise NotStarted(
                    f"The log {stdout} cannot be opened: {error.strerror}.",
                    passing=error.errno in PASSING_ERRORS,
                ) from error
        return subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=stdin,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=prepare,
            pass_fds=tuple(inherited),
        )
    except OSError as error:
        raise _explain(error, argv, cwd) from error
    except ValueError as error:  # a NUL in an argument, say
        raise NotStarted(f"{argv[0]!r} cannot be started: {error}.") from error
    finally:
        if opened is not None:
            os.close(opened)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_with(parent: int, death_signal: int = signal.SIGKILL) -> Callable[[], None]:
    """Return what a child calls before it becomes a program, so that it ends with its parent."""
    prctl = load_libc().prctl

    def arm() -> None:
        prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent:  # it died before prctl could arm
            os._exit(126)

    return arm


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Tell whether a child has ended, without waiting for it: its number stays its own."""
    try:
        return child.returncode is not None or _peek(child) is not None
    except ChildProcessError:  # somebody has waited for it
        return True


def has_failed(child: subprocess.Popen[bytes]) -> bool:
    """Tell whether a child has ended by a signal, or with an exit code other than 0."""
    if child.returncode is not None:
        return child.returncode != 0
    try:
        found = _peek(child)
    except ChildProcessError:
        return True  # nobody knows
    return found is not None and (found.si_code != os.CLD_EXITED or found.si_status != 0)


def _peek(child: subprocess.Popen[bytes]) -> Any:
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def adopt_orphans() -> None:
    """Make this process the parent of whatever its descendants leave behind.

    Call it before the first of them is started; from then on ``reap_orphans`` now and then, or the
    dead ones stay as zombies.
    """
    global _adopter
    if load_libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0:
        _adopter = os.getpid()


def adopts_orphans() -> bool:
    """Tell whether every process that descends from this one becomes its child at the latest when
    its own parent ends; so that a process without children has no descendants."""
    return _adopter == os.getpid()


def reap_orphans(child: int | None = None) -> bool:
    """Collect descendants that have ended after their own parent; return whether any child is left.

    Only for a process of one thread that waits for each child where it starts it: another thread's
    child would be collected here too.

    Args:
        child: One that is left for its ``Popen`` to collect.
    """
    if threading.active_count() > 1:
        return True
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        if found is None or found.si_pid == child:
            return True
        with contextlib.suppress(ChildProcessError):
            os.waitpid(found.si_pid, os.WNOHANG)


def end_group(group: int, token: str, *, grace_s: float, leader_start: int | None = None) -> bool:
    """End every process of an attempt: SIGTERM, and SIGKILL for what is left after the grace.

    Reaches the process group and whoever carries the token (processes that left the group). A
    group counts only if it is known to be the attempt's: a member carries the token, or its leader
    started at ``leader_start``. Zombies do not count.

    Args:
        grace_s: Seconds between SIGTERM and SIGKILL.

    Returns:
        True as soon as none is alive; False if one outlives SIGKILL by ten seconds.
    """
    return end_processes(_Members(group, token, leader_start).find, grace_s=grace_s)


def end_child(child: subprocess.Popen[bytes], token: str, *, grace_s: float) -> bool:
    """End a child of ours that leads its group, and all of its attempt, as ``end_group`` does.

    As long as it has not been waited for its number is its own, so that its group is known by its
    start time: also where it wrote over its own environment, as a long process title does.
    """
    start = start_time(child.pid) if child.returncode is None else None
    return end_group(child.pid, token, grace_s=grace_s, leader_start=start)


def end_attempt_group(group: int | None, token: str) -> bool:
    """Kill what a dead worker's attempt left on this machine, as ``end_group`` does, at once.

    Args:
        group: None where the worker died before it recorded the group: the token finds it.
    """
    return end_group(-1 if group is None else group, token, grace_s=0.0)


def end_processes(find: Callable[[], set[Process]], *, grace_s: float) -> bool:
    """End what ``find`` returns, asked again and again: SIGTERM, then SIGKILL after the grace.

    Returns:
        True as soon as it finds none; False if it finds some ten seconds after SIGKILL.
    """
    told: set[Process] = set()
    pause = FIRST_LOOK_S
    kill_at = time.monotonic() + grace_s
    while alive := find():
        now = time.monotonic()
        if now >= kill_at + KILL_PATIENCE_S:
            return False
        for process in alive:
            if now >= kill_at:
                process.signal(signal.SIGKILL)
            elif process not in told:
                process.signal(signal.SIGTERM)
                process.signal(signal.SIGCONT)  # a stopped process sees SIGTERM only then
        told |= alive
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_LOOK_S)
    return True


class _Members:
    """The live processes of one attempt, over several looks."""

    def __init__(self, group: int, token: str, leader_start: int | None) -> None:
        # The caller's own group is another's by now: an attempt does not end itself.
        self.group = 0 if group == os.getpgrp() else group
        self.token = token
        self.leader_start = leader_start
        self.seen: set[Process] = set()

    def find(self) -> set[Process]:
        in_group: set[Process] = set()
        carriers: set[Process] = set()
        for process in live_processes():
            if process.pid == os.getpid():
                continue
            if process.group == self.group:
                in_group.add(process)
            if process.environment().get(TOKEN_VARIABLE) == self.token:
                carriers.add(process)
        # A member seen before proves the group as well: its number cannot have been used again.
        proven = in_group & (carriers | self.seen) or (
            self.leader_start is not None and start_time(self.group) == self.leader_start
        )
        found = carriers | in_group if proven else carriers
        self.seen |= found
        return found


def _read_stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat from the third (the state) on, or None without one."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            content = stream.read()
    except OSError:
        return None
    # The second field is the name in parentheses, which may hold spaces and parentheses.
    return content[content.rindex(b")") + 2 :].split()


def load_libc() -> Any:
    """Return libc, loaded before any fork: a forked child must not load libraries."""
    global _libc
    if _libc is None:
        import ctypes

        _libc = ctypes.CDLL(None, use_errno=True)
    return _libc


def _explain(error: OSError, argv: Sequence[str], cwd: str | os.PathLike[str]) -> NotStarted:
    """Say in words why a command did not start."""
    command = str(argv[0])
    path = Path(cwd, command)
    if not Path(cwd).is_dir():
        return NotStarted(f"The folder {os.fspath(cwd)} does not exist.")
    if error.errno == errno.ENOENT:
        if "/" not in command:
            return NotStarted(
                f"Command not found: {command}.", "Is it on PATH where this runs?", code=127
            )
        if path.exists():
            return NotStarted(f"{path} needs an interpreter that does not exist.", code=127)
        return NotStarted(f"Command not found: {path}.", code=127)
    if error.errno in (errno.EACCES, errno.EPERM):
        return NotStarted(f"Not executable: {path}.", f"Try: chmod +x {path}")
    if error.errno == errno.ENOEXEC:
        return NotStarted(f"Not a program: {path}.", "Does its first line start with #!?")
    return NotStarted(
        f"{command} cannot be started: {error.strerror}.", passing=error.errno in PASSING_ERRORS
    )
