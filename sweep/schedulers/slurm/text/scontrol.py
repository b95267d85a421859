"""scancel and scontrol: stop, requeue and change jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sweep.core.errors import SchedulerError
from sweep.core.hostlist import _element
from sweep.schedulers.slurm.text.answers import (
    did_not_answer,
    is_gone,
    judged,
    own_errors,
    raise_for_answer,
    strip_words,
)
from sweep.schedulers.slurm.text.notation import compress_indices, read_nodes

_ROW = r"\d+(_[\d,\[\].*-]+)?(%\d+\]?)?: (?P<said>.*)"
_UPDATED = r"No error|Job is no longer pending execution|.*already.*"


def cancel_argv(
    job: str,
    indices: Iterable[int] | None = None,
    pending_only: bool = False,
    name: str | None = None,
    scancel: str = "scancel",
) -> list[str]:
    """Return the command line that cancels an array, some of its elements, or what waits of it.

    Args:
        indices: Elements; None for all.
        pending_only: Only those that have not started.
        name: The job's name token, so that nothing else is hit where the id is somebody else's.

    Raises:
        ValueError: ``indices`` with one of the others. Measured on 22.05: with any filter,
            ``scancel 55_[0,3-5]`` and ``scancel 55_5`` hit all of 55 that has not started. Look
            with squeue first, then cancel.
    """
    argv = [scancel]
    if indices is not None and (pending_only or name):
        raise ValueError("with a filter, scancel would cancel more than these elements")
    if pending_only:
        argv.append("--state=PENDING")
    if name:
        argv.append(f"--name={name}")
    return [*argv, job if indices is None else f"{job}_[{compress_indices(indices)}]"]


def hurry_argv(job: str, scancel: str = "scancel") -> list[str]:
    """Return the command line that has an array's running tasks look at their study's state."""
    return [scancel, "--state=RUNNING", "--batch", "--signal=USR2", job]


def release_argv(job: str, index: int | None = None, scontrol: str = "scontrol") -> list[str]:
    """Return the command line that lets a held task go."""
    return [scontrol, "release", _element(job, index)]


def throttle_argv(job: str, throttle: int, scontrol: str = "scontrol") -> list[str]:
    """Return the command line that changes how many elements of an array run at once."""
    if throttle < 1:  # 0 would lift the cap
        raise ValueError(f"a throttle of {throttle}")
    return [scontrol, "update", f"JobId={job}", f"ArrayTaskThrottle={throttle}"]


def excluded_argv(job: str, squeue: str = "squeue") -> list[str]:
    """Return the command line that prints the nodes a job's waiting elements stay away from."""
    return [squeue, "-h", "-a", "-t", "PENDING", "-j", job, "-o", "avoids=%x"]


def parse_excluded(stdout: str) -> tuple[str, ...]:
    """Return the nodes that ``excluded_argv`` printed, each once, in order."""
    lines = re.findall(r"^avoids=(\S+)", stdout, re.MULTILINE)  # others are a site's banner
    nodes = (node for line in lines for node in read_nodes(line))
    return tuple(dict.fromkeys(nodes))


def exclude_argv(job: str, nodes: Iterable[str], scontrol: str = "scontrol") -> list[str]:
    """Return the command line that sets (not adds to) the nodes a job stays away from."""
    return [scontrol, "update", f"JobId={job}", f"ExcNodeList={','.join(sorted(set(nodes)))}"]


def check_update(command: str, stdout: str, stderr: str, returncode: int) -> None:
    """Raise unless an scancel or scontrol did what it could.

    ``scontrol update`` of an array of which some elements run leaves with 1 and a list:
    "30_0,3-9: No error", "30_1-2: Job is no longer pending execution". That is success.

    Raises:
        CouldNotAsk: there was no answer; the change may or may not have happened.
        SchedulerError: Slurm refused; its own words are in the message.
    """
    rows = [row for line in stderr.splitlines() if (row := re.fullmatch(_ROW, line.strip()))]
    if returncode > 0 and rows:
        own = own_errors(stderr)
        if not own and all(re.fullmatch(_UPDATED, row["said"]) for row in rows):
            return
        stderr = "\n".join([*own, *(row[0] for row in rows)])
    if command.startswith("scancel") and returncode > 0 and not did_not_answer(stderr, 1):
        # scancel's exit code counts its errors, so it may look like a signal's.
        if all(is_gone(line) for line in judged(stderr).splitlines() if line.strip()):
            return
        raise SchedulerError(f"{command} was refused by Slurm: {strip_words(judged(stderr))}.")
    if returncode == 0 and stderr.strip() and not did_not_answer(stderr, 0):
        return  # scancel warns and succeeds
    raise_for_answer(command, stdout, stderr, returncode)
