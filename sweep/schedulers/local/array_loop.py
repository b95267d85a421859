"""The loop over one local array: starts its elements, ends them, writes down what happened.

It sleeps until a child ends, somebody asks something (SIGUSR2), or a limit is reached. One thread:
the kernel ties PR_SET_PDEATHSIG to it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from sweep.core.errors import SweepError
from sweep.core.files import make_folders, open_private
from sweep.core.scheduler import END_VARIABLE, INDEX_VARIABLE, JOB_VARIABLE, ArrayJob
from sweep.core.system.fork import Forked
from sweep.core.system.gpus import GPU_VARIABLE, GpuPool
from sweep.core.system.processes import (
    PASSING_ERRORS,
    NotStarted,
    Process,
    live_processes,
    start_time,
)
from sweep.core.system.seats import SEAT_VARIABLE
from sweep.core.system.shared_cards import SharedCards
from sweep.schedulers.local.element import Element, signal_group, start
from sweep.schedulers.local.events import EventLog, read_lines
from sweep.schedulers.local.job import (
    CANCELLED,
    COMPLETED,
    FAILED,
    KILL_WAIT_S,
    NODE_FAIL,
    TIMEOUT,
    JobFolder,
)

RETRY_S = 1.0  # after a lack of memory, disk or GPUs
LOOK_S = 0.1  # between looks at processes that an ended element has left behind
UNKILLABLE_S = 60.0  # after which a process that does not die no longer holds its slot (Slurm's)
FLUSH_PATIENCE_S = 600.0  # how long a full disk may keep an ended array from its finaliser
STARTS_AT_ONCE = 32  # before looking at what else has happened
# A task computes for so long before its training starts. If the first K were started at once, they
# would share the cores and all be late: one a core at a time, the first train meanwhile.
START_GAP_S = 0.2
FORKED_GAP_S = 0.03


@dataclass
class Runner:
    """Runs one array."""

    folder: JobFolder
    job: ArrayJob
    pool: GpuPool
    events: EventLog
    wakeup: int
    module: ModuleType | None = None  # whose elements are forked
    pending: deque[int] = field(default_factory=deque)
    running: dict[int, Element] = field(default_factory=dict)  # by pid
    throttle: int = 1
    control_offset: int = 0
    retry_at: float | None = None
    more_at: float | None = None  # when more may be started, though nothing has happened
    waiting: str = ""
    stopping: bool = False  # SIGTERM: end what runs, start nothing more
    cards: SharedCards | None = None  # where elements share GPUs

    def __post_init__(self) -> None:
        self.pending.extend(range(self.job.size))
        self.throttle = self.job.throttle
        signal.signal(signal.SIGTERM, self._stop)

    def run(self) -> None:
        """Run every element, then the finaliser."""
        while True:
            self._read_control()
            self._reap()
            self._keep_times()
            self._pack()
            self._start()
            if not self.running and (self.stopping or not self.pending):
                break
            self.events.flush()
            self._sleep()
        self._finish()

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def _sleep(self) -> None:
        now = time.monotonic()
        times = [at for element in self.running.values() if (at := element.deadline()) is not None]
        if self.retry_at is not None:
            times.append(self.retry_at)
        if self.events.unwritten:
            times.append(now + RETRY_S)
        if self.more_at is not None:
            times.append(self.more_at)
        if self.cards is not None and (at := self.cards.deadline()) is not None:
            times.append(at)
        timeout = max(0.0, min(times) - now) if times else None
        if select.select([self.wakeup], [], [], timeout)[0]:
            with contextlib.suppress(BlockingIOError):
                while os.read(self.wakeup, 4096):
                    pass

    # What others ask.

    def _read_control(self) -> None:
        requests, offset = read_lines(self.folder.control, self.control_offset)
        for request in requests:
            if "throttle" in request:
                self.throttle = int(request["throttle"])
            elif "cancel" in request:
                self._cancel(request["cancel"], request["pending_only"], request["uid"])
            elif "hurry" in request:
                for element in self.running.values():
                    if not (element.left or element.verdict):
                        os.kill(element.process.pid, signal.SIGUSR2)
        if offset != self.control_offset:
            self.control_offset = offset
            self.events.add("seen", offset=offset)
        if self.stopping:
            for element in self.running.values():
                self._end(element, NODE_FAIL, "the process that runs this array was ended")

    def _cancel(self, indices: list[int] | None, pending_only: bool, uid: int) -> None:
        chosen = None if indices is None else set(indices)
        waiting = [i for i in self.pending if chosen is None or i in chosen]
        if waiting:
            gone = set(waiting)
            self.pending = deque(i for i in self.pending if i not in gone)
            self._record_end(waiting, CANCELLED, "cancelled before it started", None, uid)
        if pending_only:
            return
        for element in self.running.values():
            if chosen is None or element.index in chosen:
                self._end(element, CANCELLED, "", uid)

    # Starting.

    def _start(self) -> None:
        """Start what may start, or some of it."""
        now = time.monotonic()
        if self.more_at is not None and now < self.more_at:
            return
        self.more_at = None
        is_first = self.job.size - len(self.pending) < self.throttle
        if self.retry_at is not None and now >= self.retry_at:
            self.retry_at = None
        for _ in range(len(os.sched_getaffinity(0)) if is_first else STARTS_AT_ONCE):
            if self.stopping or not self.pending or len(self.running) >= self.throttle:
                return
            if self.retry_at is not None:
                return
            try:
                found = self._take(self.pending[0])
            except (OSError, SweepError) as error:  # no place for the locks, or no room for them
                self._wait(f"the GPUs' locks: {getattr(error, 'message', error)}")
                return
            if found is None:
                return
            gpus, seat = found
            try:
                self._start_one(self.pending[0], gpus, seat)
            except NotStarted as error:
                self._give(self.pending[0], gpus)
                if error.passing:
                    self._wait(error.message)
                    return
                index = self.pending.popleft()
                self._explain_in_log(index, error)
                code = error.exit_code_of_shell
                self._record_end([index], FAILED, error.message, code)
            else:
                self.pending.popleft()
                self.waiting = ""
        gap_s = START_GAP_S if self.module is None else FORKED_GAP_S
        self.more_at = now + gap_s if is_first else now

    def _take(self, index: int) -> tuple[list[str], Path | None] | None:
        """Take the GPUs of an element, and its seat where it shares one; None where it waits."""
        if self.cards is not None:
            seat = self.cards.take(index)
            if seat is not None:
                return [seat[0]], seat[1]
            self._wait("waiting for room on a GPU that trials share")
            return None
        gpus = self.pool.take(self.job.gpus)
        if gpus is None:
            self._wait(f"waiting for {self.job.gpus} free GPU(s) of {len(self.pool.names)}")
            return None
        return gpus, None

    def _give(self, index: int, gpus: list[str]) -> None:
        """Take back what an element had."""
        if self.cards is not None:
            self.cards.give(index)
        else:
            self.pool.give(gpus)

    def _pack(self) -> None:
        """Decide who trains on GPUs that elements share."""
        if self.cards is None:
            return
        room = max(0, self.throttle - len(self.running))
        before = sum(card.room for card in self.cards.cards.values())
        self.cards.tick(min(len(self.pending), room))
        if sum(card.room for card in self.cards.cards.values()) > before:
            self.retry_at = None  # start what there is room for
        lost = self.cards.all_lost()
        if lost and not self.running and self.pending:
            gone, self.pending = list(self.pending), deque()
            self._record_end(gone, FAILED, lost, None)

    def _wait(self, reason: str) -> None:
        self.retry_at = time.monotonic() + RETRY_S
        if reason != self.waiting:
            self.waiting = reason
            self.events.add("wait", reason=reason)

    def _start_one(self, index: int, gpus: list[str], seat: Path | None) -> None:
        job, now = self.job, time.monotonic()
        env = {**os.environ, **job.env}
        env |= {JOB_VARIABLE: self.folder.token, INDEX_VARIABLE: str(index)}
        limit_at = grace_at = None
        if job.time_limit_s is not None:
            env[END_VARIABLE] = str(int(time.time() + job.time_limit_s))
            limit_at = now + job.time_limit_s
            # A grace as long as the limit would hit an element that has no handler yet.
            grace_at = limit_at - min(job.grace_s, job.time_limit_s / 2) if job.grace_s else None
        if gpus:
            env[GPU_VARIABLE] = ",".join(gpus)
        if seat is not None:
            env[SEAT_VARIABLE] = str(seat)
        log = self._log(index)
        try:
            make_folders(log.parent)
        except OSError as error:
            raise NotStarted(
                f"The folder {log.parent} cannot be made: {error.strerror}.",
                passing=error.errno in PASSING_ERRORS,
            ) from error
        process = start(self.module, job.argv, job.cwd, env, log)
        began = start_time(process.pid)
        self.running[process.pid] = Element(index, process, gpus, grace_at, limit_at)
        self.events.add("start", index=index, pid=process.pid, start=began, gpus=gpus)
        if isinstance(process, Forked):  # /proc does not show its variables: it is known by this
            process.release()

    def _log(self, index: int) -> Path:
        pattern = self.job.log_pattern
        text = pattern.replace("{job}", self.folder.token).replace("{index}", str(index))
        return Path(self.job.cwd, text)

    def _explain_in_log(self, index: int, error: NotStarted) -> None:
        path = self._log(index)
        with (
            contextlib.suppress(OSError),
            open(path, "a", encoding="utf-8", errors="surrogateescape", opener=open_private) as log,
        ):
            log.write(f"sweep: {error}\n")

    # Ending.

    def _end(self, element: Element, verdict: str, reason: str, uid: int | None = None) -> None:
        """Ask an element to end; what is left of it is killed five seconds later."""
        if element.verdict:
            return
        element.verdict, element.reason, element.cancelled_by = verdict, reason, uid
        element.grace_at = element.limit_at = None
        element.kill_at = time.monotonic() + KILL_WAIT_S
        if not element.left:  # else its group number may be another's by now
            signal_group(element, signal.SIGTERM)
            signal_group(element, signal.SIGCONT)

    def _keep_times(self) -> None:
        """Send grace signals, end what has reached its limit, kill what outlived its SIGTERM."""
        now = time.monotonic()
        survivors: dict[int, set[Process]] | None = None
        for element in list(self.running.values()):
            deadline = element.deadline()
            if deadline is None or deadline > now:
                continue
            if element.grace_at is not None and now >= element.grace_at:
                element.grace_at = None
                # Not Popen.send_signal, which could reap it: see _reap.
                os.kill(element.process.pid, signal.SIGUSR1)
            if element.limit_at is not None and now >= element.limit_at:
                limit = self.job.time_limit_s
                self._end(element, TIMEOUT, f"reached its time limit of {limit} s")
            kill = element.kill_at is not None and now >= element.kill_at
            if not kill and element.look_at is None:
                continue
            if survivors is None:
                survivors = self._survivors()
            left = survivors.get(element.index, set())
            if kill:
                element.kill_at = now + LOOK_S
                for process in left:
                    process.signal(signal.SIGKILL)
            if element.left:
                element.look_at = now + LOOK_S
                if not left or (element.give_up_at is not None and now >= element.give_up_at):
                    self._close(element)

    def _survivors(self) -> dict[int, set[Process]]:
        """Return the live processes of each element: its group, and who carries its variables."""
        found: dict[int, set[Process]] = {}
        for process in live_processes():
            env = process.environment()
            element = self.running.get(process.group)
            if env.get(JOB_VARIABLE) == self.folder.token and env.get(INDEX_VARIABLE):
                index = int(env[INDEX_VARIABLE])
            elif element is not None and element.may_own(process):
                index = element.index
            else:
                continue
            found.setdefault(index, set()).add(process)
        for element in self.running.values():
            element.known = found.get(element.index, set()) if element.left else None
        return found

    def _reap(self) -> None:
        # WNOWAIT: as long as a child is not reaped, its group's number cannot be used again.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, options)
            except ChildProcessError:
                return
            if child is None:
                return
            element = self.running.get(child.si_pid)
            if element is None:
                os.waitpid(child.si_pid, 0)
                continue
            if element.kill_at is None:  # it ended by itself; as on Slurm, nothing outlives it
                signal_group(element, signal.SIGKILL)
            code = element.process.wait()
            if code == 0 and not element.verdict:
                self._close(element)
                continue
            # Others of its group have KillWait to end, and those that left the group count too.
            now = time.monotonic()
            element.left = True
            element.grace_at = element.limit_at = None
            element.kill_at = element.kill_at or now
            element.give_up_at = element.kill_at + UNKILLABLE_S
            element.look_at = now

    def _close(self, element: Element) -> None:
        """Write down how an element ended, and free its slot."""
        code = element.process.wait()
        reason = element.reason
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else "unknown"
            reason = reason or f"ended by signal {-code} ({name})"
            code = 128 - code  # as a shell has it
        word = element.verdict or (FAILED if code else COMPLETED)
        self._record_end([element.index], word, reason, code, element.cancelled_by)
        self._give(element.index, element.gpus)
        del self.running[element.process.pid]
        self.retry_at = None

    def _record_end(
        self, indices: list[int], word: str, reason: str, code: int | None, uid: int | None = None
    ) -> None:
        self.events.add(
            "end", indices=indices, word=word, reason=reason, exit_code=code, cancelled_by=uid
        )

    def _finish(self) -> None:
        """Run the finaliser, if there is one and the array was not abandoned."""
        give_up_at = time.monotonic() + FLUSH_PATIENCE_S
        while not self.events.flush() and time.monotonic() < give_up_at:
            time.sleep(RETRY_S)
        if self.stopping or not self.job.after:
            return
        env = {**os.environ, **self.job.env}
        try:
            process = start(
                self.module,
                self.job.after,
                self.job.cwd,
                env,
                self.folder.finaliser_log,
                is_element=False,
            )
        except NotStarted as error:
            print(f"finaliser: {error}", file=sys.stderr, flush=True)
            self.events.add("after", exit_code=error.exit_code_of_shell)
        else:
            self.events.add("after_start", pid=process.pid, start=start_time(process.pid))
            if isinstance(process, Forked):  # written down first, as an element is
                process.release()
            self.events.add("after", exit_code=process.wait())
