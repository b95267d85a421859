"""Which scheduler has which job of a study: one that has moved has jobs of several.

A study moves when it is launched under another executor while no array of it lives. What its
earlier arrays have left is settled by the scheduler that had them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path

from sweep.core.attributes import FOLDER
from sweep.core.errors import SweepError
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import RUNNING, JobFate, Scheduler, Task, TaskState, Wave
from sweep.core.study import Study
from sweep.schedulers.choose import scheduler_of, scheduler_of_wave
from sweep.storage import studies
from sweep.storage.embedded.folder import Starter
from sweep.storage.embedded.succession import AskFate
from sweep.storage.ledger import Ledger


def owner_of(ledger: Ledger, schedule: Scheduler, wave: Wave) -> Scheduler:
    """Return the scheduler that has a wave: the study's present one, or an earlier one."""
    if schedule.has(wave):
        return schedule
    root = ledger.db.retry(lambda db: studies.read_attribute(db, ledger.study_id, FOLDER))
    return scheduler_of_wave(wave, StudyFolder(Path(root)), ledger.study)


def by_owner(
    ledger: Ledger, schedule: Scheduler, jobs: Collection[str]
) -> list[tuple[Scheduler, list[str]]]:
    """Return the jobs with the scheduler that has them, the study's present one first.

    What is no wave's is the present one's.
    """
    waves = ledger.db.retry(lambda db: studies.read_waves(db, ledger.study_id))
    others = [wave for wave in waves if not schedule.has(wave)]
    moved: dict[str, list[str]] = {}
    for wave in others:
        if wave.job and wave.job in jobs:
            moved.setdefault(wave.executor, []).append(wave.job)
    mine = set(jobs).difference(*moved.values())
    owners = {wave.executor: owner_of(ledger, schedule, wave) for wave in others if moved}
    return [(schedule, sorted(mine)), *((owners[name], its) for name, its in moved.items())]


def poll(
    ledger: Ledger,
    schedule: Scheduler,
    jobs: Collection[str],
    tasks: Collection[Task] | None = None,
) -> tuple[dict[Task, TaskState], set[str]]:
    """Ask each scheduler about its jobs; return the states, and the jobs of those that are not here
    or do not answer.

    Args:
        tasks: Those whose end is to be explained: where the queue has all of them running, nothing
            further is asked. None for all that these jobs ever had.

    Raises:
        CouldNotAsk: The study's present one does not answer.
    """
    states: dict[Task, TaskState] = {}
    unasked: set[str] = set()
    for owner, its in by_owner(ledger, schedule, jobs):
        try:
            if its:
                found = owner.queued(its)
                if not _all_run(found, its, tasks):
                    found = owner.explain(its, found)
                states |= found
        except SweepError:
            if owner is schedule:
                raise
            unasked |= set(its)
    return states, unasked


def _all_run(
    states: Mapping[Task, TaskState], jobs: Collection[str], tasks: Collection[Task] | None
) -> bool:
    """Tell whether all of these tasks run that are of these jobs; False for all there ever were."""
    if tasks is None:
        return False
    mine = [task for task in tasks if task[0] in jobs]
    return all(task in states and states[task].state == RUNNING for task in mine)


def named(executor: str, folder: StudyFolder, study: Study, schedule: Scheduler) -> Scheduler:
    """Return the study's scheduler of this name; its present one where none was noted."""
    if schedule.is_named(executor):
        return schedule
    return scheduler_of(folder, dataclasses.replace(study, executor=executor))


def fate_asker(folder: StudyFolder, study: Study, schedule: Scheduler) -> AskFate:
    """Return what asks about the job of an embedded server: the scheduler that ran it."""

    def ask(starter: Starter) -> JobFate:
        try:
            owner = named(starter.executor, folder, study, schedule)
            return owner.job_fate(starter.job, starter.node)
        except SweepError as error:
            if schedule.is_named(starter.executor):
                raise
            raise SweepError(
                f"Whether job {starter.job}, which served the database on {starter.node}, is over "
                f"cannot be asked from here: {error.message}",
                f"Run this where {starter.executor} answers. {error.hint}".strip(),
            ) from error

    return ask
