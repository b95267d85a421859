"""What a task works with: its study, its place in the cluster, its end, its environment."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping

from sweep import command, process
from sweep.errors import CouldNotAsk, SchedulerError
from sweep.paths import StudyFolder, read_json
from sweep.plain import dataclass
from sweep.scheduler import Scheduler
from sweep.storage.ledger import Ledger, Place
from sweep.study import Study

SLOT_VARIABLE = "SWEEP_SLOT"  # of a slot's worker: job_index.slot
COUNT_VARIABLE = "SWEEP_SLOTS"  # of a task: how many slots it serves


@dataclass(frozen=True)
class Context:
    """Everything a worker works with.

    Attributes:
        schedule: Where its task came from, or None for a worker without one.
        end_time_s: When its task is ended, on the wall clock, or None.
        environ: The environment that training inherits.
        say: Prints a line into the task's log.
    """

    folder: StudyFolder
    study: Study
    ledger: Ledger
    place: Place
    environ: Mapping[str, str]
    schedule: Scheduler | None = None
    end_time_s: float | None = None
    term_wait_s: float = 4.0
    say: Callable[[str], None] = lambda text: print(text, flush=True)


def config_of(study: Study, values: command.TrialValues) -> dict[str, object]:
    """Return what the trial's config file holds: parameters, fixed values and the seed."""
    return {"seed": values.seed, **values.params}


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
        boot_id=process.boot_id(),
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


def default_context(folder: StudyFolder, ledger: Ledger, schedule: Scheduler | None) -> Context:
    """Return the context of a worker that a scheduler started."""
    place = place_from(os.environ)
    end_time_s = end_time_from(os.environ)
    if end_time_s is None:
        end_time_s = ask_end_time(schedule, place)
    which = "" if place.slot is None else f"slot {place.slot}: "
    kill_wait_s = float(os.environ.get("SWEEP_KILL_WAIT") or 5.0)
    return Context(
        folder=folder,
        study=ledger.study,
        ledger=ledger,
        place=place,
        environ=training_environ(folder, os.environ),
        schedule=schedule,
        end_time_s=end_time_s,
        term_wait_s=max(2.0, kill_wait_s - 1.0),
        say=lambda text: print(which + text, file=sys.stdout, flush=True),
    )
