"""Which scheduler a study runs under."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study
from sweep.schedulers.local.scheduler import LocalScheduler
from sweep.schedulers.slurm.ask import is_here
from sweep.schedulers.slurm.scheduler import SlurmScheduler

LOCAL = "local"
SLURM = "slurm"


def resolve(study: Study, environ: Mapping[str, str] = os.environ) -> Study:
    """Return the study with its executor decided: Slurm where this machine has one, else local.

    A local study without ``max_parallel`` gets what this machine's CPUs allow: there is no
    scheduler that would let the others wait.
    """
    if study.executor == "auto":
        study = dataclasses.replace(study, executor=SLURM if is_here(environ) else LOCAL)
    if study.executor == LOCAL and study.max_parallel is None:
        cpus = len(os.sched_getaffinity(0))
        width = max(1, cpus // (study.resources.cpus or study.ranks_per_node))
        study = dataclasses.replace(study, max_parallel=min(width, study.trials))
    return study


def scheduler_of(
    folder: StudyFolder, study: Study, environ: Mapping[str, str] = os.environ
) -> Scheduler:
    """Return the scheduler of a study whose executor is decided."""
    if study.executor == SLURM:
        return SlurmScheduler(folder, study, environ)
    return LocalScheduler(folder.local)
