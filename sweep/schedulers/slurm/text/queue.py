"""squeue: one question for all tasks, and its answer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweep.core.errors import CouldNotAsk
from sweep.core.numbers import is_whole
from sweep.core.scheduler import ENDED
from sweep.schedulers.slurm.text.answers import is_gone, judged, raise_for_answer
from sweep.schedulers.slurm.text.notation import expand_indices, parse_time
from sweep.schedulers.slurm.text.states import classify_state, split_state

# Array id, index, own id, state, time left, start, submission, nodes, reason. No job name: it may
# hold anything, newlines included. The reason is free text of Slurm's, and so stands last.
FORMAT = "%F|%K|%A|%T|%L|%S|%V|%N|%r"
NAMED_FORMAT = f"%j|{FORMAT}"
_COLUMNS = FORMAT.count("|") + 1
_INDICES = r"[\d,:-]+(?:\.\.\.)?(?:%\d+)?|N/A|"


@dataclass(frozen=True)
class QueuedTask:
    """One task, or the part of an array that has not started, in squeue's words.

    Attributes:
        job: The array's id (a plain job's own).
        indices: Array indices; several in an unexpanded row; empty for a plain job, and for what
            was left of an array that was cancelled before it started.
        own_id: The id that Slurm gave this element alone (shared while pending).
        state: Slurm's word, such as RUNNING.
        phase: PENDING, RUNNING or ENDED.
        time_left_s: Until its limit; None where endless or unknown.
        started: Start time, or the expected one of a pending task; empty when unknown.
        submitted: Submission, or the latest requeue.
        nodes: As squeue prints them, n[1-2]; empty when pending.
        reason: Why it is pending, or how it ended; empty when there is none.
        name: The job's, where it was asked for.
    """

    job: str
    indices: tuple[int, ...]
    own_id: str
    state: str
    phase: str
    time_left_s: int | None = None
    started: str = ""
    submitted: str = ""
    nodes: str = ""
    reason: str = ""
    name: str = ""


def squeue_argv(
    jobs: Iterable[str] = (),
    names: Iterable[str] = (),
    user: str | None = None,
    ended: bool = True,
    named: bool = False,
    squeue: str = "squeue",
) -> list[str]:
    """Return the command line that asks for tasks by id, by name token and user, or both.

    Give the name token wherever it is known: after a crash of the controller an id may belong to
    somebody else. ``-r`` prints an array's elements one by one; without it a long list of indices
    is cut at 64 characters.

    Args:
        ended: Also those that ended within the site's MinJobAge, which saves asking sacct.
        named: Print the job's name as well; only with ``names`` of ours, which can hold nothing
            that breaks a row.
    """
    argv = [squeue, "-h", "-a", "-r", "-o", NAMED_FORMAT if named else FORMAT]
    if ended:
        argv += ["-t", "all"]
    if user:
        argv += ["-u", user]
    if tokens := ",".join(names):
        argv += ["-n", tokens]
    if listed := ",".join(jobs):
        argv += ["-j", listed]
    return argv


def time_left_argv(job: str, squeue: str = "squeue") -> list[str]:
    """Return the command line that prints a task's time left, for ``parse_time_left``."""
    return [squeue, "-h", "-j", job, "-o", "%L"]


def parse_time_left(stdout: str) -> int | None:
    """Return the seconds that ``time_left_argv`` printed; None where it did not, or endless."""
    for line in stdout.splitlines():
        with contextlib.suppress(ValueError):  # a site's banner
            if line.strip():
                return parse_time(line)
    return None


def parse_squeue(stdout: str, named: bool = False) -> list[QueuedTask]:
    """Read squeue's rows; lines that are none (a site's banner) are passed over.

    Args:
        named: Each begins with the job's name.

    Raises:
        CouldNotAsk: a list of indices was shortened, so that some tasks are unknown.
    """
    tasks = []
    for line in stdout.splitlines():
        name, _, row = line.partition("|") if named else ("", "", line)
        columns = row.split("|", _COLUMNS - 1)
        if len(columns) < _COLUMNS or not (is_whole(columns[0]) and is_whole(columns[2])):
            continue
        job, index, own_id, state, left, started, submitted, nodes, reason = columns
        if not re.fullmatch(_INDICES, index):
            continue
        try:
            indices = () if index in ("N/A", "") else expand_indices(index)
        except ValueError as error:  # it may be one of ours: it is not gone for that
            raise CouldNotAsk(f"squeue's answer cannot be read: {error}.") from None
        if indices is None:
            raise CouldNotAsk(f"squeue shortened the indices of array {job}.")
        word = split_state(state)[0]
        tasks.append(
            QueuedTask(
                job,
                indices,
                own_id,
                word,
                classify_state(word),
                _time_left(left),
                _known(started),
                _known(submitted),
                _known(nodes),
                "" if reason == "None" else reason.strip(),
                name,
            )
        )
    return tasks


def read_squeue(stdout: str, stderr: str, returncode: int, named: bool = False) -> list[QueuedTask]:
    """Return squeue's answer; a job that Slurm does not know is an empty one.

    Raises:
        CouldNotAsk: there was no answer.
        SchedulerError: Slurm refused the question.
    """
    if returncode > 0 and is_gone(judged(stderr)):
        return []
    raise_for_answer("squeue", stdout, stderr, returncode)
    return parse_squeue(stdout, named)


def collect_tasks(tasks: Sequence[QueuedTask]) -> dict[tuple[str, int], QueuedTask]:
    """Return tasks by array id and index (a plain job has index 0).

    An element's own row counts more than one of several indices, and a live row more than an
    ended one.
    """
    found: dict[tuple[str, int], QueuedTask] = {}
    arrays = {task.job for task in tasks if task.indices}
    for task in sorted(tasks, key=lambda task: (len(task.indices) == 1, task.phase != ENDED)):
        if not task.indices and task.job in arrays:
            continue  # the rest of a cancelled array; its elements are simply not listed
        for index in task.indices or (0,):
            found[task.job, index] = task
    return found


def _known(text: str) -> str:
    return "" if text in ("N/A", "Unknown", "(null)", "None assigned") else text


def _time_left(text: str) -> int | None:
    try:
        return parse_time(text)
    except ValueError:
        return None
