"""A worker that believes to be on another machine: ``python -m tests.chaos.other_node FOLDER``."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.core.trial import Place
from sweep.storage import access, studies
from sweep.storage.ledger import Ledger
from sweep.tasks.context import default_context
from sweep.tasks.worker import Worker


def main(path: str) -> None:
    folder = StudyFolder(Path(path))
    study = Study.from_json(folder.study.read_text())
    db = access.connect(folder)
    study_id = studies.find_study(db, study.name)
    assert study_id is not None
    context = default_context(folder, Ledger(db, study_id, study), None)
    place = Place("elsewhere", 0, "other-node", "other-boot")
    Worker(dataclasses.replace(context, place=place)).run()


if __name__ == "__main__":
    main(sys.argv[1])
