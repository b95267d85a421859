"""A third scheduler in one file: each array has a keeper, a process that is asked through files.

All else has a default. ``python spool_scheduler.py sweep …`` is the command line that knows it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.cli import run_command
from sweep.core import executors, scheduler
from sweep.core.files import read_json, write_atomic
from sweep.core.paths import PACKAGE, StudyFolder
from sweep.core.scheduler import ENDED, PENDING, RUNNING, ArrayJob, Limits, TaskState
from sweep.core.study import Study
from sweep.core.system.processes import is_alive, spawn, start_time
from sweep.tasks import main as task

VARIABLES = (scheduler.JOB_VARIABLE, scheduler.INDEX_VARIABLE, scheduler.END_VARIABLE)


class SpoolScheduler(scheduler.Scheduler):
    name = "spool"
    place = "the spool"
    shares_this_machine = True
    is_cheap_to_ask = True

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of(cls, folder: StudyFolder, study: Study, environ: Mapping[str, str]) -> SpoolScheduler:
        return cls(folder.root / "spool")

    def limits(self) -> Limits:
        return Limits(array_size=3)

    def submit(self, job: ArrayJob) -> str:
        place = self.root / job.token
        place.mkdir(parents=True)
        (place / "asked.jsonl").touch()
        write_atomic(place / "job.json", json.dumps(vars(job) | {"cwd": str(job.cwd)}))
        argv = [sys.executable, __file__, "keep", str(place)]
        env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
        spawn(argv, cwd=place, env=env, stdout=place / "log", die_with_parent=False)
        while not self.find(job.token):
            time.sleep(0.01)
        return job.token

    def find(self, token: str) -> list[str]:
        return [token] if self._said(token)["tasks"] else []

    def poll(self, jobs: Sequence[str]) -> dict[scheduler.Task, TaskState]:
        found: dict[scheduler.Task, TaskState] = {}
        for job in jobs:
            said = self._said(job)
            for index, state in enumerate(TaskState(**given) for given in said["tasks"]):
                if state.state == ENDED or is_alive(*said["keeper"]):
                    found[job, index] = state
        return found

    def cancel(
        self, job: str, indices: Sequence[int] | None = None, *, pending_only: bool = False
    ) -> None:
        self._ask(job, cancel=indices, pending_only=pending_only)

    def set_throttle(self, job: str, throttle: int) -> None:
        self._ask(job, throttle=throttle)

    def _ask(self, job: str, **what: object) -> None:
        with open(self.root / job / "asked.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(what) + "\n")
            asked = stream.tell()
        while (said := self._said(job))["seen"] < asked and is_alive(*said["keeper"]):
            time.sleep(0.01)

    def _said(self, job: str) -> dict[str, Any]:
        said = read_json(self.root / job / "states.json")
        return said or {"keeper": (0, 0), "seen": 0, "tasks": []}


def keep(arguments: list[str]) -> int:
    """Run one array to its end, and then what comes after."""
    place, given = Path(arguments[0]), json.loads(Path(arguments[0], "job.json").read_text())
    job = ArrayJob(**given | {"cwd": Path(given["cwd"])})
    tasks = [TaskState(PENDING)] * job.size
    live: dict[int, tuple[subprocess.Popen[bytes], float]] = {}  # with when it began
    ends: dict[int, tuple[str, float]] = {}  # the verdict, and when to kill
    throttle, limit_s, seen, warned = job.throttle, job.time_limit_s or 1e9, 0, list[int]()

    def tell(index: int, number: int, verdict: str = "") -> None:
        if verdict:
            ends.setdefault(index, (verdict, time.monotonic() + 2.0))
        os.killpg(live[index][0].pid, number)  # not reaped yet

    asked, me = place / "asked.jsonl", (os.getpid(), start_time(os.getpid()))
    while any(state.state != ENDED for state in tasks):
        for line in asked.read_bytes()[seen:].splitlines(keepends=True):
            what, seen = json.loads(line), seen + len(line)
            throttle = what.get("throttle", throttle)
            for index in what.get("cancel", ()) or (range(job.size) if "cancel" in what else ()):
                if tasks[index].state == PENDING:
                    tasks[index] = TaskState(ENDED, "CANCELLED", "", None, os.getuid(), None, False)
                elif index in live and not what["pending_only"]:
                    tell(index, signal.SIGTERM, "CANCELLED")
        for index, (process, began) in list(live.items()):
            age_s, code = time.monotonic() - began, process.poll()
            if code is not None:
                word = ends[index][0] if index in ends else "FAILED" if code else "COMPLETED"
                by = os.getuid() if word == "CANCELLED" else None
                tasks[index] = TaskState(ENDED, word, "", code if code >= 0 else 128 - code, by)
                del live[index]
            elif index in ends:
                tell(index, signal.SIGKILL if time.monotonic() >= ends[index][1] else 0)
            elif age_s >= limit_s:
                tell(index, signal.SIGTERM, "TIMEOUT")
            elif age_s >= limit_s - job.grace_s and index not in warned:
                warned.append(index)
                process.send_signal(signal.SIGUSR1)
        for index, state in enumerate(tasks):
            if state.state == PENDING and len(live) < throttle:
                ours = (job.token, str(index), str(time.time() + limit_s))
                env = {**os.environ, **job.env, **dict(zip(VARIABLES, ours, strict=True))}
                log = Path(job.log_pattern.format(job=job.token, index=index))
                process = spawn(real(job.argv), cwd=job.cwd, env=env, stdout=log)
                live[index], tasks[index] = (process, time.monotonic()), TaskState(RUNNING)
        said = {"keeper": me, "seen": seen, "tasks": [vars(state) for state in tasks]}
        write_atomic(place / "states.json", json.dumps(said))
        time.sleep(0.02)
    return spawn(real(job.after or ["true"]), cwd=job.cwd, env=os.environ, stdout=1).wait()


def real(argv: Sequence[str]) -> list[str]:
    """Return a command as it is run: sweep's tasks in a process that knows this scheduler."""
    if argv[:3] == [sys.executable, "-m", "sweep.task"]:
        return [sys.executable, __file__, "task", *argv[3:]]
    return ["sh", "-c", 'exec "$@"', "sh", *argv]


if __name__ == "__main__":
    executors.register(SpoolScheduler)
    sys.exit({"keep": keep, "task": task.main, "sweep": run_command}[sys.argv[1]](sys.argv[2:]))
