"""Try a study: train its first point once, for a minute at most, and say what sweep saw of it.

No database, no trial, nothing that counts. The training runs in a short job of this machine's, or
of the study's own scheduler, as a trial would: from a frozen copy of the code, with a trial's
folder and environment. All of that lies in a folder which is removed at the end.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.control import short_job
from sweep.control.check import quick
from sweep.control.place import place_from, training_environ
from sweep.core import secret_arguments
from sweep.core.errors import SweepError
from sweep.core.executors import kind_of
from sweep.core.files import make_private, read_json, read_tail, write_atomic
from sweep.core.masking import hide_arguments
from sweep.core.paths import AttemptFolder, Runs, StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study
from sweep.core.system.search_path import search_path
from sweep.core.trial import Report, trial_seed
from sweep.provenance import snapshot as code_snapshot
from sweep.search.propose import first_point
from sweep.tasks.side_runs.side_run import train, write_values
from sweep.tasks.side_runs.tried import Saved, Tried, TriedMetric
from sweep.training import build, checkpoints, images, matched_lines, save_order
from sweep.training.command import filling, launchers
from sweep.training.command.environment import TrialValues
from sweep.training.journal import Journal
from sweep.training.leave import Leave

LIMIT_S = 60
HOME = ".tries"  # within the runs folder
# Before the limit training is asked to save and to leave; the last seconds are for the signals.
ASK_BEFORE_S = 10.0
LEAST_BEFORE_S = 4.0
START_S = 600  # of the job: for its environment to start
TAIL_LINES = 15
MOST_LINES = 3  # of the output that are shown for a metric
# A try belongs to no project of W&B's: what it logs goes with its folder.
OFFLINE = {"WANDB_MODE": "offline"}


def check(study: Study, runs: Runs, environ: Mapping[str, str]) -> Study:
    """Return the study as it can be started; nothing is built.

    Args:
        study: Whose executor is decided.

    Raises:
        InputError: The command cannot be started.
        SweepError: Its image is not built yet.
    """
    quick.check_startable(study, environ)
    if not images.needs_build(study):
        return study
    found = build.look(images.plan(study, runs, environ))
    if found is None:
        raise SweepError(
            f"environment.image: {study.environment.image} is not built yet, and a try builds "
            "nothing.",
            f"Build it first: sweep build {study.source}",
        )
    given = dataclasses.replace(study.environment, built=str(found.path))
    ready = dataclasses.replace(study, environment=given)
    quick.check_startable(ready, environ)
    return ready


def run(
    study: Study,
    runs: Runs,
    schedule_for: Callable[[StudyFolder], Scheduler],
    environ: Mapping[str, str],
    say: short_job.Say,
    *,
    patience_s: float,
    limit_s: int = LIMIT_S,
) -> Tried:
    """Train the first point, and return what was seen of it; nothing stays.

    Args:
        study: As ``check`` returns it.
        say: Told what it waits for.
        patience_s: For the job to start.
        limit_s: Seconds of training, from its process's start.

    Raises:
        InputError: The code or the design of the study cannot be used.
        SweepError: The job could not be run, ended without an answer, or nothing can be written.
    """
    try:
        return _run(study, runs, schedule_for, environ, say, patience_s, limit_s)
    except OSError as error:
        raise SweepError(
            f"{error.filename or runs.root} cannot be written or read: {error.strerror}.",
            "Make room there, or keep runs elsewhere: --runs, SWEEP_RUNS.",
        ) from error


def _run(
    study: Study,
    runs: Runs,
    schedule_for: Callable[[StudyFolder], Scheduler],
    environ: Mapping[str, str],
    say: short_job.Say,
    patience_s: float,
    limit_s: int,
) -> Tried:
    params = first_point(study)
    short_job.clear_dead(runs, HOME, schedule_for, say)
    code = code_snapshot.plan(study, runs.root, environ)
    with short_job.folder_in(runs, HOME, study) as folder:
        snapshot = code_snapshot.freeze(code, folder) if code else None
        request = {
            "params": params,
            "seed": trial_seed(study.seed, 0),
            "snapshot": snapshot,
            "limit_s": limit_s,
        }
        write_atomic(_request_file(folder), json.dumps(request) + "\n")
        short_job.fill(study, folder, environ)
        went = short_job.run(
            study,
            folder,
            schedule_for(folder),
            "--try",
            say,
            patience_s,
            time_limit_s=limit_s + START_S,
            does=f"trains the first point for at most {limit_s} s",
        )
    if not went.found.get("done"):
        message, hint = went.problem or ("its task gave no answer", "")
        raise SweepError(f"Nothing could be tried: {message}", hint or went.tail)
    return Tried.from_data(went.found["tried"])


def train_once(folder: StudyFolder) -> None:
    """Train, and write down what was seen; what the job's task does."""
    study = Study.read(folder.study)
    request = read_json(_request_file(folder)) or {}
    place = place_from(os.environ, kind_of(study))
    attempt, token = folder.attempt(0, 1), secrets.token_hex(16)
    make_private(attempt.checkpoints)
    values = write_values(
        study,
        attempt,
        token,
        number=0,
        seed=request["seed"],
        params=request["params"],
        run="",
        config=folder.config(0),
    )
    limit_s = float(request["limit_s"])
    ask_before_s = max(LEAST_BEFORE_S, min(ASK_BEFORE_S, limit_s / 4))
    ask_after_s = max(0.0, limit_s - ask_before_s)
    leave = Leave(4.0, ask_before_s, ask_after_s=ask_after_s)
    environ = {**OFFLINE, **training_environ(folder, os.environ)}
    placed = code_snapshot.place(study, folder, request["snapshot"], environ)
    read = launchers.reader(study)
    journal = Journal(attempt, study.objectives, read=read)
    argv: list[str] = []
    began = time.monotonic()
    reports, end = train(
        placed.study,
        values,
        attempt,
        journal,
        placed.environ,
        place,
        folder.python_path,
        leave,
        within=folder,
        began=argv.extend,
    )
    took_s = time.monotonic() - began
    is_code = request["snapshot"] is not None
    tried = Tried(
        study=study.name,
        host=place.host,
        command=_fill(placed.study, values),
        argv=hide_arguments(argv) if argv else _fill(placed.study, values),
        program=_find_program(placed.study, placed.environ),
        params=dict(values.params),
        seed=values.seed,
        limit_s=int(limit_s),
        took_s=round(took_s, 1),
        # Not by its job's own limit, or by somebody who cancels it.
        is_limited=leave.wanted and not leave.terminated and took_s >= ask_after_s,
        outcome=end.outcome,
        reason=end.reason,
        series=_series(study, reports, attempt, read),
        notes=journal.notes(),
        saved=_find_saved(placed.study, values, attempt),
        elsewhere=_find_elsewhere(study, attempt),
        beside_code=code_snapshot.new_files(folder, request["snapshot"]) if is_code else [],
        tail=read_tail(attempt.log, TAIL_LINES),
    )
    answer = {"done": True, "tried": tried.to_data()}
    write_atomic(short_job.result_file(folder), json.dumps(answer) + "\n")


def _request_file(folder: StudyFolder) -> Path:
    return folder.root / "request.json"


def _fill(study: Study, values: TrialValues) -> list[str]:
    names = [*study.space.names(), *study.fixed]
    known = secret_arguments.stand_ins(study)
    return hide_arguments(filling.fill(study.command, values, names, known))


def _find_program(study: Study, environ: Mapping[str, str]) -> str:
    if study.environment.runtime != "none":
        return ""
    return shutil.which(study.command[0], path=search_path(environ)) or ""


def _series(
    study: Study,
    reports: Sequence[Report],
    attempt: AttemptFolder,
    read: Callable[[str], str | None],
) -> dict[str, TriedMetric]:
    """Return what came of each metric, with the lines that gave it."""
    points: dict[str, list[tuple[int, float]]] = {}
    for report in reports:
        for name, value in report.metrics.items():
            points.setdefault(name, []).append((report.step, value))
    lines: dict[str, list[str]] = {}
    for found in matched_lines.find(attempt.log, study.objectives, read):
        lines.setdefault(found.metric, []).append(found.line)
    return {
        name: TriedMetric(list(dict(sorted(values)).items()), lines.get(name, [])[:MOST_LINES])
        for name, values in points.items()
    }


def _find_saved(study: Study, values: TrialValues, attempt: AttemptFolder) -> Saved | None:
    """Return the checkpoint that a resumed attempt would be given, and its command."""
    found = checkpoints.saves(attempt, study.checkpoint_files)
    if not found:
        return None
    save = found[0]
    resumed = dataclasses.replace(values, attempt=2, resume=save.path)
    size = sum(_size(path) for path in save.files)
    return Saved(str(save.path.relative_to(attempt.root)), size, _fill(study, resumed))


def _find_elsewhere(study: Study, attempt: AttemptFolder) -> str:
    """Return a checkpoint in the trial's folder that lies where none is looked for, or ""."""
    own = {attempt.metrics, attempt.exit, attempt.log, attempt.answer, attempt.checkpoints}
    for save in save_order.find(attempt.root, None):
        if not own & {save.path, *save.path.parents}:
            return str(save.path.relative_to(attempt.root))
    return ""


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def to_json(tried: Tried, lines: Sequence[Any]) -> str:
    """Return what was seen and its judgement, for programs."""
    data = {**tried.to_data(), "lines": [line.to_data() for line in lines]}
    return json.dumps(data, indent=1, ensure_ascii=False)
