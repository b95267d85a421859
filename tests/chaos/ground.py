"""Where a storm takes place: this machine, or a real Slurm. Runs sweep's commands, and kills.

Nothing of sweep's is imported here. Trainings name themselves in the ledger; what is above them is
found by their parents, the local runner by its record, the server by PostgreSQL's own pid file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.gpus import CPUS_OF_GPU, MPS_KILLS, StormGpus
from tests.cluster.cluster import Cluster
from tests.cluster.config import GPUS_PER_NODE
from tests.cluster.processes import find_job_processes, wait_for
from tests.cluster.user import User
from tests.conftest import sweep_environment
from tests.processes import end_processes, find_processes

TRAINING = Path(__file__).with_name("training.py")
OWN_SEARCH = Path(__file__).parents[2] / "studies" / "scripts" / "own_search.py"
LOCAL_KILLS = ("training", "training", "training", "task", "task", "runner", "launch", "database")
SLURM_KILLS = (
    *("training", "training", "task", "task", "batch", "stepd"),
    *("launch", "slurmctld", "database", "database job"),
)


PROPOSER = "sweep.tasks.proposer"
ENDS_STALE = "from sweep.core.system.mps import end_stale; end_stale()"  # as the next task does
HELD_TIMES = 15.0  # the longest hold of 45 s outlasts a proposer's lease


class Ran(NamedTuple):
    """How a command ended, and what it printed; a code of None: it was ended after its time."""

    argv: tuple[str, ...]
    code: int | None
    out: str
    err: str


class Live(NamedTuple):
    """A training that is alive by the ledger."""

    trial: int
    attempt: int
    pid: int


class Tail:
    """Follows a ledger: how many epochs were ended, and which trainings are alive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.epochs = 0
        self.lines = 0
        self._offsets: dict[Path, int] = {}
        self._alive: dict[Live, int] = {}  # and when each began, in ticks

    def follow(self) -> None:
        """Read what is new."""
        for path in self.folder.glob("*.jsonl"):
            offset = self._offsets.get(path, 0)
            if path.stat().st_size <= offset:
                continue
            with open(path, "rb") as stream:
                stream.seek(offset)
                data = stream.read()
            whole = data.rfind(b"\n") + 1
            self._offsets[path] = offset + whole
            for text in data[:whole].splitlines():
                self._take(json.loads(text))

    def _take(self, line: Mapping[str, Any]) -> None:
        self.lines += 1
        who = Live(line["trial"], line["attempt"], line["pid"])
        if line["word"] == "begin":
            self._alive[who] = line["start"]
        elif line["word"] in ("left", "done"):
            self._alive.pop(who, None)
        elif line["word"] == "ended":
            self.epochs += 1

    def living(self) -> list[Live]:
        """Return the trainings that are alive, by trial."""
        for who, start in list(self._alive.items()):
            if start_time(who.pid) != start:
                del self._alive[who]
        return sorted(self._alive)


class Ground:
    """What both grounds share. ``folder`` holds all of one storm.

    Attributes:
        leave_s: After the last trial's end, for what still runs to end by itself.
        patience_s: Without progress for so long at least, a user would launch again.
    """

    kills: Sequence[str]
    executor: str
    leave_s: float
    patience_s: float = 0.0

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.work, self.ledger, self.runs = folder / "work", folder / "ledger", folder / "runs"
        for path in (self.work, self.ledger):
            self.make(path)
        self.tail = Tail(self.ledger)
        self.file = self.work / "study.yaml"
        for path in (TRAINING, OWN_SEARCH):
            self.write(self.work / path.name, path.read_text())

    @property
    def study(self) -> Path:
        return self.runs / self.name

    # What a ground has of its own

    def make(self, folder: Path) -> None:
        """Make a folder that the study's trainings may write to."""
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, text: str) -> None:
        path.write_text(text)

    def python(self) -> str:
        raise NotImplementedError

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of sweep's."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the keys of the study file that the place decides."""
        raise NotImplementedError

    def leftovers(self) -> list[str]:
        """Return what of the study still runs, its database apart."""
        raise NotImplementedError

    def accounting(self, jobs: Sequence[str]) -> list[str]:
        """Return the accounting's rows of jobs; none where there is no accounting."""
        return []

    def close(self, keep: bool) -> None:
        """End all that runs; remove the folder unless it is to be kept."""
        raise NotImplementedError

    # Commands

    def sweep(self, *arguments: str, timeout_s: float = 240.0) -> Ran:
        """Run a command of sweep's."""
        return finish(arguments, self.start(*arguments), timeout_s)

    def write_study(self, keys: Mapping[str, Any], epochs: int, every: int, epoch_s: float) -> None:
        """Write the study file; JSON is YAML."""
        command = [self.python(), str(self.work / TRAINING.name), f"--ledger={self.ledger}"]
        command += [
            f"--epochs={epochs}",
            f"--epoch-s={epoch_s}",
            f"--every={every}",
            "--seed={seed}",
            "{params}",
        ]
        given = {"name": self.name, "command": command, **self.settings(), **keys}
        new = self.file.with_suffix(".new")
        self.write(new, json.dumps(given, indent=1))
        new.replace(self.file)  # another launch may be reading it

    # Faults

    def kill(self, kind: str, choice: float, delay_s: float) -> str:
        """Kill something of a kind; return what it was, empty where there was none.

        Args:
            choice: From 0 to 1: which one of several.
            delay_s: How long what comes back by our hand stays away.
        """
        if kind == "database":
            return self._kill_database()
        if kind.startswith("proposer"):
            return self._disturb_proposer(choice, delay_s, is_held=kind == "proposer held")
        living = self.tail.living()
        if not living:
            return ""
        victim = living[int(choice * len(living))]
        pid = victim.pid if kind == "training" else self.above(victim.pid, kind)
        if pid is None or not send_kill(pid):
            return ""
        return f"{kind} {pid} of trial {victim.trial}, attempt {victim.attempt}"

    def above(self, training: int, kind: str) -> int | None:
        """Return the process of a kind above a training; None where there is none (any more)."""
        if kind != "task":
            raise ValueError(f"nothing here is a {kind}")
        pid = parent(training)
        return pid if pid > 1 else None

    def _kill_database(self) -> str:
        pid = self.postmaster()
        return f"postmaster {pid}" if pid and send_kill(pid) else ""

    def proposers(self) -> list[int]:
        """Return the processes that prepare the study's proposals."""
        found = find_processes(self.study)
        return [one.pid for one in found if PROPOSER in one.command]

    def _disturb_proposer(self, choice: float, delay_s: float, *, is_held: bool) -> str:
        """Kill what prepares proposals, or stop it for a while, which may be for longer than its
        lease."""
        pids = self.proposers()
        if not pids:
            return ""
        pid = pids[int(choice * len(pids))]
        if not is_held:
            return f"proposer {pid}" if send_kill(pid) else ""
        held_s = delay_s * HELD_TIMES
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            going_on = threading.Timer(held_s, send_continue, [pid, start_time(pid)])
            going_on.daemon = True
            going_on.start()
            return f"proposer {pid}: held for {held_s:.0f} s"
        return ""

    def postmaster(self) -> int | None:
        """Return the embedded server's process while it lives."""
        for path in self.runs.glob(".postgres/**/postmaster.pid"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = int(path.read_text().split()[0])
                if Path(f"/proc/{pid}/comm").read_text().strip() == "postgres":
                    return pid
        return None


class LocalGround(Ground):
    """This machine, with the local executor and an embedded server.

    Args:
        share: How trials share its two GPUs, of which no driver says anything (``auto``, or a
            number); None where they need none.
        mps: With stand-ins for their driver and for MPS, which serves the trials.
    """

    kills = LOCAL_KILLS
    executor = "local"
    leave_s = 60.0

    def __init__(
        self, folder: Path, name: str, share: str | int | None = None, mps: bool = False
    ) -> None:
        super().__init__(folder, name)
        self.share = share
        mine = hashlib.sha256(str(folder).encode()).hexdigest()[:7]
        self.gpus = f"GPU-{mine}0,GPU-{mine}1"  # no other study's on this machine
        self.cards = StormGpus(self.folder, 2) if mps else None
        self.gpu_env: dict[str, str] = {}
        if self.cards is not None:
            self.gpu_env = {**self.cards.env, "NVML_STUB_UUID": mine}
            self.kills = (*LOCAL_KILLS, *MPS_KILLS)

    def python(self) -> str:
        return sys.executable

    def settings(self) -> dict[str, Any]:
        if self.share is None:
            return {"executor": "local"}
        resources = {"gpus": 1, "cpus": CPUS_OF_GPU, "share": self.share}
        return {"executor": "local", "resources": resources}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "sweep", *arguments],
            cwd=self.work,
            env=sweep_environment(self.runs, {"SWEEP_STORAGE": None})
            | {"SWEEP_SITE_CONFIG": "", "SWEEP_USER_CONFIG": ""}
            | self.gpu_env
            | ({} if self.share is None else {"CUDA_VISIBLE_DEVICES": self.gpus}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kill(self, kind: str, choice: float, delay_s: float) -> str:
        if kind in MPS_KILLS and self.cards is not None:
            return self.cards.harm(kind, choice)
        if kind != "runner":
            return super().kill(kind, choice, delay_s)
        pids = [pid for path in self.study.glob("local/*/runner.json") if (pid := _recorded(path))]
        killed = [pid for pid in pids if send_kill(pid)]
        return f"runner {killed}" if killed else ""

    def leftovers(self) -> list[str]:
        folders = [self.study, self.work]
        if self.cards is not None:  # what a killed runner has left the next task ends
            subprocess.run(
                [sys.executable, "-c", ENDS_STALE], env=os.environ | self.gpu_env, check=True
            )
            folders.append(self.cards.programs)
        found = {p.pid: p for p in find_processes(*folders)}
        return [f"process {p.pid} {p.command[:200]}" for p in found.values()]

    def close(self, keep: bool) -> None:
        end_processes(self.study)
        end_processes(self.work)
        if self.runs.is_dir():
            self.sweep("db", "stop")
        end_processes(self.folder)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


class SlurmGround(Ground):
    """A real Slurm, with the embedded server in a job of its own.

    Args:
        share: How trials share the GPUs of its tasks (``auto``, or a number), of which no driver
            says anything; None where they need none.
        mps: With stand-ins for their driver and for MPS, which serves the trials.
    """

    kills = SLURM_KILLS
    executor = "slurm"
    leave_s = 300.0  # an element whose slurmstepd was killed is put back, and waits two minutes
    patience_s = 200.0  # what died is looked for after two minutes

    def __init__(
        self, cluster: Cluster, name: str, share: str | int | None = None, mps: bool = False
    ) -> None:
        self.cluster = cluster
        self.user = User(cluster, cluster.home / name)
        self.ghosts: set[str] = set()
        self.share = share
        super().__init__(self.user.folder, name)
        self.cards: StormGpus | None = None
        # The executor may be switched: this machine's GPUs are called as those of a node.
        self.gpu_env = {} if share is None else {"CUDA_VISIBLE_DEVICES": "0,1"}
        if mps:
            self.cards = StormGpus(self.folder, GPUS_PER_NODE, self.python())
            for key in ("NVML_STUB_MODEL", "LD_LIBRARY_PATH"):
                self.gpu_env[key] = self.cards.env[key]
            driver = self.cards.env["LD_LIBRARY_PATH"]
            self.gpu_env["PATH"] = f"{self.cards.programs}:{driver}:{self.user.env()['PATH']}"
            self.kills = (*SLURM_KILLS, *MPS_KILLS)

    def make(self, folder: Path) -> None:
        self.user.make(folder)

    def write(self, path: Path, text: str) -> None:
        self.user.write(str(path.relative_to(self.folder)), text)

    def python(self) -> str:
        return str(self.user.bin / "python")

    def settings(self) -> dict[str, Any]:
        resources: dict[str, Any] = {"time": "00:20:00", "cpus": 1, "memory": "200M"}
        if self.share is not None:  # what the trials of a GPU have together
            resources |= {"gpus": 1, "cpus": 4, "memory": "800M", "share": self.share}
        return {"executor": self.executor, "resources": resources}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return self.cluster.start(
            [str(self.user.bin / "sweep"), *arguments],
            user=self.cluster.user,
            env=self.user.env(self.gpu_env),
            cwd=self.work,
        )

    def kill(self, kind: str, choice: float, delay_s: float) -> str:
        if kind in MPS_KILLS and self.cards is not None:
            return self.cards.harm(kind, choice)
        if kind == "slurmctld":
            self.cluster.kill_slurmctld()
            time.sleep(delay_s)
            self.cluster.start_slurmctld()
            return f"slurmctld, for {delay_s:.1f} s"
        if kind == "database job":
            jobs = [row[0] for row in self.user.queue() if row[1].startswith("sweep-db-")]
            if jobs:
                self.cluster.run(["scancel", "--full", "--signal=KILL", *jobs])
            return f"database job {jobs}" if jobs else ""
        return super().kill(kind, choice, delay_s)

    def above(self, training: int, kind: str) -> int | None:
        if kind == "task":
            return super().above(training, kind)
        below, pid = training, parent(training)
        while pid > 1:
            if read_name(pid).startswith("slurmstepd"):
                return pid if kind == "stepd" else below
            below, pid = pid, parent(pid)
        return None

    def leftovers(self) -> list[str]:
        """A job that Slurm lists as running long after its last process is no fault of sweep's.

        Nor is what waits for its end: a killed controller or slurmstepd leaves such jobs.
        """
        held = {job for pid in find_job_processes(self.cluster.root) for job in _jobs_of(pid)}
        found, self.ghosts = [], set()
        for job, name, state, reason in self.user.queue():
            if name.startswith("sweep-db-") or self.name not in name:
                continue
            if (state == "PENDING" and reason != "Dependency") or job in held:
                found.append(f"job {job} {name} {state} {reason}")
            else:
                self.ghosts.add(job)
        if self.cards is not None:
            argv, user = [self.python(), "-c", ENDS_STALE], self.cluster.user
            self.cluster.run(argv, user=user, env=self.user.env(self.gpu_env), check=True)
            found += [f"MPS process {pid}" for pid in self.cards.processes()]
        return found + [f"training {who}" for who in self.tail.living()]

    def accounting(self, jobs: Sequence[str]) -> list[str]:
        if not jobs:
            return []
        argv = ["sacct", "-nPXD", "-j", ",".join(jobs), "-o", "JobID,State,Start,End"]
        rows = [row.split("|") for row in self.cluster.run(argv, check=True).stdout.splitlines()]
        # A controller that was killed forgets its last job and gives its number to another one;
        # the accounting has the first as pending for ever. What runs is squeue's to say.
        listed = {number_of(job) for job, *_ in self.user.queue()}
        told = [
            row
            for row in rows
            if row[0] not in self.ghosts
            and (row[1].split()[0] != "PENDING" or number_of(row[0]) in listed)
        ]
        return ["|".join(_in_seconds(part) for part in row) for row in told]

    def close(self, keep: bool) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            self.cluster.run(["scancel", "-u", self.cluster.user])
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: not self.user.queue(), 90, "the queue to be empty", may_fail=True)
        self.sweep("db", "stop")
        end_processes(self.folder)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def number_of(job: str) -> str:
    """Return the number of a job or of an element's array: ``90`` of ``90_[3-8%3]``."""
    return job.partition("_")[0]


def finish(arguments: tuple[str, ...], child: subprocess.Popen[str], timeout_s: float) -> Ran:
    """Wait for a command that was started; one that does not end in time is ended."""
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
        return Ran(arguments, None, out, err)
    return Ran(arguments, child.returncode, out, err)


def parent(pid: int) -> int:
    """Return a process's parent; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def start_time(pid: int) -> int | None:
    """Return when a live process began, in ticks; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def read_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def send_continue(pid: int, start: int | None) -> None:
    """Let a process go on that was stopped, if it is still that one."""
    if start is not None and start_time(pid) == start:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def send_kill(pid: int) -> bool:
    """Send SIGKILL; tell whether there was such a process."""
    if pid in (0, 1, os.getpid()):
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _recorded(path: Path) -> int | None:
    """Return the process that a runner's record names, while it lives."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return record["pid"] if start_time(record["pid"]) == record["start"] else None


def _jobs_of(pid: int) -> list[str]:
    """Return the names by which squeue may list the job of a process: number, and element."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
    found = dict(word.decode(errors="replace").split("=", 1) for word in words if b"=" in word)
    if "SLURM_JOB_ID" not in found:
        return []  # it ended, and shows no environment any more
    array, index = found.get("SLURM_ARRAY_JOB_ID"), found.get("SLURM_ARRAY_TASK_ID")
    return [found["SLURM_JOB_ID"], f"{array}_{index}"]


def _in_seconds(text: str) -> str:
    """Return one of sacct's times in epoch seconds; other text as it is."""
    try:
        return str(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return text
