"""The checkpoint that ``{checkpoint}`` means: of the step whose value counts, else the newest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sweep.core import outcomes
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.core.trial import TrialRecord
from sweep.training.attempt_files import folder_of
from sweep.training.best_checkpoint import find_best, is_wanted
from sweep.training.checkpoints import checkpoints

BEST, LAST = "best", "last"


@dataclass(frozen=True)
class Chosen:
    """A trial's checkpoint, and of which step it is: ``best`` or ``last``.

    ``note`` says why it is not the one that was asked for; "" where it is.
    """

    path: Path
    of: str
    note: str = ""


def choose(study: Study, folder: StudyFolder, record: TrialRecord, of: str = BEST) -> Chosen | None:
    """Return a trial's checkpoint, or None where there is none (any more).

    Args:
        of: ``best``: of the step that has the objective's value, where ``objective.at`` is best.
    """
    folders = [folder_of(folder, attempt) for attempt in reversed(record.attempts)]
    has_best = of == BEST and is_wanted(study) and record.state == outcomes.COMPLETE
    for attempt in folders if has_best and record.values else ():
        path = find_best(attempt, record.values[0])
        if path is not None:
            return Chosen(path, BEST)
    for attempt in folders:
        found = checkpoints(attempt, study.checkpoint_files)
        if found:
            why = (
                "no checkpoint is known to be of the step whose value counts (objective.at: best); "
                "this is the newest"
            )
            return Chosen(found[0], LAST, why if has_best else "")
    return None
