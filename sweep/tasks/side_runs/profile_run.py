"""Train a trial's values once more for a short while, and look at what holds that back.

No trial, nothing that counts: it runs in a short job of the study's scheduler, from a frozen copy
of the code as it is now. What was seen stays in ``profiles/<trial>/`` of the study's folder.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.control import short_job
from sweep.control.place import place_from, training_environ
from sweep.core.errors import SweepError
from sweep.core.executors import kind_of
from sweep.core.files import make_private, read_json, read_tail, write_atomic
from sweep.core.outcomes import NOT_STARTED
from sweep.core.paths import AttemptFolder, Runs, StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study
from sweep.provenance import snapshot as code_snapshot
from sweep.tasks.side_runs.shell import ShellValues
from sweep.tasks.side_runs.side_run import train, write_values
from sweep.training import build
from sweep.training.command import launchers
from sweep.training.journal import Journal
from sweep.training.leave import Leave
from sweep.training.profiling import profilers
from sweep.training.profiling.profile_watch import VARIABLE, ProfileWatch, find_py_spy

LIMIT_S = 60
HOME = ".profiles"  # within the runs folder, while it runs
START_S = 600  # of the job: for its environment to start
ASK_BEFORE_S = 10.0  # before the limit training is asked to leave
TAIL_LINES = 15
SPY_PAUSE_S = 0.5  # between two looks of py-spy, a thirtieth of a second each


@dataclass(frozen=True)
class ProfileWanted:
    """What is to be looked at: for how long, and with which profilers."""

    limit_s: int = LIMIT_S
    flame_graph: bool = False
    torch: bool = False
    nsys: bool = False


@dataclass(frozen=True)
class Profiled:
    """What came of it.

    Attributes:
        outcome, reason: As an attempt's; a training that the limit ended was interrupted.
        profile: As ``ProfileWatch.data`` returns it.
        files: What profilers wrote.
        tail: The end of its output.
    """

    trial: int
    outcome: str
    reason: str
    profile: Mapping[str, Any]
    folder: Path
    files: list[Path]
    tail: list[str]


def with_profilers(study: Study, wanted: ProfileWanted) -> Study:
    """Return the study with the profilers in its command that are started with it.

    Raises:
        InputError: They cannot be.
    """
    if wanted.torch:
        study = profilers.with_torch(study)
    return profilers.with_nsys(study) if wanted.nsys else study


def run(
    study: Study,
    values: ShellValues,
    wanted: ProfileWanted,
    within: StudyFolder,
    schedule_for: Callable[[StudyFolder], Scheduler],
    environ: Mapping[str, str],
    say: short_job.Say,
    *,
    patience_s: float,
) -> Profiled:
    """Train, look, and keep what was seen.

    Args:
        study: As ``with_profilers`` returns it.
        within: The folder of the study itself.
        say: Told what it waits for.
        patience_s: For the job to start.

    Raises:
        InputError: The code cannot be used.
        SweepError: The job could not be run, or ended without an answer.
    """
    runs = Runs(within.root.parent)
    study, _ = build.ensure(study, runs, environ)
    short_job.clear_dead(runs, HOME, schedule_for, say)
    code = code_snapshot.plan(study, runs.root, environ)
    with short_job.folder_in(runs, HOME, study) as folder:
        request = {
            "params": dict(values.params),
            "seed": values.seed,
            "number": values.number,
            "snapshot": code_snapshot.freeze(code, folder) if code else None,
            "limit_s": wanted.limit_s,
            "flame_graph": wanted.flame_graph,
            "nsys": wanted.nsys,
        }
        write_atomic(_request_file(folder), json.dumps(request) + "\n")
        short_job.fill(study, folder, environ)
        went = short_job.run(
            study,
            folder,
            schedule_for(folder),
            "--profile",
            say,
            patience_s,
            time_limit_s=wanted.limit_s + START_S,
            does=f"trains the values of trial {values.number} for at most {wanted.limit_s} s",
        )
        if not went.found.get("done"):
            message, hint = went.problem or ("its task gave no answer", "")
            raise SweepError(f"Nothing was profiled: {message}", hint or went.tail)
        if wanted.nsys and went.found["outcome"] == NOT_STARTED:
            _refuse_without_nsys(went.found["reason"])
        kept = _keep(folder.attempt(0, 1), within, values.number)
    files = sorted(path for path in AttemptFolder(kept).profiles.rglob("*") if path.is_file())
    found = went.found
    return Profiled(
        values.number, found["outcome"], found["reason"], found["profile"], kept, files,
        found["tail"],
    )  # fmt: skip


def _refuse_without_nsys(reason: str) -> None:
    if profilers.NSYS in reason:
        raise SweepError(
            f"Nothing was profiled: Nsight Systems is not there where trials run ({reason}).",
            "Load its module there (environment.setup or slurm.setup), put it into the image, or "
            "leave --nsys out.",
        )


def kept_folder(within: StudyFolder, number: int) -> AttemptFolder:
    """Return where the latest profile of a trial's values is kept."""
    return AttemptFolder(within.profiles / f"{number:05d}")


def _keep(attempt: AttemptFolder, within: StudyFolder, number: int) -> Path:
    target = kept_folder(within, number).root
    make_private(target.parent)
    if target.exists():
        shutil.rmtree(target)
    shutil.rmtree(attempt.checkpoints, ignore_errors=True)
    shutil.move(attempt.root, target)
    return target


def profile_once(folder: StudyFolder) -> None:
    """Train, and write down what was seen; what the job's task does."""
    study = Study.read(folder.study)
    request = read_json(_request_file(folder)) or {}
    attempt, token = folder.attempt(0, 1), secrets.token_hex(16)
    make_private(attempt.checkpoints)
    if request["nsys"]:
        make_private(attempt.profiles)
    values = write_values(
        study,
        attempt,
        token,
        number=request["number"],
        seed=request["seed"],
        params=request["params"],
        run="",
        config=folder.config(0),
    )
    limit_s = float(request["limit_s"])
    before_s = min(ASK_BEFORE_S, limit_s / 4)
    environ = training_environ(folder, os.environ)
    placed = code_snapshot.place(study, folder, request["snapshot"], environ)
    started: list[ProfileWatch] = []

    def watch(pid: int) -> ProfileWatch:
        py_spy = find_py_spy(environ)
        flame = attempt.profiles / "py-spy.svg" if request["flame_graph"] else None
        started.append(ProfileWatch(pid, attempt, study, environ, py_spy, SPY_PAUSE_S, flame))
        return started[0]

    _, end = train(
        placed.study,
        values,
        attempt,
        Journal(attempt, study.objectives, read=launchers.reader(study)),
        placed.environ,
        place_from(os.environ, kind_of(study)),
        folder.python_path,
        Leave(min(4.0, before_s / 2), before_s, ask_after_s=limit_s - before_s),
        more_environ={VARIABLE: "1"},
        within=folder,
        watch=watch,
    )
    for one in started:
        one.end()
    answer = {
        "done": True,
        "outcome": end.outcome,
        "reason": end.reason,
        "profile": started[0].data() if started else {},
        "tail": read_tail(attempt.log, TAIL_LINES),
    }
    write_atomic(short_job.result_file(folder), json.dumps(answer) + "\n")


def _request_file(folder: StudyFolder) -> Path:
    return folder.root / "request.json"
