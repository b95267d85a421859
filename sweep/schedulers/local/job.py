"""An array of the local executor on disk: its files, its history, and whether its runner lives.

    <root>/<token>/
      request.json    what was submitted (0600)
      lock            held by the runner as long as it lives
      void            this request was given up before a runner took it
      runner.json     the runner's identity; written last, so a job is a folder that has it
      control.jsonl   what others ask of the runner: a throttle, a cancellation
      events.jsonl    what became of the elements, and of what was asked
      runner.log, finaliser.log

The token is the job id. However many elements an array has, these are all its files.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from sweep.core.errors import CouldNotAsk
from sweep.core.files import read_json, take_lock, write_atomic
from sweep.core.scheduler import ArrayJob
from sweep.core.study import Share
from sweep.core.system.processes import boot_id, is_alive, start_time

KILL_WAIT_S = 5.0  # between SIGTERM and SIGKILL; Slurm's KillWait (30 s there by default)
SETTLE_S = 30.0

COMPLETED = "COMPLETED"
FAILED = "FAILED"
TIMEOUT = "TIMEOUT"
CANCELLED = "CANCELLED"
NODE_FAIL = "NODE_FAIL"


@dataclass(frozen=True)
class JobFolder:
    """The files of one array."""

    root: Path

    @property
    def token(self) -> str:
        return self.root.name

    @property
    def request(self) -> Path:
        return self.root / "request.json"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def void(self) -> Path:
        return self.root / "void"

    @property
    def runner(self) -> Path:
        return self.root / "runner.json"

    @property
    def control(self) -> Path:
        return self.root / "control.jsonl"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def runner_log(self) -> Path:
        return self.root / "runner.log"

    @property
    def finaliser_log(self) -> Path:
        return self.root / "finaliser.log"

    def try_lock(self) -> int | None:
        """Take the runner's lock; return its descriptor, or None where somebody holds it."""
        # flock, because the runner forks once after taking it and a record lock would not follow.
        return take_lock(self.lock)

    def settle(self) -> bool:
        """Tell whether this is a job, for good: a request that no runner has taken is given up.

        The caller holds the lock of the root, so that no submission is under way.

        Raises:
            CouldNotAsk: A runner has been taking it for half a minute.
        """
        give_up_at = time.monotonic() + SETTLE_S
        while not self.runner.exists():
            descriptor = self.try_lock()
            if descriptor is not None:
                try:
                    if not self.runner.exists():
                        self.void.touch(mode=0o600)  # seen by a runner that comes late
                        return False
                finally:
                    os.close(descriptor)
            elif time.monotonic() > give_up_at:
                raise CouldNotAsk(
                    f"The runner of {self.root} has not started within half a minute."
                )
            else:
                time.sleep(0.01)
        return True

    def write_request(self, job: ArrayJob, gpu_names: list[str]) -> None:
        """Write down what is to be run."""
        request = vars(job) | {
            "argv": [os.fspath(part) for part in job.argv],
            "after": [os.fspath(part) for part in job.after],
            "cwd": os.fspath(job.cwd),
            "env": dict(job.env),
            "share": None if job.share is None else asdict(job.share),
            "gpu_names": gpu_names,
        }
        write_atomic(self.request, json.dumps(request))
        self.void.unlink(missing_ok=True)

    def read_request(self) -> tuple[ArrayJob, list[str]]:
        """Return what is to be run, and the names of the GPUs it may use."""
        request = json.loads(self.request.read_text(encoding="utf-8"))
        gpu_names, share = request.pop("gpu_names"), request.pop("share", None)
        request["share"] = None if share is None else Share(**share)
        return ArrayJob(**request | {"cwd": Path(request["cwd"])}), gpu_names


@dataclass(frozen=True)
class RunnerRecord:
    """Which process runs an array, and what of the request ``poll`` needs."""

    pid: int
    start: int | None
    boot: str
    host: str
    size: int

    @classmethod
    def of_this_process(cls, size: int) -> RunnerRecord:
        pid = os.getpid()
        return cls(pid, start_time(pid), boot_id(), os.uname().nodename, size)

    @classmethod
    def read(cls, folder: JobFolder) -> RunnerRecord | None:
        """Return the record of a job, or None where there is no such job."""
        record = read_json(folder.runner)
        return None if record is None else cls(**record)

    def is_here(self) -> bool:
        """Tell whether pids of this record can mean processes of this machine, as it runs now."""
        return self.host == os.uname().nodename and self.boot == boot_id()

    def lives(self) -> bool:
        """Tell whether the runner is alive.

        Raises:
            CouldNotAsk: It was started on another machine.
        """
        if self.host != os.uname().nodename:
            raise CouldNotAsk(
                f"This study's tasks were started on {self.host}; this is {os.uname().nodename}.",
                f"Ask again on {self.host}.",
            )
        return self.boot == boot_id() and is_alive(self.pid, self.start)
