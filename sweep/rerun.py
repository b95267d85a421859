"""Run a trial again, from the start, with the same parameters and seed; compare; say what holds.

A re-run lives in ``sweep_rerun`` and ``reruns/<k>/``, never among the trials. It resumes from no
checkpoint and must report as many steps as the original.
"""

from __future__ import annotations

import math
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweep import arrays, command, process, provenance, scheduler
from sweep import trial as words
from sweep.context import Context
from sweep.ending import expected
from sweep.errors import InputError, SweepError
from sweep.journal import Journal
from sweep.launch import Opened, check_command
from sweep.paths import make_private, read_json
from sweep.scheduler import Scheduler
from sweep.side_run import (
    AWAY_PATIENCE_S,
    END_PATIENCE_S,
    PATIENCE_S,
    ask,
    claim,
    params_of,
    train_claimed,
    write_values,
)
from sweep.storage import reruns
from sweep.storage.ledger import Report
from sweep.storage.reruns import OTHER_SEED, SAME_SEED, Rerun
from sweep.study import Study
from sweep.trial import End, summarise, trial_seed
from sweep.verdict import DEFAULT_TOLERANCE, DIFFERS, EXPLAINED, FAILED, REPRODUCED, Verdict
from sweep.verdict import parse_tolerance as parse_tolerance
from sweep.verdict import relative_difference as relative_difference
from sweep.verdict import to_json as to_json


def choose_trial(opened: Opened, number: int | None) -> tuple[int, int, float]:
    """Return (number, id, objective value) of the trial to run again: by default the best.

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
        best = ledger.db.retry(lambda _: ledger.best_numbers(1), patience_s=PATIENCE_S)
        if not best:
            raise InputError(
                f"No trial of {study.name} is complete yet.", f"See: sweep status {study.name}"
            )
        number = best[0]
    rows = ledger.db.retry(
        lambda db: db.execute(
            "SELECT t.trial_id, v.value FROM trials t JOIN trial_values v USING (trial_id) "
            "WHERE t.study_id = %s AND t.number = %s AND t.state = 'COMPLETE' AND v.objective = 0",
            (ledger.study_id, number),
        ),
        patience_s=PATIENCE_S,
    )
    if not rows and not 0 <= number < study.trials:
        raise InputError(
            f"{study.name} has no trial {number}.", f"Its trials are 0 to {study.trials - 1}."
        )
    if not rows:
        raise InputError(
            f"Trial {number} of {study.name} is not complete.",
            "Only a complete trial can be run again; `sweep collect` lists them.",
        )
    return number, int(rows[0][0]), float(rows[0][1])


def request(
    opened: Opened,
    schedule: Scheduler,
    environ: Mapping[str, str],
    trial: int,
    trial_id: int,
    seeds: int = 0,
) -> list[int]:
    """Submit a re-run of a trial, and further ones with other seeds; return their numbers.

    Raises:
        InputError: The command can no longer be started.
        SchedulerError: The scheduler refused; nothing stays.
    """
    own = trial_seed(opened.study.seed, trial)
    plan = [(trial_id, SAME_SEED, own)]
    plan += [(trial_id, OTHER_SEED, trial_seed(own, i)) for i in range(1, seeds + 1)]
    return submit(opened, schedule, environ, plan)


def submit(
    opened: Opened,
    schedule: Scheduler,
    environ: Mapping[str, str],
    plan: Sequence[tuple[int, str, int]],
) -> list[int]:
    """Submit runs of (trial id, kind, seed) as one array, at most ``max_parallel`` at a time.

    Returns their numbers, one after another: element i of the array runs the first plus i.

    Raises:
        InputError: The command can no longer be started.
        SchedulerError: The scheduler refused; nothing stays.
    """
    study, ledger, folder = opened.study, opened.ledger, opened.folder
    check_command(study, environ)
    made = ask(ledger, reruns.insert_all, plan)
    make_private(folder.logs)
    job = arrays.task_job(
        study, folder, arrays.name_token(f"{study.name}-rerun"), f"rerun-{made[0]}_{{index}}",
        "--rerun", str(made[0]), size=len(made), throttle=min(study.parallel, len(made)),
    )  # fmt: skip
    try:
        job_id = schedule.submit(job)
    except SweepError:
        for k in made:
            ask(ledger, reruns.remove, k)
        raise
    for k in made:
        ask(ledger, reruns.set_job, k, job_id)
    return made


def run_rerun(context: Context, k: int) -> None:
    """Train one re-run; what its task does.

    Raises:
        SweepError: It is not there, or somebody else runs it.
    """
    ledger, study = context.ledger, context.study
    rerun, token, folder = claim(context, k, "Re-run")
    params = params_of(ledger, rerun.trial_id, AWAY_PATIENCE_S)
    values = write_values(
        study, folder, token, number=rerun.trial, seed=rerun.seed, params=params
    )
    journal = Journal(folder, study.objectives, read=command.reader(study))
    reports, end = train_claimed(context, study, values, folder, journal)
    result = summarise_reports(study, reports)
    if end.outcome == words.FINISHED and None in result["values"]:
        end = End(words.NO_METRIC, "never reported " + expected(study.objective.metric, study))
    result["provenance"] = provenance.capture_study(study)
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
    ask(ledger, reruns.end, k, end, result, patience_s=END_PATIENCE_S)
    context.say(f"re-run {k} of trial {rerun.trial}: {end.outcome} {end.reason}")


def summarise_reports(study: Study, reports: Sequence[Report]) -> dict[str, Any]:
    """Return {"values": [objective or None, …], "steps": distinct steps of the first objective}."""
    values = []
    for objective in study.objectives:
        series = {r.step: r.metrics[objective.metric] for r in reports
                  if objective.metric in r.metrics}  # fmt: skip
        found = summarise(sorted(series.items()), objective.at, objective.direction)
        values.append(None if found is None or not math.isfinite(found) else found)
    metric = study.objective.metric
    return {"values": values, "steps": len({r.step for r in reports if metric in r.metrics})}


def refresh(opened: Opened, schedule: Scheduler) -> None:
    """End re-runs whose task is gone."""
    ledger = opened.ledger
    known = ask(ledger, reruns.read_all)
    live = [rerun for rerun in known if rerun.outcome is None]
    first = {rerun.job: rerun.k for rerun in reversed(known)}  # of each array
    jobs = sorted({rerun.job for rerun in live if rerun.job})
    states = schedule.poll(jobs) if jobs else {}
    for rerun in live:
        if rerun.job is None:
            age_s = time.time() - rerun.requested.timestamp()
            if age_s < PATIENCE_S:
                continue  # its submission is under way
        else:
            task = states.get((rerun.job, rerun.k - first[rerun.job]))
            if task is not None and task.state != scheduler.ENDED:
                continue
        latest = ask(ledger, reruns.read, rerun.k)
        if latest is None or latest.outcome is not None:
            continue
        if rerun.process_group and rerun.token and rerun.host == socket.gethostname():
            process.end_group(rerun.process_group, rerun.token, grace_s=0.0)
        lost = End(words.LOST, "its task ended without a result")
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
    next_refresh = time.monotonic() + 5.0
    while True:
        live = [
            rerun
            for rerun in ask(ledger, reruns.read_all, patience_s=AWAY_PATIENCE_S)
            if rerun.k in numbers and rerun.outcome is None
        ]
        tick(len(live))
        if not live:
            return
        if time.monotonic() > next_refresh:
            refresh(opened, schedule)
            next_refresh = time.monotonic() + 5.0
        time.sleep(0.5)


def judge(opened: Opened, k: int, tolerance: float = DEFAULT_TOLERANCE) -> Verdict:
    """Compare an ended re-run with its trial.

    Raises:
        InputError: There is no such re-run, or it still runs.
    """
    ledger, study = opened.ledger, opened.study
    all_reruns = ask(ledger, reruns.read_all)
    found = next((rerun for rerun in all_reruns if rerun.k == k), None)
    if found is None or found.outcome is None:
        raise InputError(f"Re-run {k} has not ended.", "Wait for it: sweep rerun-best --wait.")
    _, _, original = choose_trial(opened, found.trial)
    series = ledger.db.retry(
        lambda _: ledger.lineage(found.trial_id, study.objective.metric), patience_s=PATIENCE_S
    )
    steps = (len(series), int(found.result.get("steps", 0)))
    value = (found.result.get("values") or [None])[0]
    before = read_json(opened.folder.provenance) or {}
    differences = list(provenance.differences(before, found.result.get("provenance") or {}))
    if value is None or found.outcome != words.FINISHED:
        verdict, relative = FAILED, None
        differences.insert(0, f"the re-run ended without a result: {found.reason}")
    else:
        relative = relative_difference(original, value)
        same_length = steps[0] == steps[1]
        if relative <= tolerance and same_length:
            verdict = REPRODUCED
        else:
            verdict = EXPLAINED if differences else DIFFERS
        if not same_length:
            differences.append(f"steps: {steps[0]} originally, {steps[1]} in the re-run")
    others = [
        (rerun.result.get("values") or [None])[0]
        for rerun in all_reruns
        if rerun.kind == OTHER_SEED and rerun.trial == found.trial and rerun.outcome is not None
    ]
    ask(ledger, reruns.mark_shown, k)
    return Verdict(
        study=study.name,
        trial=found.trial,
        k=k,
        metric=study.objective.metric,
        original=original,
        rerun=value,
        relative_difference=relative,
        tolerance=tolerance,
        verdict=verdict,
        differences=differences,
        steps=steps,
        folder=str(opened.folder.rerun(k).root),
        other_seeds=others,
    )


def newest(opened: Opened, trial: int, *, untold: bool) -> Rerun | None:
    """Return the trial's newest re-run with its own seed, or None.

    Args:
        untold: Only one whose verdict nobody has been told yet.
    """
    found = [
        rerun
        for rerun in ask(opened.ledger, reruns.read_all, trial)
        if rerun.kind == SAME_SEED and not (untold and rerun.result.get("shown"))
    ]
    return found[-1] if found else None
