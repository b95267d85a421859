"""Run another command of the study (evaluate, export, …) on a trial's newest checkpoint.

It gets the study's software, executor and resources, as a single process on one node. What it
reports and writes lies in ``reruns/<k>/`` and ``sweep_rerun``, never among the trials.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep import arrays, command, process
from sweep import trial as words
from sweep.context import Context, config_of
from sweep.ending import read_end
from sweep.errors import InputError, SweepError, closest
from sweep.journal import Journal, checkpoints, write_exit
from sweep.launch import Opened, check_command
from sweep.paths import AttemptFolder, StudyFolder, make_private, write_atomic
from sweep.scheduler import ArrayJob, Scheduler
from sweep.storage import reruns
from sweep.storage.ledger import Ledger, Report, read_params
from sweep.storage.reruns import Rerun
from sweep.study import Choice, Study
from sweep.supervise import Channel, Leave, Supervisor
from sweep.trial import End, trial_seed

KIND = "command:"  # begins the kind of these rows
AWAY_PATIENCE_S = 600.0
END_PATIENCE_S = 3600.0


@dataclass(frozen=True)
class Outcome:
    """What became of one run of a command.

    Attributes:
        state: "finished" or "failed"; None while it is queued or runs.
        metrics: What it reported: each metric's last value.
        files: What it left in its folder, besides sweep's own files.
    """

    study: str
    command: str
    trial: int
    k: int
    state: str | None
    reason: str
    metrics: Mapping[str, float]
    checkpoint: str
    folder: str
    files: Sequence[str]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)


def as_study(study: Study, name: str) -> Study:
    """Return the study with one of its commands in the place of the training's.

    Raises:
        InputError: It has no such command.
    """
    if name not in study.commands:
        near = closest(name, list(study.commands))
        known = ", ".join(study.commands)
        raise InputError(
            f"The study {study.name} has no command {name!r}."
            + (f" Did you mean {near}?" if near else ""),
            f"It has: {known}." if known else
            "Write one into the study file and launch it again, for example commands: "
            "{evaluate: python evaluate.py {checkpoint}}.",
        )  # fmt: skip
    needs = study.resources
    gpus: int | str = needs.gpus
    if needs.gpu_count > 1:
        gpus = 1 if isinstance(gpus, int) else f"{gpus.rsplit(':', 1)[0]}:1"
    return dataclasses.replace(
        study, command=study.commands[name], launcher="python", pruner=Choice("none"),
        resources=dataclasses.replace(needs, nodes=1, gpus=gpus),
        objectives=tuple(dataclasses.replace(o, pattern=None) for o in study.objectives),
        trial_time_s=None, slurm=dataclasses.replace(study.slurm, slots=1),
    )  # fmt: skip


def find_checkpoint(folder: StudyFolder, trial: int) -> Path:
    """Return the newest checkpoint of a trial.

    Raises:
        InputError: It has none (any more).
    """
    attempts = (folder.trial(trial) / "attempts").glob("*")
    for number in sorted((int(path.name) for path in attempts), reverse=True):
        found = checkpoints(folder.attempt(trial, number))
        if found:
            return found[0]
    raise InputError(
        f"Trial {trial} has no checkpoint.",
        "Those of the best trials are kept (`keep` in the study file); `sweep collect --format "
        "json` says where. Or its training saves none.",
    )


def request(
    opened: Opened,
    schedule_for: Callable[[Study], Scheduler],
    environ: Mapping[str, str],
    name: str,
    trial: int,
    trial_id: int,
) -> int:
    """Submit a command on a trial's checkpoint; return the number of its run.

    Raises:
        InputError: No such command or checkpoint, or it cannot be started.
        SchedulerError: The scheduler refused; nothing stays.
    """
    study, folder = as_study(opened.study, name), opened.folder
    find_checkpoint(folder, trial)
    check_command(study, environ)
    seed = trial_seed(study.seed, trial)
    k = _ask(opened.ledger, reruns.insert, trial_id, KIND + name, seed)
    make_private(folder.logs)
    job = ArrayJob(
        token=arrays.name_token(f"{study.name}-{name}"),
        size=1,
        throttle=1,
        argv=arrays.task_argv(folder, "--command", str(k)),
        cwd=folder.root,
        log_pattern=f"{arrays.escape(str(folder.logs))}/{name}-{k}.log",
        time_limit_s=study.resources.time_limit_s,
        grace_s=study.grace_s,
        gpus=study.resources.gpu_count,
    )
    try:
        job_id = schedule_for(study).submit(job)
    except SweepError:
        _ask(opened.ledger, reruns.remove, k)
        raise
    _ask(opened.ledger, reruns.set_job, k, job_id)
    return k


def run(context: Context, k: int) -> None:
    """Run one of them; what its task does.

    Raises:
        SweepError: It is not there, or somebody else runs it.
    """
    ledger = context.ledger
    token = secrets.token_hex(16)
    row = _ask(ledger, reruns.claim, k, token, socket.gethostname(), patience_s=AWAY_PATIENCE_S)
    if row is None:
        raise SweepError(f"Run {k} is not to be done: it has ended, or somebody does it.")
    name = row.kind.removeprefix(KIND)
    folder = context.folder.rerun(k)
    if folder.root.exists():
        shutil.rmtree(folder.root)  # of a run with this number in a database that is gone
    make_private(folder.checkpoints)
    reports: list[Report] = []
    result: dict[str, Any] = {}
    try:
        study = as_study(context.study, name)
        checkpoint = find_checkpoint(context.folder, row.trial)
        result["checkpoint"] = str(checkpoint)
        values = _values(context, study, row, token, folder, checkpoint)
        argv, environ = command.build(
            study, values, context.environ, context.folder.python_path
        )
        child = process.spawn(argv, cwd=study.workdir, env=environ, stdout=folder.log)
    except SweepError as error:
        end = End(words.NOT_STARTED, error.message)
    else:

        def touch() -> bool:
            ledger.db.retry(lambda db: reruns.touch(db, token, child.pid), patience_s=0.0)
            return False

        leave = Leave(context.term_wait_s, float(study.grace_s))
        channel = Channel(reports.extend, touch)
        supervisor = Supervisor(child, token, folder, study, Journal(folder), channel, leave)
        ended = supervisor.run()
        reports.extend(supervisor.unsent)
        end = read_end(study, folder, ended.exit_code, ended.signal, ended.told)
        write_exit(folder, end.exit_code, end.signal, ended.told)
    result["metrics"] = {n: v for report in reports for n, v in report.metrics.items()}
    if folder.checkpoints.is_dir() and not any(folder.checkpoints.iterdir()):
        folder.checkpoints.rmdir()
    _ask(ledger, reruns.end, k, end, result, patience_s=END_PATIENCE_S)
    context.say(f"{name} of trial {row.trial}: {end.outcome} {end.reason}")


def _values(
    context: Context, study: Study, row: Rerun, token: str, folder: AttemptFolder, checkpoint: Path
) -> command.TrialValues:
    stored = context.ledger.db.retry(
        lambda db: read_params(db, [row.trial_id]), patience_s=AWAY_PATIENCE_S
    ).get(row.trial_id, {})
    values = command.TrialValues(
        number=row.trial,
        attempt=1,
        seed=row.seed,
        params={**study.space.from_optuna(stored), **study.fixed},
        config=folder.root / "config.yaml",
        trial_dir=folder.root,
        checkpoint_dir=folder.checkpoints,
        resume=checkpoint,
        metrics=folder.metrics,
        control=folder.control,
        token=token,
    )
    write_atomic(values.config, command.write_config(config_of(study, values)))
    return values


def newest(opened: Opened, name: str, trial: int, *, untold: bool) -> int | None:
    """Return the number of the newest run of a command on a trial, or None.

    Args:
        untold: Only one whose outcome nobody has been told yet.
    """
    found = [
        row.k for row in _ask(opened.ledger, reruns.read_all, trial)
        if row.kind == KIND + name and not (untold and row.result.get("shown"))
    ]  # fmt: skip
    return found[-1] if found else None


def read(opened: Opened, k: int) -> Outcome:
    """Return what became of a run, and note that it was told once it has ended."""
    row = _ask(opened.ledger, reruns.read, k)
    assert row is not None
    folder = opened.folder.rerun(k)
    own = {folder.metrics, folder.control, folder.exit, folder.log, folder.root / "config.yaml"}
    files = sorted(str(p) for p in folder.root.rglob("*") if p.is_file() and p not in own)
    state = None
    if row.outcome is not None:
        state = "finished" if row.outcome == words.FINISHED else "failed"
        _ask(opened.ledger, reruns.mark_shown, k)
    return Outcome(
        opened.study.name, row.kind.removeprefix(KIND), row.trial, k, state, row.reason,
        row.result.get("metrics") or {}, row.result.get("checkpoint") or "", str(folder.root),
        files,
    )  # fmt: skip


def _ask(ledger: Ledger, ask: Callable[..., Any], *arguments: Any, patience_s: float = 60.0) -> Any:
    return ledger.db.retry(lambda db: ask(db, ledger.study_id, *arguments), patience_s=patience_s)
