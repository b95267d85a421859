"""Which rank failed first, as torchrun and srun tell it in a training's output.

A launcher leaves with a code of its own, whatever happened: torchrun with 1, srun with the highest
of all ranks, those that it killed itself included. What counts is the rank that failed first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.training.command.rank_labels import of_rank, split

_TORCHRUN = (
    r"(?s)Root Cause \(first observed failure\):.*?host\s*:\s*(?P<host>\S+).*?"
    r"rank\s*:\s*(?P<rank>\d+).*?exitcode\s*:\s*(?P<code>-?\d+)"
)
_SIGNALLED = r"SignalException: Process \d+ got signal: (\d+)"
_SRUN = (
    r"srun: error: (?P<host>\S+): tasks? (?P<ranks>[\d,-]+): "
    r"(?:Exited with exit code (?P<code>\d+)|(?P<word>[A-Z][A-Za-z ]+))"
)
# srun's words are strsignal's.
_SIGNALS = {
    "Killed": 9,
    "Terminated": 15,
    "Segmentation fault": 11,
    "Aborted": 6,
    "Bus error": 7,
    "Illegal instruction": 4,
    "Floating point exception": 8,
    "Out Of Memory": 9,
    "Hangup": 1,
    "Interrupt": 2,
    "Quit": 3,
    "User defined signal": 10,
}
# Ranks that notice another one's silence name it; so does the reference trainer.
_BLAMED = r"\brank (\d+) (?:hangs|died|has given no sign of life)"
_CLASH = (
    r"(?i)EADDRINUSE|address already in use|port \d+ of \S+ is taken|"
    r"Two runs took one port"
)


@dataclass(frozen=True)
class FirstFailure:
    """The rank that failed first.

    Attributes:
        rank: None where the launcher itself failed, or was told to end.
        host: As the launcher names it; empty where it does not.
        exit_code, signal: How it ended; one of them is None.
        blamed: Another rank that it names as the cause of its end, or None.
        lines: The end of the output of the blamed rank, else of the one that failed.
        clash: Whether it found its port taken, or another trial's ranks there.
    """

    rank: int | None
    host: str
    exit_code: int | None
    signal: int | None
    blamed: int | None = None
    lines: Sequence[str] = ()
    cause: Sequence[str] = ()
    clash: bool = False


def find(lines: Sequence[str], labels: str) -> FirstFailure | None:
    """Return the rank that failed first, or None where no launcher named one.

    Args:
        lines: The end of the output of a launcher.
        labels: How it says whose a line is, as for ``rank_labels.split``.
    """
    plain = [split(line, labels)[1] for line in lines]
    text = "\n".join(plain)
    rank, host, code, signal = None, "", None, None
    if found := _first_torchrun(text):
        rank, host, number = int(found["rank"]), found["host"], int(found["code"])
        code, signal = (None, -number) if number < 0 else (number, None)
    elif found := re.search(_SRUN, text):
        rank, host = int(re.split("[,-]", found["ranks"])[0]), found["host"]
        if found["code"]:
            code = int(found["code"])
        else:
            word = found["word"].strip()
            signal = next((n for w, n in _SIGNALS.items() if word.startswith(w)), 9)
    elif found := re.search(_SIGNALLED, text):
        signal = int(found[1])
    elif re.search(_CLASH, text):
        code = 1
    else:
        return None
    cause = of_rank(lines, rank, labels) if rank is not None else plain[-20:]
    named = re.search(_BLAMED, "\n".join(cause[-5:]))
    blamed = int(named[1]) if named and int(named[1]) != rank else None
    own = of_rank(lines, blamed, labels) if blamed is not None else cause
    clash = code is not None and bool(re.search(_CLASH, text))
    return FirstFailure(rank, host, code, signal, blamed, own[-20:], cause[-20:], clash)


def _first_torchrun(text: str) -> re.Match[str] | None:
    """Return the first root cause that is no launcher's own SIGTERM; each node names one."""
    found = list(re.finditer(_TORCHRUN, text))
    return next((match for match in found if match["code"] != "-15"), found[0] if found else None)
