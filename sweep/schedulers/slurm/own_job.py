"""The job that this process runs in, by the variables that Slurm gives it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

JOB_ID = "SLURM_JOB_ID"  # an array's element has one of its own
NODE = "SLURMD_NODENAME"


def own_job(environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Return its id and its node; empty outside of a job."""
    return environ.get(JOB_ID, ""), environ.get(NODE, "")


def requeue_self() -> None:
    """Put this job back into the queue: its time is over, and studies still need it."""
    job, _ = own_job()
    if job:
        subprocess.run(["scontrol", "requeue", job], stdin=subprocess.DEVNULL, timeout=60)
