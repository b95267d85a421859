"""What a trial starts: argv = srun(container(torchrun(the user's command))), and its environment.

``filling`` puts the trial's values in, ``launchers`` starts ranks, ``runtimes`` brings the
software, ``rendezvous`` finds where ranks meet, ``assembly`` puts all together, and
``first_failure`` reads what a launcher says of a rank that failed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweep.command.assembly import build, find_missing
    from sweep.command.filling import explain_missing, fill, write_config
    from sweep.command.launchers import PYTHON, RANKS_FOLDER, choose, labels, reader, uses_srun
    from sweep.command.rendezvous import Rendezvous, meet
    from sweep.training_env import TrialValues, environment

# Loaded when asked for: a task that finds nothing to pull needs none of it.
_LISTED = {
    "sweep.command.assembly": ("build", "find_missing"),
    "sweep.command.filling": ("explain_missing", "fill", "write_config"),
    "sweep.command.launchers": (
        "PYTHON",
        "RANKS_FOLDER",
        "choose",
        "labels",
        "reader",
        "uses_srun",
    ),
    "sweep.command.rendezvous": ("Rendezvous", "meet"),
    "sweep.training_env": ("TrialValues", "environment"),
}
_HOMES = {name: home for home, names in _LISTED.items() for name in names}

__all__ = [
    "PYTHON",
    "RANKS_FOLDER",
    "Rendezvous",
    "TrialValues",
    "build",
    "choose",
    "environment",
    "explain_missing",
    "fill",
    "find_missing",
    "labels",
    "meet",
    "reader",
    "uses_srun",
    "write_config",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found
