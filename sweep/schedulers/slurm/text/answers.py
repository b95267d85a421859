"""Tell a refusal from no answer, by the words of Slurm's commands."""

from __future__ import annotations

import re

from sweep.core.errors import CouldNotAsk, SchedulerError

# Messages of slurm_errno.c and of the daemons' connections that leave open what happened on the
# other side. "Connection refused" and "Problem talking to the database" are sacct's.
_NO_ANSWER = (
    r"(?i)socket timed out|timed out|unable to contact slurm controller|connect failure"
    r"|connection refused|connection reset|connection timed out|no route to host"
    r"|network is unreachable|broken pipe|zero bytes were transmitted"
    r"|(send|receive|shutdown|communication\w*) failure|unexpected message"
    r"|backup controller|in standby mode|problem talking to the database|persistent connection"
    r"|slurm_persist|sending persistinit|unable to connect to database"
    r"|slurm database connection|name resolution"
    r"|temporarily unavailable|temporarily unable|incompatible versions|header lengths are longer"
)
# The same, and also what a login or a wrapper says of other things: "your credential expires".
_NO_AUTHENTICATION = "(?i)authentication|munge|credential"
# The line of a command's own: what a site's wrapper, its job_submit plugin or a login prints beside
# it ("sbatch: Note that …", "krb5: error: …") says nothing of the answer.
_OWN = (
    r"(?i)^(?:\S*/)?(?:slurm_\w+|sbatch|squeue|sacctmgr|sacct|scancel|scontrol|sinfo|sdiag|srun)"
    r"(?:\.\w+)?:? (?:(?:error|fatal): |(?:unrecogni[sz]ed|invalid) option )"
)
# Own errors that change nothing of the answer: of a variable, or of a newer site's slurm.conf.
_PASSED_OVER = r"(?i)ignor(ing|ed)\b|unrecognized key|pars(e|ing) error at"
_GONE = (
    r"(?i)invalid job id|already completing or completed|already completed|job has already finished"
    r"|no longer pending|job/step already"
)
_PREFIX = r"(?i)^(?:[\w./-]+: )?(?:error|fatal): "


def own_errors(stderr: str) -> list[str]:
    """Return the lines in which a command of Slurm's itself says that something went wrong."""
    lines = (line.strip() for line in stderr.splitlines())
    return [line for line in lines if re.match(_OWN, line) and not re.search(_PASSED_OVER, line)]


def judged(stderr: str) -> str:
    """Return what of a failed command's words counts: its own errors, or all where it has none."""
    return "\n".join(own_errors(stderr)) or stderr


def did_not_answer(stderr: str, returncode: int) -> bool:
    """Tell whether a command of Slurm's got no answer (a timeout, a dead daemon, a signal).

    Of one that has succeeded only its own errors count, of one that has failed those first.
    """
    if returncode < 0:
        return True
    own = "\n".join(own_errors(stderr))
    if own:
        return bool(re.search(_NO_ANSWER, own) or re.search(_NO_AUTHENTICATION, own))
    return returncode != 0 and bool(re.search(_NO_ANSWER, stderr))


def is_gone(text: str) -> bool:
    """Tell whether the words say that the job is unknown or over."""
    return bool(re.search(_GONE, text))


def strip_words(text: str) -> str:
    """Return Slurm's messages in one line, without the ``sbatch: error:`` before each."""
    lines = [re.sub(_PREFIX, "", line.strip()) for line in text.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line))


def raise_for_answer(command: str, stdout: str, stderr: str, returncode: int) -> None:
    """Raise unless a command of Slurm's succeeded; a job that is gone already is a success.

    Raises:
        CouldNotAsk: there was no answer.
        SchedulerError: Slurm refused; its own words are in the message.
    """
    own = own_errors(stderr)
    # An empty answer beside an error is none: nothing is gone by it.
    silent = returncode == 0 and bool(own) and not stdout.strip() and not is_gone("\n".join(own))
    if silent or did_not_answer(stderr, returncode):
        words = strip_words(judged(stderr)) or "it was killed"
        raise CouldNotAsk(
            f"{command} got no answer from Slurm: {words}.",
            "This says nothing about the jobs; ask again later.",
        )
    if returncode == 0 or is_gone(f"{judged(stderr)}\n{stdout}"):
        return
    words = strip_words(f"{judged(stderr)}\n{stdout}") or f"exit code {returncode}, without a word"
    raise SchedulerError(f"{command} was refused by Slurm: {words}.")
