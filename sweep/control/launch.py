"""Launch a study: prepare, check, write its rows, freeze its code, submit.

It is safe to repeat at any time. Killed at any point, it leaves either nothing or something that
the next launch goes on from: the study and its N trials are one transaction, and a submission is
recorded before it is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sweep.control import identity, job_owners, launch_rows, retrying, tracker_tables, waves
from sweep.control.add_points import with_added
from sweep.control.check import quick, trackers
from sweep.control.finaliser import look_beside, tend
from sweep.control.reconcile import Seen, reconcile, see
from sweep.control.retrying import Wish
from sweep.core import outcomes, secret_arguments
from sweep.core.attributes import HOST
from sweep.core.errors import BusyError, InputError, StudyChangedError
from sweep.core.executors import kind_of
from sweep.core.files import locked, make_private, make_runs_folder, write_atomic
from sweep.core.paths import Runs, StudyFolder
from sweep.core.scheduler import ORPHANED, Scheduler, Wave
from sweep.core.sharing import share
from sweep.core.study import Study
from sweep.provenance import shared_output, snapshot
from sweep.provenance.record import record_launch
from sweep.schedulers import arrays
from sweep.schedulers.choose import resolve, scheduler_of
from sweep.search import cost, hub, valid
from sweep.storage import access, budgets, status_rows, studies, tables
from sweep.storage.closing import close_untold
from sweep.storage.connection import Database
from sweep.storage.embedded import server
from sweep.storage.ledger import Ledger
from sweep.studyfile import changes
from sweep.training import build, fetched, fetching
from sweep.training.command import environment, own_ranks

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
        notes: What training uses of the live tree although its code is frozen; the first of what
            could not be read or stored of its trials.
        ended: Why the study has ended before its last trial and stays so; "" where it has not.
        reopened: Trials that its end had cancelled and which are taken up again.
        retried: Numbers of the trials that ``--retry`` has given back.
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
    retried: Sequence[int] = ()


@dataclass(frozen=True)
class Rows:
    """The study in its database.

    Attributes:
        created: Whether this launch made it.
        added: Trials added by this launch.
        changed: What differs from the launch before, in sentences.
        renamed: Whether the objective has another name now, as no trial had told the old one.
    """

    ledger: Ledger
    created: bool
    added: int
    changed: Sequence[str]
    renamed: bool = False


@dataclass(frozen=True)
class Prepared:
    """A study that could start, and where it is going to run.

    Attributes:
        study: With its image built.
        environ: The environment that training will inherit.
        say: Told what takes long.
    """

    study: Study
    runs: Runs
    folder: StudyFolder
    schedule: Scheduler
    environ: Mapping[str, str]
    say: Callable[[str], None]

    @property
    def has_database_job(self) -> bool:
        """Whether a job serves the embedded database, if that is where the study goes."""
        return self.schedule.keeps_database_in_job(self.study)

    @property
    def listens_here(self) -> str | None:
        """The interface or address on which the embedded server is to listen where commands start
        it; None for this machine's own: where a job serves the data, that one listens for all."""
        return None if self.has_database_job else self.study.storage.listen


def launch(
    study: Study,
    runs: Runs,
    schedule_for: Callable[[StudyFolder], Scheduler],
    environ: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
    *,
    undecided: Study | None = None,
    check_first: bool = True,
    hash_data: bool = False,
    set_aside: bool = False,
    retry: Wish | None = None,
) -> Launched:
    """Launch a study, or go on with it.

    While an array of it lives under another executor it goes on there: a second array beside it
    would run more than ``max_parallel``.

    Args:
        study: Checked, with absolute paths; its executor is decided.
        undecided: The study before that.
        schedule_for: Gives the scheduler of a study's folder.
        environ: The environment that training will inherit.
        say: Told what takes long.
        check_first: Look at what would fail on the nodes, as far as it can be seen from here.
        hash_data: Hash all data byte by byte.
        set_aside: Move a folder of this name, where the database does not know it, out of the way.
        retry: Trials that have ended and are to be given back.

    Raises:
        InputError: A trial is named that cannot be retried; nothing was changed. The command cannot
            be started as it stands, or its code is too large to be frozen; nothing was made.
        CheckFailed: That look found something; nothing was made.
        StudyChangedError: A study of this name exists and differs where it must not, or its folder
            is that of another database.
        BusyError: Another launch of this study is at work.
        BuildFailed: The image that it names could not be built.
        SchedulerError: The scheduler refused; a study that this launch made is gone again.
    """
    options = {"check_first": check_first, "hash_data": hash_data, "set_aside": set_aside}
    said = secret_arguments.notes(study)
    study, secrets = secret_arguments.take_out(study)
    undecided, _ = secret_arguments.take_out(undecided or study)
    environ = {**environ, **secrets}
    try:
        launched = _launch(prepare(study, runs, schedule_for, environ, say), retry, **options)
    except waves.RunsElsewhere as error:
        say(f"{error.message} {error.hint}")
        there = dataclasses.replace(undecided, executor=error.wave.executor)
        study = resolve(there, environ)
        stays = functools.partial(scheduler_of, study=study, environ=environ)
        launched = _launch(prepare(study, runs, stays, environ, say), retry, **options)
    return dataclasses.replace(launched, notes=[*said, *launched.notes])


def _launch(
    prepared: Prepared, retry: Wish | None, *, check_first: bool, hash_data: bool, set_aside: bool
) -> Launched:
    check(prepared, look=check_first)
    code = freeze(prepared)
    with alone_here(prepared), open_database(prepared, set_aside=set_aside) as (db, settled):
        # What `sweep add` has added comes on top of the file's trials.
        prepared = dataclasses.replace(prepared, study=with_added(prepared.study, db))
        rows = write_rows(prepared, db, settled, retry)
        build_for_tasks(prepared, rows)
        with taking_back(prepared, rows):
            changed = write_folder(prepared, rows, settled, code, hash_data=hash_data)
            launched = submit(prepared, rows, retry)
    notes = [
        *launched.notes,
        *own_ranks.notes(prepared.study),
        *shared_output.notes(prepared.study, prepared.folder, code.tree if code else None),
        *(snapshot.notes(code) if code else ()),
    ]
    return dataclasses.replace(launched, changed=[*rows.changed, *changed], notes=notes)


def prepare(
    study: Study,
    runs: Runs,
    schedule_for: Callable[[StudyFolder], Scheduler],
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> Prepared:
    """Make sure that the command could start, and build its image where it names one to build and
    no job before its tasks does.
    """
    if kind_of(study).shares_this_machine:
        own = environment.without_database(environ, environ)
        fetching.fetch(study, fetched.missing(study), own, say)
    for note in fetched.notes(study):
        say(note)
    folder = runs.study(study.name)
    study = hub.ensure(study, folder, environ, say)
    if said := quick.check_startable(study, environ, folder):
        say(said)
    schedule = schedule_for(folder)
    schedule.check_options()
    built, _ = build.ensure(study, runs, environ, say, later=True)
    if built is not study and not build.is_missing(built):
        quick.check_startable(built, environ, folder)
    return Prepared(built, runs, folder, schedule, environ, say)


def check(prepared: Prepared, *, look: bool) -> None:
    """Refuse what would fail on the nodes, as far as it can be seen from here; make nothing.

    Args:
        look: Look at files, disks and database too, and not only at what the site allows.
    """
    url = access.choose_url(prepared.study)
    for said in (valid.check_where(prepared.study), cost.warn(prepared.study)):
        if said:
            prepared.say(said)
    if look:
        for line in quick.refuse(quick.look(prepared.study, prepared.runs, url, prepared.environ)):
            prepared.say(f"{line.name}: {line.text}. {line.advice}")
    prepared.schedule.check_site(embedded=url is None and prepared.has_database_job)


def freeze(prepared: Prepared) -> snapshot.SnapshotPlan | None:
    """Find the code that is to be frozen; None where the live code is to run."""
    return snapshot.plan(prepared.study, prepared.runs.root, prepared.environ)


@contextlib.contextmanager
def alone_here(prepared: Prepared) -> Iterator[None]:
    """Keep other launches of the study on this machine away, and have its scheduler start what the
    tasks will need beside our own work.
    """
    runs, schedule = prepared.runs, prepared.schedule
    make_runs_folder(runs.root)
    with locked(runs.root / f".{prepared.study.name}.lock", wait=False) as got:
        if not got:
            raise _busy(prepared.study.name)
        try:
            schedule.prepare()
            yield
        finally:
            schedule.close()
            if prepared.has_database_job:
                access.stop_server(runs.postgres)


@contextlib.contextmanager
def open_database(
    prepared: Prepared, *, set_aside: bool
) -> Iterator[tuple[Database, identity.Settled]]:
    """Open the study's database, made where it is missing, with other submitters kept away."""
    study, runs = prepared.study, prepared.runs
    url = access.choose_url(study)
    settled = identity.Settled(study, prepared.folder, runs, url, set_aside=set_aside)
    settled.expect_data()
    if url is None and server.running(runs.postgres) is None:
        prepared.say("starting the embedded PostgreSQL server")
    here_alone = prepared.schedule.shares_this_machine or prepared.has_database_job
    ask_fate = job_owners.fate_asker(prepared.folder, study, prepared.schedule)
    db = access.open_url(
        runs, url, for_nodes=not here_alone, listen=prepared.listens_here, ask_fate=ask_fate
    )
    # Another command that leaves would stop a server between two sessions of ours.
    used = server.using(runs.postgres) if url is None else contextlib.nullcontext()
    with used:
        db.connect()  # now its address is known
        db.close()  # making tables takes some of the connections that a role may have
        tables.create(db.url, own=url is None)
        if trackers.in_database(study, prepared.environ):
            tracker_tables.make(db, prepared.say)
        alone = waves.one_submitter(db.url, study.name, wait_s=SUBMITTER_WAIT_S)
        with alone, contextlib.closing(db):
            yield db, settled


def write_rows(
    prepared: Prepared, db: Database, settled: identity.Settled, retry: Wish | None = None
) -> Rows:
    """Make the study and its trials, or bring those of an earlier launch up to date.

    Args:
        retry: Trials that are to be given back later: what speaks against it is said now.
    """
    study, folder = prepared.study, prepared.folder
    found = launch_rows.find(db, study, folder)
    if found is None and retry is not None:
        raise InputError(
            f"--retry: there is no study {study.name!r} yet.", "Launch it without --retry."
        )
    if found is None:
        changed = settled.look(db, None)
        study_id, warm = launch_rows.create(db, study, folder)
        if warm is not None:
            prepared.say(warm.describe(study))
        return Rows(Ledger(db, study_id, study), True, study.trials, changed)
    study_id, before, at_home = found
    ledger = Ledger(db, study_id, study)
    waves.refuse_other_versions(ledger, prepared.schedule)
    waves.refuse_to_move(ledger, prepared.schedule, prepared.say)
    changed = settled.look(db, study_id)
    if not at_home:
        waves.refuse_while_alive(ledger, prepared.schedule, folder)
        changed += identity.move_in(db, study_id, folder)
    differences, refused = changes(before, study)
    renamed = False
    known = launch_rows.read_known(db, study_id) if refused else (True, True)
    if (
        refused
        and not all(known)
        and waves.live_wave(ledger, prepared.schedule) is None  # its tasks look for the old name
    ):
        differences, refused = changes(before, study, is_measured=known[0], is_judged=known[1])
        renamed = not refused
    if refused:
        raise _changed(study.name, refused)
    if retry is not None:
        wave = waves.live_wave(ledger, prepared.schedule)
        retrying.choose(ledger, folder, retry, wave)
    added = launch_rows.update(db, study_id, study)
    return Rows(ledger, False, added, [*changed, *differences], renamed)


def build_for_tasks(prepared: Prepared, rows: Rows) -> None:
    """Build the image now where tasks may run already: those wait for no job."""
    study, schedule = prepared.study, prepared.schedule
    if not build.is_missing(study) or not waves.open_waves(rows.ledger):
        return
    beside = look_beside(rows.ledger, schedule)
    if beside is None or not beside.builds:
        build.ensure(study, prepared.runs, prepared.environ, prepared.say)


@contextlib.contextmanager
def taking_back(prepared: Prepared, rows: Rows) -> Iterator[None]:
    """Take back a study that this launch has made if it could not be submitted."""
    is_new = not prepared.folder.root.exists()
    try:
        yield
    except BaseException as error:
        undone = False
        if rows.created and not isinstance(error, KeyboardInterrupt):
            undone = launch_rows.undo(rows.ledger)
        if undone and is_new:
            shutil.rmtree(prepared.folder.root, ignore_errors=True)
            prepared.runs.last.unlink(missing_ok=True)
        raise


def write_folder(
    prepared: Prepared,
    rows: Rows,
    settled: identity.Settled,
    code: snapshot.SnapshotPlan | None,
    *,
    hash_data: bool,
) -> list[str]:
    """Write what the tasks need: specification, address of the database, reporter, code, record.

    What training needs of the launching shell's secrets travels in a 0600 file where the scheduler
    records the environment that it is given (as Slurm does), so that has none.

    Returns:
        What has changed since the launch before, in sentences.
    """
    study, folder, environ = prepared.study, prepared.folder, prepared.environ
    make_private(folder.root)
    settled.mark(rows.ledger.db, rows.ledger.study_id)
    host = os.uname().nodename
    rows.ledger.db.retry(lambda db: studies.write_attribute(db, rows.ledger.study_id, HOST, host))
    environment.keep_secrets(folder, study, environ)
    access.remember(folder, settled.url, prepared.runs, prepared.listens_here)
    environment.install_reporter(folder.python_path)
    hub.freeze(study, folder, environ)
    write_atomic(folder.study, study.to_json() + "\n")
    write_atomic(prepared.runs.last, study.name + "\n")
    changes = record_launch(
        study, folder, prepared.runs, environ, code, prepared.say, full=hash_data
    )
    share(study, folder)
    return changes


def submit(prepared: Prepared, rows: Rows, retry: Wish | None = None) -> Launched:
    """Settle what has died since the launch before, and submit what is left unless an array lives.

    The scheduler is asked once about the tasks of the study's arrays and attempts.

    Args:
        retry: Trials that are to be given back.
    """
    ledger, folder, schedule = rows.ledger, prepared.folder, prepared.schedule
    db, study = ledger.db, ledger.study
    open_jobs = [wave.job for wave in waves.open_waves(ledger) if wave.job]
    seen: Seen | None = see(ledger, schedule, also=open_jobs)
    wave = waves.live_wave(ledger, schedule, seen.states if seen else None)
    if seen and any(task.word == ORPHANED for task in (seen.states or {}).values()):
        seen = None  # they have just been ended
    found = reconcile(ledger, folder, schedule, unseen_s=0.0, every_s=0.0, seen=seen)
    settled = [
        f"trial {trial}, attempt {attempt} was dead: {end.reason}; the trial is "
        + ("taken up again" if state == outcomes.RUNNING else state)
        for trial, attempt, end, state in (found.settled if found else ())
    ]
    noted = db.retry(lambda _: status_rows.noted(ledger))
    ended, reopened = db.retry(lambda _: budgets.take_up(ledger))
    if ended and retry is not None:
        raise InputError(
            f"--retry: the study has ended early, and what is given back would be cancelled: "
            f"{ended}",
            "Raise or remove that limit in the study file, and launch again.",
        )
    retried = retrying.Retried()
    if retry is not None:
        retried = retrying.apply(ledger, folder, retry, wave)
    given_back = 0 if ended else launch_rows.resume(ledger, again=rows.renamed)
    left = db.retry(lambda _: ledger.unfinished())
    if not left:
        db.retry(lambda _: close_untold(ledger))
    submitted = False
    if wave is not None:
        waves.set_throttles(ledger, folder, schedule)
        tend(ledger, folder, schedule, prepared.say, alone=True)
        level = arrays.level_of(study, folder)
        throttle = arrays.throttle_of(study, wave.size, wave.slots, level)
        wave = dataclasses.replace(wave, throttle=throttle)
    elif left and not ended:
        wave = waves.submit_wave(ledger, folder, schedule, left, say=prepared.say)
        submitted = True
    return Launched(
        name=study.name,
        study_id=ledger.study_id,
        created=rows.created,
        added=rows.added,
        given_back=given_back,
        left=left,
        wave=wave,
        submitted=submitted,
        settled=settled,
        notes=[*retried.notes, *noted],
        ended=ended,
        reopened=reopened,
        retried=retried.numbers,
    )


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
