"""The energy that Slurm accounts for, shared out among the attempts of each task."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from sweep.control.job_owners import by_owner
from sweep.core.errors import CouldNotAsk, SchedulerError
from sweep.core.scheduler import Scheduler, TaskEnergy
from sweep.core.trial import Attempt
from sweep.storage import energy
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger

CLOCKS_S = 30.0  # between the database's clock and Slurm's


def note_tasks(ledger: Ledger, schedule: Scheduler) -> int:
    """Note the part of its task's energy with each ended attempt that has not been measured itself.

    Returns:
        How many attempts got one.

    Raises:
        DatabaseUnavailable: The database does not answer at present.
    """
    db = ledger.db
    attempts = db.retry(lambda _: ledger.all_attempts())
    known = db.retry(lambda _: energy.read(db, ledger.study_id))
    open_ones = {
        a.token
        for a in attempts
        if a.job and a.ended is not None and a.number not in known.get(a.trial_id, {})
    }
    jobs = {a.job for a in attempts if a.job and a.token in open_ones}
    if not jobs:
        return 0
    used: list[TaskEnergy] = []
    for owner, its in by_owner(ledger, schedule, jobs):
        with contextlib.suppress(CouldNotAsk, SchedulerError):
            used += owner.energy(its) if its else []
    parts = {t: joules for t, joules in share(used, attempts).items() if t in open_ones}

    def work(db: Database) -> None:
        energy.note_of_tasks(db, parts)

    if parts:
        db.retry(work)
    return len(parts)


def share(used: Iterable[TaskEnergy], attempts: Iterable[Attempt]) -> dict[str, float]:
    """Return each attempt's part, by its token: as its time is of all attempts' in that run."""
    attempts = list(attempts)
    found: dict[str, float] = {}
    for task in used:
        inside = [
            (a, (a.ended - a.claimed).total_seconds())
            for a in attempts
            if (a.job, a.index or 0) == (task.job, task.index)
            and a.ended is not None
            and task.started_s - CLOCKS_S <= a.claimed.timestamp() <= task.ended_s + CLOCKS_S
        ]
        total_s = sum(length_s for _, length_s in inside)
        for attempt, length_s in inside:
            if total_s > 0.0:
                found[attempt.token] = task.joules * length_s / total_s
    return found
