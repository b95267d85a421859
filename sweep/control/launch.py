"""Make a study's rows and folder, and submit what is left of it; safe to repeat at any time.

Killed at any point, it leaves either nothing or something that the next launch goes on from: the
study and its N trials are one transaction, and a submission is recorded before it is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.control import identity, waves
from sweep.control.check import quick
from sweep.control.finaliser import tend
from sweep.control.reconcile import reconcile
from sweep.core import outcomes
from sweep.core.attributes import FOLDER
from sweep.core.errors import BusyError, StudyChangedError
from sweep.core.files import locked, make_private, write_atomic
from sweep.core.paths import Runs, StudyFolder
from sweep.core.scheduler import Scheduler, Wave
from sweep.core.secrets import is_secret
from sweep.core.study import Study
from sweep.provenance import snapshot
from sweep.provenance.record import record_launch
from sweep.schedulers import arrays
from sweep.schedulers.choose import SLURM
from sweep.schedulers.local.scheduler import LocalScheduler
from sweep.schedulers.slurm import scheduler
from sweep.search import propose, warm_start
from sweep.storage import access, budgets, bulk, schema, studies
from sweep.storage.connection import Database
from sweep.storage.embedded import server
from sweep.storage.ledger import Ledger
from sweep.storage.studies import StudyState
from sweep.studyfile import changes
from sweep.training import build
from sweep.training.command import environment

PATIENCE_S = 60.0
SUBMITTER_WAIT_S = 10.0


@dataclass(frozen=True)
class Launched:
    """What a launch did.

    Attributes:
        created: Whether the study is new.
        added: Trials added by this launch.
        given_back: Failed trials that are tried again, after a hold.
        left: Trials that are not final.
        wave: The array that was submitted or lives already; None when nothing is left.
        submitted: Whether this launch submitted it.
        changed: What differs from the launch before, in sentences.
        settled: Attempts found dead, in sentences.
        notes: What training uses of the live tree although its code is frozen.
        ended: Why the study has ended before its last trial and stays so; "" where it has not.
        reopened: Trials that its end had cancelled and which are taken up again.
    """

    name: str
    study_id: int
    created: bool
    added: int
    given_back: int
    left: int
    wave: Wave | None
    submitted: bool
    changed: Sequence[str] = ()
    settled: Sequence[str] = ()
    notes: Sequence[str] = ()
    ended: str = ""
    reopened: int = 0


@dataclass(frozen=True)
class Opened:
    """A study that exists: its folder, specification and ledger."""

    folder: StudyFolder
    study: Study
    ledger: Ledger


def launch(
    study: Study,
    runs: Runs,
    schedule_for: Callable[[StudyFolder], Scheduler],
    environ: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
    *,
    check_first: bool = True,
    hash_data: bool = False,
    set_aside: bool = False,
) -> Launched:
    """Launch a study, or go on with it.

    Args:
        study: Checked, with absolute paths.
        schedule_for: Gives the scheduler of a study's folder.
        environ: The environment that training will inherit.
        say: Told what takes long.
        check_first: Look at what would fail on the nodes, as far as it can be seen from here.
        hash_data: Hash all data byte by byte.
        set_aside: Move a folder of this name, where the database does not know it, out of the way.

    Raises:
        InputError: The command cannot be started as it stands, or its code is too large to be
            frozen; nothing was made.
        CheckFailed: That look found something; nothing was made.
        StudyChangedError: A study of this name exists and differs where it must not, or its folder
            is that of another database.
        BusyError: Another launch of this study is at work.
        BuildFailed: The image that it names could not be built.
        SchedulerError: The scheduler refused; a study that this launch made is gone again.
    """
    quick.check_startable(study, environ)
    if study.executor == SLURM:
        scheduler.check_options(study, runs.root)
    built, _ = build.ensure(study, runs, environ, say)
    if built is not study:
        study = built
        quick.check_startable(study, environ)
    if check_first:
        for line in quick.refuse(quick.look(study, runs, access.choose_url(study))):
            say(f"{line.name}: {line.text}. {line.advice}")
    folder = runs.study(study.name)
    schedule = schedule_for(folder)
    if isinstance(schedule, scheduler.SlurmScheduler):
        embedded = access.choose_url(study) is None and study.storage.embedded == "job"
        schedule.check_site(embedded=embedded)
    code = snapshot.plan(study, runs.root, environ)
    make_private(runs.root)
    with locked(runs.root / f".{study.name}.lock", wait=False) as got:
        if not got:
            raise _busy(study.name)
        try:
            with prepared(schedule):
                launched = _launch_locked(
                    study,
                    runs,
                    folder,
                    schedule,
                    environ,
                    say,
                    code,
                    hash_data=hash_data,
                    set_aside=set_aside,
                )
        finally:
            if study.executor == SLURM and study.storage.embedded == "job":
                access.stop_server(runs.postgres)
    return dataclasses.replace(launched, notes=snapshot.notes(code) if code else ())


@contextlib.contextmanager
def prepared(schedule: Scheduler) -> Iterator[None]:
    """Have a scheduler that can do so start now what the tasks will need, beside our own work."""
    if not isinstance(schedule, LocalScheduler):
        yield
        return
    schedule.prepare()
    try:
        yield
    finally:
        schedule.close()


def _launch_locked(
    study: Study,
    runs: Runs,
    folder: StudyFolder,
    schedule: Scheduler,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    code: snapshot.Plan | None,
    *,
    hash_data: bool,
    set_aside: bool,
) -> Launched:
    url = access.choose_url(study)
    settled = identity.Settled(study, folder, runs, url, set_aside=set_aside)
    settled.expect_data()
    if url is None and server.running(runs.postgres) is None:
        say("starting the embedded PostgreSQL server")
    keep_here = study.executor == SLURM and study.storage.embedded == "here"
    ask_fate = access.fate_asker(schedule)
    db = access.open_url(runs, url, for_nodes=keep_here, ask_fate=ask_fate)
    db.connect()  # now its address is known
    schema.create(db.url)
    alone = waves.one_submitter(db.url, study.name, wait_s=SUBMITTER_WAIT_S)
    with alone, contextlib.closing(db):
        found = db.retry(lambda _: _find(db, study, folder), patience_s=PATIENCE_S)
        changed = settled.look(db, found[0] if found else None)
        if found is None:
            rows = propose.first_rows(study, study.trials)
            warm = db.retry(lambda _: warm_start.read(db, study), patience_s=PATIENCE_S)
            study_id = db.retry(
                lambda _: _create(db, study, folder, rows, warm), patience_s=PATIENCE_S
            )
            if warm is not None:
                say(warm.describe(study))
            added = study.trials
        else:
            study_id, before = found
            differences, refused = changes(before, study)
            changed += differences
            if refused:
                raise _changed(study.name, refused)
            added = db.retry(lambda _: _update(db, study_id, study), patience_s=PATIENCE_S)
        is_new = not folder.root.exists()
        make_private(folder.root)
        settled.mark(db, study_id)
        write_folder(study, folder, url, runs, environ)
        ledger = Ledger(db, study_id, study)
        try:
            changed += record_launch(study, folder, runs, environ, code, say, full=hash_data)
            return _go_on(ledger, folder, schedule, found is None, added, changed, say)
        except BaseException as error:
            undone = False
            if found is None and not isinstance(error, KeyboardInterrupt):
                undone = db.retry(lambda _: _undo(ledger), patience_s=PATIENCE_S)
            if undone and is_new:
                shutil.rmtree(folder.root, ignore_errors=True)
                runs.last.unlink(missing_ok=True)
            raise


def _go_on(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler,
    created: bool,
    added: int,
    changed: Sequence[str],
    say: Callable[[str], None],
) -> Launched:
    db, study = ledger.db, ledger.study
    wave = waves.live_wave(ledger, schedule)
    found = reconcile(ledger, folder, schedule, unseen_s=0.0, every_s=0.0)
    settled = [
        f"trial {trial}, attempt {attempt} was dead: {end.reason}; the trial is "
        + ("taken up again" if state == outcomes.RUNNING else state)
        for trial, attempt, end, state in (found.settled if found else ())
    ]
    ended, reopened = db.retry(lambda _: budgets.take_up(ledger), patience_s=PATIENCE_S)
    given_back = 0
    if not ended:
        given_back = db.retry(lambda _: _resume(ledger), patience_s=PATIENCE_S)
    left = db.retry(lambda _: ledger.unfinished(), patience_s=PATIENCE_S)
    submitted = False
    if wave is not None:
        waves.set_throttles(ledger, schedule)
        tend(ledger, folder, schedule, say, alone=True)
        wave = dataclasses.replace(wave, throttle=arrays.throttle_of(study, wave.size, wave.slots))
    elif left and not ended:
        wave = waves.submit_wave(ledger, folder, schedule, left, say=say)
        submitted = True
    return Launched(
        name=study.name,
        study_id=ledger.study_id,
        created=created,
        added=added,
        given_back=given_back,
        left=left,
        wave=wave,
        submitted=submitted,
        changed=changed,
        settled=settled,
        ended=ended,
        reopened=reopened,
    )


def _find(db: Database, study: Study, folder: StudyFolder) -> tuple[int, Study] | None:
    study_id = studies.find_study(db, study.name)
    if study_id is None:
        return None
    before = studies.read_specification(db, study_id)
    if before is None:
        raise StudyChangedError(
            f"The database holds a study {study.name!r} that was not made by sweep.",
            "Give this one another `name`.",
        )
    home = studies.read_attribute(db, study_id, FOLDER)
    if home not in (None, str(folder.root)):
        raise StudyChangedError(
            f"The database holds a study {study.name!r} that was launched into {home}.",
            "Give this one another `name`, or use that folder's parent with --runs.",
        )
    return study_id, before


def _create(
    db: Database,
    study: Study,
    folder: StudyFolder,
    rows: Sequence[Mapping[str, Any]],
    warm: warm_start.Found | None,
) -> int:
    existing = studies.find_study(db, study.name)
    if existing is not None:
        return existing  # the answer to our own COMMIT was lost
    study_id = studies.insert_study(db, study)
    studies.write_attribute(db, study_id, FOLDER, str(folder.root))
    bulk.insert_waiting_trials(db, study_id, rows)
    if warm is not None:
        warm_start.write(db, study_id, warm)
    return study_id


def _update(db: Database, study_id: int, study: Study) -> int:
    have = bulk.lock_study(db, study_id)
    studies.write_specification(db, study_id, study)
    more = study.trials - have
    if more > 0:
        bulk.insert_waiting_trials(db, study_id, propose.first_rows(study, more, start=have))
    return max(0, more)


def _resume(ledger: Ledger) -> int:
    """Let a held or stopped study go on; return how many failed trials are tried again."""
    studies.lock_study(ledger.db, ledger.study_id)
    given_back = 0 if ledger.is_proven() else ledger.give_back_failures()
    studies.write_state(ledger.db, ledger.study_id, StudyState())
    return given_back


def _undo(ledger: Ledger) -> bool:
    """Take back a study that could not be submitted: nothing half-made stays.

    Returns whether it is gone; not where it may have been submitted all the same.
    """
    db = ledger.db
    studies.lock_study(db, ledger.study_id)
    if ledger.count_attempts() or studies.read_waves(db, ledger.study_id):
        return False
    studies.delete_study(db, ledger.study_id)
    return True


def write_folder(
    study: Study, folder: StudyFolder, url: str | None, runs: Runs, environ: Mapping[str, str]
) -> None:
    """Write what the tasks need: specification, address of the database, reporter.

    What training needs of the launching shell's secrets travels in a 0600 file: Slurm records the
    environment that sbatch is given, so that has none.
    """
    make_private(folder.root)
    if study.executor == SLURM:
        secrets = {name: value for name, value in environ.items() if is_secret(name, value)}
        kept = environment.without_database(secrets, environ)
        write_atomic(folder.secrets, json.dumps(kept) + "\n", mode=0o600)
    access.remember(folder, url, runs)
    environment.install_reporter(folder.python_path)
    write_atomic(folder.study, study.to_json() + "\n")
    write_atomic(runs.last, study.name + "\n")


def _busy(name: str) -> BusyError:
    return BusyError(
        f"Another launch of the study {name!r} is at work.",
        f"Wait for it to end; `sweep status {name}` shows the study.",
    )


def _changed(name: str, refused: Sequence[str]) -> StudyChangedError:
    listed = "\n".join(f"  {sentence}" for sentence in refused)
    return StudyChangedError(
        f"A study {name!r} exists and differs where it must not:\n{listed}",
        "Give the new one another `name`, or restore these lines.",
    )
