"""CUDA's MPS for the trials that share one GPU: a daemon and a server of this user's.

    mps = Mps("auto", lambda: facts)
    mps.begin()        # starts them, or says why not: mps.why
    mps.variables()    # what a training needs to be served; {} where MPS is off
    mps.end()

Each GPU has its own, for the trials of one task alone: what faults on one leaves the others alone.
Their folder is private, and locked by the process that began them: what that one leaves behind when
it is killed, the next process of this user's finds and ends. A daemon or server of anybody else's
is neither used nor ended.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.core.errors import SweepError
from sweep.core.files import locked, make_private, read_tail, take_lock
from sweep.core.system.gpus import GPU_VARIABLE
from sweep.core.system.own_folder import PLACES, own_folder, own_path
from sweep.core.system.processes import (
    Process,
    end_processes,
    find_process,
    is_alive,
    live_processes,
)

OFF, AUTO, ON = "off", "auto", "on"
WORDS = (AUTO, ON, OFF)
PROGRAM = "nvidia-cuda-mps-control"
PIPE, LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
DEFAULT, EXCLUSIVE, PROHIBITED = "Default", "Exclusive_Process", "Prohibited"  # compute modes
FOLDER = "mps"
LOCK = "lock"
ASK_S = 20.0  # for an answer of the control program
START_S = 30.0  # until the server is there: without the persistence daemon a GPU takes seconds
ANSWER_S = 5.0  # until a daemon that has just been started answers
QUIT_S = 2  # for clients to end, where the daemon is told to
END_S = 10.0  # until what was told to end is killed
LOOK_S = 0.05
MOST_FAILURES = 3  # of clients that MPS let down, with none that trained to its end between them
LOG_LINES = 500  # of a log's end
# [2026-02-06 09:34:17.770 Control   261] Server 337 exited with status 1
_STAMP = r"^\[[\d :.-]+(?:\w+ )*\w* *\d+\] ?"
_REASON = r"(?i)failed to start|\bCUDA_ERROR_\w+|\bcannot\b|\bdenied\b"
_SERVER_ENDED = r"(?i)\bServer \d+ exited with status [^0]|fatal exception"
_COMM = PROGRAM[:15]  # as the kernel names the control program and the server
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True)
class Identity:
    """A GPU, as its driver names it.

    Attributes:
        uuid: Its UUID, or that of a MIG slice.
        mode: Its compute mode, of DEFAULT, EXCLUSIVE, PROHIBITED or another word.
        holders: The processes that compute on it, as far as they are told.
    """

    uuid: str
    mode: str = DEFAULT
    holders: Sequence[int] = ()


@dataclass(frozen=True)
class Facts:
    """What decides whether MPS may be started for a GPU.

    Attributes:
        program: Where the control program is; None where it is not on PATH.
        gpu: None where its driver cannot be asked.
        pipe: CUDA_MPS_PIPE_DIRECTORY, as this process was given it.
        foreign: MPS servers on the GPU that are not ours, in words.
    """

    program: str | None
    gpu: Identity | None
    pipe: str = ""
    foreign: Sequence[str] = ()


def why_not(wanted: str, facts: Facts) -> str:
    """Return why MPS is not to be started for a GPU; "" where it is."""
    gpu = facts.gpu
    if wanted == OFF:
        return "the study file says mps: off"
    if facts.pipe:
        return f"{PIPE} is set: an MPS that sweep has not started"
    if facts.program is None:
        return f"there is no {PROGRAM} on PATH"
    if gpu is None:
        return "the GPU cannot be asked: nvidia-ml-py is missing, or its driver does not answer"
    if gpu.uuid.startswith("MIG-"):
        return "the GPU is a MIG slice"
    if gpu.mode == PROHIBITED:
        return f"the GPU's compute mode is {PROHIBITED}"
    if facts.foreign:
        return f"{facts.foreign[0]} serves this GPU"
    if gpu.mode == EXCLUSIVE and gpu.holders:
        return f"the GPU's compute mode is {EXCLUSIVE}, and process {gpu.holders[0]} has it"
    return ""


def find_facts(gpu: Identity | None, environ: Mapping[str, str]) -> Facts:
    """Return what decides, as this machine has it.

    Args:
        environ: This process's.
    """
    served = [pid for pid in (gpu.holders if gpu else ()) if _comm(pid) == _COMM]
    return Facts(
        shutil.which(PROGRAM, path=environ.get("PATH")),
        gpu,
        environ.get(PIPE, ""),
        [f"process {pid} of {_owner(pid)}, an MPS server," for pid in served],
    )


class Control:
    """Speaks to the daemon of one pipe folder.

    Args:
        program: The control program.
        environ: With the folders.
    """

    def __init__(self, program: str, environ: Mapping[str, str]) -> None:
        self.program = program
        self.environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self.environ |= environ

    def ask(self, command: str) -> str | None:
        """Return what the daemon answers to a command; None where it does not, or refuses."""
        try:
            done = subprocess.run(
                [self.program],
                input=f"{command}\n",
                env=self.environ,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ASK_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return None if done.returncode else done.stdout

    def servers(self) -> list[int] | None:
        """Return its servers' processes; None where there is no daemon (any more)."""
        return _numbers(self.ask("get_server_list"))

    def clients(self) -> set[int] | None:
        """Return the processes that its servers serve; None where that is not told."""
        servers = self.servers()
        if servers is None:
            return None
        found: set[int] = set()
        for server in servers:
            told = _numbers(self.ask(f"get_client_list {server}"))
            if told is None:
                return None
            found.update(told)
        return found


def end_clients(variables: Mapping[str, str], processes: Collection[int]) -> bool:
    """Have a server let go of the clients among these processes, which are to be killed next.

    A client that is killed in the middle of its work may leave the server in disorder; told so
    first, the server waits for that work.

    Args:
        variables: Which the clients were started with.

    Returns:
        Whether none of them is a client any more, as far as the daemon says.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        return False
    control, wanted = Control(program, variables), set(processes)
    for server in control.servers() or ():
        for client in wanted & set(_numbers(control.ask(f"get_client_list {server}")) or ()):
            control.ask(f"terminate_client {server} {client}")
    left = control.clients()
    return left is not None and not wanted & left


class Mps:
    """MPS for one GPU, while somebody trains there.

    Args:
        wanted: OFF, AUTO or ON.
        find: Returns what decides whether it may be started.
        environ: This process's.

    Attributes:
        is_on: Whether trainings that begin now are to be served.
        why: Why not, in words; "" where they are.
        generation: One more whenever the server was renewed: its clients' work is lost.
    """

    def __init__(
        self, wanted: str, find: Callable[[], Facts], environ: Mapping[str, str] = os.environ
    ) -> None:
        self.wanted = wanted
        self.find = find
        self.environ = environ
        self.is_on = False
        self.is_exclusive = False
        self.why = ""
        self.generation = 0
        self._failures = 0
        self._gave_up = ""
        self._folder: Path | None = None
        self._lock: int | None = None
        self._control: Control | None = None
        self._daemon: Process | None = None

    @property
    def word(self) -> str:
        """ "on" or "off"."""
        return ON if self.is_on else OFF

    @property
    def refused(self) -> str:
        """Why nothing may train on the GPU: the study file wants MPS and there is none."""
        return self.why if self.wanted == ON and not self.is_on else ""

    @property
    def takes_one(self) -> bool:
        """Whether the GPU takes one process: it is exclusive, and no server holds that place."""
        return self.is_exclusive and not self.is_on

    def variables(self) -> dict[str, str]:
        """Return what a training needs in its environment to be served; {} where MPS is off."""
        return {} if not self.is_on or self._control is None else dict(self._variables)

    def begin(self) -> None:
        """Start MPS, unless it runs or may not be; ``why`` says what kept it."""
        if self.is_on:
            return
        self.why = self._gave_up
        try:
            end_stale()
            facts = self.find()
            self.is_exclusive = facts.gpu is not None and facts.gpu.mode == EXCLUSIVE
            self.why = self.why or why_not(self.wanted, facts)
            if self.why:
                return
            assert facts.program is not None and facts.gpu is not None
            self._make(facts.program, facts.gpu.uuid)
            self.why = self._start()
        except (SweepError, OSError) as error:
            self.why = f"it did not start: {error}"
        if self.why:
            self.end()
        else:
            self.is_on = True

    def end(self) -> None:
        """End the daemon and its server, and remove their folder."""
        self.is_on = False
        if self._folder is not None:
            _end_in(self._folder, self._control)
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
        self._folder = self._lock = self._control = None

    def note_complete(self) -> None:
        """Note that a client has trained to its end."""
        self._failures = 0

    def check(self) -> None:
        """See that the daemon lives, before a training begins: without it CUDA goes on without MPS,
        and says nothing."""
        one = self._daemon
        if self.is_on and one is not None and not is_alive(one.pid, one.start):
            self.renew()

    def look(self, *, failed: bool = False) -> None:
        """See that the daemon lives, after a client has ended by a fault; renew what does not.

        Args:
            failed: The client was let down by MPS itself: it could not reach its server, say.
        """
        if self._control is None or not self.is_on:
            return
        self._failures += failed
        if self._failures >= MOST_FAILURES:
            self.give_up(f"it failed {self._failures} times, the last time under a training")
            return
        until = time.monotonic() + END_S
        while True:
            told = self._control.clients()
            # It sees a moment later that a client has ended.
            dead = told is None or any(find_process(pid) is None for pid in told)
            if not dead or told is None or time.monotonic() >= until:
                break
            time.sleep(LOOK_S)
        if dead:
            self.renew()

    def renew(self) -> None:
        """Start the daemon and its server anew; what they serve is lost."""
        if self._control is None or self._folder is None:
            return
        self.generation += 1
        _end_in(self._folder, self._control)
        try:
            why = self._start()
        except (SweepError, OSError) as error:
            why = f"it did not start: {error}"
        if why:
            self.give_up(why)

    def give_up(self, why: str) -> None:
        """Serve none that begins from now on; those that train go on as they are."""
        self._gave_up = self.why = why
        self.is_on = False
        if self.is_exclusive:
            self.end()  # or nobody could train there

    def _make(self, program: str, uuid: str) -> None:
        """Make and lock the folder."""
        root = own_folder(FOLDER)
        with locked(root / LOCK):
            folder = Path(tempfile.mkdtemp(prefix="", dir=root))
            self._lock = take_lock(folder / LOCK)
        self._folder = folder
        folders = {PIPE: make_private(folder / "p"), LOG: make_private(folder / "l")}
        self._variables = {name: str(path) for name, path in folders.items()}
        self._variables[GPU_VARIABLE] = uuid
        self._control = Control(program, self._variables)

    def _start(self) -> str:
        """Start daemon and server; return why not, or "" once the server is there."""
        control, folder = self._control, self._folder
        self._daemon = None
        assert control is not None and folder is not None
        said = folder / "l" / "start.txt"
        with said.open("w") as stream:  # a pipe would stay open with the daemon
            try:
                done = subprocess.run(
                    [control.program, "-d"],
                    env=control.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    timeout=START_S,
                )
            except subprocess.TimeoutExpired:
                return f"{PROGRAM} did not start within {START_S:.0f} s"
        until = time.monotonic() + ANSWER_S
        while not done.returncode and control.servers() is None:
            if time.monotonic() >= until:
                break
            time.sleep(LOOK_S)
        if done.returncode or control.servers() is None:
            why = read_log(said) or read_log(folder / "l" / "control.log")
            return f"{PROGRAM} did not start ({why or f'exit {done.returncode}'})"
        control.ask(f"start_server -uid {os.geteuid()}")
        logs = [folder / "l" / name for name in ("server.log", "control.log")]
        until = time.monotonic() + START_S
        while not control.servers():
            has_ended = any(re.search(_SERVER_ENDED, one) for one in read_tail(logs[1], LOG_LINES))
            if has_ended or time.monotonic() >= until or control.servers() is None:
                why = next(filter(None, map(read_log, logs)), "it says nothing")
                return f"its server did not start ({why})"
            time.sleep(LOOK_S)
        servers = control.servers() or ()
        self._daemon = next((p for p in _processes_of(folder) if p.pid not in servers), None)
        return ""


def end_stale() -> list[str]:
    """End what processes of this user's that were killed have left; return its folders."""
    found = []
    for root in (own_path(FOLDER, place) for place in PLACES):
        if not root.is_dir() or root.is_symlink() or root.stat().st_uid != os.geteuid():
            continue
        with locked(root / LOCK):
            for folder in sorted(path for path in root.iterdir() if path.is_dir()):
                lock = take_lock(folder / LOCK)
                if lock is None:  # whoever began it lives
                    continue
                try:
                    program = shutil.which(PROGRAM)
                    pipe = {PIPE: str(folder / "p")}
                    _end_in(folder, None if program is None else Control(program, pipe))
                    shutil.rmtree(folder, ignore_errors=True)
                    found.append(str(folder))
                finally:
                    os.close(lock)
    return found


def _end_in(folder: Path, control: Control | None) -> bool:
    """Tell the daemon of a folder to end, with its servers; end by signals what does not."""

    def find() -> set[Process]:
        return _processes_of(folder)

    heard = control is not None and control.ask(f"quit -t {QUIT_S}") is not None
    until = time.monotonic() + (END_S if heard else 0.0)
    while find() and time.monotonic() < until:
        time.sleep(LOOK_S)
    return end_processes(find, grace_s=1.0)


def _processes_of(folder: Path) -> set[Process]:
    """Return the daemon and the servers of a folder."""
    named = (one for one in live_processes() if _comm(one.pid) == _COMM)
    return {one for one in named if one.environment().get(PIPE) == str(folder / "p")}


def _comm(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    return ""


def _owner(pid: int) -> str:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        return pwd.getpwuid(uid).pw_name
    except (OSError, KeyError):
        return "another user"


def _numbers(told: str | None) -> list[int] | None:
    """Return the lines that are a number each: what else is said is no process."""
    if told is None:
        return None
    return [int(line) for line in map(str.strip, told.splitlines()) if line.isdecimal()]


def read_log(path: Path) -> str:
    """Return the line of a log of MPS's that says why it failed, without its time; else its last.

    The log of one that has failed goes on: the control program starts the next server.
    """
    lines = [re.sub(_STAMP, "", line).strip()[:200] for line in read_tail(path, LOG_LINES)]
    lines = [line for line in lines if line]
    for pattern in (_REASON, _SERVER_ENDED):
        for line in reversed(lines):
            if re.search(pattern, line):
                return line
    return lines[-1] if lines else ""
