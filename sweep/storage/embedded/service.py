"""The database as a small job of its own on a cluster.

``launch`` fills the database with a server on the login node, submits this job, and stops its own
server; this job then serves the same data from a compute node until no study needs it. Its address
is in the data folder, where tasks look for it.

A requeued job can start on another host while its predecessor still lives there, and PostgreSQL's
own check of its pid file knows one host only. So the data folder carries a lease: the job renews
it, stops its server when it cannot, and a successor waits until it is three periods old.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from sweep.core.errors import DatabaseUnavailable, SweepError
from sweep.core.files import locked, make_private, write_atomic
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.embedded import start_stop
from sweep.storage.embedded.server import Server, clients, running

LEASE = "lease"
PERIOD_S = 10.0
PERIODS = 3
UNUSED_S = 45.0  # without a study that needs it
SETTLE_S = 1.0  # after which the last of several that took the lease at once has it
HOST = "host.lock"  # held by the one task that serves while the database's job waits
ASK_EVERY_S = 30.0  # whether that job runs

# Studies that may still need the database: trials that are not final while the study runs and has
# a wave that is not over, or a re-run that has not ended (for a day: its task may be lost).
_NEEDED_SQL = """
SELECT EXISTS (
  SELECT 1 FROM studies s
  JOIN study_system_attributes w ON w.study_id = s.study_id AND w.key LIKE 'sweep:wave:%%'
  WHERE NOT (w.value_json::json ->> 'over')::boolean
    AND EXISTS (SELECT 1 FROM trials t WHERE t.study_id = s.study_id
                AND t.state IN ('WAITING', 'RUNNING'))
    AND COALESCE((SELECT a.value_json::json ->> 'word' FROM study_system_attributes a
         WHERE a.study_id = s.study_id AND a.key = %s), 'running') IN ('running', 'draining')
) OR EXISTS (
  SELECT 1 FROM sweep_rerun WHERE outcome IS NULL AND requested > now() - interval '1 day'
) OR EXISTS (
  SELECT 1 FROM sweep_attempt WHERE outcome IS NULL AND seen > now() - interval '5 minutes'
)
"""


class LeaseLost(SweepError):
    """Another server has taken the data folder over, or the lease cannot be renewed."""


class Lease:
    """The right to serve a data folder, kept in a file there.

    Ages are differences of times that the same file system gave, so clocks of hosts do not matter.
    """

    def __init__(self, data_dir: Path, period_s: float = PERIOD_S) -> None:
        self.path = data_dir / LEASE
        self.period_s = period_s
        self.token = secrets.token_hex(8)

    def age_s(self) -> float | None:
        """Return how long ago the lease was renewed, or None where there is none."""
        try:
            renewed = self.path.stat().st_mtime
        except FileNotFoundError:
            return None
        probe = self.path.with_name(f".{LEASE}.{self.token}")
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink(missing_ok=True)
        return now - renewed

    def is_free(self) -> bool:
        """Tell whether nobody has renewed it for three periods."""
        age_s = self.age_s()
        return age_s is None or age_s > PERIODS * self.period_s

    def take(self) -> None:
        write_atomic(self.path, self.token)

    def renew(self) -> None:
        """Renew it. Raises: LeaseLost: Somebody else took it, or the folder cannot be written."""
        try:
            if self.path.read_text() != self.token:
                raise LeaseLost("Another server has taken over the data folder.")
            write_atomic(self.path, self.token)
        except OSError as error:
            raise LeaseLost(f"The lease cannot be renewed: {error}.") from error

    def is_mine(self) -> bool:
        try:
            return self.path.read_text() == self.token
        except OSError:
            return False

    def give_up(self) -> None:
        if self.is_mine():
            with contextlib.suppress(OSError):
                self.path.unlink()


class DatabaseService:
    """Serves a data folder until it is not needed, or told to leave.

    Args:
        until: Asked twice a second; says why to leave, or "".
    """

    def __init__(
        self,
        data_dir: Path,
        say: Callable[[str], None] = lambda text: print(text, flush=True),
        until: Callable[[], str] = lambda: "",
    ) -> None:
        self.data_dir = data_dir
        self.until = until
        self.lease = Lease(data_dir)
        self.say = say
        self.leaving: str = ""

    def run(self) -> str:
        """Serve; return why it ended: "unused", "asked" (TERM), "time" (USR1) or ``until``'s."""
        signal.signal(signal.SIGTERM, lambda *_: self._leave("asked"))
        signal.signal(signal.SIGUSR1, lambda *_: self._leave("time"))
        make_private(self.data_dir)
        server = self._begin()
        if server is None:
            return self.leaving
        self.say(f"serving at {server.url(masked=True)}")
        try:
            return self._serve(server)
        except LeaseLost as error:
            self.say(error.message)
            return "lost"
        finally:
            start_stop.stop(self.data_dir)
            self.lease.give_up()
            self.say("the server has stopped")

    def _leave(self, why: str) -> None:
        self.leaving = self.leaving or why

    def _is_over(self) -> bool:
        self.leaving = self.leaving or self.until()
        return bool(self.leaving)

    def _begin(self) -> Server | None:
        """Wait for our turn, then start the server; None when told to leave before."""
        said = ""
        while not self._is_over():
            if self.lease.is_free():
                other = running(self.data_dir)
                if other is None:
                    self.lease.take()
                    time.sleep(SETTLE_S)
                    if not self.lease.is_mine():
                        continue
                    try:
                        return start_stop.start(self.data_dir, listen="*", idle_stop_s=None)
                    except SweepError as error:
                        text = error.message
                elif other.listen == "*" and other.pid:
                    # Its job was killed, and nobody renews the lease: it would never end.
                    text = "ending the server that a killed job left here"
                    start_stop.stop(self.data_dir)
                else:
                    text = f"a command serves the data at {other.url(masked=True)}; waiting"
            else:
                text = "another server holds the lease; waiting"
            if text != said:
                self.say(text)
                said = text
            time.sleep(1.0)
        return None

    def _serve(self, server: Server) -> str:
        database = Database(server.url(), timeout_s=10.0, application="sweep service")
        unused_since: float | None = None
        next_renewal = 0.0
        while not self._is_over():
            now = time.monotonic()
            if now >= next_renewal:
                self.lease.renew()
                next_renewal = now + self.lease.period_s
                try:
                    needed = bool(database.execute(_NEEDED_SQL, (studies.STATE,))[0][0])
                except DatabaseUnavailable as error:
                    self.say(error.message)
                    server = start_stop.start(self.data_dir, listen="*", idle_stop_s=None)
                    continue
                except Exception as error:  # no tables yet: nothing of sweep is in there
                    if type(error).__name__ != "UndefinedTable":
                        raise
                    needed = False
                finally:
                    database.close()
                if needed:
                    unused_since = None
                else:
                    unused_since = unused_since or now
                    if now - unused_since > UNUSED_S and clients(server) == 0:
                        return "unused"
            time.sleep(0.5)
        return self.leaving


def host(data_dir: Path, job_runs: Callable[[], bool]) -> str:
    """Serve from within a task while the database's job waits; return why it ended.

    The tasks may be what fills the cluster: then that job waits for them, and they for it. Only one
    task serves; it ends with the task, or when the job has begun and waits for the lease.

    Args:
        job_runs: Tells whether that job runs.
    """
    parent, asked = os.getppid(), time.monotonic()

    def until() -> str:
        nonlocal asked
        if os.getppid() != parent:
            return "the task is over"
        if time.monotonic() - asked < ASK_EVERY_S:
            return ""
        asked = time.monotonic()
        return "the database's job runs" if job_runs() else ""

    with locked(data_dir / HOST, wait=False) as got:
        return DatabaseService(data_dir, until=until).run() if got else "another task serves"


def requeue_self() -> None:
    """Put this job back into the queue: its time is over, and studies still need it."""
    job = os.environ.get("SLURM_JOB_ID")
    if job:
        subprocess.run(["scontrol", "requeue", job], stdin=subprocess.DEVNULL, timeout=60)
