"""The study that a job works for: read from its folder and found in its database."""

from __future__ import annotations

import dataclasses
import os

from sweep.core.errors import SweepError
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import EXECUTOR_VARIABLE, Scheduler
from sweep.core.study import Study
from sweep.schedulers.choose import scheduler_of
from sweep.schedulers.revive import reviver_of
from sweep.storage import access, studies
from sweep.storage.ledger import Ledger

AWAY_PATIENCE_S = 900.0  # the database may be away for ten minutes


def read_study(folder: StudyFolder) -> tuple[Study, Scheduler]:
    """Return the study under the executor that runs this job, and that executor's scheduler.

    The study may have moved to another one since.
    """
    study = Study.read(folder.study)
    executor = os.environ.get(EXECUTOR_VARIABLE) or study.executor
    study = dataclasses.replace(study, executor=executor)
    return study, scheduler_of(folder, study)


def find_ledger(folder: StudyFolder) -> tuple[Ledger, Scheduler]:
    """Return the study's ledger, and the scheduler of this job.

    Raises:
        SweepError: The database does not hold the study.
    """
    study, schedule = read_study(folder)
    db = access.connect(folder, timeout_s=8.0, may_start=schedule.shares_this_machine)
    if isinstance(db, access.EmbeddedDatabase):
        db.on_absent = reviver_of(folder, study, schedule)
        db.waits_for_start = True
    with db.patient(AWAY_PATIENCE_S):
        study_id = db.retry(lambda _: studies.find_study(db, study.name))
    if study_id is None:
        raise SweepError(f"The database no longer holds the study {study.name!r}.")
    return Ledger(db, study_id, study), schedule
