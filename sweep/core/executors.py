"""Which schedulers there are, by the words that ``executor`` takes.

``sweep.schedulers`` registers its own when it is imported; control, tasks and the command line
import it, so that no process can ask in vain.
"""

from __future__ import annotations

from collections.abc import Mapping

from sweep.core.errors import InputError
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study

AUTO = "auto"
_kinds: dict[str, type[Scheduler]] = {}


class Undecided(Scheduler):
    """What is known of a study whose executor is not decided: it may be a cluster's."""

    name = AUTO
    place = "a machine that is not decided"
    spans_nodes = True


def register(kind: type[Scheduler]) -> None:
    """Let ``executor`` take a scheduler's name."""
    _kinds[kind.name] = kind


def names() -> tuple[str, ...]:
    """Return the names of all schedulers."""
    if not _kinds:
        raise RuntimeError("No scheduler is registered: import sweep.schedulers first.")
    return tuple(_kinds)


def words() -> tuple[str, ...]:
    """Return all that ``executor`` may be."""
    return (AUTO, *names())


def get(name: str) -> type[Scheduler]:
    """Return a scheduler by its name.

    Raises:
        InputError: There is none of that name.
    """
    if name not in names():
        raise InputError(
            f"executor: there is no scheduler {name!r} here.", f"One of {', '.join(names())}."
        )
    return _kinds[name]


def kind_of(study: Study) -> type[Scheduler]:
    """Return the scheduler of a study; ``Undecided`` where it is only looked at."""
    return Undecided if study.executor == AUTO else get(study.executor)


def choose(environ: Mapping[str, str]) -> str:
    """Return what ``auto`` means here: a cluster that this machine belongs to, else itself."""
    here = [kind for kind in map(get, names()) if kind.is_here(environ)]
    return min(here, key=lambda kind: kind.shares_this_machine).name


def choose_here() -> str:
    """Return the name of the scheduler that runs its tasks on this machine."""
    return next(name for name in names() if get(name).shares_this_machine)


def is_packed(study: Study) -> bool:
    """Tell whether each task of a study trains several trials on each of its GPUs, as steps of its
    own. On a single machine the tasks themselves share them."""
    return study.resources.share is not None and kind_of(study).serves_slots


def slots_of(study: Study) -> int:
    """Return how many trials a task serves side by side: ``slurm.slots``, and never above K; on how
    many GPUs where trials share those.

    One where the scheduler has no slots: a single machine runs K tasks side by side anyway.
    """
    return min(study.slurm.slots, study.parallel) if kind_of(study).serves_slots else 1
