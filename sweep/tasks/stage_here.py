"""``--stage FOLDER``: one node's part in staging for a trial on several nodes."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sweep.core.errors import EXIT_DONE, SweepError
from sweep.core.files import read_json
from sweep.core.masking import mask
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.tasks.staging import on_nodes
from sweep.tasks.staging.stage import Stager

LOOK_S = 1.0


def run(folder: StudyFolder, options: list[str]) -> int:
    """Stage here, say where, and keep the copies while they are needed."""
    place = Path(options[1])
    study = Study.read(place / "study.json")
    is_strict = (read_json(place / "request.json") or {})["is_strict"]
    stager = Stager(on_nodes.alone(study), folder, os.environ, _say, is_strict=is_strict)
    try:
        staged = stager.stage(study.data_paths, lambda: not on_nodes.is_held(place))
    except SweepError as error:
        told = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
        on_nodes.answer(place, os.environ, {"data": {}, "notes": [], **told})
        return EXIT_DONE
    data = {name: str(path) for name, path in staged.data.items()}
    on_nodes.answer(place, os.environ, {"data": data, "notes": staged.notes})
    while on_nodes.is_held(place):
        time.sleep(LOOK_S)
    staged.close()
    return EXIT_DONE


def _say(text: str) -> None:
    print(mask(text), flush=True)
