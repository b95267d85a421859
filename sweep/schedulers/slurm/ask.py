"""Slurm's programs, run: a question is asked again while there is no answer, and a submission
whose answer was lost is settled by looking for its name token.

No answer is CouldNotAsk, never "gone".
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.core.errors import CouldNotAsk, OverLimit, SchedulerError, SubmitUnclear
from sweep.core.secrets import ask_environment, clean_environment
from sweep.core.system import processes
from sweep.schedulers.slurm.text.accounting import TaskRun, read_sacct, sacct_argv
from sweep.schedulers.slurm.text.answers import did_not_answer, judged, strip_words
from sweep.schedulers.slurm.text.queue import QueuedTask, read_squeue, squeue_argv
from sweep.schedulers.slurm.text.submit import explain_refusal, parse_sbatch, sbatch_argv

if TYPE_CHECKING:
    from sweep.schedulers.slurm.text.submit import ArrayRequest

ASK_TIMEOUT_S = 30.0
SUBMIT_TIMEOUT_S = 60.0
TRIES = 4  # of a question; the pauses between them double from PAUSE_S
PAUSE_S = 1.0
# The same where a GPU would wait for the answer, a third of a minute in all.
QUICK_TRIES = 2
QUICK_TIMEOUT_S = 10.0
FIND_PATIENCE_S = 8.0  # sacct lags up to about 5 s behind
SETTLE_S = 90.0  # for an answer at all, once a submission was unclear
SUBMIT_TRIES = 3  # of a submission that surely did not arrive


@dataclass(frozen=True)
class Answer:
    """What a command printed and returned; a returncode below 0 means that it was killed."""

    stdout: str
    stderr: str
    returncode: int


# Of a machine that has the programs, and no cluster.
_UNCONFIGURED = r"(?i)configuration source|fetch_config|slurm\.conf.*No such file"

Run = Callable[[Sequence[str], Mapping[str, str], float], Answer]


def run_command(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Answer:
    """Run one of Slurm's commands.

    Raises:
        SchedulerError: There is no such command here.
    """
    # Nothing of a command that was killed may reach Slurm later: the next one settles by looking.
    die = processes.die_with(os.getpid())
    try:
        done = subprocess.run(
            list(argv),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            text=True,
            errors="replace",
            preexec_fn=die,
        )
    except FileNotFoundError:
        raise SchedulerError(
            f"{argv[0]} was not found: this machine has no Slurm.",
            "Run on a login node of the cluster, or use --executor local.",
        ) from None
    except subprocess.TimeoutExpired:
        return Answer("", f"{argv[0]}: error: timed out after {timeout_s:.0f} s", -9)
    return Answer(done.stdout, done.stderr, done.returncode)


def is_here(environ: Mapping[str, str] = os.environ, run: Run = run_command) -> bool:
    """Tell whether this machine belongs to a cluster: sbatch is there, and it has a configuration.

    Slurm's programs may be installed without a cluster. A controller that does not answer is a
    cluster all the same.
    """
    if shutil.which("sbatch", path=environ.get("PATH")) is None:
        return False
    argv = ["sinfo", "-h", "-o", "%P"]
    answer = run(argv, ask_environment(environ), ASK_TIMEOUT_S)
    return answer.returncode == 0 or not re.search(_UNCONFIGURED, answer.stderr)


def print_aside(text: str) -> None:
    """Print a line beside what a command prints for others to read."""
    print(text, file=sys.stderr, flush=True)


class Asker:
    """Asks Slurm, and submits to it.

    Args:
        environ: The launching environment; it is cleaned before Slurm sees it.
        run: Runs a command; tests give their own.
        sleep: Waits between tries.
        say: Told why it takes longer.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        run: Run = run_command,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = print_aside,
    ) -> None:
        self.environ = environ
        self.run = run
        self.sleep = sleep
        self.say = say
        self.tries = TRIES
        self.timeout_s = ASK_TIMEOUT_S

    @property
    def owner(self) -> str:
        """The uid whose jobs these are: without it squeue loads the whole cluster's."""
        return str(os.getuid())

    def ask(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Answer:
        """Ask Slurm something, again after a pause while there is no answer.

        Raises:
            CouldNotAsk: There was none.
        """
        env = ask_environment(self.environ) if env is None else env
        pause_s = PAUSE_S
        for attempt in range(self.tries):
            answer = self.run(argv, env, self.timeout_s)
            if not did_not_answer(answer.stderr, answer.returncode):
                return answer
            if attempt + 1 < self.tries:
                self.say(f"{argv[0]} got no answer from Slurm; again in {pause_s:.0f} s")
                self.sleep(pause_s)
                pause_s *= 2
        words = strip_words(judged(answer.stderr))[:200]
        raise CouldNotAsk(
            f"{argv[0]} got no answer from Slurm ({words}).",
            "This says nothing about the jobs. Is slurmctld up? Try: scontrol ping",
        )

    def queue(self, argv: Sequence[str], *, named: bool = False) -> list[QueuedTask]:
        """Return what a question to squeue finds."""
        said = self.ask(argv)
        return read_squeue(said.stdout, said.stderr, said.returncode, named)

    def sacct(
        self, jobs: Sequence[str] = (), names: Sequence[str] = (), since: str | None = None
    ) -> list[TaskRun]:
        answer = self.run(
            sacct_argv(jobs, names, since=since), ask_environment(self.environ), self.timeout_s
        )
        return read_sacct(answer.stdout, answer.stderr, answer.returncode)

    def find(self, token: str) -> list[str]:
        """Return the ids of jobs with this name token, as squeue or sacct know them."""
        queued = self.queue(squeue_argv(names=[token], user=self.owner))
        if queued:
            return sorted({task.job for task in queued})
        try:
            runs = self.sacct(names=[token], since="now-7days")
        except (CouldNotAsk, SchedulerError):
            return []  # squeue lists what is live; what has ended needs accounting
        return sorted({run.job for run in runs})

    def sbatch(self, request: ArrayRequest) -> str:
        """Submit a request; return the job's id.

        Raises:
            OverLimit, SchedulerError: It was refused.
            SubmitUnclear: Nobody can say, for as long as Slurm does not answer.
        """
        argv = sbatch_argv(request)
        env = clean_environment(self.environ)
        for last_try in (*[False] * (SUBMIT_TRIES - 1), True):
            answer = self.run(argv, env, SUBMIT_TIMEOUT_S)
            found = parse_sbatch(answer.stdout, answer.stderr, answer.returncode)
            if found.kind == "submitted":
                return found.job
            if found.kind == "refused":
                raise refusal(found.words, over_limit=found.over_limit)
            # It may have got in all the same.
            self.say(f"sbatch gave no clear answer ({found.words}); looking for the job")
            job = self._settle(request.token)
            if job is not None:
                return job
            if not last_try:
                self.say("the job did not get in; submitting it again")
        raise SchedulerError(
            f"sbatch gave no clear answer {SUBMIT_TRIES} times: {found.words}. Nothing was "
            "submitted.",
            "Try later; is slurmctld well? See: scontrol ping",
        )

    def _settle(self, token: str) -> str | None:
        """Return the job of an unclear submission; None once it surely did not get in.

        Raises:
            SubmitUnclear: Slurm does not answer.
        """
        began = time.monotonic()
        answered: float | None = None
        while True:
            try:
                jobs = self.find(token)
            except (CouldNotAsk, SchedulerError) as error:
                answered = None
                if time.monotonic() - began > SETTLE_S:
                    raise SubmitUnclear(
                        "Whether the job was submitted cannot be said: Slurm does not answer.",
                        "The next `sweep launch` settles it.",
                    ) from error
            else:
                if jobs:
                    return jobs[0]
                answered = answered or time.monotonic()
                if time.monotonic() - answered >= FIND_PATIENCE_S:
                    return None
            self.sleep(PAUSE_S)


def refusal(words: str, *, over_limit: bool = False) -> SchedulerError:
    kind = OverLimit if over_limit else SchedulerError
    return kind(f"Slurm refused the job: {words}.", explain_refusal(words))
