"""The embedded database on a cluster: ``--serve`` is the job that holds it, ``--host`` stands in.

A task hosts it while that job waits in the queue.
"""

from __future__ import annotations

import os
from pathlib import Path

from sweep.control import job_owners
from sweep.core.errors import EXIT_DONE, CouldNotAsk
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study
from sweep.storage import access
from sweep.storage.embedded.folder import Starter
from sweep.storage.embedded.service import DatabaseService, host
from sweep.tasks.job_study import read_study


def run(folder: StudyFolder, options: list[str]) -> int:
    """Serve the embedded database as this option says."""
    serve = _serve if options[0] == "--serve" else _host
    return serve(folder, *read_study(folder))


def _serve(folder: StudyFolder, study: Study, schedule: Scheduler) -> int:
    """Serve the embedded database until no study needs it."""
    note = access.read_note(folder)
    starter = Starter(*schedule.job_of(os.environ), schedule.name)
    ask_fate = job_owners.fate_asker(folder, study, schedule)
    why = DatabaseService(Path(note["embedded"]), starter, ask_fate, study.storage.listen).run()
    print(f"ended: {why}", flush=True)
    if why == "time":
        schedule.requeue(os.environ)
    return EXIT_DONE


def _host(folder: StudyFolder, study: Study, schedule: Scheduler) -> int:
    """Serve the embedded database while the job that does so waits."""

    def job_runs() -> bool:
        try:
            return bool(schedule.service_jobs(running=True))
        except CouldNotAsk:
            return False

    note = access.read_note(folder)
    starter = Starter(*schedule.job_of(os.environ), schedule.name)
    ask_fate = job_owners.fate_asker(folder, study, schedule)
    why = host(Path(note["embedded"]), starter, ask_fate, job_runs, study.storage.listen)
    print(f"serving the database ended: {why}", flush=True)
    return EXIT_DONE
