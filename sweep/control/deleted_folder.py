"""A study whose folder was deleted while its rows are still there: it says so, and what to do."""

from __future__ import annotations

from sweep.control import known_databases
from sweep.core import outcomes
from sweep.core.attributes import FOLDER
from sweep.core.errors import InputError, SweepError
from sweep.core.paths import Runs, StudyFolder
from sweep.storage import records, studies, tables
from sweep.storage.connection import Database

PATIENCE_S = 3.0


def refuse(runs: Runs, name: str) -> None:
    """Refuse a study whose folder is not there, where a database that is known here has it.

    Raises:
        InputError: So it is.
    """
    folder = runs.study(name)
    for place in known_databases.known(runs):
        try:
            with known_databases.opened(place) as db:
                counts = db.retry(lambda db: _find(db, folder, name), patience_s=PATIENCE_S)
        except SweepError:
            continue  # it does not answer, or is none of ours
        if counts is not None:
            said = ", ".join(f"{n} {state}" for state, n in counts.items() if n) or "no trials"
            raise InputError(
                f"The folder {folder.root} of the study {name!r} was deleted; {place} still has "
                f"the study ({said}).",
                start_over(name),
            )


def start_over(name: str) -> str:
    """Return how a study without a folder is started over, or gone on with."""
    return (
        f"Start over: sweep remove {name}, then sweep launch STUDY.yaml. Or keep what the database "
        "knows: sweep launch STUDY.yaml alone makes the folder anew, without the logs, checkpoints "
        "and configurations that were in it."
    )


def _find(db: Database, folder: StudyFolder, name: str) -> dict[str, int] | None:
    tables.check_optuna(db)
    study_id = studies.find_study(db, name)
    if study_id is None or studies.read_attribute(db, study_id, FOLDER) != str(folder.root):
        return None
    counts = records.count_states(db, study_id)
    return {state: counts[state] for state in (*outcomes.FINAL_STATES, "running", "waiting")}
