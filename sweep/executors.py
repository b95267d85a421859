"""Which scheduler a study runs under."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping

from sweep.errors import SweepError
from sweep.paths import StudyFolder, locked
from sweep.scheduler import Scheduler
from sweep.study import Study

LOCAL = "local"
SLURM = "slurm"
ABSENT_S = 15.0  # without the database, before a task asks after the job that serves it
REVIVE_EVERY_S = 60.0


def resolve(study: Study, environ: Mapping[str, str] = os.environ) -> Study:
    """Return the study with its executor decided: Slurm where this machine has one, else local.

    A local study without ``max_parallel`` gets what this machine's CPUs allow: there is no
    scheduler that would let the others wait.
    """
    if study.executor == "auto":
        from sweep.slurm import is_here

        study = dataclasses.replace(study, executor=SLURM if is_here(environ) else LOCAL)
    if study.executor == LOCAL and study.max_parallel is None:
        cpus = len(os.sched_getaffinity(0))
        width = max(1, cpus // (study.resources.cpus or 1))
        study = dataclasses.replace(study, max_parallel=min(width, study.trials))
    return study


def scheduler_of(
    folder: StudyFolder, study: Study, environ: Mapping[str, str] = os.environ
) -> Scheduler:
    """Return the scheduler of a study whose executor is decided."""
    if study.executor == SLURM:
        from sweep.slurm import SlurmScheduler

        return SlurmScheduler(folder, study, environ)
    from sweep.local import LocalScheduler

    return LocalScheduler(folder.local)


def reviver_of(
    folder: StudyFolder, study: Study, schedule: Scheduler
) -> Callable[[], None] | None:
    """Return what a waiting task calls while it finds no database; None where it can do nothing.

    The job that serves the database may have been cancelled by itself: it is submitted again.
    """
    ensure = getattr(schedule, "ensure_service", None)
    if ensure is None:
        return None
    began = last = asked = 0.0

    def revive() -> None:
        nonlocal began, last, asked
        now = time.monotonic()
        if now - last > ABSENT_S:
            began = now  # it was there meanwhile
        last = now
        if now - began < ABSENT_S or (asked and now - asked < REVIVE_EVERY_S):
            return
        asked = now
        # One of the many that wait; the others see the job in the queue.
        with locked(folder.root / ".service.lock", wait=False) as got:
            if not got:
                return
            try:
                job = ensure(folder.root)
            except SweepError as error:
                print(f"sweep: {error}", flush=True)
            else:
                print(f"the database is to be served by job {job}", file=sys.stderr, flush=True)

    return revive
