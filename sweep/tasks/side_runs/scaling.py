"""Measure how a study's training speeds up with more GPUs (or processes): ``sweep scaling``.

One training after another, so that none disturbs the next, each in a folder of its own with a
study of one trial, on the study's executor. No database is involved: the training's reports are
all that is wanted. It is asked for them by ``SWEEP_PROFILE=1`` in its environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.control import short_job
from sweep.control.job_watch import JobWatch
from sweep.control.place import place_from, training_environ
from sweep.control.scheduler_view import EVERY_S
from sweep.core import secret_arguments
from sweep.core.errors import CouldNotAsk, InputError
from sweep.core.executors import kind_of
from sweep.core.files import make_private, read_json, write_atomic
from sweep.core.outcomes import FINISHED
from sweep.core.paths import Runs, StudyFolder
from sweep.core.programs import LAUNCHER, read_program
from sweep.core.scheduler import Scheduler
from sweep.core.study import Choice, Study
from sweep.core.trial import trial_seed
from sweep.provenance.capture import capture_environment
from sweep.provenance.machine import capture_gpus, capture_host
from sweep.schedulers import arrays
from sweep.search.propose import fixed_design
from sweep.tasks.context import logged_as
from sweep.tasks.side_runs import scaling_figures as figures_of
from sweep.tasks.side_runs.scaling_report import describe_machine
from sweep.tasks.side_runs.side_run import train, write_values
from sweep.training import build
from sweep.training.command import launchers
from sweep.training.command.launchers import PYTHON
from sweep.training.command.preflight import check_command
from sweep.training.journal import Journal
from sweep.training.leave import Leave
from sweep.training.profiling.profile_watch import VARIABLE as PROFILE_VARIABLE

STRONG, WEAK = "strong", "weak"
POLL_S = 0.5
ASK_EVERY_S = 5.0
SETTLE_S = 30.0  # for the result of a task that has ended to be seen here


@dataclass(frozen=True)
class ScalingCase:
    """One training of a scaling study.

    Attributes:
        ranks: Processes in all, one a GPU.
        study: Of one trial, with what these ranks need.
        params: The training's values.
        batch: Its global batch, or None where no parameter is one.
    """

    ranks: int
    study: Study
    params: Mapping[str, Any]
    batch: float | None


def plan(
    study: Study,
    counts: Sequence[int],
    params: Mapping[str, Any],
    *,
    on_gpus: bool,
    mode: str,
    batch: str,
    per_node: int | None = None,
) -> list[ScalingCase]:
    """Return the trainings to run, fewest ranks first.

    Args:
        study: Whose executor is decided.
        counts: GPUs, or processes on CPUs.
        params: Of the training with the fewest ranks.
        on_gpus: Whether each rank has a GPU.
        mode: STRONG keeps the global batch, WEAK the batch of each rank.
        batch: Name of the parameter that is the global batch.
        per_node: Most ranks on one node; None for all on one.

    Raises:
        InputError: Something does not fit together.
    """
    counts = sorted(set(counts))
    base = params.get(batch)
    if mode == WEAK and (not isinstance(base, int) or isinstance(base, bool)):
        raise InputError(
            f"Weak scaling multiplies the batch with the processes, and the training has no whole "
            f"number named {batch!r}.",
            f"Give it one: --param {batch}=64, or name the parameter that it is: --batch NAME.",
        )
    cases = []
    for count in counts:
        on_node = min(count, per_node or count)
        if count % on_node:
            raise InputError(
                f"{count} processes do not fill nodes of {on_node} evenly.",
                "Choose multiples, or give --per-node.",
            )
        own = dict(params)
        if mode == WEAK and isinstance(base, int):
            own[batch] = base * count // counts[0]
        size = own.get(batch)
        cases.append(
            ScalingCase(
                count,
                resized(study, count // on_node, on_node, on_gpus),
                own,
                size if isinstance(size, int | float) else None,
            )
        )
    return _with_one_launcher(cases)


def _with_one_launcher(cases: Sequence[ScalingCase]) -> list[ScalingCase]:
    """Return the cases with the launcher of the most ranks: another one would be compared as well.

    Raises:
        InputError: It cannot start them, or the command does not leave that to sweep.
    """
    largest = cases[-1]
    launcher = launchers.choose(largest.study)
    if launcher == PYTHON and largest.ranks > 1:
        program = read_program(largest.study.command)
        if program.kind == LAUNCHER:
            raise InputError(
                f"The command starts its processes itself ({program.name}), so sweep cannot say "
                "how many.",
                "Let the command be what one process runs: python train.py …",
            )
        raise InputError(
            f"{program.name} is no Python program, and launcher: auto would start one process of "
            "it whatever the number.",
            "If it is what each process runs, write launcher: torchrun (or srun).",
        )
    return [
        dataclasses.replace(case, study=dataclasses.replace(case.study, launcher=launcher))
        for case in cases
    ]


def resized(study: Study, nodes: int, on_node: int, on_gpus: bool) -> Study:
    """Return a study of one trial with so many ranks, each with as many CPUs as before."""
    needs = study.resources
    gpus = needs.so_many_gpus(on_node) if on_gpus else 0
    cpus = needs.cpus and max(1, needs.cpus // study.ranks_per_node) * on_node
    return dataclasses.replace(
        study,
        trials=1,
        points=(),
        max_parallel=1,
        pruner=Choice("none"),
        sampler=Choice("random"),
        launcher="auto" if study.launcher == PYTHON else study.launcher,
        resources=dataclasses.replace(
            needs, nodes=nodes, gpus=gpus, cpus=cpus, shard=None, mps=None
        ),
        ddp=dataclasses.replace(study.ddp, ranks_per_node=None if on_gpus else on_node),
        slurm=dataclasses.replace(study.slurm, slots=1),
    )


def default_params(study: Study) -> dict[str, Any]:
    """Return values for a study that has not run: its first point, the rest by chance."""
    rows = fixed_design(dataclasses.replace(study, sampler=Choice("random"), trials=1))
    return {**study.space.from_optuna((rows or [{}])[0]), **study.fixed}


def run(
    case: ScalingCase,
    folder: StudyFolder,
    schedule_for: Callable[[StudyFolder, Study], Scheduler],
    environ: Mapping[str, str],
) -> dict[str, Any]:
    """Train one case and return its row: ``ranks``, ``nodes``, ``batch``, the figures, ``failed``.

    Raises:
        InputError: The command cannot be started.
        SchedulerError: The scheduler refused.
    """
    check_command(case.study, environ)
    given, secrets = secret_arguments.take_out(case.study)
    environ = {**environ, **secrets}
    study, _ = build.ensure(given, Runs(folder.root.parents[2]), environ)
    if folder.root.exists():
        shutil.rmtree(folder.root)  # of an earlier scaling study
    make_private(folder.logs)
    short_job.fill(study, folder, environ)
    request = {"params": dict(case.params), "seed": trial_seed(study.seed, 0)}
    write_atomic(_request(folder), json.dumps(request) + "\n")
    schedule = schedule_for(folder, study)
    token = arrays.name_token(f"{study.name}-scaling")
    job_id = schedule.submit(arrays.task_job(study, folder, token, "{job}", "--measure"))
    try:
        result = _wait(folder, schedule, job_id)
    except BaseException:
        schedule.cancel(job_id)
        raise
    found = figures_of.figures(result["reports"])
    failed = result["failed"]
    if not failed and found[figures_of.RATE] is None:
        failed = (
            f"the training reported no {figures_of.RATE}; with {PROFILE_VARIABLE}=1 it must "
            "report where its time goes (see docs/study-file.md)"
        )
    return {
        "ranks": case.ranks,
        "nodes": study.resources.nodes,
        "batch": case.batch,
        **found,
        "failed": failed,
        "folder": str(folder.attempt(0, 1).root),
        "machine": result.get("machine"),
    }


def run_all(
    cases: Sequence[ScalingCase],
    name: str,
    mode: str,
    unit: str,
    folder: StudyFolder,
    schedule_for: Callable[[StudyFolder, Study], Scheduler],
    environ: Mapping[str, str],
    repeats: int = 1,
) -> Iterator[dict[str, Any]]:
    """Train case after case and yield the report so far after each; it is also in ``folder``.

    Each training may take long, and an interruption must not lose those that have ended. Repeats
    come round by round, so that what changes with time changes all cases.

    Args:
        cases: As ``plan`` returns them.
        name: The study's.
        mode: STRONG or WEAK.
        unit: What a rank runs on: GPU or process.
        folder: Of the study; the trainings have folders of their own below it.
        repeats: How often each case is trained.

    Raises:
        InputError, SchedulerError: As ``run`` does.
    """
    runs: dict[int, list[dict[str, Any]]] = {case.ranks: [] for case in cases}
    make_private(folder.results)
    for number in range(1, repeats + 1):
        for case in cases:
            again = f"-{number}" if number > 1 else ""
            own = StudyFolder(folder.root / "scaling" / f"{mode}-{case.ranks}{again}")
            make_private(own.root.parent)
            runs[case.ranks].append(run(case, own, schedule_for, environ))
            rows = figures_of.compare([figures_of.pool(done) for done in runs.values() if done])
            report = {
                "study": name,
                "mode": mode,
                "unit": unit,
                "params": dict(cases[0].params),
                "repeats": repeats,
                "rows": rows,
                "bottleneck": figures_of.bottleneck(rows, unit),
                "repeated": figures_of.repeated(rows),
            }
            write_atomic(report_path(folder, mode), json.dumps(report, indent=1) + "\n")
            yield report


def report_path(folder: StudyFolder, mode: str) -> Path:
    """Return the file that a study of this mode is written to."""
    return folder.results / f"scaling-{mode}.json"


def _wait(folder: StudyFolder, schedule: Scheduler, job: str) -> dict[str, Any]:
    every_s = ASK_EVERY_S if schedule.is_cheap_to_ask else EVERY_S
    watch = JobWatch(schedule, job, every_s, every_s)
    while True:
        result = read_json(_result(folder))
        if result is not None:
            return dict(result)
        with contextlib.suppress(CouldNotAsk):
            watch.look()
        ended_s = watch.ended_for_s()
        if ended_s is not None and ended_s > SETTLE_S:
            words = f" ({watch.state.word} {watch.state.reason})" if watch.state else ""
            return {"reports": [], "failed": f"its task ended without a result{words}"}
        time.sleep(POLL_S)


def measure(folder: StudyFolder) -> None:
    """Run the training of a case; what its task does."""
    study = Study.read(folder.study)
    request = read_json(_request(folder))
    attempt, token = folder.attempt(0, 1), secrets.token_hex(16)
    make_private(attempt.checkpoints)
    values = write_values(
        study,
        attempt,
        token,
        number=0,
        seed=request["seed"],
        params=request["params"],
        run=logged_as(study, folder, 0, f"scaling-{folder.root.name}-{token[:6]}"),
        config=folder.config(0),
    )
    reports, end = train(
        study,
        values,
        attempt,
        Journal(attempt, read=launchers.reader(study)),
        training_environ(folder, os.environ),
        place_from(os.environ, kind_of(study)),
        folder.python_path,
        Leave(4.0, float(study.grace_s)),
        more_environ={PROFILE_VARIABLE: "1"},
        within=folder,
    )
    failed = "" if end.outcome == FINISHED else end.reason or end.outcome
    shutil.rmtree(attempt.checkpoints, ignore_errors=True)
    steps = sorted({report.step for report in reports})
    merged = [
        {
            name: value
            for report in reports
            if report.step == step
            for name, value in report.metrics.items()
        }
        for step in steps
    ]
    environ = training_environ(folder, os.environ)
    found = capture_environment(study, environ, thorough=False) | capture_gpus(environ)
    machine = describe_machine(capture_host(), found)
    result = {"reports": merged, "failed": failed, "machine": machine}
    write_atomic(_result(folder), json.dumps(result) + "\n")


def _request(folder: StudyFolder) -> Path:
    return folder.root / "request.json"


def _result(folder: StudyFolder) -> Path:
    return folder.root / "result.json"
