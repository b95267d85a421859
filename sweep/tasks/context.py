"""What a task works with: its study, its place in the cluster, its end, its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sweep.control.identity import read_mark
from sweep.control.place import ask_end_time, place_from, training_environ
from sweep.core.executors import kind_of
from sweep.core.masking import mask
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import GRACE_TIME_VARIABLE, Scheduler
from sweep.core.study import Study
from sweep.core.system.seats import Seat
from sweep.core.trial import Place
from sweep.storage.ledger import Ledger
from sweep.training.command.environment import TrialValues


@dataclass(frozen=True)
class Context:
    """Everything a worker works with.

    Attributes:
        schedule: Where its task came from, or None for a worker without one.
        end_time_s: When its task is ended, on the wall clock, or None.
        environ: The environment that training inherits.
        say: Prints a line into the task's log.
        seat: Its place on a GPU that trials share; None where they share none.
    """

    folder: StudyFolder
    study: Study
    ledger: Ledger
    place: Place
    environ: Mapping[str, str]
    schedule: Scheduler | None = None
    end_time_s: float | None = None
    term_wait_s: float = 4.0
    say: Callable[[str], None] = lambda text: print(mask(text), flush=True)
    seat: Seat | None = None

    @property
    def may_run_twice(self) -> bool:
        """Whether its task may be run again while this run of it lives."""
        return self.schedule is not None and self.schedule.may_requeue

    @property
    def others_end_it(self) -> bool:
        """Whether SIGTERM may have been another's wish than sweep's, which is asked later."""
        return self.schedule is not None and self.schedule.others_end_tasks


def config_of(study: Study, values: TrialValues) -> dict[str, object]:
    """Return what the trial's config file holds: parameters, fixed values and, where the study
    wants it, the seed."""
    return {**({"seed": values.seed} if study.config.seed else {}), **values.params}


def logged_as(study: Study, folder: StudyFolder, trial: int, kind: str = "") -> str:
    """Return an id for the trackers that training itself talks to, which no other run has.

    A study's name may be used again: what tells the two apart is in it.

    Args:
        kind: Of what is no attempt of the trial, and which: rerun-3.
    """
    mark = (read_mark(folder) or "")[:6]
    return "-".join(part for part in (study.name, mark, f"{trial:05d}", kind) if part)


def default_context(folder: StudyFolder, ledger: Ledger, schedule: Scheduler | None) -> Context:
    """Return the context of a worker that a scheduler started."""
    kind = kind_of(ledger.study)
    place = place_from(os.environ, kind)
    end_time_s = kind.end_time_of(os.environ)
    if end_time_s is None:
        end_time_s = ask_end_time(schedule.quick() if schedule else None, place)
    which = "" if place.slot is None else f"slot {place.slot}: "
    term_wait_s = max(2.0, float(os.environ.get("SWEEP_KILL_WAIT") or 5.0) - 1.0)
    if place.slot is not None:
        # A step gets SIGTERM at the beginning of a preemption's GraceTime, and the task at its end.
        term_wait_s += float(os.environ.get(GRACE_TIME_VARIABLE) or 0.0)
    return Context(
        folder=folder,
        study=ledger.study,
        ledger=ledger,
        place=place,
        environ=dict(training_environ(folder, os.environ)),
        schedule=schedule,
        end_time_s=end_time_s,
        term_wait_s=term_wait_s,
        say=lambda text: print(mask(which + text), file=sys.stdout, flush=True),
        seat=Seat.take(os.environ),
    )
