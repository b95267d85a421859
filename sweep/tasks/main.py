"""What an array element runs: ``python -m sweep.task FOLDER``, and what small jobs run.

``--finalise TOKEN`` looks after an ended wave, ``--rerun K`` trains a trial again, ``--command K``
runs another command of the study on a trial, ``--measure`` trains one case of a scaling study,
``--profile`` trains a trial's values for a while and looks at what holds that back,
``--check`` asks what would fail on this node, ``--build PLAN`` builds an image,
``--shell`` becomes a shell, and ``--serve`` is the job that holds the database on a cluster;
``--host`` does so within a task.

Kept apart from the command line so that a task that finds nothing to pull ends in a tenth of a
second.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from sweep.control import job_owners
from sweep.control.check import node_task
from sweep.control.finaliser import finalise
from sweep.control.notifying import tell
from sweep.control.open_study import Opened
from sweep.control.place import COUNT_VARIABLE, SLOT_VARIABLE
from sweep.control.reconcile import settle_wave
from sweep.control.slurm_energy import note_tasks
from sweep.core.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_FAULT,
    REFUSALS,
    CouldNotAsk,
    RefusedBySystem,
    SchedulerError,
    SweepError,
)
from sweep.core.masking import keep_environment, mask
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import EXECUTOR_VARIABLE
from sweep.core.sharing import share
from sweep.core.study import Study
from sweep.core.system import processes
from sweep.core.system.crash import write_crash
from sweep.results.page.write import at_the_end
from sweep.schedulers.choose import scheduler_of
from sweep.schedulers.revive import reviver_of
from sweep.storage import access, studies
from sweep.storage.embedded.folder import Starter
from sweep.storage.embedded.service import DatabaseService, host
from sweep.storage.ledger import Ledger
from sweep.tasks.context import default_context
from sweep.tasks.side_runs import profile_run, scaling, shell, trial_command, trying
from sweep.tasks.side_runs.rerun import run_rerun
from sweep.tasks.slots import Slots
from sweep.tasks.worker import Worker
from sweep.training import build

BLAS_THREADS = "OPENBLAS_NUM_THREADS"  # of NumPy, which starts one for each core otherwise
AWAY_PATIENCE_S = 900.0  # the database may be away for ten minutes


def main(arguments: list[str]) -> int:
    """Run one task; return its exit code."""
    folder = StudyFolder(Path(arguments[0]))
    keep_environment(os.environ)
    try:
        return _run(folder, arguments[1:])
    except SweepError as error:
        print(f"sweep: {error}", flush=True)
        return error.exit_code
    except Exception as error:
        if isinstance(error, OSError) and error.errno in REFUSALS:
            print(f"sweep: {RefusedBySystem(error)}", flush=True)
            return EXIT_FAILED
        path = write_crash(folder.root.parent, error, arguments)
        print(f"sweep: a fault of sweep's own; details in {path}", flush=True)
        return EXIT_FAULT


def _run(folder: StudyFolder, options: list[str]) -> int:
    if options[:1] == ["--measure"]:
        scaling.measure(folder)
        return EXIT_DONE
    if options[:1] == ["--check"]:
        node_task.run(folder)
        return EXIT_DONE
    if options[:1] == ["--build"]:
        build.build_planned(Path(options[1]), force=options[2:] == ["force"])
        return EXIT_DONE
    if options[:1] == ["--shell"]:
        shell.start(folder)
    if options[:1] == ["--try"]:
        trying.train_once(folder)
        return EXIT_DONE
    if options[:1] == ["--profile"]:
        profile_run.profile_once(folder)
        return EXIT_DONE
    study = Study.read(folder.study)
    # Under the executor that runs this task: the study may have moved to another one since.
    executor = os.environ.get(EXECUTOR_VARIABLE) or study.executor
    study = dataclasses.replace(study, executor=executor)
    if options[:1] == ["--serve"]:
        return _serve(folder, study)
    if options[:1] == ["--host"]:
        return _host(folder, study)
    schedule = scheduler_of(folder, study)
    db = access.connect(folder, timeout_s=8.0, may_start=schedule.shares_this_machine)
    if isinstance(db, access.EmbeddedDatabase):
        db.on_absent = reviver_of(folder, study, schedule)
        db.waits_for_start = True
    with db.patient(AWAY_PATIENCE_S):
        study_id = db.retry(lambda _: studies.find_study(db, study.name))
    if study_id is None:
        raise SweepError(f"The database no longer holds the study {study.name!r}.")
    ledger = Ledger(db, study_id, study)
    if options[:1] == ["--finalise"]:
        db.patience_s = AWAY_PATIENCE_S
        settle_wave(ledger, folder, schedule, options[1])
        try:
            _say(finalise(ledger, folder, schedule, options[1]))
        except SchedulerError as error:
            tell(ledger, folder, _say, stuck=f"the next wave was not submitted: {error.message}")
            raise
        if not db.retry(lambda _: ledger.unfinished()):
            note_tasks(ledger, schedule)
            at_the_end(Opened(folder, study, ledger), _say)
        tell(ledger, folder, _say)
        share(study, folder)
        return EXIT_DONE
    processes.adopt_orphans()  # what a training leaves behind is found without reading all of /proc
    context = default_context(folder, ledger, schedule)
    if options[:1] == ["--rerun"]:
        run_rerun(context, int(options[1]) + (context.place.index or 0))
        share(study, folder, folder.root / "reruns", folder.logs)
        return EXIT_DONE
    if options[:1] == ["--command"]:
        trial_command.run(context, int(options[1]))
        share(study, folder, folder.root / "reruns", folder.logs)
        return EXIT_DONE
    os.environ.pop(SLOT_VARIABLE, None)  # by it the worker is found, and none of its children
    count = int(os.environ.pop(COUNT_VARIABLE, None) or 1)
    if count > 1:
        return Slots(context, count, os.environ).run()
    # What a task computes is small, and training runs beside it; training itself gets the
    # environment that the context has taken already.
    os.environ.setdefault(BLAS_THREADS, "1")
    done = Worker(context).run()
    print(f"{done} attempts made", flush=True)
    return EXIT_DONE


def _say(text: str) -> None:
    print(mask(text), flush=True)


def _serve(folder: StudyFolder, study: Study) -> int:
    """Serve the embedded database until no study needs it."""
    note = access.read_note(folder)
    schedule = scheduler_of(folder, study)
    starter = Starter(*schedule.job_of(os.environ), schedule.name)
    ask_fate = job_owners.fate_asker(folder, study, schedule)
    why = DatabaseService(Path(note["embedded"]), starter, ask_fate, study.storage.listen).run()
    print(f"ended: {why}", flush=True)
    if why == "time":
        schedule.requeue(os.environ)
    return EXIT_DONE


def _host(folder: StudyFolder, study: Study) -> int:
    """Serve the embedded database while the job that does so waits."""
    schedule = scheduler_of(folder, study)

    def job_runs() -> bool:
        try:
            return bool(schedule.service_jobs(running=True))
        except CouldNotAsk:
            return False

    note = access.read_note(folder)
    starter = Starter(*schedule.job_of(os.environ), schedule.name)
    ask_fate = job_owners.fate_asker(folder, study, schedule)
    why = host(Path(note["embedded"]), starter, ask_fate, job_runs, study.storage.listen)
    print(f"serving the database ended: {why}", flush=True)
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
