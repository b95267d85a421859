"""Tell a refusal from no answer, by the words of Slurm's commands."""

from __future__ import annotations

import re

from sweep.core.errors import CouldNotAsk, SchedulerError

# Messages of slurm_errno.c and of the daemons' connections that leave open what happened on the
# other side. "Connection refused" and "Problem talking to the database" are sacct's.
_NO_ANSWER = re.compile(
    r"socket timed out|timed out|unable to contact slurm controller|connect failure"
    r"|connection refused|connection reset|connection timed out|no route to host"
    r"|network is unreachable|broken pipe|zero bytes were transmitted"
    r"|(send|receive|shutdown|communication\w*) failure|unexpected message"
    r"|backup controller|in standby mode|problem talking to the database|persistent connection"
    r"|slurm_persist|sending persistinit|unable to connect to database"
    r"|slurm database connection|authentication|munge|credential|name resolution"
    r"|temporarily unavailable|temporarily unable|incompatible versions|header lengths are longer",
    re.IGNORECASE,
)
_GONE = re.compile(
    r"invalid job id|already completing or completed|already completed|job has already finished"
    r"|no longer pending|job/step already",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^(?:[\w./-]+: )?(?:error|fatal): ", re.IGNORECASE)


def did_not_answer(text: str, returncode: int) -> bool:
    """Tell whether a command of Slurm's got no answer (a timeout, a dead daemon, a signal)."""
    return returncode < 0 or bool(_NO_ANSWER.search(text))


def is_gone(text: str) -> bool:
    """Tell whether the words say that the job is unknown or over."""
    return bool(_GONE.search(text))


def strip_words(text: str) -> str:
    """Return Slurm's messages in one line, without the ``sbatch: error:`` before each."""
    lines = [_PREFIX.sub("", line.strip()) for line in text.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))


def raise_for_answer(command: str, stdout: str, stderr: str, returncode: int) -> None:
    """Raise unless a command of Slurm's succeeded; a job that is gone already is a success.

    Raises:
        CouldNotAsk: there was no answer.
        SchedulerError: Slurm refused; its own words are in the message.
    """
    text = f"{stderr}\n{stdout}"
    if returncode == 0 and not stderr.strip():
        return
    if did_not_answer(stderr, returncode):
        raise CouldNotAsk(
            f"{command} got no answer from Slurm: {strip_words(stderr) or 'it was killed'}.",
            "This says nothing about the jobs; ask again later.",
        )
    if returncode == 0 or is_gone(text):
        return
    words = strip_words(text) or f"exit code {returncode}, without a word"
    raise SchedulerError(f"{command} was refused by Slurm: {words}.")
