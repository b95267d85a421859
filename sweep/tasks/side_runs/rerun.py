"""Run a trial again, from the start, with the same parameters, seed and code.

A re-run lives in ``sweep_rerun`` and ``reruns/<k>/``, never among the trials. It resumes from no
checkpoint; ``judging`` says what its result means.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweep.control import identity, job_owners
from sweep.control.open_study import Opened
from sweep.control.scheduler_view import EVERY_S
from sweep.control.settle import expected
from sweep.core import outcomes, scheduler
from sweep.core.errors import CouldNotAsk, InputError, SweepError
from sweep.core.files import make_private, read_tail
from sweep.core.masking import MASK, hide_arguments
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study
from sweep.core.system import processes
from sweep.core.trial import End, Report, summarise, trial_seed
from sweep.provenance import capture, container, manifest, record
from sweep.provenance import snapshot as code_snapshot
from sweep.results.feasibility import read_none_feasible
from sweep.schedulers import arrays
from sweep.storage import replicates, reruns, trial_rows
from sweep.storage.ledger import Ledger
from sweep.storage.reruns import OTHER_SEED, SAME_SEED, Rerun
from sweep.tasks.context import Context, logged_as
from sweep.tasks.side_runs.side_run import (
    AWAY_PATIENCE_S,
    END_PATIENCE_S,
    ask,
    claim,
    params_of,
    submit_requested,
    train_claimed,
    write_values,
)
from sweep.training import ready
from sweep.training.command import launchers
from sweep.training.command.preflight import check_command
from sweep.training.journal import Journal

LOOK_S = 5.0  # between two looks, while waiting, at what is cheap to ask
SUBMIT_S = 60.0  # within which a re-run that was requested has a job


def choose_trial(opened: Opened, number: int | None) -> tuple[int, int, float]:
    """Return (number, id, objective value) of the trial to run again: by default the best.

    For one that has the result of another with the same configuration (``duplicates: reuse``) it is
    that other one: only it has trained.

    Raises:
        InputError: There is none, or which is best is not for us to say.
    """
    ledger, study = opened.ledger, opened.study
    if number is None:
        if study.is_multi_objective:
            raise InputError(
                "The study has several objectives; no single trial is its best.",
                "Choose one of `sweep collect`'s first rank and name it: --trial N.",
            )
        best = ledger.db.retry(lambda _: ledger.best_numbers(1, reused=False))
        if not best:
            raise no_best(opened)
        number = best[0]
    trial_id, state = opened.find_trial(number)
    if state != "COMPLETE":
        raise InputError(
            f"Trial {number} of {study.name} is not complete.",
            "Only a complete trial can be run again; `sweep collect` lists them.",
        )
    trained = ledger.db.retry(lambda _: ledger.trained_for(trial_id))
    number, trial_id = trained or (number, trial_id)
    values = ledger.db.retry(lambda db: trial_rows.read_values(db, trial_id))
    return number, trial_id, values[0]


def no_best(opened: Opened) -> InputError:
    """Return why no trial is the best one."""
    name, ledger = opened.study.name, opened.ledger
    infeasible = ledger.db.retry(lambda _: read_none_feasible(ledger))
    if infeasible:
        return InputError(infeasible, "Name one that shall run all the same: rerun-best --trial N.")
    return InputError(f"No trial of {name} is complete yet.", f"See: sweep status {name}")


def choose_trials(opened: Opened, number: int | None, top: int) -> list[tuple[int, int, float]]:
    """Return what ``choose_trial`` does for one trial, or for each of the best, best first."""
    if number is not None or top == 1 or opened.study.is_multi_objective:
        return [choose_trial(opened, number)]
    ledger = opened.ledger
    best = ledger.db.retry(lambda _: ledger.best_numbers(top, reused=False))
    return [choose_trial(opened, each) for each in best] or [choose_trial(opened, None)]


def own_seed(ledger: Ledger, trial: int, trial_id: int) -> int:
    """Return the seed that a trial ran with: of several replicates the last one's, whose curve and
    checkpoints are the trial's."""
    done = ledger.db.retry(lambda db: replicates.read(db, trial_id))
    return done[-1].seed if done else trial_seed(ledger.study.seed, trial)


def originals(opened: Opened, trial: int, trial_id: int) -> dict[int, float]:
    """Return the objective that a trial gave by seed: of each of its replicates, in order.

    Raises:
        InputError: The trial is not complete (any more).
    """
    _, _, value = choose_trial(opened, trial)
    done = opened.ledger.db.retry(lambda db: replicates.read(db, trial_id))
    found = {one.seed: one.values[0] for one in done if one.values}
    return found or {own_seed(opened.ledger, trial, trial_id): value}


def passes(known: Sequence[Rerun], trial: int) -> list[list[Rerun]]:
    """Return what repeats a trial as a whole, oldest first: one run, or one with each seed of its
    replicates, which were requested together."""
    found: list[list[Rerun]] = []
    for one in known:
        if one.trial != trial or one.kind != SAME_SEED:
            continue
        last = found[-1] if found else []
        if last and one.job == last[0].job and one.seed not in {other.seed for other in last}:
            last.append(one)
        else:
            found.append([one])
    return found


def plan(
    ledger: Ledger, trial: int, trial_id: int, *, seeds: int = 0, repeats: int = 1
) -> list[tuple[int, str, int]]:
    """Return the runs to ``submit`` for a trial: with its own seed, or all those of its replicates,
    and with further ones."""
    own = own_seed(ledger, trial, trial_id)
    done = ledger.db.retry(lambda db: replicates.read(db, trial_id))
    return [
        *[(trial_id, SAME_SEED, seed) for seed in [one.seed for one in done] or [own]] * repeats,
        *((trial_id, OTHER_SEED, trial_seed(own, i)) for i in range(1, seeds + 1)),
    ]


def as_it_ran(study: Study, folder: StudyFolder, trial: int) -> Study:
    """Return the study with the command and launcher that a trial ran with.

    They may have been corrected since. Where the record hides a part of the command, the study's
    own stands.
    """
    made = manifest.of_trial(folder, trial)["execution"]
    then = made.get("command")
    is_whole = not any(MASK in word for word in then or ())
    if then and is_whole and then != hide_arguments(study.command):
        study = dataclasses.replace(study, command=tuple(then))
    return dataclasses.replace(study, launcher=made.get("launcher") or study.launcher)


def _snapshot(folder: StudyFolder, trial: int) -> str | None:
    """Return the snapshot that a trial ran; None for the live code, also where it is gone."""
    name = manifest.of_trial(folder, trial)["code"].get("snapshot")
    return name if name and code_snapshot.is_there(folder, name) else None


def submit(
    opened: Opened,
    schedule: Scheduler,
    environ: Mapping[str, str],
    plan: Sequence[tuple[int, str, int]],
    trials: Sequence[int],
    *,
    anyway: bool = False,
) -> list[int]:
    """Submit runs of (trial id, kind, seed) as one array, at most ``max_parallel`` at a time.

    Returns their numbers, one after another: element i of the array runs the first plus i.

    Args:
        trials: The numbers of their trials.
        anyway: Also where a trial's code, image or data are gone.

    Raises:
        InputError: The command can no longer be started, or something of the original is gone.
        DamagedFile: Whether its code is what it was cannot be said.
        SchedulerError: The scheduler refused; nothing stays.
    """
    study, ledger, folder = opened.study, opened.ledger, opened.folder
    ledger.db.retry(lambda db: identity.refuse_copy(db, ledger.study_id, folder))
    if not anyway:
        record.refuse_missing(folder, study, trials)
    for trial in trials:
        ran = as_it_ran(study, folder, trial)
        snapshot = _snapshot(folder, trial)
        if snapshot:
            code_snapshot.refuse_damaged(folder, snapshot)
        placed = code_snapshot.place(ran, folder, snapshot, environ)
        check_command(placed.study, placed.environ)
    made = ask(ledger, reruns.insert_all, plan)
    make_private(folder.logs)
    job = arrays.task_job(
        study,
        folder,
        arrays.name_token(f"{study.name}-rerun"),
        _log_name(made[0], "{index}"),
        "--rerun",
        str(made[0]),
        size=len(made),
        throttle=min(study.parallel, len(made)),
    )
    submit_requested(ledger, schedule, job, made)
    return made


def run_rerun(context: Context, k: int) -> None:
    """Train one re-run; what its task does.

    Raises:
        SweepError: It is not there, or somebody else runs it.
    """
    ledger = context.ledger
    rerun, token, folder = claim(context, k, "Re-run")
    study = as_it_ran(context.study, context.folder, rerun.trial)
    snapshot = _snapshot(context.folder, rerun.trial)
    made = _capture(context, study, rerun.trial, snapshot)
    with ledger.db.patient(AWAY_PATIENCE_S):
        params = params_of(ledger, rerun.trial_id)
    values = write_values(
        study,
        folder,
        token,
        number=rerun.trial,
        seed=rerun.seed,
        params=params,
        run=logged_as(study, context.folder, rerun.trial, f"rerun-{k}"),
    )
    journal = Journal(folder, study.objectives, read=launchers.reader(study))
    reports, end = train_claimed(context, study, values, folder, journal, snapshot)
    result = summarise_reports(study, reports)
    if end.outcome == outcomes.FINISHED and None in result["values"]:
        end = End(
            outcomes.NO_METRIC,
            "never reported " + expected(study.objective.metric, study, journal.notes()),
        )
    result["provenance"] = made
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
    with ledger.db.patient(END_PATIENCE_S):
        ask(ledger, reruns.end, k, end, result)
    context.say(f"re-run {k} of trial {rerun.trial}: {end.outcome} {end.reason}")


def _capture(context: Context, study: Study, trial: int, snapshot: str | None) -> dict[str, Any]:
    """Return what makes a re-run: its trial's code as it is now, and all else as it is found."""
    folder = context.folder
    base = manifest.of_trial(folder, trial)
    if base["code"].get("snapshot") and snapshot is None:
        base["code"] = {}  # gone: the live code runs
    found = capture.capture_attempt(
        study, base, context.environ, runs=folder.root.parent, thorough=True
    )
    if snapshot:
        changed = code_snapshot.changed_files(folder, snapshot)
        found["code"] = {**found["code"], "modified": changed}
    found["environment"] |= _look_inside(context, study, snapshot)
    return found


def _look_inside(context: Context, study: Study, snapshot: str | None) -> dict[str, Any]:
    """Return what is installed where a re-run trains; empty where that cannot be asked."""
    try:
        placed = code_snapshot.place(study, context.folder, snapshot, context.environ)
        ready.make_ready(placed.study, placed.environ, context.say)
    except SweepError:
        return {}  # the training says why
    return container.ask(placed.study, context.folder, placed.environ)


def summarise_reports(study: Study, reports: Sequence[Report]) -> dict[str, Any]:
    """Return {"values": [objective or None, …], "steps": distinct steps of the first objective}."""
    values = []
    for objective in study.objectives:
        series = {
            r.step: r.metrics[objective.metric] for r in reports if objective.metric in r.metrics
        }
        found = summarise(sorted(series.items()), objective.at, objective.direction)
        values.append(None if found is None or not math.isfinite(found) else found)
    metric = study.objective.metric
    return {"values": values, "steps": len({r.step for r in reports if metric in r.metrics})}


def _log_name(first: int, index: object) -> str:
    """Return what the log of an element is called, in the array whose first re-run is given."""
    return f"rerun-{first}_{index}"


def refresh(opened: Opened, schedule: Scheduler) -> None:
    """End re-runs whose task is gone."""
    ledger = opened.ledger
    known = ask(ledger, reruns.read_all)
    live = [rerun for rerun in known if rerun.outcome is None]
    first = {rerun.job: rerun.k for rerun in reversed(known)}  # of each array
    states: dict[scheduler.Task, scheduler.TaskState] = {}
    # A study may have moved to another executor since: each has what was submitted to it.
    parts: dict[str, list[Rerun]] = defaultdict(list)
    for rerun in live:
        parts[rerun.executor].append(rerun)
    for executor, part in parts.items():
        its = sorted({rerun.job for rerun in part if rerun.job})
        try:
            owner = job_owners.named(executor, opened.folder, opened.study, schedule)
            states |= owner.queued(its) if its else {}
        except SweepError:
            if schedule.is_named(executor):
                raise
            live = [rerun for rerun in live if rerun not in part]  # nobody can say
    for rerun in live:
        if rerun.job is None:
            age_s = time.time() - rerun.requested.timestamp()
            if age_s < SUBMIT_S:
                continue  # its submission is under way
        else:
            task = states.get((rerun.job, rerun.k - first[rerun.job]))
            if task is not None and task.state != scheduler.ENDED:
                continue
        latest = ask(ledger, reruns.read, rerun.k)
        if latest is None or latest.outcome is not None:
            continue
        if rerun.process_group and rerun.token and rerun.host == socket.gethostname():
            processes.end_group(rerun.process_group, rerun.token, grace_s=0.0)
        reason = "its task ended without a result"
        if rerun.job:
            log = _log_name(first[rerun.job], rerun.k - first[rerun.job])
            tail = read_tail(opened.folder.logs / f"{log}.log", 2)
            reason = ": ".join([reason, " ".join(tail)] if tail else [reason])
        lost = End(outcomes.LOST, reason)
        ask(ledger, reruns.end, rerun.k, lost, {"values": [None], "steps": 0})


def wait(
    opened: Opened,
    schedule: Scheduler,
    numbers: Sequence[int],
    tick: Callable[[int], None] = lambda _: None,
) -> None:
    """Wait until these re-runs have ended.

    Args:
        tick: Told how many still run, about twice a second.
    """
    ledger = opened.ledger
    every_s = LOOK_S if schedule.is_cheap_to_ask else EVERY_S
    next_refresh = time.monotonic() + every_s
    while True:
        with ledger.db.patient(AWAY_PATIENCE_S):
            found = ask(ledger, reruns.read_all)
        live = [rerun for rerun in found if rerun.k in numbers and rerun.outcome is None]
        tick(len(live))
        if not live:
            return
        if time.monotonic() > next_refresh:
            with contextlib.suppress(CouldNotAsk):  # that says nothing about the re-runs
                refresh(opened, schedule)
            next_refresh = time.monotonic() + every_s
        time.sleep(0.5)


def newest(opened: Opened, trial: int, *, untold: bool) -> list[Rerun]:
    """Return the newest runs that repeat a trial as a whole; see ``passes``. Empty: there are none.

    Args:
        untold: Only those whose verdict nobody has been told yet.
    """
    known = passes(ask(opened.ledger, reruns.read_all, trial), trial)
    found = [one for one in known if not (untold and all(run.result.get("shown") for run in one))]
    return found[-1] if found else []
