"""sacct: the energy that tasks used, where the site measures it (AcctGatherEnergyType)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

FIELDS = "JobID,Start,End,ConsumedEnergyRaw"
_JOB_ID = r"([0-9]{1,18})(?:_([0-9]{1,10}))?(\..+)?"
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNKNOWN = 2**63  # Slurm's NO_VAL64, and what arithmetic on it leaves


@dataclass(frozen=True)
class RunEnergy:
    """What one run of a task used.

    Attributes:
        job: The array's id (a plain job's own).
        index: Array index; 0 for a plain job.
        started, ended: Local time, ISO, as sacct prints them.
        joules: The greatest of its steps': where steps run side by side, each counts the node's.
    """

    job: str
    index: int
    started: str
    ended: str
    joules: float


def energy_argv(jobs: Iterable[str], sacct: str = "sacct") -> list[str]:
    """Return the command line that asks for the energy of jobs, earlier runs included."""
    return [sacct, "-n", "-P", "-D", "-o", FIELDS, "-j", ",".join(jobs)]


def parse_energy(stdout: str) -> list[RunEnergy]:
    """Read sacct's rows, each step after its task; runs that have not ended, and those of which
    nothing was measured (0, or nothing), are left out."""
    runs: list[RunEnergy] = []
    for line in stdout.splitlines():
        columns = line.split("|")
        found = re.fullmatch(_JOB_ID, columns[0]) if len(columns) == 4 else None
        if not found:
            continue
        joules = _joules(columns[3])
        index = int(found[2] or 0)
        if found[3] is None:
            runs.append(RunEnergy(found[1], index, columns[1], columns[2], joules))
        elif runs and (runs[-1].job, runs[-1].index) == (found[1], index):
            runs[-1] = replace(runs[-1], joules=max(runs[-1].joules, joules))
    return [run for run in runs if run.joules > 0.0 and run.ended[:1].isdecimal()]


def _joules(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,30}(?:\.[0-9]+)?)([KMGTP]?)", text.strip())
    value = float(found[1]) * _PREFIXES[found[2]] if found else 0.0
    return 0.0 if value >= _UNKNOWN else value
