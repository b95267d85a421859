"""Where this task runs: job, index, slot, host, and until when."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from sweep.core.errors import CouldNotAsk, SchedulerError
from sweep.core.files import read_json
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.system import processes
from sweep.core.trial import Place

SLOT_VARIABLE = "SWEEP_SLOT"  # of a slot's worker: job_index.slot
COUNT_VARIABLE = "SWEEP_SLOTS"  # of a task: how many slots it serves


def slot_of(environ: Mapping[str, str]) -> int | None:
    """Return the number of the slot that a worker serves; None where a task has just one."""
    key = environ.get(SLOT_VARIABLE)
    return int(key.rpartition(".")[2]) if key else None


def place_from(environ: Mapping[str, str]) -> Place:
    """Return where this process runs, from what the scheduler put into its environment."""
    job = environ.get("SLURM_ARRAY_JOB_ID") or environ.get("SLURM_JOB_ID")
    index = environ.get("SLURM_ARRAY_TASK_ID")
    if job is None:
        job, index = environ.get("SWEEP_JOB"), environ.get("SWEEP_ARRAY_INDEX")
    return Place(
        job=job,
        index=int(index) if index is not None else None,
        # Slurm's name of the node, by which it can be excluded.
        host=environ.get("SLURMD_NODENAME") or os.uname().nodename,
        boot_id=processes.boot_id(),
        slot=slot_of(environ),
    )


def end_time_from(environ: Mapping[str, str]) -> float | None:
    """Return when this task is ended, in seconds of the wall clock, or None."""
    given = environ.get("SWEEP_END_TIME") or environ.get("SLURM_JOB_END_TIME")
    return float(given) if given else None


def ask_end_time(schedule: Scheduler | None, place: Place) -> float | None:
    """Ask Slurm when this task is ended, where its environment does not say (before 23.02)."""
    ask = getattr(schedule, "time_left_s", None)
    if ask is None or place.job is None:
        return None
    try:
        left_s = ask(place.job, place.index)
    except (CouldNotAsk, SchedulerError):
        return None
    return None if left_s is None else time.time() + left_s


def training_environ(folder: StudyFolder, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what training may inherit: the task's environment, and the secrets that launch kept
    out of it."""
    return {**environ, **(read_json(folder.secrets) or {})}
