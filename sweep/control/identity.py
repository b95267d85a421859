"""Whether a study's folder and a study's row are the same study.

A name says little: the database may have been removed, changed or restored, and the folder is still
there, with other trials' metrics and checkpoints. So each study has an identity of its own, in its
row and in its folder; where they differ, neither is taken for the other's.
"""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

from sweep.core.attributes import FOLDER, IDENTITY
from sweep.core.errors import InputError, StudyChangedError
from sweep.core.files import move_aside, read_record, write_atomic
from sweep.core.paths import Runs, StudyFolder
from sweep.core.study import Study
from sweep.storage import access, studies
from sweep.storage.connection import Database


class Settled:
    """What a launch settles before it writes into a study's folder.

    Args:
        url: Where it will put the study; None for the embedded database.
        set_aside: Move a folder that the database does not know out of the way.
    """

    def __init__(
        self, study: Study, folder: StudyFolder, runs: Runs, url: str | None, *, set_aside: bool
    ) -> None:
        self.study = study
        self.folder = folder
        self.runs = runs
        self.url = url
        self.set_aside = set_aside

    def expect_data(self) -> None:
        """Look for the embedded database of a folder that is there, before one is made.

        Raises:
            StudyChangedError: There is none.
        """
        if self.url is None and is_used(self.folder) and not access.has_data(self.runs):
            self._refuse_unless_wanted()

    def look(self, db: Database, study_id: int | None) -> list[str]:
        """Make sure that the folder is the study's, or is not there; return what changed.

        Args:
            study_id: Of the study with this name in the database; None where it has none.

        Raises:
            StudyChangedError: It is that of another study, or of another database.
        """
        if os.path.lexists(self.folder.root) and not self.folder.root.is_dir():
            raise InputError(
                f"{self.folder.root} is not a folder.", "Move it away, or choose another name."
            )
        if not is_used(self.folder):
            return [self._gone()] if self._was_submitted(db, study_id) else []
        before, now = access.describe(self.folder), access.describe_choice(self.url, self.runs)
        mark = read_mark(self.folder)
        known = None if study_id is None else _read(db, study_id)
        if study_id is not None and known is None and before == now:
            # Launched by a version that gave no identity. First the file: a launch that is killed
            # in between leaves what this one can go on from.
            mark = mark or os.urandom(16).hex()
            _write_mark(self.folder, mark)
            db.retry(lambda _: studies.write_attribute(db, study_id, IDENTITY, mark))
            return []
        if mark is not None and mark == known:
            # The same rows at another address: a server that was moved.
            return [] if before == now else [f"storage: {before} before, {now} now"]
        if mark is None and known is not None and before == now and self._is_home(db, study_id):
            _write_mark(self.folder, known)
            return [f"{self.folder.identity} was damaged; it is written anew from the database"]
        self._refuse_unless_wanted()
        moved = move_aside(self.folder.root, self.runs.aside)
        return [f"the folder of an earlier study {self.study.name} is now {moved}"]

    def _was_submitted(self, db: Database, study_id: int | None) -> bool:
        """Tell whether the study has had a folder: a launch that was killed may have made none."""
        return study_id is not None and bool(db.retry(lambda _: studies.read_waves(db, study_id)))

    def _gone(self) -> str:
        name = self.study.name
        return (
            f"the folder {self.folder.root} was deleted since, with the logs, checkpoints and "
            f"configurations in it; it is made anew, for the trials that the database has. To "
            f"start over instead: sweep stop {name}, sweep remove {name}, and launch again"
        )

    def _is_home(self, db: Database, study_id: int | None) -> bool:
        """Tell whether the database says that the study was launched into this very folder."""
        if study_id is None:
            return False
        home = db.retry(lambda _: studies.read_attribute(db, study_id, FOLDER))
        return home is not None and _is_same(Path(home), self.folder.root)

    def mark(self, db: Database, study_id: int) -> None:
        """Write into the folder whose it is."""
        known = _read(db, study_id)
        if known is not None and read_mark(self.folder) != known:
            _write_mark(self.folder, known)

    def _refuse_unless_wanted(self) -> None:
        if self.set_aside:
            return
        before, now = access.describe(self.folder), access.describe_choice(self.url, self.runs)
        where = f"The folder {self.folder.root} holds a study that was launched into {before}"
        aside = (
            f"give this study another `name`; or begin anew with --set-aside, which moves the "
            f"folder into {self.runs.aside} (nothing may run in it any more)."
        )
        if before == now:
            raise StudyChangedError(
                f"{where}, which does not hold it (any more): its results would be mixed with "
                "those of other trials.",
                f"Restore that database; or {aside}",
            )
        raise StudyChangedError(
            f"{where}; this launch would put it into {now}, which does not hold it.",
            f"Give the same storage as before (SWEEP_STORAGE, or `storage` in the study file); or "
            f"{aside}",
        )


def is_at_home(db: Database, study_id: int, folder: StudyFolder) -> bool:
    """Tell whether a study's folder is where the study was launched into; else it has moved here.

    Within a transaction.

    Raises:
        StudyChangedError: It is another study's, or a copy of one that is still there.
    """
    home = studies.read_attribute(db, study_id, FOLDER)
    if home is None or _is_same(Path(home), folder.root):
        return True
    known = studies.read_attribute(db, study_id, IDENTITY)
    if known is None or read_mark(folder) != known:
        raise StudyChangedError(
            f"The database holds a study {folder.root.name!r} that was launched into {home}.",
            "Give this one another `name`, or use that folder's parent with --runs.",
        )
    refuse_copy(db, study_id, folder)
    return False


def refuse_copy(db: Database, study_id: int, folder: StudyFolder) -> None:
    """Refuse a copy of a study's folder where something is to be run: the rows are the other's.

    Within a transaction.

    Raises:
        StudyChangedError: So it is.
    """
    home = studies.read_attribute(db, study_id, FOLDER)
    known = studies.read_attribute(db, study_id, IDENTITY)
    if home is None or known is None or _is_same(Path(home), folder.root):
        return
    there, wrong = read_record(StudyFolder(Path(home)).identity)
    if wrong or (there or {}).get("study") == known:
        raise StudyChangedError(
            f"{folder.root} is a copy: the study was launched into {home}, and is still there.",
            f"Go on with that one: --runs '{Path(home).parent}'. To go on with this one, move that "
            "one away.",
        )


def move_in(db: Database, study_id: int, folder: StudyFolder) -> list[str]:
    """Note where a study's folder is now; return what has changed, in sentences."""
    home = db.retry(lambda _: studies.read_attribute(db, study_id, FOLDER))
    db.retry(lambda _: studies.write_attribute(db, study_id, FOLDER, str(folder.root)))
    return [f"folder: {home} before, {folder.root} now"]


def _is_same(one: Path, other: Path) -> bool:
    """Tell whether two paths are one folder, whatever links lead there."""
    try:
        return one == other or os.path.samefile(one, other)
    except OSError:
        return False


def refuse_other(db: Database, study_id: int, folder: StudyFolder, name: str) -> None:
    """Refuse a folder whose database holds another study of its name.

    Raises:
        InputError: So it is.
    """
    mark = read_mark(folder)
    known = _read(db, study_id) if mark is not None else None
    if known is not None and known != mark:
        home = db.retry(lambda _: studies.read_attribute(db, study_id, FOLDER))
        raise InputError(
            f"The database ({access.describe(folder)}) holds a study {name!r}, but not the one of "
            f"{folder.root}: it was launched into {home}.",
            "That one is seen with its own runs folder: --runs.",
        )


def read_mark(folder: StudyFolder) -> str | None:
    """Return the identity that a folder carries; None where an earlier version has made it."""
    found, _ = read_record(folder.identity)
    mark = (found or {}).get("study")
    return mark if isinstance(mark, str) else None


def _write_mark(folder: StudyFolder, mark: str) -> None:
    note = {"study": mark, "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    write_atomic(folder.identity, json.dumps(note) + "\n")


def _read(db: Database, study_id: int) -> str | None:
    found = db.retry(lambda _: studies.read_attribute(db, study_id, IDENTITY))
    return None if found is None else str(found)


def is_used(folder: StudyFolder) -> bool:
    """Tell whether a study has been launched into a folder, and not only room was made for one."""
    written = (folder.identity, folder.storage, folder.study)
    if any(os.path.lexists(path) for path in written):
        return True
    return _holds(folder.root / "trials") or _holds(folder.root / "reruns")


def _holds(path: Path) -> bool:
    """Tell whether a folder has something in it; one that cannot be read may have."""
    try:
        return any(path.iterdir())
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG
