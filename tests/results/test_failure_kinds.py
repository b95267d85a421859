"""What the end of a failed trial's log advises."""

from __future__ import annotations

from pathlib import Path

from sweep.core.outcomes import NEVER_REPORTED
from sweep.core.paths import StudyFolder
from sweep.core.space import Space
from sweep.core.study import Objective, Study
from sweep.results.failure_kinds import kinds_of
from sweep.storage.status_rows import Failure

STUDY = Study(name="toy", command=("true",), objectives=(Objective("loss"),), space=Space(()))


def test_advice_quotes_no_secret(tmp_path: Path) -> None:
    """It goes into pages that are shown to others; the line of the log may hold anything."""
    folder = StudyFolder(tmp_path / "toy")
    log = folder.attempt(3, 1).log
    log.parent.mkdir(parents=True)
    log.write_text("loss: 0.5 written to postgresql://me:hunter2@db/runs\n")
    (kind,) = kinds_of([Failure(f"{NEVER_REPORTED} loss: …", 1, 3, 1)], STUDY, folder)
    assert "names loss: objective.from: {stdout: 'loss: (" in kind.advice
    assert "hunter2" not in kind.advice
