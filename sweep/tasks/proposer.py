"""The process that prepares a study's proposals while others train: ``python -m
sweep.tasks.proposer FOLDER TOKEN``.

A task starts it beside its training, where no other has one, and it ends with that task. Where its
sampler takes seconds to bring in, a second one of another task stands by: it has the sampler ready,
and prepares once the first one is gone. What fails here ends it: tasks then propose themselves, and
say what fails.
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
from sweep.search.bring_in import bring_in
from sweep.search.preparing import Preparer
from sweep.search.samplers import takes_long
from sweep.storage import access, proposals, studies
from sweep.storage.connection import Database
from sweep.storage.optuna_storage import PostgresStorage
from sweep.tasks.own_code import OwnCode

AWAY_PAUSE_S = 2.0
RENEW_S = 1.0  # between two signs of life
STAND_BY_S = 0.5  # and between two questions of one that stands by whether its turn has come


class LifeSign:
    """Shows beside the work that this process lives: one proposal may take longer than a lease.

    Args:
        stands_by: It stands by until it has brought its sampler in, and its turn has come.

    Attributes:
        over: Set once another process has taken over, or no trial waits.
        turn: Set once this process is the one that prepares.
        is_ready: Whether its sampler is there.
    """

    def __init__(self, preparer: Preparer, token: str, *, stands_by: bool = False) -> None:
        self.over = threading.Event()
        self.turn = threading.Event()
        self.is_ready = not stands_by
        self._stands_by = stands_by
        self._preparer = preparer
        self._token = token

    def is_held(self) -> bool:
        """Tell whether this process is still the one that prepares."""
        return not self.over.is_set()

    def wait(self) -> bool:
        """Wait for its turn; return whether that has come."""
        while not self.over.is_set():
            if self.turn.wait(STAND_BY_S):
                return True
        return False

    def renew(self) -> None:
        """Renew it until it is over."""
        try:
            while self.may_go_on():
                self.over.wait(RENEW_S if self.turn.is_set() else STAND_BY_S)
        finally:
            self.over.set()

    def may_go_on(self) -> bool:
        """Show a sign of life; tell whether this process is to go on."""
        one, db = self._preparer, self._preparer.storage.database
        try:
            holds = proposals.lease(db, one.study_id, self._token, begins=not one.has_begun)
            if holds:
                self.turn.set()
            elif self.turn.is_set():
                return False
            if not self._stands_by:
                return holds
            if holds and self.is_ready:
                self._stands_by = False
                proposals.end_lease(db, one.study_id, self._token, stands_by=True)
                return True
            # Nobody else brings a sampler in at the same time.
            held = proposals.lease(db, one.study_id, self._token, begins=True, stands_by=True)
            return holds or held
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
    sign = LifeSign(preparer, token, stands_by=takes_long(study))
    threading.Thread(target=sign.renew, daemon=True).start()
    if takes_long(study):  # beside the start, whose trials get theirs by chance
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # of torch, in both threads
        threading.Thread(target=_make_ready, args=[study, sign], daemon=True).start()
    while sign.wait():
        try:
            return preparer.run(sign.is_held)
        except DatabaseUnavailable:
            time.sleep(AWAY_PAUSE_S)


def _make_ready(study: Study, sign: LifeSign) -> None:
    try:
        bring_in(study)
    except SweepError:
        pass  # the first proposal that needs it says so
    finally:
        sign.is_ready = True


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
