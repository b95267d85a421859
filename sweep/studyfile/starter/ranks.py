"""Which launcher a script needs that meets other ranks."""

from __future__ import annotations

import re

from sweep.studyfile.starter.draft import Draft


def add_ranks(draft: Draft, source: str) -> None:
    """Have a script that meets other ranks started by their launcher: torchrun, also for a single
    one, or mpirun."""
    if _IS_MPI.search(source) and not _MEETS.search(source):
        draft.command[:0] = ["mpirun", "-n", "2"]
        draft.more["resources"] = {"cpus": 2}
        draft.notes["resources"] = "one for each rank that mpirun starts"
    if _MEETS.search(source) and not _MEETS_BY_ITSELF.search(source):
        draft.more["ddp"] = {"ranks_per_node": 1}
        draft.notes["ddp"] = "torchrun starts the script, which waits for its variables"


_MEETS = re.compile(r"\binit_process_group\(|\bdeepspeed\.initialize\(")
_IS_MPI = re.compile(
    r"^[ \t]*(?:from\s+mpi4py\b|import\s+mpi4py\b)|"
    r"\bcluster_detection_method\s*=\s*[\"']mpi4py\b",  # of jax.distributed.initialize
    re.MULTILINE,
)
# env:// reads the variables of a launcher.
_MEETS_BY_ITSELF = re.compile(
    r"\binit_method\s*=(?!\s*[\"']env://)|\bMASTER_ADDR\b|\b(mp|multiprocessing)\.spawn\("
)
