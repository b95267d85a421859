"""Which scheduler a study runs under."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from sweep.core import executors
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Scheduler, Wave
from sweep.core.study import Study


def resolve(study: Study, environ: Mapping[str, str] = os.environ) -> Study:
    """Return the study with its executor decided, and K where that depends on it."""
    if study.executor == executors.AUTO:
        study = dataclasses.replace(study, executor=executors.choose(environ))
    most = executors.kind_of(study).most_parallel(study, environ)
    if study.max_parallel is None and most is not None:
        study = dataclasses.replace(study, max_parallel=min(most, study.trials))
    return study


def scheduler_of(
    folder: StudyFolder, study: Study, environ: Mapping[str, str] = os.environ
) -> Scheduler:
    """Return the scheduler of a study whose executor is decided."""
    return executors.kind_of(study).of(folder, study, environ)


def scheduler_of_wave(wave: Wave, folder: StudyFolder, study: Study) -> Scheduler:
    """Return the scheduler that has a wave, whichever the study runs under now."""
    return scheduler_of(folder, dataclasses.replace(study, executor=wave.executor))
