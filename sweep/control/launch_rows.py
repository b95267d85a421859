"""A launch's rows: the study with its trials, and what another launch changes of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.control import identity
from sweep.core.attributes import ADDED, FOLDER
from sweep.core.errors import StudyChangedError
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.search import propose, warm_start
from sweep.storage import bulk, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.studies import StudyState


def find(db: Database, study: Study, folder: StudyFolder) -> tuple[int, Study, bool] | None:
    """Return the id of the study, its specification as it was launched last, and whether its folder
    is still where it was; None where there is no such study.

    Raises:
        StudyChangedError: The name is another study's.
    """
    return db.retry(lambda _: _find(db, study, folder))


def create(
    db: Database, study: Study, folder: StudyFolder
) -> tuple[int, warm_start.EarlierTrials | None]:
    """Make a study and its trials; return its id, and what it was given of earlier studies."""
    rows = propose.first_rows(study, study.trials)
    warm = db.retry(lambda _: warm_start.read(db, study))
    study_id = db.retry(lambda _: _create(db, study, folder, rows, warm))
    return study_id, warm


def update(db: Database, study_id: int, study: Study) -> int:
    """Write the study as it is now; return how many trials it has been given."""
    return db.retry(lambda _: _update(db, study_id, study))


def read_known(db: Database, study_id: int) -> tuple[bool, bool]:
    """Tell whether a trial of a study has told a value of the objective, and whether one was held
    against the constraints."""
    return db.retry(lambda _: (studies.is_measured(db, study_id), studies.is_judged(db, study_id)))


def resume(ledger: Ledger, *, again: bool = False) -> int:
    """Let a held or stopped study go on; return how many failed trials are tried again.

    Args:
        again: All that have failed are, for the objective had a wrong name.
    """
    return ledger.db.retry(lambda _: _resume(ledger, again))


def undo(ledger: Ledger) -> bool:
    """Take back a study that could not be submitted: nothing half-made stays.

    Returns whether it is gone; not where it may have been submitted all the same.
    """
    return ledger.db.retry(lambda _: _undo(ledger))


def _find(db: Database, study: Study, folder: StudyFolder) -> tuple[int, Study, bool] | None:
    study_id = studies.find_study(db, study.name)
    if study_id is None:
        return None
    before = studies.read_specification(db, study_id)
    if before is None:
        raise StudyChangedError(
            f"The database holds a study {study.name!r} that was not made by sweep.",
            "Give this one another `name`.",
        )
    return study_id, before, identity.is_at_home(db, study_id, folder)


def _create(
    db: Database,
    study: Study,
    folder: StudyFolder,
    rows: Sequence[Mapping[str, Any]],
    warm: warm_start.EarlierTrials | None,
) -> int:
    existing = studies.find_study(db, study.name)
    if existing is not None:
        return existing  # the answer to our own COMMIT was lost
    study_id = studies.insert_study(db, study)
    studies.write_attribute(db, study_id, FOLDER, str(folder.root))
    bulk.insert_waiting_trials(db, study_id, rows)
    if warm is not None:
        warm_start.write(db, study_id, warm)
    return study_id


def _update(db: Database, study_id: int, study: Study) -> int:
    have = bulk.lock_study(db, study_id)
    studies.write_specification(db, study_id, study)
    studies.write_metric_names(db, study, study_id)
    more = study.trials - have
    if more > 0:
        # What was added by hand is none of the design's rows.
        start = have - min(have, int(studies.read_attribute(db, study_id, ADDED) or 0))
        bulk.insert_waiting_trials(db, study_id, propose.first_rows(study, more, start=start))
    return max(0, more)


def _resume(ledger: Ledger, again: bool) -> int:
    studies.lock_study(ledger.db, ledger.study_id)
    is_kept = ledger.is_proven() and not again
    given_back = 0 if is_kept else ledger.give_back_failures()
    studies.write_state(ledger.db, ledger.study_id, StudyState(since=time.time()))
    return given_back


def _undo(ledger: Ledger) -> bool:
    db = ledger.db
    studies.lock_study(db, ledger.study_id)
    if ledger.count_attempts() or studies.read_waves(db, ledger.study_id):
        return False
    studies.delete_study(db, ledger.study_id)
    return True
