"""``--image``: the job that builds a study's image before its tasks start."""

from __future__ import annotations

import os

from sweep.control.place import training_environ
from sweep.core.errors import EXIT_DONE
from sweep.core.masking import mask
from sweep.core.paths import StudyFolder
from sweep.provenance import manifest
from sweep.provenance.capture import capture_built
from sweep.tasks.job_study import read_study
from sweep.training import build


def run(folder: StudyFolder, options: list[str]) -> int:
    """Build it, unless it is there, and record it as the launch would have."""
    study, _ = read_study(folder)
    environ = training_environ(folder, os.environ)
    build.build_missing(study, environ, _say)
    manifest.complete(folder, "environment", capture_built(study, environ))
    return EXIT_DONE


def _say(text: str) -> None:
    print(mask(text), flush=True)
