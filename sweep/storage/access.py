"""How a study's processes reach its database: one 0600 file in the study's folder.

The file holds either a PostgreSQL URL (with its password, if it has one) or the folder of the
embedded server, which is started by whoever needs it and finds it stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from sweep.core.errors import BusyError, DamagedFile, DatabaseUnavailable, InputError, SweepError
from sweep.core.files import is_private, read_object, write_atomic
from sweep.core.masking import mask_url
from sweep.core.paths import Runs, StudyFolder
from sweep.core.study import Study
from sweep.core.system.disk import has_room
from sweep.storage.connection import Database
from sweep.storage.embedded import start_stop
from sweep.storage.embedded.folder import Folder, mind_os_errors
from sweep.storage.embedded.server import Server, is_unused, kept_from_use, running
from sweep.storage.embedded.succession import AskFate
from sweep.storage.url import dsn, normalise

STORAGE_VARIABLE = "SWEEP_STORAGE"
REWRITTEN = (
    "Launch the study again, with the same storage as before: `sweep launch STUDY.yaml` writes "
    "this file anew."
)
SESSION_END_S = 5.0  # in which the server notices that a session of ours was closed


class EmbeddedDatabase(Database):
    """A connection to the embedded server, whose address is looked up at each connection.

    The server may come back at another port or, on a cluster, on another host.

    Args:
        data_dir: The server's folder.
        may_start: Start it here when it does not run. Tasks on a cluster may not: they wait for
            the job that serves it.
        listen: The interface or address that it is to listen on where it is started here; None for
            this machine's own.

    Attributes:
        on_absent: Called at each look that finds no server.
        waits_for_start: A server that does not start is one that is away: no command waits for a
            full disk, but a task does.
        ask_fate: Says what became of the job that served the data last.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        may_start: bool = True,
        listen: str | None = None,
        **options: object,
    ) -> None:
        self.data_dir = data_dir
        self.listen = listen
        self.may_start = may_start
        self.started = False
        self.was_there = False
        self.waits_for_start = False
        self.on_absent: Callable[[], None] | None = None
        self.ask_fate: AskFate | None = None
        super().__init__("postgresql+psycopg2://sweep@localhost/sweep", **options)  # type: ignore[arg-type]

    def _parameters(self, deadline: float) -> dict[str, str]:
        server = running(self.data_dir)
        if server is None:
            if not self.may_start:
                if self.on_absent is not None:
                    self.on_absent()
                raise DatabaseUnavailable(
                    f"No server for {self.data_dir} runs at present.",
                    "On a cluster it is a job of its own; see: squeue --me",
                )
            server = self._start()
        self.url = server.url()
        self._dsn = dsn(self.url)
        found = super()._parameters(deadline)
        self.was_there = True
        return found

    def _start(self) -> Server:
        try:
            server = start_stop.start(
                self.data_dir, make=False, listen=self.listen, ask_fate=self.ask_fate
            )
        except SweepError as error:
            # Where it has run, this passes: it recovers from a crash, or others start it.
            if self.was_there or self.waits_for_start or isinstance(error, BusyError):
                raise DatabaseUnavailable(error.message, error.hint) from error
            raise
        self.started = True
        return server


def choose_url(study: Study) -> str | None:
    """Return the PostgreSQL URL of a study to launch, or None for the embedded server.

    $SWEEP_STORAGE wins over the study file, because it may hold the password of the same server.
    """
    given = os.environ.get(STORAGE_VARIABLE) or study.storage.url
    return normalise(given) if given else None


def remember(folder: StudyFolder, url: str | None, runs: Runs, listen: str | None = None) -> None:
    """Note how the study's database is reached.

    Args:
        listen: What the embedded server listens on where commands and tasks start it.
    """
    note = {"url": url} if url else {"embedded": str(runs.postgres)}
    if listen and not url:
        note["listen"] = listen
    write_atomic(folder.storage, json.dumps(note) + "\n", mode=0o600)


def read_note(folder: StudyFolder) -> dict[str, str]:
    """Return how the study's database is reached: {"url": …} or {"embedded": its folder,
    and perhaps "listen": …}.

    The embedded server's folder lies beside the study's: where the runs folder was moved or copied
    it is found there. Empty where there is no such file.

    Raises:
        DamagedFile: It cannot be understood.
    """
    note = read_object(folder.storage, REWRITTEN)
    if note is None:
        return {}
    for key in ("url", "embedded"):
        if isinstance(note.get(key), str):
            found = note[key]
            if key == "url":
                return {key: found}
            listen = note.get("listen")
            where = {key: str(_data_dir(folder, Path(found)))}
            return where | ({"listen": listen} if isinstance(listen, str) else {})
    raise DamagedFile(
        f"{folder.storage} should say where the study's database is, and does not.", REWRITTEN
    )


def explain_full(db: Database) -> str:
    """Return in words that an embedded database has no room left; empty where it has."""
    if not isinstance(db, EmbeddedDatabase) or has_room(db.data_dir):
        return ""
    return (
        f"no space is left on the disk of the database, {db.data_dir}; nothing is stored until "
        "there is room, and training goes on meanwhile"
    )


def has_data(runs: Runs) -> bool:
    """Tell whether a runs folder has an embedded database, running or not.

    Raises:
        SweepError: It cannot be looked at.
    """
    folder = Folder(runs.postgres)
    with mind_os_errors(folder):
        return folder.has_data()


def _data_dir(folder: StudyFolder, noted: Path) -> Path:
    beside = Runs(folder.root.parent).postgres
    if noted == beside:
        return noted
    return beside if has_data(Runs(folder.root.parent)) else noted


def connect(
    folder: StudyFolder,
    *,
    timeout_s: float = 20.0,
    may_start: bool = True,
    ask_fate: AskFate | None = None,
) -> Database:
    """Return the study's database; it connects at its first use.

    Args:
        may_start: Whether this process may start the embedded server.
        ask_fate: Says what became of the job that served it last.

    Raises:
        SweepError: The file that says how is gone or damaged, or can be read by others.
    """
    note = read_note(folder)
    if not note:
        raise SweepError(
            f"{folder.storage}, which says where the study's database is, is gone.", REWRITTEN
        )
    if not is_private(folder.storage):
        raise InputError(
            f"{folder.storage} can be read by other users.", f"chmod 600 {folder.storage}"
        )
    if "embedded" in note:
        db = EmbeddedDatabase(
            Path(note["embedded"]),
            may_start=may_start,
            listen=note.get("listen"),
            timeout_s=timeout_s,
        )
        db.ask_fate = ask_fate
        return db
    try:
        return Database(note["url"], timeout_s=timeout_s)
    except InputError as error:
        raise DamagedFile(f"{folder.storage}: {error.message}", REWRITTEN) from None


def open_url(
    runs: Runs,
    url: str | None,
    *,
    timeout_s: float = 20.0,
    for_nodes: bool = False,
    listen: str | None = None,
    ask_fate: AskFate | None = None,
) -> Database:
    """Return a database by URL, or the embedded one of a runs folder.

    Args:
        ask_fate: Says what became of the job that served the embedded one last.
        for_nodes: Serve the embedded one from here to other machines, until it is stopped by hand.
        listen: The interface or address that the embedded one is to listen on.
    """
    if url:
        return Database(url, timeout_s=timeout_s)
    if for_nodes:
        start_stop.start(runs.postgres, listen=listen or "*", idle_stop_s=None, ask_fate=ask_fate)
    else:  # also finishes what a killed launch has begun
        start_stop.start(runs.postgres, listen=listen, ask_fate=ask_fate)
    db = EmbeddedDatabase(runs.postgres, listen=listen, timeout_s=timeout_s)
    db.ask_fate = ask_fate
    return db


def stop_if_unused(folder: StudyFolder) -> bool:
    """Stop an embedded server that a command has started here, unless somebody uses it.

    On a cluster a job serves the data; a server left on the login node would be in its way.
    """
    note = read_note(folder)
    return "embedded" in note and stop_server(Path(note["embedded"]))


def stop_server(data_dir: Path) -> bool:
    """Stop the embedded server of a folder where it serves this machine only and nobody uses it."""
    server = running(data_dir)
    if server is None or server.stays:
        return False
    give_up_at = time.monotonic() + SESSION_END_S
    while not is_unused(server):
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(0.05)
    with contextlib.suppress(BusyError), kept_from_use(data_dir):
        return start_stop.stop(data_dir)
    return False


def describe(folder: StudyFolder) -> str:
    """Return where the study's rows lie, without a password."""
    try:
        note = read_note(folder)
    except DamagedFile:
        return f"a database that {folder.storage} no longer names"
    return _describe(note.get("url"), note.get("embedded", ""))


def describe_choice(url: str | None, runs: Runs) -> str:
    """Return the same of where a launch would put them."""
    return _describe(url, str(runs.postgres))


def _describe(url: str | None, data_dir: str) -> str:
    return mask_url(url) if url else f"embedded PostgreSQL in {data_dir}"
