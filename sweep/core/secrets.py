"""The environment for Slurm's commands: nothing in it that changes their answers, no secret."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sweep.core.masking import holds_password

# SBATCH_* and SLURM_* beat what a script or a command line says (SBATCH_ARRAY_INX beats
# ``#SBATCH --array``), S*_FORMAT and SLURM_TIME_FORMAT change what is printed.
_CHANGES_ANSWERS = re.compile(
    r"(SBATCH|SLURM|SLURMD|SALLOC|SRUN|SQUEUE|SACCT|SACCTMGR|SCONTROL|SINFO|SCANCEL)_",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    r"^(SWEEP_STORAGE|PG)|KEY|TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL", re.IGNORECASE
)


def is_secret(name: str, value: str = "") -> bool:
    """Tell whether a variable may hold a secret: by its name, or a URL with a password in it."""
    return bool(_SECRET_NAME.search(name) or ("://" in value and holds_password(value)))


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for sbatch, which Slurm hands to the job and may record.

    Dropped are variables that change Slurm's answers and those that may hold a secret; SLURM_CONF
    stays, or another cluster would be asked.
    """
    return {
        name: value
        for name, value in environ.items()
        if name.upper() == "SLURM_CONF"
        or not (_CHANGES_ANSWERS.match(name) or is_secret(name, value))
    }


def ask_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for questions (squeue, sacct, ...): English, and nothing shortened."""
    # SLURM_BITSTR_LEN=0: squeue and sacct print a pending array's indices in full.
    return {**clean_environment(environ), "LC_ALL": "C.UTF-8", "SLURM_BITSTR_LEN": "0"}
