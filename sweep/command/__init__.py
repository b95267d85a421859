"""What a trial starts: argv = srun(container(torchrun(the user's command))), and its environment.

``filling`` puts the trial's values in, ``launchers`` starts ranks, ``runtimes`` brings the
software, ``rendezvous`` finds where ranks meet, ``assembly`` puts all together, and
``first_failure`` reads what a launcher says of a rank that failed.
"""

from sweep.command.assembly import build, find_missing
from sweep.command.filling import explain_missing, fill, write_config
from sweep.command.launchers import PYTHON, RANKS_FOLDER, choose, labels, reader, uses_srun
from sweep.command.rendezvous import Rendezvous, meet
from sweep.training_env import TrialValues, environment

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
