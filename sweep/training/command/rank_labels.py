"""Lines of output with the rank that printed them: torchrun's ``[rank1]: …``, srun's ``1: …``.

Launchers that the user's own command starts label them too, where they are told so: torchrun by
``--tee``, Open MPI's mpirun by ``--tag-output``, MPICH's by ``-prepend-rank``, srun by ``--label``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

TORCHRUN = "torchrun"
SRUN = "srun"
BOTH = "both"  # srun numbers the nodes' torchruns, and these name the ranks

_TORCHRUN = re.compile(r"\[rank(\d+)\]: ?")
_SRUN = re.compile(r"(\d+): ?")
# Of launchers that are not sweep's: [rank1]: and [default1]: of torchrun, [1,1]<stdout>: of Open
# MPI, [1]<stdout>: of Horovod.
FOREIGN = re.compile(
    r"(?:\[(?:rank|default)(\d+)\]: ?|\[\d+,(\d+)\]<std(?:out|err)>: ?|"
    r"\[(\d+)\]<std(?:out|err)>: ?)"
)
PLAIN = "plain"  # those alone: no text of a training's own looks so
_MPICH = re.compile(r"\[(\d+)\] ?")
_OWN = {SRUN: _SRUN, "mpich": _MPICH}


def split(line: str, labels: str) -> tuple[int | None, str]:
    """Return the rank that a line of a launcher's output is of (None: its own), and the line.

    Args:
        labels: TORCHRUN, SRUN or BOTH.
    """
    rank = None
    if labels != TORCHRUN and (found := _SRUN.match(line)):
        line = line[found.end() :]
        rank = int(found[1]) if labels == SRUN else None
    if labels != SRUN and (found := _TORCHRUN.match(line)):
        line, rank = line[found.end() :], int(found[1])
    return rank, line


def of_rank(lines: Iterable[str], rank: int, labels: str) -> list[str]:
    """Return the lines of one rank, without what its launcher put before them."""
    return [text for each, text in (split(line, labels) for line in lines) if each == rank]


def label_of(words: Sequence[str]) -> str:
    """Return how a launcher in the user's command labels lines, as its options say: PLAIN where
    it does not, or by one of FOREIGN; SRUN or "mpich" else."""
    name = os.path.basename(words[0]) if words else ""
    if name == "srun" and ("--label" in words or re.search(r" -[a-zA-Z]*l\b", " ".join(words))):
        return SRUN
    is_mpich = name.startswith(("mpirun", "mpiexec"))
    return "mpich" if is_mpich and {"-l", "-prepend-rank", "--prepend-rank"} & set(words) else PLAIN


def of_first_foreign(line: str, labels: str) -> str | None:
    """Return what of a line is rank 0's, of a launcher in the user's command; None for nothing.

    A line without a label is taken whole: nothing says whose it is.

    Args:
        labels: From ``label_of``.
    """
    own = _OWN.get(labels)
    if own is not None:
        found = own.match(line)
        return line if found is None else line[found.end() :] if int(found[1]) == 0 else None
    head, *parts = FOREIGN.split(line)
    # Three groups a label, of which one has the rank.
    ranks = [next(rank for rank in parts[at : at + 3] if rank) for at in range(0, len(parts), 4)]
    ours = [text for rank, text in zip(ranks, parts[3::4], strict=True) if int(rank) == 0]
    return head + "".join(ours) if head or ours or not line else None


def of_first(line: str, labels: str) -> str | None:
    """Return what of a line is rank 0's or the launcher's own, without labels; None for nothing.

    torchrun puts its label before whatever it has read of a rank by then: a line that a rank has
    written by halves bears several, and those of other ranks between.
    """
    if labels == SRUN:
        rank, text = split(line, labels)
        return text if rank in (None, 0) else None
    if labels == BOTH:
        line = _SRUN.sub("", line, count=1) if _SRUN.match(line) else line
    own, *parts = _TORCHRUN.split(line)
    ours = [text for rank, text in zip(parts[::2], parts[1::2], strict=True) if int(rank) == 0]
    return own + "".join(ours) if own or ours or not line else None
