"""The process that prepares a study's proposals while others train: ``python -m
sweep.tasks.proposer FOLDER TOKEN``.

A task starts it beside its training, where no other has one, and it ends with that task. What fails
here ends it: tasks then propose themselves, and say what fails.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from sweep.core.errors import DatabaseUnavailable, SweepError
from sweep.core.masking import mask
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.search.preparing import Preparer
from sweep.storage import access, proposals, studies
from sweep.storage.connection import Database
from sweep.storage.optuna_storage import PostgresStorage

AWAY_PAUSE_S = 2.0
RENEW_S = 5.0  # between two signs of life


def run(db: Database, study: Study, token: str) -> None:
    """Prepare a study's proposals while trials wait and no other process has taken over."""
    study_id = studies.find_study(db, study.name)
    if study_id is None:
        return
    due = 0.0

    def is_wanted() -> bool:
        nonlocal due
        if time.monotonic() < due:
            return True
        due = time.monotonic() + RENEW_S
        return proposals.lease(db, study_id, token)

    preparer = Preparer(study, PostgresStorage(db, patience_s=0.0, steps=False), study_id)
    while True:
        try:
            return preparer.run(is_wanted)
        except DatabaseUnavailable:
            time.sleep(AWAY_PAUSE_S)


def main(arguments: list[str]) -> int:
    """Prepare proposals; return the exit code."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    folder, token = StudyFolder(Path(arguments[0])), arguments[1]
    try:
        run(access.connect(folder, timeout_s=8.0, may_start=False), Study.read(folder.study), token)
    except SweepError as error:
        print(mask(f"proposals are not prepared any more: {error}"), flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
