"""The database as a small job of its own on a cluster.

``launch`` fills the database with a server on the login node, submits this job, and stops its own
server; this job then serves the same data from a compute node until no study needs it. Its address
is in the data folder, where tasks look for it.

The server is the job's own child, and ends with it. A requeued job can start on another host while
its predecessor still lives there, and PostgreSQL's own check of its pid file knows one host only.
So the data folder carries a lease: the job renews it, ends its server when it cannot, and a
successor waits until it is three periods old. What it then serves, ``succession`` says.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from sweep.core.attributes import STATE, WAVE
from sweep.core.errors import DatabaseUnavailable, SweepError
from sweep.core.files import locked, make_private
from sweep.storage.connection import Database
from sweep.storage.embedded import start_stop
from sweep.storage.embedded.folder import Starter
from sweep.storage.embedded.lease import Lease, LeaseLost
from sweep.storage.embedded.server import Server, is_unused, running
from sweep.storage.embedded.server_processes import Child
from sweep.storage.embedded.succession import AskFate

UNUSED_S = 45.0  # without a study that needs it
SETTLE_S = 1.0  # after which the last of several that took the lease at once has it
HOST = "host.lock"  # held by the one task that serves while the database's job waits
ASK_EVERY_S = 30.0  # whether that job runs

# Studies that may still need the database: trials that are not final while the study runs and has
# a wave that is not over, or a re-run that has not ended (for a day: its task may be lost).
_NEEDED_SQL = f"""
SELECT EXISTS (
  SELECT 1 FROM studies s
  JOIN study_system_attributes w ON w.study_id = s.study_id AND starts_with(w.key, '{WAVE}')
  WHERE NOT (w.value_json::json ->> 'over')::boolean
    AND EXISTS (SELECT 1 FROM trials t WHERE t.study_id = s.study_id
                AND (t.state = 'WAITING' OR (t.state = 'RUNNING' AND EXISTS
                  (SELECT 1 FROM sweep_attempt a WHERE a.trial_id = t.trial_id))))
    AND COALESCE((SELECT a.value_json::json ->> 'word' FROM study_system_attributes a
         WHERE a.study_id = s.study_id AND a.key = '{STATE}'), 'running') IN ('running', 'draining')
) OR EXISTS (
  SELECT 1 FROM sweep_rerun WHERE outcome IS NULL AND requested > now() - interval '1 day'
) OR EXISTS (
  SELECT 1 FROM sweep_attempt WHERE outcome IS NULL AND seen > now() - interval '5 minutes'
)
"""


class DatabaseService:
    """Serves a data folder until it is not needed, or told to leave.

    Args:
        starter: The job that we are.
        ask_fate: Says what became of the job that served before us.
        listen: The interface or address to listen on; None for all.
        until: Asked twice a second; says why to leave, or "".
    """

    def __init__(
        self,
        data_dir: Path,
        starter: Starter,
        ask_fate: AskFate | None,
        listen: str | None = None,
        say: Callable[[str], None] = lambda text: print(text, flush=True),
        until: Callable[[], str] = lambda: "",
    ) -> None:
        self.data_dir = data_dir
        self.ask_fate = ask_fate
        self.listen = listen or "*"
        self.until = until
        self.lease = Lease(data_dir)
        self.child = Child()
        self.within = start_stop.Within(starter, self.lease, self.child.spawn)
        self.say = say
        self.leaving: str = ""
        self.waiting: str = ""  # for what

    def run(self) -> str:
        """Serve; return why it ended: "unused", "asked" (TERM), "time" (USR1) or ``until``'s."""
        signal.signal(signal.SIGTERM, lambda *_: self.leave("asked"))
        signal.signal(signal.SIGUSR1, lambda *_: self.leave("time"))
        return self.serve()

    def serve(self) -> str:
        """Serve, as ``run`` does, until ``leave`` is called."""
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
            self._end()
            self.say("the server has stopped")

    def _start(self) -> Server:
        return start_stop.start(
            self.data_dir,
            make=False,
            listen=self.listen,
            idle_stop_s=None,
            ask_fate=self.ask_fate,
            within=self.within,
        )

    def _end(self) -> None:
        is_ours = self.lease.is_mine()
        self.child.end(at_once=not is_ours)
        if is_ours:
            # Its record goes, too; what serves by now is another's.
            start_stop.forget(self.data_dir)
        self.lease.give_up()

    def leave(self, why: str) -> None:
        """Have it end soon; the first reason counts."""
        self.leaving = self.leaving or why

    def _is_over(self) -> bool:
        self.leaving = self.leaving or self.until()
        return bool(self.leaving)

    def _begin(self) -> Server | None:
        """Wait for our turn, then start the server; None when told to leave before."""
        said = ""
        while not self._is_over():
            try:
                if self._take_lease() and (server := self._take_over()):
                    return server
                text = self.waiting
            except SweepError as error:
                text = error.message
            if text != said:
                self.say(text)
                said = text
            time.sleep(1.0)
        return None

    def _take_lease(self) -> bool:
        """Take the lease, or renew it; tell whether it is ours."""
        if self.lease.is_mine():
            self.lease.renew()
            return True
        self.waiting = "another server holds the lease; waiting"
        if not self.lease.is_free():
            return False
        self.lease.take()
        time.sleep(SETTLE_S)
        return self.lease.is_mine()

    def _take_over(self) -> Server | None:
        """Start the server, unless another serves the data; the lease is ours."""
        other = running(self.data_dir)
        if other is None or self.child.is_process(other.pid):
            return self._start()
        if other.stays and other.pid:
            # Its job was killed, and nobody renews the lease: it would never end.
            self.waiting = "ending the server that a killed job left here"
            start_stop.stop(self.data_dir)
        else:
            self.waiting = f"a command serves the data at {other.url(masked=True)}; waiting"
        return None

    @staticmethod
    def _connection(server: Server) -> Database:
        return Database(server.url(), timeout_s=10.0, application="sweep service")

    def _serve(self, server: Server) -> str:
        database = self._connection(server)
        unused_since: float | None = None
        next_renewal = 0.0
        while not self._is_over():
            now = time.monotonic()
            if now >= next_renewal:
                self.lease.renew()
                next_renewal = now + self.lease.period_s
                try:
                    needed = bool(database.execute(_NEEDED_SQL)[0][0])
                except DatabaseUnavailable as error:
                    self.say(error.message)
                    # A command may have begun to serve the data meanwhile: it has its turn.
                    again = self._begin()
                    if again is None:
                        break
                    server, database = again, self._connection(again)
                    self.say(f"serving at {server.url(masked=True)}")
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
                    if now - unused_since > UNUSED_S and is_unused(server):
                        return "unused"
            time.sleep(0.5)
        return self.leaving


def host(
    data_dir: Path,
    starter: Starter,
    ask_fate: AskFate | None,
    job_runs: Callable[[], bool],
    listen: str | None = None,
) -> str:
    """Serve from within a task while the database's job waits; return why it ended.

    The tasks may be what fills the cluster: then that job waits for them, and they for it. Only one
    task serves; it ends with the task, or when the job has begun and waits for the lease.

    Args:
        starter: The task's job.
        ask_fate: As for ``Service``.
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
        return (
            DatabaseService(data_dir, starter, ask_fate, listen, until=until).run()
            if got
            else "another task serves"
        )
