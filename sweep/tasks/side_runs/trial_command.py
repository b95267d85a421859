"""Run another command of the study (evaluate, export, …) on a trial's checkpoint.

It gets the study's software, executor and resources, as a single process on one node. What it
reports and writes lies in ``reruns/<k>/`` and ``sweep_rerun``, never among the trials.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.control.chosen_checkpoint import BEST, LAST, Chosen, choose
from sweep.control.open_study import Opened
from sweep.core import outcomes
from sweep.core.errors import InputError, SweepError, closest
from sweep.core.files import make_private
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.study import Choice, Study
from sweep.core.trial import End, Report
from sweep.provenance import record
from sweep.provenance import snapshot as code_snapshot
from sweep.schedulers import arrays
from sweep.storage import records, reruns
from sweep.storage.ledger import Ledger
from sweep.tasks.context import Context, logged_as
from sweep.tasks.side_runs.rerun import own_seed
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
from sweep.training.command.preflight import check_command
from sweep.training.journal import Journal

KIND = "command:"  # begins the kind of these rows
_LAST_KIND = "command-last:"  # of those that were asked to take the newest checkpoint


def _kind(name: str, of: str) -> str:
    return (_LAST_KIND if of == LAST else KIND) + name


@dataclass(frozen=True)
class Outcome:
    """What became of one run of a command.

    Attributes:
        state: "finished" or "failed"; None while it is queued or runs.
        metrics: What it reported: each metric's last value.
        note: Why the checkpoint is not of the step whose value counts; "" where it is.
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
    note: str = ""

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
            f"It has: {known}."
            if known
            else "Write one into the study file and launch it again, for example commands: "
            "{evaluate: python evaluate.py {checkpoint}}.",
        )
    needs = study.resources
    gpus = needs.so_many_gpus(min(needs.gpu_count, 1))
    return dataclasses.replace(
        study,
        command=study.commands[name],
        launcher="python",
        pruner=Choice("none"),
        resources=dataclasses.replace(needs, nodes=1, gpus=gpus),
        objectives=tuple(dataclasses.replace(o, pattern=None) for o in study.objectives),
        trial_time_s=None,
        slurm=dataclasses.replace(study.slurm, slots=1),
    )


def find_checkpoint(ledger: Ledger, folder: StudyFolder, trial: int, of: str = BEST) -> Chosen:
    """Return the checkpoint of a trial that its commands get.

    Args:
        of: "best": of the step whose value counts, where ``objective.at`` is best; or "last".

    Raises:
        InputError: It has none (any more).
    """
    found = ledger.db.retry(
        lambda db: records.read_trials(db, ledger.study_id, ledger.study, numbers=[trial])
    )
    chosen = choose(ledger.study, folder, found[0], of) if found else None
    if chosen is None:
        raise InputError(
            f"Trial {trial} has no checkpoint.",
            "Those of the best trials are kept (`keep` in the study file); `sweep collect --format "
            "json` says where. Or its training saves none.",
        )
    return chosen


def request(
    opened: Opened,
    schedule_for: Callable[[Study], Scheduler],
    environ: Mapping[str, str],
    name: str,
    trial: int,
    trial_id: int,
    of: str = BEST,
) -> int:
    """Submit a command on a trial's checkpoint; return the number of its run.

    Args:
        of: Which one; see ``find_checkpoint``.

    Raises:
        InputError: No such command or checkpoint, or it cannot be started.
        SchedulerError: The scheduler refused; nothing stays.
    """
    study, folder = as_study(opened.study, name), opened.folder
    find_checkpoint(opened.ledger, folder, trial, of)
    snapshot = record.choose_snapshot(folder, None, keep=False)
    placed = code_snapshot.place(study, folder, snapshot, environ)
    check_command(placed.study, placed.environ)
    seed = own_seed(opened.ledger, trial, trial_id)
    k = ask(opened.ledger, reruns.insert, trial_id, _kind(name, of), seed)
    make_private(folder.logs)
    token = arrays.name_token(f"{study.name}-{name}")
    job = arrays.task_job(study, folder, token, f"{name}-{k}", "--command", str(k))
    submit_requested(opened.ledger, schedule_for(study), job, [k])
    return k


def run(context: Context, k: int) -> None:
    """Run one of them; what its task does.

    Raises:
        SweepError: It is not there, or somebody else runs it.
    """
    ledger = context.ledger
    row, token, folder = claim(context, k, "Run")
    of = LAST if row.kind.startswith(_LAST_KIND) else BEST
    name = row.kind.partition(":")[2]
    reports: list[Report] = []
    result: dict[str, Any] = {}
    try:
        study = as_study(context.study, name)
        chosen = find_checkpoint(context.ledger, context.folder, row.trial, of)
        checkpoint = chosen.path
        result |= {"checkpoint": str(checkpoint), "note": chosen.note}
        with ledger.db.patient(AWAY_PATIENCE_S):
            params = params_of(ledger, row.trial_id)
        values = write_values(
            study,
            folder,
            token,
            number=row.trial,
            seed=row.seed,
            params=params,
            run=logged_as(study, context.folder, row.trial, f"{name}-{k}"),
            resume=checkpoint,
        )
    except SweepError as error:
        end = End(outcomes.NOT_STARTED, error.message)
    else:
        snapshot = record.choose_snapshot(context.folder, None, keep=False)
        reports, end = train_claimed(context, study, values, folder, Journal(folder), snapshot)
    result["metrics"] = {n: v for report in reports for n, v in report.metrics.items()}
    if folder.checkpoints.is_dir() and not any(folder.checkpoints.iterdir()):
        folder.checkpoints.rmdir()
    with ledger.db.patient(END_PATIENCE_S):
        ask(ledger, reruns.end, k, end, result)
    context.say(f"{name} of trial {row.trial}: {end.outcome} {end.reason}")


def newest(opened: Opened, name: str, trial: int, *, untold: bool, of: str = BEST) -> int | None:
    """Return the number of the newest run of a command on a trial, or None.

    Args:
        of: On which checkpoint; see ``find_checkpoint``.
        untold: Only one whose outcome nobody has been told yet.
    """
    found = [
        row.k
        for row in ask(opened.ledger, reruns.read_all, trial)
        if row.kind == _kind(name, of) and not (untold and row.result.get("shown"))
    ]
    return found[-1] if found else None


def read(opened: Opened, k: int) -> Outcome:
    """Return what became of a run, and note that it was told once it has ended."""
    row = ask(opened.ledger, reruns.read, k)
    assert row is not None
    folder = opened.folder.rerun(k)
    own = {folder.mark, folder.metrics, folder.control, folder.exit, folder.log}
    own |= {folder.root / "config.yaml", folder.root / "config.json"}
    files = sorted(str(p) for p in folder.root.rglob("*") if p.is_file() and p not in own)
    state = None
    if row.outcome is not None:
        state = "finished" if row.outcome == outcomes.FINISHED else "failed"
        ask(opened.ledger, reruns.mark_shown, k)
    return Outcome(
        opened.study.name,
        row.kind.partition(":")[2],
        row.trial,
        k,
        state,
        row.reason,
        row.result.get("metrics") or {},
        row.result.get("checkpoint") or "",
        str(folder.root),
        files,
        row.result.get("note") or "",
    )
