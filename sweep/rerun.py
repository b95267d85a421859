"""Run a trial again, from the start, with the same parameters and seed; compare; say what holds.

A re-run lives in ``sweep_rerun`` and ``reruns/<k>/``, never among the trials. It resumes from no
checkpoint and must report as many steps as the original.
"""

from __future__ import annotations

import math
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sweep import arrays, command, process, provenance, scheduler
from sweep import trial as words
from sweep.context import Context, config_of
from sweep.ending import expected, read_end
from sweep.errors import InputError, SweepError
from sweep.journal import Journal, write_exit
from sweep.launch import Opened, check_command
from sweep.paths import make_private, read_json, write_atomic
from sweep.scheduler import ArrayJob, Scheduler
from sweep.storage import reruns
from sweep.storage.ledger import Ledger, Report, read_params
from sweep.storage.reruns import OTHER_SEED, SAME_SEED, Rerun
from sweep.study import Study
from sweep.supervise import Channel, Leave, Supervisor
from sweep.trial import End, summarise, trial_seed
from sweep.verdict import DEFAULT_TOLERANCE, DIFFERS, EXPLAINED, FAILED, REPRODUCED, Verdict
from sweep.verdict import parse_tolerance as parse_tolerance
from sweep.verdict import relative_difference as relative_difference
from sweep.verdict import to_json as to_json

T = TypeVar("T")

PATIENCE_S = 60.0


def _ask(
    ledger: Ledger, ask: Callable[..., T], *arguments: Any, patience_s: float = PATIENCE_S
) -> T:
    """Ask something of the table of re-runs."""
    return ledger.db.retry(
        lambda db: ask(db, ledger.study_id, *arguments), patience_s=patience_s
    )


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
    made = ledger.db.retry(
        lambda db: reruns.insert_all(db, ledger.study_id, plan), patience_s=PATIENCE_S
    )
    make_private(folder.logs)
    job = ArrayJob(
        token=arrays.name_token(f"{study.name}-rerun"),
        size=len(made),
        throttle=min(study.parallel, len(made)),
        argv=arrays.task_argv(folder, "--rerun", str(made[0])),
        cwd=folder.root,
        log_pattern=f"{arrays.escape(str(folder.logs))}/rerun-{made[0]}_{{index}}.log",
        time_limit_s=study.resources.time_limit_s,
        grace_s=study.grace_s,
        gpus=study.resources.gpu_count,
    )
    try:
        job_id = schedule.submit(job)
    except SweepError:
        for k in made:
            _ask(ledger, reruns.remove, k)
        raise
    for k in made:
        _ask(ledger, reruns.set_job, k, job_id)
    return made


def run_rerun(context: Context, k: int) -> None:
    """Train one re-run; what its task does.

    Raises:
        SweepError: It is not there, or somebody else runs it.
    """
    ledger, study = context.ledger, context.study
    token = secrets.token_hex(16)
    rerun = _ask(ledger, reruns.claim, k, token, socket.gethostname(), patience_s=600.0)
    if rerun is None:
        raise SweepError(f"Re-run {k} is not to be run: it has ended, or somebody runs it.")
    folder = context.folder.rerun(k)
    if folder.root.exists():
        shutil.rmtree(folder.root)  # of a re-run with this number in a database that is gone
    make_private(folder.checkpoints)
    stored = ledger.db.retry(
        lambda db: read_params(db, [rerun.trial_id]), patience_s=600.0
    ).get(rerun.trial_id, {})
    values = command.TrialValues(
        number=rerun.trial,
        attempt=1,
        seed=rerun.seed,
        params={**study.space.from_optuna(stored), **study.fixed},
        config=folder.root / "config.yaml",
        trial_dir=folder.root,
        checkpoint_dir=folder.checkpoints,
        resume=None,
        metrics=folder.metrics,
        control=folder.control,
        token=token,
    )
    write_atomic(values.config, command.write_config(config_of(study, values)))
    journal = Journal(folder, study.objectives, read=command.reader(study))
    reports: list[Report] = []
    meeting: command.Rendezvous | None = None
    try:
        place = context.place
        meeting = command.meet(study, context.environ, place.job, place.index, place.slot)
        argv, environ = command.build(
            study, values, context.environ, context.folder.python_path, meeting
        )
        child = process.spawn(argv, cwd=study.workdir, env=environ, stdout=folder.log)
    except SweepError as error:
        end = End(words.NOT_STARTED, error.message)
    else:

        def touch() -> bool:
            ledger.db.retry(lambda db: reruns.touch(db, token, child.pid), patience_s=0.0)
            return False

        leave = Leave(context.term_wait_s, float(study.grace_s))
        supervisor = Supervisor(
            child, token, folder, study, journal, Channel(reports.extend, touch), leave
        )
        ended = supervisor.run()
        reports.extend(supervisor.unsent)
        if meeting is not None:
            meeting.close()
        end = read_end(study, folder, ended.exit_code, ended.signal, ended.told)
        write_exit(folder, end.exit_code, end.signal, ended.told)
    result = summarise_reports(study, reports)
    if end.outcome == words.FINISHED and None in result["values"]:
        end = End(words.NO_METRIC, "never reported " + expected(study.objective.metric, study))
    result["provenance"] = provenance.capture_study(study)
    shutil.rmtree(folder.checkpoints, ignore_errors=True)
    _ask(ledger, reruns.end, k, end, result, patience_s=3600.0)
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
    known = _ask(ledger, reruns.read_all)
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
        latest = _ask(ledger, reruns.read, rerun.k)
        if latest is None or latest.outcome is not None:
            continue
        if rerun.process_group and rerun.token and rerun.host == socket.gethostname():
            process.end_group(rerun.process_group, rerun.token, grace_s=0.0)
        lost = End(words.LOST, "its task ended without a result")
        _ask(ledger, reruns.end, rerun.k, lost, {"values": [None], "steps": 0})


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
            for rerun in _ask(ledger, reruns.read_all, patience_s=600.0)
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
    all_reruns = _ask(ledger, reruns.read_all)
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
    _ask(ledger, reruns.mark_shown, k)
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
        for rerun in _ask(opened.ledger, reruns.read_all, trial)
        if rerun.kind == SAME_SEED and not (untold and rerun.result.get("shown"))
    ]
    return found[-1] if found else None
