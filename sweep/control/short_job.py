"""A short job beside all studies: it asks or tries something where trials would run.

It gets the study's own resources and partition, under any scheduler. It has a study's folder that
is none: the folder is removed at the end, and the job is cancelled when we leave early.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sweep.control.job_watch import JobWatch
from sweep.core import secret_arguments
from sweep.core.errors import CouldNotAsk, SweepError
from sweep.core.files import entries, make_private, read_json, read_tail, remove_tree, write_atomic
from sweep.core.paths import Runs, StudyFolder
from sweep.core.scheduler import ENDED, PENDING, Scheduler, TaskState
from sweep.core.study import Study
from sweep.core.system import processes
from sweep.schedulers import arrays
from sweep.training.command import environment

POLL_S = 0.2
ASK_FIRST_S = 3.0
ASK_EVERY_S = 10.0
SETTLE_HERE_S = 2.0
SETTLE_S = 30.0  # for the answers of a task that has ended to be seen here
END_S = 20.0  # for a job to end before its folder is removed
AWAY_S = 86400.0  # before the folder of a command on another machine is taken for left over
NO_PYTHON = "sweep's own Python does not start there"

Say = Callable[[str], None]


@dataclasses.dataclass
class Went:
    """How a short job went.

    Attributes:
        found: Its task's answers so far; empty where it gave none.
        job: Its job; empty where it was not submitted.
        state: The scheduler's last word of it.
        submitted_s, seen_s: When it was submitted, and when the last answer was seen here.
        tail: The end of its log.
        problem: Why there are not all answers: the error, and what to do.
    """

    found: dict[str, Any] = dataclasses.field(default_factory=dict)
    job: str = ""
    state: TaskState | None = None
    submitted_s: float = 0.0
    seen_s: float = 0.0
    tail: str = ""
    problem: tuple[str, str] | None = None


def result_file(folder: StudyFolder) -> Path:
    """Return the file in which the task answers: a JSON object, whose ``done`` says that it is
    whole."""
    return folder.root / "result.json"


@contextlib.contextmanager
def folder_in(runs: Runs, kind: str, study: Study) -> Iterator[StudyFolder]:
    """Make a folder for a short job, and remove it at the end, with what was made to hold it.

    Args:
        kind: Name of the folder within the runs folder that holds those of its kind.

    Raises:
        OSError: It cannot be made.
    """
    is_new = not runs.root.exists()
    home = runs.root / kind
    folder = StudyFolder(home / arrays.name_token(f"{study.name}-{kind.strip('.')}"))
    try:
        make_private(folder.logs)
        write_atomic(_owner_file(folder), json.dumps(_this_process()) + "\n")
        yield folder
    finally:
        shutil.rmtree(folder.root, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty, or not there
            home.rmdir()
            if is_new:
                runs.root.rmdir()


def clear_dead(
    runs: Runs, kind: str, schedule_for: Callable[[StudyFolder], Scheduler], say: Say
) -> None:
    """Remove what commands that were killed have left: their jobs, and then their folders.

    Such a command is dead where its process is gone from this machine. Of one on another machine
    that cannot be told: its folder goes once it is a day old.

    Args:
        schedule_for: The scheduler of this command; jobs under another one end by their time limit.
        say: Told what could not be removed.
    """
    home = runs.root / kind
    for root in entries(home):
        folder = StudyFolder(root)
        try:
            owner = read_json(_owner_file(folder)) or {}
            is_here = owner.get("boot") == processes.boot_id()
            if is_here and processes.is_alive(owner.get("pid", 0), owner.get("start")):
                continue
            if not is_here and time.time() - root.stat().st_mtime < AWAY_S:
                continue
            schedule = schedule_for(folder)
            _cancel(schedule, root.name)
            for job in schedule.find(root.name):
                _await_end(schedule, job)
            remove_tree(root)
            with contextlib.suppress(OSError):  # not empty
                home.rmdir()
                runs.root.rmdir()
        except (SweepError, OSError) as error:
            say(f"{root}, which a killed command has left, could not be removed: {error}")


def _owner_file(folder: StudyFolder) -> Path:
    return folder.root / "owner.json"


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {"boot": processes.boot_id(), "pid": pid, "start": processes.start_time(pid)}


def fill(study: Study, folder: StudyFolder, environ: Mapping[str, str]) -> None:
    """Write what a task needs of its study into a short job's folder."""
    study, secrets = secret_arguments.take_out(study)
    write_atomic(folder.study, study.to_json() + "\n")
    environment.install_reporter(folder.python_path)
    environment.keep_secrets(folder, study, {**environ, **secrets})


def run(
    study: Study,
    folder: StudyFolder,
    schedule: Scheduler,
    option: str,
    say: Say,
    patience_s: float,
    *,
    time_limit_s: int,
    does: str,
) -> Went:
    """Submit a short job, wait for its answers, and see it end.

    Args:
        folder: Filled; its name is the job's.
        option: Of ``sweep.task``: what is done.
        say: Told what it waits for.
        patience_s: For the job to start.
        time_limit_s: The job's; the study's own where that is shorter.
        does: What the job does, in words.
    """
    token = folder.root.name
    plain = arrays.task_job(study, folder, token, "{job}", option)
    job = dataclasses.replace(
        plain,
        time_limit_s=min(study.resources.time_limit_s or time_limit_s, time_limit_s),
        # Of the batch script, where the interpreter does not start: it is to end at once.
        env={**plain.env, "SWEEP_SICK_HOLD": "0"},
    )
    went = Went(submitted_s=time.time())
    over = False
    try:
        went.job = schedule.submit(job)
        say(f"the job {went.job} {does}; Ctrl-C cancels it")
        _wait(folder, schedule, went, say, patience_s)
        over = went.found.get("done", False) or (
            went.state is not None and went.state.state == ENDED
        )
    except SweepError as error:
        went.problem = (error.message, error.hint)
    finally:
        jobs = [went.job] if went.job else []
        if not over:
            jobs = _cancel(schedule, token) or jobs
        for submitted in jobs:
            _await_end(schedule, submitted)
    logs = sorted(folder.logs.glob("*"))
    went.tail = "\n".join(read_tail(logs[0], 12)) if logs else ""
    return went


def _wait(
    folder: StudyFolder, schedule: Scheduler, went: Went, say: Say, patience_s: float
) -> None:
    began = time.monotonic()
    settle_s = SETTLE_HERE_S if schedule.shares_this_machine else SETTLE_S
    every_s, first_s = (1.0, 0.5) if schedule.is_cheap_to_ask else (ASK_EVERY_S, ASK_FIRST_S)
    watch = JobWatch(schedule, went.job, every_s, first_s)
    told = ""
    while True:
        found = read_json(result_file(folder))
        if found:
            went.found, went.seen_s = found, time.time()
            if found["done"]:
                return
        log = "".join(path.read_text(errors="replace") for path in folder.logs.glob("*"))
        ended_s = watch.ended_for_s()
        if ended_s is not None and (NO_PYTHON in log or ended_s > settle_s):
            word = went.state.word if went.state else "gone"
            went.problem = (f"its task ended before it had answered everything ({word})", "")
            return
        try:
            is_news = watch.look()
        except CouldNotAsk as error:
            say(error.message)
            is_news = False
        went.state = watch.state
        if is_news and not found and went.state is not None and went.state.state == PENDING:
            if went.state.reason != told:
                told = went.state.reason
                say(f"it waits: {told or 'for its turn'}")
            if time.monotonic() - began > patience_s:
                raise SweepError(
                    f"the job did not start within {patience_s:.0f} s: "
                    f"{told or 'the queue is long'}",
                    "Compare resources and slurm with: sinfo; or wait longer: --patience.",
                )
        time.sleep(POLL_S)


def _cancel(schedule: Scheduler, token: str) -> list[str]:
    """Cancel what was submitted, also where its number never reached us; return the jobs."""
    jobs = []
    with contextlib.suppress(SweepError):
        for job in schedule.find(token):
            jobs.append(job)
            schedule.cancel(job)
    return jobs


def _await_end(schedule: Scheduler, job: str) -> None:
    """Wait until nothing of the job writes into its folder any more, its scheduler's side too."""
    give_up_at = time.monotonic() + END_S
    with contextlib.suppress(SweepError):
        while job and time.monotonic() < give_up_at:
            state = schedule.poll([job]).get((job, 0))
            has_ended = state is None or state.state == ENDED
            if has_ended and schedule.has_wound_up([job]):
                return
            time.sleep(POLL_S)
