"""A study that was launched: found by its name, with its folder, specification and ledger."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sweep.control import deleted_folder, identity
from sweep.control.job_owners import fate_asker
from sweep.control.known_databases import is_served_elsewhere
from sweep.core.errors import DamagedFile, InputError
from sweep.core.files import read_text
from sweep.core.paths import Runs, StudyFolder
from sweep.core.study import REWRITTEN, Study
from sweep.schedulers.choose import scheduler_of
from sweep.storage import access, studies, tables
from sweep.storage.ledger import Ledger


@dataclass(frozen=True)
class Opened:
    """A study that exists: its folder, specification and ledger."""

    folder: StudyFolder
    study: Study
    ledger: Ledger

    def find_trial(self, number: int) -> tuple[int, str]:
        """Return the id and the state of a trial.

        Raises:
            InputError: There is no such trial.
        """
        found = self.ledger.db.retry(lambda _: self.ledger.find_trial(number))
        if found is None:
            raise self.no_trial(number)
        return found

    def no_trial(self, number: int) -> InputError:
        """Return what to raise where the study has no such trial."""
        return InputError(
            f"{self.study.name} has no trial {number}.",
            f"Its trials are 0 to {self.study.trials - 1}.",
        )


def open_study(runs: Runs, name: str | None) -> Opened:
    """Return a study that was launched from this runs folder; by default the last one.

    Raises:
        InputError: There is no such study here, or the database holds another one of its name.
        DamagedFile: A file of its folder is gone, or cannot be understood.
    """
    name = name or _last(runs)
    folder = runs.study(name)
    if not os.path.lexists(folder.study):
        if identity.is_used(folder):
            raise DamagedFile(f"{folder.study}, which holds the study, is gone.", REWRITTEN)
        deleted_folder.refuse(runs, name)
        known = ", ".join(runs.studies()) or "none"
        raise InputError(
            f"There is no study {name!r} in {runs.root} (known: {known}).",
            "Launch it: sweep launch STUDY.yaml, or name its runs folder with --runs.",
        )
    study = Study.read(folder.study)
    db = access.connect(
        folder,
        may_start=not is_served_elsewhere(folder, study),
        ask_fate=fate_asker(folder, study, scheduler_of(folder, study)),
    )
    db.retry(lambda _: tables.refuse_newer(db))
    study_id = db.retry(lambda _: studies.find_study(db, study.name))
    if study_id is None:
        raise InputError(
            f"The database ({access.describe(folder)}) no longer holds the study {name!r}.",
            "Launch it again: sweep launch STUDY.yaml.",
        )
    identity.refuse_other(db, study_id, folder, name)
    return Opened(folder, study, Ledger(db, study_id, study))


def _last(runs: Runs) -> str:
    try:
        return read_text(runs.last).strip()
    except (OSError, UnicodeDecodeError) as error:
        if not isinstance(error, FileNotFoundError):
            raise DamagedFile(
                f"{runs.last}, which names the study last launched, cannot be read: {error}.",
                "Name the study in the command; the next launch writes that file anew.",
            ) from None
        raise InputError(
            f"No study was launched from {runs.root} yet.",
            "Name one, or launch one first: sweep launch STUDY.yaml.",
        ) from None
