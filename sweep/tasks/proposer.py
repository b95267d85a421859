"""The process that prepares a study's proposals while others train: ``python -m
sweep.tasks.proposer FOLDER TOKEN``.

A task starts it beside its training, where no other has one, and it ends with that task. What fails
here ends it: tasks then propose themselves, and say what fails.
"""

from __future__ import annotations

import os
import sys
import threading
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
from sweep.tasks.own_code import OwnCode

AWAY_PAUSE_S = 2.0
RENEW_S = 2.0  # between two signs of life


class LifeSign:
    """Shows beside the work that this process lives: one proposal may take longer than a lease.

    Attributes:
        over: Set once another process has taken over, or no trial waits.
    """

    def __init__(self, preparer: Preparer, token: str) -> None:
        self.over = threading.Event()
        self._preparer = preparer
        self._token = token

    def is_held(self) -> bool:
        """Tell whether this process is still the one that prepares."""
        return not self.over.is_set()

    def renew(self) -> None:
        """Renew it until it is over."""
        try:
            while self._may_go_on():
                self.over.wait(RENEW_S)
        finally:
            self.over.set()

    def _may_go_on(self) -> bool:
        one, db = self._preparer, self._preparer.storage.database
        try:
            return proposals.lease(db, one.study_id, self._token, begins=not one.has_begun)
        except DatabaseUnavailable:
            return True  # nor can others take over


def run(db: Database, study: Study, folder: StudyFolder, token: str) -> None:
    """Prepare a study's proposals while trials wait and no other process has taken over.

    Raises:
        SweepError: The sampler cannot work here; the user's own has failed.
    """
    study_id = studies.find_study(db, study.name)
    if study_id is None:
        return
    storage = PostgresStorage(db, patience_s=0.0, steps=False)
    preparer = Preparer(study, storage, study_id, OwnCode(study, folder).asked)
    sign = LifeSign(preparer, token)
    threading.Thread(target=sign.renew, daemon=True).start()
    while True:
        try:
            return preparer.run(sign.is_held)
        except DatabaseUnavailable:
            time.sleep(AWAY_PAUSE_S)


def main(arguments: list[str]) -> int:
    """Prepare proposals; return the exit code."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    folder, token = StudyFolder(Path(arguments[0])), arguments[1]
    try:
        db = access.connect(folder, timeout_s=8.0, may_start=False)
        run(db, Study.read(folder.study), folder, token)
    except SweepError as error:
        print(mask(f"proposals are not prepared any more: {error}"), flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
