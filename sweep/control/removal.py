"""Remove a study: its rows and its folder, and nothing else.

In an order that a kill leaves to be gone on from: the folder is renamed out of the way, which is
one step; then its rows go, in one transaction; then its files. What a killed removal has left is
found again by the study's name.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweep.control import identity, known_databases, waves
from sweep.control.alone import keep_launches_away
from sweep.control.job_owners import owner_of
from sweep.control.open_study import Opened
from sweep.control.reconcile import reconcile
from sweep.core import scheduler
from sweep.core.attributes import FOLDER, IDENTITY
from sweep.core.errors import BusyError, CouldNotAsk, DamagedFile, InputError, SweepError
from sweep.core.files import entries, make_private, read_json, remove_tree, tree_bytes
from sweep.core.paths import Runs, StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study
from sweep.schedulers.choose import scheduler_of
from sweep.storage import records, studies, tables
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger

LONGEST_NAME_BYTES = 255  # that a file system takes
WIND_UP_S = 180.0  # for a finaliser that is at work to end
_LOG = re.compile(r"([0-9]+)_[0-9]+\.log")  # of a task of Slurm's, as paths has it


@dataclass
class Removal:
    """What there is of a study.

    Attributes:
        folder: Where it was launched.
        mark: What its folder carries; None where there is no folder.
        leftovers: Folders of it that an earlier removal has left.
        ledger: Its rows; None where its database holds it no more.
        where: Its database, in words.
        counts: Its trials in each state.
    """

    name: str
    runs: Runs
    folder: StudyFolder
    mark: str | None = None
    leftovers: Sequence[Path] = ()
    ledger: Ledger | None = None
    where: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    study: Study | None = None

    @property
    def has_folder(self) -> bool:
        return self.mark is not None

    def files_bytes(self) -> int:
        """Return what its files take."""
        paths = [*self.leftovers, *([self.folder.root] if self.has_folder else [])]
        return sum(tree_bytes(path) for path in paths)


@contextlib.contextmanager
def found(runs: Runs, name: str) -> Iterator[Removal]:
    """Find what there is of a study, with its database open.

    Raises:
        InputError: There is nothing, or what is there is not (surely) this study's.
        DatabaseUnavailable: Its database does not answer: nobody knows what runs.
    """
    is_too_long = len(os.fsencode(name)) > LONGEST_NAME_BYTES
    if name in ("", ".", "..") or "/" in name or name.startswith(".") or is_too_long:
        raise InputError(f"{name!r} is no study's name.", "See: sweep list")
    folder = runs.study(name)
    if folder.root.is_symlink():
        raise InputError(
            f"{folder.root} is a symbolic link; sweep remove follows none.",
            "Move what it points to into its place, or remove both by hand, and then the rows: "
            f"sweep remove {name}.",
        )
    removal = Removal(name, runs, folder, leftovers=_leftovers(runs, name))
    if os.path.lexists(folder.root):
        removal.mark = _mark_of(folder)
        removal.study = _read_study(folder)
    with contextlib.ExitStack() as stack:
        for place in _places(removal):
            db = stack.enter_context(known_databases.opened(place))
            if _look(removal, db, str(place)):
                break
        if removal.ledger is None and not removal.has_folder and not removal.leftovers:
            _tidy(runs, name)  # of a removal that was killed at its very end
            raise InputError(
                f"There is no study {name!r} in {runs.root}, nor in a database that is known here.",
                "See: sweep list. Another runs folder is named by --runs, another database by "
                "SWEEP_STORAGE.",
            )
        yield removal


def _leftovers(runs: Runs, name: str) -> list[Path]:
    return [
        path
        for path in entries(runs.removing)
        if path.name.rpartition(".")[0] == name and path.is_dir() and not path.is_symlink()
    ]


def _mark_of(folder: StudyFolder) -> str:
    """Return the mark of a study's folder.

    Raises:
        InputError: It carries none: it may be anything.
    """
    mark = identity.read_mark(folder) if folder.root.is_dir() else None
    if mark is None:
        raise InputError(
            f"{folder.root} does not carry a study's mark ({folder.identity.name}): it may be "
            "anything, and is not removed.",
            "Look at it, and remove it by hand; or launch the study once more, which marks it.",
        )
    if not re.fullmatch(r"[0-9a-f]{8,64}", mark):
        raise InputError(f"{folder.identity} is damaged.", "Restore it, or remove by hand.")
    return mark


def _read_study(folder: StudyFolder) -> Study | None:
    try:
        return Study.read(folder.study)
    except (SweepError, OSError):
        return None  # damaged: the database knows it as well


def _places(removal: Removal) -> list[known_databases.KnownDatabase]:
    """Return the databases in which the study may be: its folder's own, or all that are known."""
    for root in ([removal.folder.root] if removal.has_folder else []) + [*removal.leftovers]:
        folder = StudyFolder(root)
        try:
            note = read_json(folder.storage) or {}
        except DamagedFile:
            continue
        by = folder if _read_study(folder) is not None else None
        if note.get("url"):
            return [known_databases.KnownDatabase(note["url"], None, by)]
        if note.get("embedded"):
            data = known_databases.data_dir(removal.runs, Path(note["embedded"]))
            # A folder that is gone holds nothing, and none is made anew here.
            return [known_databases.KnownDatabase(None, data, by)] if data.is_dir() else []
    return known_databases.known(removal.runs)


def _look(removal: Removal, db: Database, where: str) -> bool:
    """Look for the study in a database; tell whether it is there."""
    db.retry(tables.check_optuna)
    study_id = db.retry(lambda _: studies.find_study(db, removal.name))
    if study_id is None:
        removal.where = removal.where or where
        return False
    home = db.retry(lambda _: studies.read_attribute(db, study_id, FOLDER))
    known = db.retry(lambda _: studies.read_attribute(db, study_id, IDENTITY))
    study = db.retry(lambda _: studies.read_specification(db, study_id))
    if study is None:
        raise InputError(
            f"The study {removal.name!r} in {where} was not made by sweep.",
            f"Remove it with Optuna: optuna delete-study --study-name {removal.name}.",
        )
    at_home = home in (None, str(removal.folder.root))
    if removal.mark != known if removal.has_folder else not at_home:
        raise InputError(
            f"The study {removal.name!r} in {where} is not the one of {removal.folder.root}: it "
            f"was launched into {home}.",
            "Name its runs folder: --runs.",
        )
    if removal.has_folder:  # it may have moved here; the rows of a copy are the other's
        db.retry(lambda db: identity.refuse_copy(db, study_id, removal.folder))
    removal.leftovers = [path for path in removal.leftovers if path.name.endswith(f".{known}")]
    removal.study = study
    removal.ledger = Ledger(db, study_id, study)
    removal.where = where
    removal.counts = db.retry(lambda db: records.count_states(db, study_id))
    return True


def opened(removal: Removal) -> Opened | None:
    """Return the study as other commands open it; None where it has no rows."""
    if removal.ledger is None or removal.study is None:
        return None
    return Opened(_present(removal), removal.study, removal.ledger)


def _present(removal: Removal) -> StudyFolder:
    """Return the folder in which the study's files lie now."""
    if not removal.has_folder and removal.leftovers:
        return StudyFolder(removal.leftovers[0])
    return removal.folder


def alone(removal: Removal) -> contextlib.AbstractContextManager[None]:
    """Keep launches and finalisers of the study away.

    Raises:
        BusyError: One is at work.
    """
    url = removal.ledger.db.url if removal.ledger is not None else None
    return keep_launches_away(removal.runs, removal.name, url)


def refuse_if_busy(removal: Removal) -> None:
    """Refuse a study of which anything runs, by its scheduler's word; re-runs are not looked at.

    Raises:
        BusyError: Something runs, or nobody can say.
    """
    study = removal.study
    if study is None:
        if removal.has_folder:
            raise BusyError(
                f"{removal.folder.study} cannot be read, and no database holds the study: nobody "
                "can say what runs of it.",
                "Make sure that nothing does, and remove the folder by hand.",
            )
        return
    place = _present(removal)
    schedule = scheduler_of(place, study)
    try:
        if removal.ledger is not None:
            _refuse_live(removal.ledger, place, schedule, removal.name)
        # Checks, tries, scaling studies and other commands have no rows.
        _refuse_live_jobs(place, schedule, removal.name)
    except CouldNotAsk as error:
        raise BusyError(
            f"Whether anything of the study {removal.name!r} runs cannot be said: {error.message}",
            "Ask again later; nothing was removed.",
        ) from error


def _refuse_live(ledger: Ledger, folder: StudyFolder, schedule: Scheduler, name: str) -> None:
    wave = waves.live_wave(ledger, schedule)
    if wave is not None:
        raise _busy(name, f"job {wave.job} on {owner_of(ledger, schedule, wave).place} is at work")
    if reconcile(ledger, folder, schedule, unseen_s=0.0, every_s=0.0) is not None:
        live = ledger.db.retry(lambda _: ledger.live_attempts())
        if live:
            raise _busy(name, f"trial {live[0].trial} runs (attempt {live[0].number})")
    every = ledger.db.retry(lambda db: studies.read_waves(db, ledger.study_id))
    jobs = [wave.job for wave in every if wave.job and schedule.has(wave)]
    give_up_at = time.monotonic() + WIND_UP_S
    while not schedule.has_wound_up(jobs):
        if time.monotonic() >= give_up_at:
            raise BusyError(
                f"The study {name!r} is not removed: its tasks have ended, and their finaliser is "
                "at work.",
                "It ends by itself; give the command again then.",
            )
        time.sleep(0.2)
    tokens = [wave.token for wave in every]
    beside = schedule.beside(tokens) if tokens and schedule.finalises_by_job else None
    if beside is not None and beside.finalisers:
        raise BusyError(
            f"The finaliser of the study {name!r} (job {beside.finalisers[0]}) has not ended yet.",
            f"It ends by itself soon; or end it: scancel {beside.finalisers[0]}.",
        )


def _refuse_live_jobs(folder: StudyFolder, schedule: Scheduler, name: str) -> None:
    """The same by the jobs that the folder knows of, also where the rows are gone."""
    jobs = {path.name for path in folder.local.glob("*") if path.is_dir()}
    if not schedule.shares_this_machine:
        matches = (_LOG.fullmatch(path.name) for path in folder.logs.glob("*.log"))
        jobs = {match[1] for match in matches if match}
    states = schedule.poll(sorted(jobs)) if jobs else {}
    for (job, index), state in states.items():
        if state.state != scheduler.ENDED:
            raise _busy(name, f"task {job}_{index} is {state.word.lower()}")


def _busy(name: str, what: str) -> BusyError:
    return BusyError(
        f"The study {name!r} is not removed: {what}.",
        f"End it first: sweep stop {name}; then give the command again.",
    )


def carry_out(removal: Removal) -> None:
    """Remove rows and files; with ``alone`` held. Killed anywhere, a repeat goes on.

    Raises:
        SweepError: A file cannot be removed; it is named. The rows are gone.
    """
    runs = removal.runs
    leftovers = [*removal.leftovers]
    if removal.has_folder:
        leftovers.append(_moved(removal))
    ledger = removal.ledger
    if ledger is not None:
        ledger.db.retry(lambda db: studies.delete_study(db, ledger.study_id))
    for path in dict.fromkeys(leftovers):
        remove_tree(path)
    _tidy(runs, removal.name)
    with contextlib.suppress(OSError):  # it is held now; who waits for it finds nothing to launch
        (runs.root / f".{removal.name}.lock").unlink()


def _moved(removal: Removal) -> Path:
    """Move the study's folder among those that are being removed; return where it is now."""
    runs = removal.runs
    target = runs.removing / f"{removal.name}.{removal.mark}"
    if os.path.lexists(target):  # of an earlier removal of the same study
        remove_tree(target)
    while True:
        make_private(runs.removing)
        # What is there now may be another folder than the one that was looked at.
        if _mark_of(removal.folder) != removal.mark or removal.folder.root.is_symlink():
            raise InputError(f"{removal.folder.root} has just been replaced.", "Look at it.")
        try:
            os.rename(removal.folder.root, target)
        except FileNotFoundError:
            if runs.removing.is_dir():
                raise
            continue  # the removal of another study has just ended and tidied up
        return target


def _tidy(runs: Runs, name: str) -> None:
    """Take away what is left once a study's rows and folder are gone."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if runs.last.read_text(encoding="utf-8").strip() == name:
            runs.last.unlink()
    with contextlib.suppress(OSError):  # the removals of other studies are at work in it
        runs.removing.rmdir()
