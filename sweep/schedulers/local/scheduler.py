"""The local executor: what a Slurm array is, with processes of this machine.

Each array has a runner, a small process of its own that starts the elements, keeps the throttle
and the limits, and ends by itself (``sweep.schedulers.local.runner``). It outlives the command
that submitted it. Here is the other side: submit, find, poll, cancel.

A job is a folder that holds a runner's record; the runner writes it once it is sure to run. So a
submission either happened or did not, wherever the submitter was killed, and ``find`` tells which.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.core.errors import CouldNotAsk, SchedulerError, SubmitUnclear
from sweep.core.files import locked, make_private, read_tail
from sweep.core.paths import PACKAGE, StudyFolder
from sweep.core.scheduler import (
    END_VARIABLE,
    ENDED,
    INDEX_VARIABLE,
    JOB_VARIABLE,
    ORPHANED,
    PENDING,
    RUNNING,
    ArrayJob,
    Limits,
    Scheduler,
    Task,
    TaskState,
)
from sweep.core.site_view import Amount, NodeView, SiteView
from sweep.core.study import Study
from sweep.core.system.gpus import find_gpus
from sweep.core.system.memory import read_memory
from sweep.core.system.processes import (
    TOKEN_VARIABLE,
    NotStarted,
    Process,
    end_processes,
    is_alive,
    live_processes,
    spawn,
)
from sweep.schedulers.local.events import ArrayEvents, append_line, read_lines
from sweep.schedulers.local.job import CANCELLED, KILL_WAIT_S, NODE_FAIL, JobFolder, RunnerRecord

TOKEN_RULE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
START_S = 60.0
ANSWER_S = 20.0
# Sweep's variables of a task, and what a scheduler around it says of one: by the former a runner
# would be ended together with the element that has submitted its array, by the latter the elements
# and their trainings would take the outer job's place, rank and end for their own.
_OF_A_TASK = (
    rf"{JOB_VARIABLE}|{INDEX_VARIABLE}|{END_VARIABLE}|{TOKEN_VARIABLE}"
    r"|SWEEP_(SLOTS?|SEAT|KILL_WAIT|LOGS)|(SLURM|SLURMD|SRUN|PMI|PMIX|PMIX2|OMPI_COMM_WORLD)_\w+"
)
# What an outer job of Slurm's holds is to be honoured, also by trainings that look it up.
_HELD = (
    r"SLURM_(CONF|CLUSTER_NAME|TMPDIR|CPUS_(ON_NODE|PER_\w+)|MEM_PER_\w+|GPUS_ON_NODE"
    r"|(JOB|STEP)_GPUS)"
)


class LocalScheduler(Scheduler):
    """Runs arrays on this machine. The job id is the token.

    Args:
        root: Folder of this study's arrays.
    """

    name = "local"
    place = "this machine"
    shares_this_machine = True
    is_cheap_to_ask = True

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._ahead: subprocess.Popen[bytes] | None = None

    @classmethod
    def of(cls, folder: StudyFolder, study: Study, environ: Mapping[str, str]) -> LocalScheduler:
        """Return the scheduler of a study."""
        return cls(folder.local)

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Tell whether ``executor: auto`` may mean it: there is always a machine."""
        return True

    @classmethod
    def most_parallel(cls, study: Study, environ: Mapping[str, str]) -> int | None:
        """Return what this machine's CPUs allow: nothing lets the others wait.

        Within a job of Slurm's, what that holds of its CPUs and memory. Where trials share GPUs,
        what those may hold: how many of them train is decided as they do.
        """
        needs = study.resources
        if needs.share is not None:
            return max(1, len(find_gpus(environ)) * needs.share.max)
        cpus = len(os.sched_getaffinity(0))
        held = _number(environ, "SLURM_CPUS_ON_NODE")
        cpus = min(cpus, held or cpus)
        most = cpus // (needs.cpus or study.ranks_per_node)
        memory_mb = _number(environ, "SLURM_MEM_PER_NODE") or cpus * _number(
            environ, "SLURM_MEM_PER_CPU"
        )
        if needs.memory_mb and memory_mb:
            most = min(most, memory_mb // needs.memory_mb)
        return max(1, most)

    def site_view(self) -> SiteView:
        """Return what this machine has: CPUs that are idle, memory that is available, GPUs."""
        cpus = len(os.sched_getaffinity(0))
        idle = max(0, cpus - round(os.getloadavg()[0]))
        amounts = [Amount("cpus", min(cpus, idle), cpus), read_memory()]
        if gpus := find_gpus(os.environ):
            amounts.insert(0, Amount("gpu", None, len(gpus)))
        host = os.uname().nodename
        return SiteView(f"this machine, {host}", [NodeView(host, "up", True, tuple(amounts))])

    def prepare(self) -> None:
        """Start the runner of an array that will be submitted soon: it loads what it needs now.

        It ends by itself where none is submitted, at the latest with this process.
        """
        if self._ahead is None:
            with contextlib.suppress(NotStarted):
                self._ahead = _start_runner(["--ahead", str(self.root)], None)

    def close(self) -> None:
        """End a runner that was started ahead and has got no array."""
        runner, self._ahead = self._ahead, None
        if runner is not None:
            assert runner.stdin is not None
            runner.kill()  # it has no child and no file yet
            runner.wait()
            runner.stdin.close()

    def limits(self) -> Limits:
        """Return the limits: there are none."""
        return Limits()

    def submit(self, job: ArrayJob) -> str:
        """Start an array's runner and return the job id once it is sure to run.

        Raises:
            SchedulerError: It cannot be run; nothing was started.
            SubmitUnclear: The runner has neither started nor ended within a minute.
        """
        gpu_names = _check(job)
        make_private(self.root)
        folder = self._folder(job.token)
        with self._lock():
            make_private(folder.root)
            if folder.runner.exists():
                raise SchedulerError(f"A job {job.token} exists already.")
            try:
                folder.write_request(job, gpu_names)
                launcher = self._start(folder)
            except (OSError, NotStarted) as error:
                raise SchedulerError(f"The runner of {job.token} did not start: {error}") from error
            try:
                launcher.wait(START_S)
            except subprocess.TimeoutExpired:
                raise SubmitUnclear(
                    f"The runner of {job.token} has not started within {START_S:.0f} seconds.",
                    f"Its log: {folder.runner_log}",
                ) from None
            if not folder.settle():
                tail = "\n".join(read_tail(folder.runner_log))
                raise SchedulerError(f"The runner of {job.token} did not start.", tail)
        return job.token

    def _start(self, folder: JobFolder) -> subprocess.Popen[bytes]:
        """Start a runner; the process returned ends as soon as the runner is under way."""
        runner, self._ahead = self._ahead, None
        if runner is None or runner.poll() is not None:
            return _start_runner([str(folder.root)], folder.runner_log)
        assert runner.stdin is not None
        with runner.stdin:
            runner.stdin.write(os.fsencode(folder.root))
        return runner

    def find(self, token: str) -> list[str]:
        """Return the job of this token, if there is one; waits for a submission under way.

        A request whose submitter died before a runner took it is given up by this question, so
        that the answer stays true.
        """
        folder = self._folder(token)
        if not folder.root.is_dir():
            return []
        if folder.runner.exists():
            return [token]
        with self._lock():
            return [token] if folder.root.is_dir() and folder.settle() else []

    def poll(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        """Return the state of every task of these jobs; a task that is missing is gone.

        Where the runner has died, an element that ran is ENDED with NODE_FAIL as soon as its
        processes are gone (RUNNING with the word ORPHANED before), and one that had not started is
        missing.

        Raises:
            CouldNotAsk: A job runs on another machine.
        """
        answer: dict[Task, TaskState] = {}
        for job in dict.fromkeys(jobs):
            folder = self._folder(job)
            record = RunnerRecord.read(folder)
            if record is None:
                continue
            history = _read_history(folder)
            dead = False
            if len(history.ended) < record.size and not record.lives():
                dead = True
                history = _read_history(folder)  # all that it will ever have said
            for index, event in history.ended.items():
                answer[job, index] = _ended(event, index in history.ran)
            if dead:
                answer.update(_orphans(job, record, history))
                continue
            pending = TaskState(PENDING, "PENDING", history.waiting)
            running = TaskState(RUNNING, "RUNNING")
            for index in range(record.size):
                if index not in history.ended:
                    answer[job, index] = running if index in history.started else pending
        return answer

    def cancel(
        self, job: str, indices: Sequence[int] | None = None, *, pending_only: bool = False
    ) -> None:
        """Cancel an array, some of its elements, or what of it has not started.

        Returns when no further one of them will start; those that run have got SIGTERM, and get
        SIGKILL five seconds later. What has ended is left as it is. Where the runner has died, its
        surviving elements are ended before this returns.

        Raises:
            CouldNotAsk: The runner does not answer, or is on another machine.
        """
        folder = self._folder(job)
        record = RunnerRecord.read(folder)
        if record is None or len(_read_history(folder).ended) == record.size:
            return
        request = {
            "cancel": None if indices is None else sorted(set(indices)),
            "pending_only": pending_only,
            "uid": os.getuid(),
        }
        if not self._ask(folder, record, request) and not pending_only:
            self._end_orphans(folder, record, indices)

    def has_wound_up(self, jobs: Sequence[str]) -> bool:
        """Tell whether the runners of these jobs have ended, which finalise after the last task."""
        records = (RunnerRecord.read(self._folder(job)) for job in jobs)
        return not any(record is not None and record.lives() for record in records)

    def hurry(self, job: str) -> None:
        """Have the elements that run look now what their study wants of them (SIGUSR2).

        Raises:
            CouldNotAsk: The runner does not answer, or is on another machine.
        """
        folder = self._folder(job)
        record = RunnerRecord.read(folder)
        if record is not None and len(_read_history(folder).ended) < record.size:
            self._ask(folder, record, {"hurry": True})

    def set_throttle(self, job: str, throttle: int) -> None:
        """Change how many elements of a live array run at once; running ones go on.

        Raises:
            SchedulerError: There is no such live array, or the number is not positive.
            CouldNotAsk: The runner does not answer, or is on another machine.
        """
        if throttle < 1:
            raise SchedulerError(f"The throttle must be at least 1 (got {throttle}).")
        folder = self._folder(job)
        record = RunnerRecord.read(folder)
        live = record is not None and len(_read_history(folder).ended) < record.size
        if record is None or not live or not self._ask(folder, record, {"throttle": throttle}):
            raise SchedulerError(f"There is no live array {job}.")

    def _folder(self, job: str) -> JobFolder:
        if not re.fullmatch(TOKEN_RULE, job):
            raise SchedulerError(f"{job!r} cannot be the name of a job.")
        return JobFolder(self.root / job)

    def _lock(self) -> Any:
        return locked(self.root / ".lock")

    def _ask(self, folder: JobFolder, record: RunnerRecord, request: dict[str, Any]) -> bool:
        """Ask something of the runner and wait until it has done it; False where it is dead."""
        if not record.lives():
            return False
        with self._lock():
            try:
                asked = append_line(folder.control, request)
            except OSError as error:
                raise CouldNotAsk(f"{folder.control} cannot be written: {error}.") from error
        give_up_at = time.monotonic() + ANSWER_S
        pause = 0.001
        history, offset = ArrayEvents(), 0
        Process(record.pid, record.start or 0, 0).signal(signal.SIGUSR2)
        while True:
            lives = record.lives()
            events, offset = read_lines(folder.events, offset)
            history.add(events)
            if history.seen >= asked or len(history.ended) == record.size:
                return True
            if not lives:
                return False
            if time.monotonic() > give_up_at:
                raise CouldNotAsk(
                    f"The runner of {folder.token} (pid {record.pid}) does not answer.",
                    f"Is it stopped, or its disk full? Its log: {folder.runner_log}",
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.1)

    def _end_orphans(
        self, folder: JobFolder, record: RunnerRecord, indices: Collection[int] | None
    ) -> None:
        """End the elements that a dead runner has left, and write down that they were cancelled."""
        if not record.is_here():
            return
        history = _read_history(folder)
        chosen = {
            index
            for index in _surviving(folder.token, history)
            if index not in history.ended and (indices is None or index in indices)
        }
        if not chosen:
            return

        def find() -> set[Process]:
            found = _surviving(folder.token, history)
            return set().union(*(found.get(index, set()) for index in chosen))

        end_processes(find, grace_s=KILL_WAIT_S)
        with self._lock():
            append_line(
                folder.events,
                {
                    "event": "end",
                    "indices": sorted(chosen),
                    "word": CANCELLED,
                    "reason": "cancelled after its runner had died",
                    "cancelled_by": os.getuid(),
                    "time": time.time(),
                },
            )


def _check(job: ArrayJob) -> list[str]:
    """Refuse what can never run; return the names of the GPUs that the array may use."""
    if job.size < 1 or job.throttle < 1:
        raise SchedulerError(
            f"Size and throttle of an array must be at least 1 (got {job.size}, {job.throttle})."
        )
    if not job.argv:
        raise SchedulerError("An array needs a command.")
    if not job.gpus:
        return []
    names = find_gpus(os.environ)
    if job.gpus > len(names):
        has = f"only {len(names)}" if names else "none"
        raise SchedulerError(
            f"Each task asks for {job.gpus} GPU(s); this machine has {has}.",
            "Lower resources.gpus, or check CUDA_VISIBLE_DEVICES and nvidia-smi -L.",
        )
    return names


def _start_runner(arguments: Sequence[str], log: Path | None) -> subprocess.Popen[bytes]:
    """Start a runner.

    Args:
        log: Where its output goes; None: it reads its standard input first.
    """
    return spawn(
        [sys.executable, "-m", "sweep.schedulers.local.runner", *arguments],
        cwd=PACKAGE.parent,  # so that -m finds this very package
        env=own_environment(os.environ),
        stdin=subprocess.DEVNULL if log else subprocess.PIPE,
        stdout=log or subprocess.DEVNULL,
        die_with_parent=False,
    )


def _number(environ: Mapping[str, str], name: str) -> int:
    """Return what a variable of Slurm's says; 0 where it is absent, or no number."""
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what makes it another task's; what that holds stays told."""
    return {
        name: text
        for name, text in environ.items()
        if re.fullmatch(_HELD, name) or not re.fullmatch(_OF_A_TASK, name)
    }


def _read_history(folder: JobFolder) -> ArrayEvents:
    return ArrayEvents().add(read_lines(folder.events)[0])


def _ended(event: dict[str, Any], ran: bool) -> TaskState:
    return TaskState(
        ENDED,
        event["word"],
        event["reason"],
        event.get("exit_code"),
        event.get("cancelled_by"),
        started=ran,
    )


def _surviving(job: str, history: ArrayEvents) -> dict[int, set[Process]]:
    """Return the live processes of each element of an array whose runner has died.

    An element is known by the record of its start or, where the runner died before writing it, by
    its environment; what an element has started carries the same variables.
    """
    found: dict[int, set[Process]] = {}
    groups = {pid: index for index, (pid, start) in history.started.items() if is_alive(pid, start)}
    for process in live_processes():
        env = process.environment()
        if env.get(JOB_VARIABLE) == job and env.get(INDEX_VARIABLE, "").isdecimal():
            found.setdefault(int(env[INDEX_VARIABLE]), set()).add(process)
        elif process.group in groups:
            found.setdefault(groups[process.group], set()).add(process)
    return found


def _orphans(job: str, record: RunnerRecord, history: ArrayEvents) -> dict[Task, TaskState]:
    """Return the states of what a dead runner has left behind."""
    surviving = _surviving(job, history) if record.is_here() else {}
    states: dict[Task, TaskState] = {}
    for index in history.started.keys() | surviving.keys():
        if index in history.ended or index >= record.size:
            continue
        if index in surviving:
            reason = "its runner has died; it was asked to end"
            states[job, index] = TaskState(RUNNING, ORPHANED, reason)
        else:
            reason = f"the process that ran this array (pid {record.pid}) has died"
            states[job, index] = TaskState(ENDED, NODE_FAIL, reason)
    return states
