"""The databases that a runs folder has to do with, for commands without a study's folder.

A study whose folder is gone is found in one of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweep.control.job_owners import fate_asker
from sweep.core.errors import SweepError
from sweep.core.files import read_json
from sweep.core.masking import mask_url
from sweep.core.paths import Runs, StudyFolder
from sweep.core.study import Study
from sweep.schedulers.choose import scheduler_of
from sweep.storage import access
from sweep.storage.connection import Database
from sweep.storage.url import normalise


@dataclass(frozen=True)
class KnownDatabase:
    """Where a database is.

    Attributes:
        url: Of a server of the user's; None for an embedded one.
        data: The embedded server's folder.
        by: The folder of a study that is in it, or None.
    """

    url: str | None
    data: Path | None = None
    by: StudyFolder | None = None

    def __str__(self) -> str:
        return mask_url(self.url) if self.url else f"embedded PostgreSQL in {self.data}"


def known(runs: Runs) -> list[KnownDatabase]:
    """Return the databases that are known here, each once: $SWEEP_STORAGE, those of the studies'
    folders, the embedded one."""
    found: dict[str, KnownDatabase] = {}
    given = os.environ.get(access.STORAGE_VARIABLE)
    if given:
        url = normalise(given)
        found[url] = KnownDatabase(url)
    for name in runs.studies():
        folder = runs.study(name)
        try:
            note = read_json(folder.storage) or {}
        except SweepError:
            continue  # the study's own commands say what is wrong with it
        if note.get("url"):
            found.setdefault(
                normalise(note["url"]), KnownDatabase(normalise(note["url"]), None, folder)
            )
        elif note.get("embedded") and (data := data_dir(runs, Path(note["embedded"]))).is_dir():
            found.setdefault(str(data), KnownDatabase(None, data, folder))
    if runs.postgres.is_dir():
        found.setdefault(str(runs.postgres), KnownDatabase(None, runs.postgres))
    return list(found.values())


def data_dir(runs: Runs, noted: Path) -> Path:
    """Return where the embedded database lies that a folder of these runs has noted: it may have
    moved with them."""
    return runs.postgres if runs.postgres != noted and access.has_data(runs) else noted


@contextlib.contextmanager
def opened(place: KnownDatabase) -> Iterator[Database]:
    """Open a database, and leave no server behind that was started for it on a cluster.

    Raises:
        DatabaseUnavailable: It does not answer.
    """
    if place.url:
        with contextlib.closing(Database(place.url)) as db:
            yield db
        return
    assert place.data is not None
    db = access.EmbeddedDatabase(place.data)
    alone = False  # whether a server that is started here stays for those who come after
    if place.by is not None:
        study = Study.read(place.by.study)
        schedule = scheduler_of(place.by, study)
        db.may_start = not is_served_elsewhere(place.by, study)
        db.ask_fate = fate_asker(place.by, study, schedule)
        alone = schedule.shares_this_machine
    try:
        yield db
    finally:
        db.close()
        if db.started and not alone:
            access.stop_server(place.data)


def is_served_elsewhere(folder: StudyFolder, study: Study) -> bool:
    """Tell whether a job serves (or soon will) the study's embedded database."""
    try:
        return bool(scheduler_of(folder, study).service_jobs(running=True))
    except SweepError:
        return False  # the scheduler is not here or does not answer: look at the data from here
