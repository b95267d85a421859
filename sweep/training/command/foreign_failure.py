"""Which process failed first, as launchers tell it that the user's own command has started.

Each has words of its own, and leaves with a code of its own: torchrun, accelerate and mp.spawn with
1 whatever happened, Open MPI's mpirun with 128 and the signal, MPICH's with the signal's number,
Lightning kills itself when a rank of it fails. What counts is the process that failed first.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.core.numbers import is_whole, whole
from sweep.training.command.rank_labels import FOREIGN

_WORDS = r"(?:[ \t\r\n]+)"


@dataclass(frozen=True)
class FailureMessage:
    """What a launcher prints of a process that failed.

    Attributes:
        whose: Its name.
        pattern: Has some of the groups ``rank``, ``host``, ``code`` (negative: a signal)
            and ``signal`` (a number or a name); with none of the last two it is an exit code 1.
        cut: What the launcher prints first; what the processes printed stands before it.
        is_raised: Whether it is an exception of the launcher's, whose traceback comes before it.
        shows_cause: Whether the process' own traceback follows.
    """

    whose: str
    pattern: str
    cut: str | None = None
    is_raised: bool = False
    shows_cause: bool = False


_OF_MPIRUN = r"^-{60,}\n(?:Primary job|\S+ (?:noticed|detected) )"
_DEEPSPEED = r"\[launch\.py:\d+:sigkill_handler\]"
# Literal parts of what they print: seen with torch 2.13, DeepSpeed 0.18, Open MPI 4.1 and 5, MPICH
# 3.3 to 4.0, Intel MPI 2021, Lightning 2.6, Composer 0.32, Horovod 0.28, joblib 1.5, Dask 2026.8.
MESSAGES = (
    # torchrun; accelerate, colossalai, fabric, tune and others call it. Of several nodes each
    # names a cause; what it ended itself (-15) is none.
    FailureMessage(
        "torchrun",
        r"Root Cause \(first observed failure\):\s*\[\d+\]:\s*time\s*:.*\s*host\s*:\s*"
        r"(?P<host>\S+)\s*rank\s*:\s*(?P<rank>\d+).*\s*exitcode\s*:\s*(?P<code>-?\d+)",
        r"^.*(?:Sending process \d+ closing signal|failed \(exitcode: -?\d+\) local_rank).*$",
    ),
    FailureMessage(
        "deepspeed",
        _DEEPSPEED + r" \[.*?(?:--local_rank=(?P<rank>\d+).*)?\] exits with return code = "
        r"(?P<code>-?\d+)",
        rf"^.*{_DEEPSPEED} Killing subprocess",
    ),
    FailureMessage(
        "mpirun",
        rf"\bnoticed{_WORDS}that{_WORDS}process{_WORDS}rank (?P<rank>\d+){_WORDS}with{_WORDS}PID "
        rf"\d+{_WORDS}on{_WORDS}node (?P<host>\S+){_WORDS}exited{_WORDS}on{_WORDS}signal{_WORDS}"
        r"(?P<signal>\d+)",
        _OF_MPIRUN,
    ),
    FailureMessage(
        "mpirun",
        r"Process name: \[(?:\[\d+,\d+\]|[^\]\s]+),(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)",
        _OF_MPIRUN,
    ),
    # MPICH names a process, which may be one that it has ended itself: only Intel's names the rank.
    FailureMessage(
        "mpiexec",
        r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\s*\n(?:=\s*)"
        r"(?:RANK (?P<rank>\d+) )?PID \d+ RUNNING AT (?P<host>\S+)\s*\n=\s+"
        r"(?:KILLED BY SIGNAL: (?P<signal>\d+)|EXIT STATUS: (?P<code>\d+)|"
        r"EXIT CODE: (?P<status>\d+))",
        r"^={60,}\n=\s+BAD TERMINATION",
    ),
    FailureMessage(
        "mp.spawn",
        r"ProcessExitedException: process (?P<rank>\d+) terminated with "
        r"(?:signal (?P<signal>SIG\w+)|exit code (?P<code>\d+))",
        r"^.*Terminating process \d+ via signal SIGTERM$",
        is_raised=True,
    ),
    FailureMessage(
        "mp.spawn",
        r"^-- Process (?P<rank>\d+) terminated with the following error:$",
        shows_cause=True,
    ),
    FailureMessage(
        "Lightning",
        r"^\[rank: (?P<rank>\d+)\] Child process with PID \d+ terminated with code (?P<code>-?\d+)",
    ),
    FailureMessage("composer", r"Rank (?P<rank>\d+) crashed with exit code (?P<code>-?\d+)\."),
    FailureMessage(
        "horovodrun",
        r"The first process to do so was:\s+Process name: (?:\S*\[)?(?P<rank>\d+)\]?\s+"
        r"Exit code: (?P<code>-?\d+)",
        is_raised=True,
    ),
    FailureMessage(
        "srun",
        r"^srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)[\d,-]*: "
        r"(?:Exited with exit code (?P<code>\d+)|(?P<signal>[A-Z][A-Za-z ]+))",
    ),
    # A process that Python started and waited for: accelerate's of a single one, any wrapper's.
    FailureMessage(
        "subprocess",
        r"CalledProcessError: Command .* died with <Signals\.(?P<signal>SIG\w+): \d+>",
        is_raised=True,
    ),
    # Dask's nanny starts another worker in the place of one that died, without a word on how.
    FailureMessage(
        "Dask", r"^\S+ \S+ - distributed\.nanny - WARNING - (?P<signal>Restarting worker)\b"
    ),
    FailureMessage(
        "joblib",
        r"TerminatedWorkerError:[^\n]*\s+The exit codes of the workers are "
        r"\{(?P<signal>SIG\w+)\(-\d+\)\}",
        is_raised=True,
    ),
)
# Of what the kernel's word for a signal is, as srun prints it.
_STRSIGNAL = {signals.strsignal(number): int(number) for number in signals.valid_signals()}
_TRACEBACK = "Traceback (most recent call last):"
CLASH = r"(?i)EADDRINUSE|address already in use"
# What gloo and NCCL raise in a rank when another one has gone.
_LOST_PEER = (
    r"Connection (?:reset|closed) by peer|Read error \[|Write error \[|ncclRemoteError|"
    r"remote process exited or there was a network error"
)


@dataclass(frozen=True)
class Failed:
    """A process of a launcher that failed first.

    Attributes:
        whose: The launcher that says so.
        rank: None where it names no rank.
        host: Empty where it names none, or this one.
        exit_code, signal: How it ended; one of them is None.
        cause: The end of what it printed; of all processes where no line says whose it is.
        is_labelled: Whether its lines are told from the others'.
    """

    whose: str
    rank: int | None
    host: str
    exit_code: int | None
    signal: int | None
    cause: Sequence[str] = ()
    is_labelled: bool = False

    @property
    def place(self) -> str:
        """The process in words."""
        which = "a process" if self.rank is None else f"rank {self.rank}"
        host = f" on {self.host}" if self.host else ""
        return f"{which}{host} ({self.whose})"


def find(lines: Sequence[str]) -> Failed | None:
    """Return the process that failed first, or None where no launcher speaks of one.

    Args:
        lines: The end of a training's output.
    """
    text = "\n".join(lines)
    found = [(match, one) for one in MESSAGES if (match := _first(one, text)) is not None]
    if not found:
        return None
    # A launcher within another one speaks first.
    match, message = min(found, key=lambda pair: pair[0].start())
    named = match.groupdict()
    code, signal = _read_end(named)
    rank = whole(named.get("rank") or "")
    host = named.get("host") or ""
    before = (text[match.end() :] if message.shows_cause else _before(text, match, message)).split(
        "\n"
    )
    own = [FOREIGN.sub("", line, count=1) for line in before if _is_of(line, rank)]
    return Failed(
        message.whose,
        rank,
        "" if host in ("localhost", "127.0.0.1") else host,
        code,
        signal,
        own or before,
        bool(own),
    )


def find_lost_peer(lines: Sequence[str]) -> str | None:
    """Return the error of a rank that has lost another one, where no rank tells of anything else.

    A rank that is killed says nothing, and the others may end by themselves before its launcher
    has seen it. Where the code of one is wrong, its own traceback is there as well.

    Args:
        lines: The end of a training's output.
    """
    plain = [FOREIGN.sub("", line, count=1) for line in lines]
    errors = []
    for place, line in enumerate(plain):
        if line.strip() == _TRACEBACK:
            after = (one for one in plain[place + 1 :] if one.strip() and one[0] not in " \t")
            errors.append(next(after, ""))
    if errors and all(re.search(_LOST_PEER, error) for error in errors):
        return errors[0].strip()
    return None


def _before(text: str, match: re.Match[str], message: FailureMessage) -> str:
    """Return what stands before all that a launcher says of the process that failed."""
    if message.cut is not None:
        found = re.search(message.cut, text[: match.end()], re.MULTILINE)
        if found:
            return text[: found.start()]
    end = match.start()
    if message.is_raised and (head := text.rfind(_TRACEBACK, 0, end)) >= 0:
        end = head
    return text[:end]


def _first(message: FailureMessage, text: str) -> re.Match[str] | None:
    """Return the first time that a message is there, as no launcher's own SIGTERM if possible."""
    found = list(re.finditer(message.pattern, text, re.MULTILINE))
    ended = [match for match in found if match.groupdict().get("code") != "-15"]
    return next(iter(ended or found), None)


def _read_end(named: dict[str, str | None]) -> tuple[int | None, int | None]:
    """Return the exit code or the signal that a message names."""
    word = (named.get("signal") or "").strip()
    if word:
        if is_whole(word):
            return None, int(word)
        if word.startswith("SIG"):
            return None, int(getattr(signals, word, signals.SIGKILL))
        # Words that name none are of a process that was killed in a way that nobody saw.
        return None, next((n for w, n in _STRSIGNAL.items() if w and word.startswith(w)), 9)
    if named.get("status"):
        status = (
            whole(named["status"] or "") or 0
        )  # as wait returns it: a signal, or a code above it
        return (None, status & 0x7F) if status & 0x7F else (status >> 8 or 1, None)
    given = named.get("code") or "1"
    code = whole(given.lstrip("-")) or 1
    return (None, code) if given.startswith("-") else (code, None)


def _is_of(line: str, rank: int | None) -> bool:
    found = FOREIGN.match(line)
    return found is not None and rank is not None and whole(found[found.lastindex or 1]) == rank
