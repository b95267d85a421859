"""End what serves the embedded database of a runs folder: this machine's server, and jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from sweep.core import executors
from sweep.core.errors import SchedulerError
from sweep.core.paths import Runs
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study
from sweep.storage import access
from sweep.storage.embedded import start_stop
from sweep.storage.embedded.server import running

END_S = 90.0  # for a job to end, its server in good order
LOOK_S = 0.5


def stop_database(
    runs: Runs, say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> bool:
    """Stop the server, and first the jobs that would go on serving; return whether any was there.

    A server that a job runs would only be started again by it.

    Args:
        say: Told of each job.

    Raises:
        CouldNotAsk: A scheduler that may run such a job does not answer; nothing was stopped.
        SweepError: Something does not end, and is named.
    """
    found = False
    for schedule in _that_may_serve(runs):
        jobs = schedule.service_jobs()
        for job in jobs:
            say(f"cancelling job {job} on {schedule.place}, which serves the database")
            schedule.cancel(job)
        give_up_at = time.monotonic() + END_S
        while left := [job for job in jobs if job in schedule.service_jobs()]:
            if time.monotonic() >= give_up_at:
                raise SchedulerError(
                    f"Job {left[0]} on {schedule.place}, which serves the database, does not end.",
                    "The database is still served; look at that job, and give the command again.",
                )
            sleep(LOOK_S)
        found = found or bool(jobs)
        # The job leaves the queue before its server has ended everywhere.
        while jobs and running(runs.postgres) is not None and time.monotonic() < give_up_at:
            sleep(LOOK_S)
    return start_stop.stop(runs.postgres) or found


def _that_may_serve(runs: Runs) -> list[Scheduler]:
    """Return the schedulers that may run a job for this data folder, one of each kind.

    A study that has moved may have left its job to an executor that is here.
    """
    found: dict[str, Scheduler] = {}
    for name in runs.studies():
        folder = runs.study(name)
        note = access.read_note(folder)
        if note.get("embedded") != str(runs.postgres):
            continue
        study = Study.read(folder.study)
        for kind in (executors.get(one) for one in executors.names()):
            if kind.name in found or not kind.keeps_database_in_job(study):
                continue
            if kind.runs(study) or kind.is_here(os.environ):
                found[kind.name] = kind.of(folder, study, os.environ)
    return list(found.values())
