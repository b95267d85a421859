"""A task that serves several trials side by side: each slot is a step of its own with a worker.

This process pulls no trial. It starts a step for each slot, passes on what Slurm tells the task,
and starts a slot again whose worker was killed. A slot has its share of the CPUs and the memory,
and GPUs of its own: what runs out of memory in one does not touch the others. A worker that finds
nothing left ends by itself; the task ends with its last slot.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from sweep.control.place import SLOT_VARIABLE
from sweep.control.reconcile import end_predecessors
from sweep.core import outcomes
from sweep.core.errors import EXIT_FAULT, EXIT_INPUT, DatabaseUnavailable
from sweep.core.system import processes
from sweep.core.trial import End
from sweep.tasks.context import Context

START_PATIENCE_S = 3600.0  # for a database that is away when the task begins
SETTLE_PATIENCE_S = 10.0  # and when a slot has died; it is tried again
LOOK_S = 1.0
QUICK_S = 30.0  # a worker that dies sooner has come to nothing
QUICK_DEATHS = 3  # in a row, after which its slot stays empty
PAUSES_S = (1.0, 5.0, 15.0)  # before a slot is started again
WORKERS_EVERY_S = 5.0  # between two looks at which workers live: all of /proc is read for it
# An srun that outlives its worker by so much waits for ever: Slurm's own process of its step was
# killed. It is told to end, which takes it KillWait and some seconds, and killed after the second.
STEP_END_S, STEP_KILL_S = 15.0, 120.0
# What no second start mends: a fault of sweep's own, or what the user gave.
_FINAL_CODES = (EXIT_FAULT, EXIT_INPUT)


@dataclass
class Slot:
    """One slot: its step, while it has one.

    Attributes:
        start_at: When it is to be started, on the monotonic clock; None once it is over.
        deaths: How often in a row its worker died soon.
        dead: Whether a worker died whose attempt is not settled yet.
        has_worked: Whether this step's worker was seen; gone_at: when it was missed first, on the
            monotonic clock, while the step goes on; None while it is there.
    """

    number: int
    start_at: float | None = 0.0
    step: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    deaths: int = 0
    dead: bool = False
    exit_code: int = 0
    has_worked: bool = False
    gone_at: float | None = None

    @property
    def is_hopeless(self) -> bool:
        """Whether starting it again would end as before."""
        return self.exit_code in _FINAL_CODES or self.deaths >= QUICK_DEATHS


class Slots:
    """Serves one task's slots until the last has ended.

    Args:
        context: The task's.
        count: Slots.
        environ: The task's environment, as Slurm made it: without the secrets of training.
    """

    def __init__(self, context: Context, count: int, environ: Mapping[str, str]) -> None:
        self.folder = context.folder
        self.ledger = context.ledger
        self.schedule = context.schedule
        self.place = context.place
        self.end_time_s = context.end_time_s
        self.say = context.say
        self.environ = environ
        self.count = count
        self.slots = [Slot(number) for number in range(count)]
        self.look_s = LOOK_S
        self.signals: list[int] = []  # to be passed on
        self.look_at = 0.0  # for the workers, on the monotonic clock
        self._told: set[tuple[int, int, int]] = set()

    def run(self) -> int:
        """Serve all slots; return 1 where none of them came to a good end, else 0."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGUSR2, self._on_hurry)
        self._settle(None, None, START_PATIENCE_S)  # of an earlier run of this very task
        argv = self._argv()
        while live := self._live():
            for slot in live:
                if slot.step is None:
                    self._start(slot, argv)
            self._wait([slot for slot in live if slot.step])
            if self.signals:
                self._pass_on()  # also to a worker that has only just begun
            self.end_deserted(live)
            for slot in live:
                if slot.step is not None and slot.step.poll() is not None:
                    self._ended(slot, slot.step.returncode)
        self.ledger.db.close()
        return self._exit_code()

    def _live(self) -> list[Slot]:
        """Return the slots that have a step or are to get one."""
        return [slot for slot in self.slots if slot.step or slot.start_at is not None]

    def _exit_code(self) -> int:
        return int(not self.signals and all(slot.exit_code for slot in self.slots))

    def _argv(self) -> list[str]:
        assert self.schedule is not None, "only a scheduler gives a task slots"
        task = (self.place.job, self.place.index)
        return self.schedule.quick().slot_argv(self.environ, self.count, task)

    def key(self, slot: Slot) -> str:
        """Return what names a slot among all tasks: its worker carries it."""
        return f"{self.place.job}_{self.place.index}.{slot.number}"

    def _workers(self, slot: Slot) -> set[processes.Process]:
        return set(processes.processes_with(SLOT_VARIABLE, self.key(slot)))

    # Starting and ending

    def _start(self, slot: Slot, argv: list[str]) -> None:
        if self.signals:
            slot.start_at = None
        if slot.start_at is None or time.monotonic() < slot.start_at:
            return
        if slot.dead and not self._settle_dead(slot):
            slot.start_at = time.monotonic() + PAUSES_S[-1]
            return
        if slot.is_hopeless:
            slot.start_at = None
            return
        given = self._place_of(slot)
        if given is None:
            return
        # srun hands its environment on; the worker alone has the slot's key, to be found by it.
        mine = ["env", f"{SLOT_VARIABLE}={self.key(slot)}", *given]
        if self.end_time_s is not None:
            mine.append(f"SWEEP_END_TIME={self.end_time_s}")
        command = [*argv, *mine, sys.executable, "-m", "sweep.task", str(self.folder.root)]
        assert self.schedule is not None
        environ = self.schedule.slot_environment(self.environ)
        slot.step = processes.spawn(command, cwd=os.getcwd(), env=environ, stdout=1)
        slot.began, slot.start_at = time.monotonic(), None
        slot.has_worked, slot.gone_at = False, None

    def _place_of(self, slot: Slot) -> list[str] | None:
        """Return what else a slot's worker has in its environment; None where it is to wait."""
        return []

    def _ended(self, slot: Slot, code: int) -> None:
        """Go on after a slot's step: nothing is due after a good end, nor where all leave."""
        slot.step = None
        slot.exit_code = code if code >= 0 else 128 - code
        if code == 0:
            return
        while self.signals and self._workers(slot):
            time.sleep(0.2)  # srun may be killed before what it has started; that saves and leaves
        if self.signals:
            return
        slot.deaths = slot.deaths + 1 if time.monotonic() - slot.began < QUICK_S else 0
        self.say(f"slot {slot.number}: its step ended with {slot.exit_code}")
        # An srun that was killed leaves its worker behind.
        processes.end_processes(lambda: self._workers(slot), grace_s=0.0)
        slot.dead = True
        slot.start_at = time.monotonic() + PAUSES_S[min(slot.deaths, len(PAUSES_S) - 1)]

    def end_deserted(self, live: list[Slot]) -> None:
        """End the steps whose workers are gone, and that do not end by themselves; looks seldom."""
        now = time.monotonic()
        steps = [slot for slot in live if slot.step is not None]
        if not steps or now < self.look_at:
            return
        self.look_at = now + WORKERS_EVERY_S
        there = processes.values_of(SLOT_VARIABLE)
        for slot in steps:
            step = slot.step
            if self.key(slot) in there:
                slot.has_worked, slot.gone_at = True, None
            elif slot.has_worked and step is not None and step.poll() is None:
                slot.gone_at = slot.gone_at or now
                if now - slot.gone_at >= STEP_KILL_S:
                    step.kill()
                elif now - slot.gone_at >= STEP_END_S and (step.pid, 0, 0) not in self._told:
                    self._told.add((step.pid, 0, 0))
                    self.say(f"slot {slot.number}: its step has no worker any more, and is ended")
                    with contextlib.suppress(ProcessLookupError):
                        step.terminate()

    def _end_of(self, slot: Slot) -> End:
        """Return how the attempt of a worker that died has ended, unless its training says."""
        return End(outcomes.KILLED, "the worker of its slot was killed")

    def _settle_dead(self, slot: Slot) -> bool:
        """End the attempt of a worker that died; tell whether the database was there."""
        try:
            self._settle(slot.number, self._end_of(slot), SETTLE_PATIENCE_S)
        except DatabaseUnavailable as error:
            self.say(f"slot {slot.number}: waiting for the database: {error.message}")
            return False
        slot.dead = False
        return True

    def _settle(self, slot: int | None, end: End | None, patience_s: float) -> None:
        place = self.place
        if place.job is None or place.index is None:
            return
        with self.ledger.db.patient(patience_s):
            found = end_predecessors(
                self.ledger,
                self.folder,
                self.schedule,
                place.job,
                place.index,
                place.host,
                slot=slot,
                end=end,
            )
        for trial, attempt, ended, state in found:
            self.say(f"trial {trial}, attempt {attempt} has ended ({ended.reason}); now {state}")
        self.ledger.db.close()  # the workers have connections of their own

    # Signals

    def _on_signal(self, number: int, _frame: object) -> None:
        if number not in self.signals:
            self.signals.append(number)
        self._pass_on()

    def _on_hurry(self, number: int, _frame: object) -> None:
        for slot in self.slots:
            for worker in self._workers(slot) if slot.step is not None else ():
                worker.signal(number)

    def _pass_on(self) -> None:
        """Tell every worker what Slurm has told the task, each once.

        Not by way of srun: a second SIGTERM makes it end its step at once. One that has no worker
        yet is to start none.
        """
        for slot in self.slots:
            step = slot.step
            if step is None or step.poll() is not None:
                continue
            workers = self._workers(slot)
            for worker in workers:
                for number in self.signals:
                    told = (worker.pid, worker.start, number)
                    if told not in self._told:
                        self._told.add(told)
                        worker.signal(number)
            never = (step.pid, 0, 0)
            if not workers and never not in self._told:
                self._told.add(never)
                with contextlib.suppress(ProcessLookupError):
                    step.terminate()

    def _wait(self, running: list[Slot]) -> None:
        """Wait until a step may have ended, or a second has passed."""
        poller, opened = select.poll(), []
        try:
            for slot in running:
                assert slot.step is not None
                opened.append(os.pidfd_open(slot.step.pid))
                poller.register(opened[-1], select.POLLIN)
        except (AttributeError, OSError):  # an old kernel: look again soon
            time.sleep(0.2)
        else:
            poller.poll(self.look_s * 1000)
        finally:
            for descriptor in opened:
                os.close(descriptor)
