"""Bring back the job that serves the embedded database."""

from __future__ import annotations

import atexit
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable

from sweep.core.errors import SweepError
from sweep.core.files import locked
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study

ABSENT_S = 15.0  # without the database, before a task asks after the job that serves it
REVIVE_EVERY_S = 60.0
HOST_END_S = 15.0  # for a server to stop in good order


def reviver_of(folder: StudyFolder, study: Study, schedule: Scheduler) -> Callable[[], None] | None:
    """Return what a waiting task calls while it finds no database; None where it can do nothing.

    The job that serves the database may have been cancelled by itself: it is submitted again. It
    may wait, perhaps for the very tasks that wait for it: then one of them serves meanwhile.
    """
    if not schedule.keeps_database_in_job(study):
        return None
    return Reviver(folder, schedule).revive


class Reviver:
    """Brings a database back that is a job's affair; called at each look that finds none."""

    def __init__(
        self, folder: StudyFolder, schedule: Scheduler, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.folder = folder
        self.schedule = schedule
        self.now_s = now_s
        self.began = self.last = float("-inf")
        self.asked: float | None = None
        self.host: subprocess.Popen[bytes] | None = None

    def revive(self) -> None:
        now = self.now_s()
        if now - self.last > ABSENT_S:
            self.began, self.asked = now, None  # it was there meanwhile
        self.last = now
        if now - self.began < ABSENT_S or (
            self.asked is not None and now - self.asked < REVIVE_EVERY_S
        ):
            return
        first, self.asked = self.asked is None, now
        # One of the many that wait; the others see the job in the queue.
        with locked(self.folder.root / ".service.lock", wait=False) as got:
            if not got:
                return
            try:
                job = self.schedule.ensure_service(self.folder.root)
                waits = not self.schedule.service_jobs(running=True)
            except SweepError as error:
                print(f"sweep: {error}", flush=True)
                return
            if job is None:
                return
            print(f"the database is to be served by job {job}", file=sys.stderr, flush=True)
            if waits and not first:
                self.start_host()

    def start_host(self) -> None:
        """Serve it from here, in a process that ends with this one."""
        if self.host is not None and self.host.poll() is None:
            return
        print("that job waits; this task serves the database meanwhile", flush=True)
        argv = [sys.executable, "-m", "sweep.task", str(self.folder.root), "--host"]
        self.host = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
        atexit.register(self.stop_host)

    def stop_host(self) -> None:
        if self.host is None or self.host.poll() is not None:
            return
        self.host.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.host.wait(HOST_END_S)
