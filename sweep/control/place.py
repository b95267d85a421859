"""Where this task runs: job, index, slot, host, and until when."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sweep.core.errors import CouldNotAsk, SchedulerError
from sweep.core.files import read_json
from sweep.core.masking import keep_environment
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.system import processes
from sweep.core.trial import Place

SLOT_VARIABLE = "SWEEP_SLOT"  # of a slot's worker: job_index.slot
COUNT_VARIABLE = "SWEEP_SLOTS"  # of a task: how many slots it serves
PACKED_VARIABLE = "SWEEP_PACKED"  # of a task: trials share its GPUs, as many as its slots


def slot_of(environ: Mapping[str, str]) -> int | None:
    """Return the number of the slot that a worker serves; None where a task has just one."""
    key = environ.get(SLOT_VARIABLE)
    return int(key.rpartition(".")[2]) if key else None


def place_from(environ: Mapping[str, str], kind: type[Scheduler]) -> Place:
    """Return where this process runs, from what its scheduler put into its environment.

    Another's variables say nothing: a study may run on this machine from within a job of Slurm's.
    """
    job, index = kind.task_of(environ)
    return Place(
        job=job,
        index=index,
        host=kind.node_of(environ),
        boot_id=processes.boot_id(),
        slot=slot_of(environ),
    )


def ask_end_time(schedule: Scheduler | None, place: Place) -> float | None:
    """Ask when this task is ended, where its environment does not say (Slurm's before 23.02)."""
    if schedule is None or place.job is None:
        return None
    try:
        left_s = schedule.time_left_s(place.job, place.index)
    except (CouldNotAsk, SchedulerError):
        return None
    return None if left_s is None else time.time() + left_s


def training_environ(folder: StudyFolder, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what training may inherit: the task's environment, and the secrets that launch kept
    out of it."""
    found = {**environ, **(read_json(folder.secrets) or {})}
    keep_environment(found)
    return found
