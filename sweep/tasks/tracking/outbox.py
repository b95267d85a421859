"""The worker's end of the trackers: tells their processes which attempts there are.

A tracker has a process of its own, because it may hang: its server is away, its disk is slow. All
that the worker does is to write a line into a pipe, and never to wait for room in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from sweep.control import tracker_gaps
from sweep.core.files import make_private
from sweep.core.masking import mask_url
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.core.system import process_tree
from sweep.training.command.environment import MLFLOW_URI, without_database

LOOK_S = 20.0  # between two looks at one that still computes
COMPUTES_S = 0.2  # seconds in that time: less computes one that waits for a server


def busy_s_of(pid: int) -> float:
    """Return for how long a process and those that it has started have computed, or would have if
    a CPU had been free: on a busy node these, which are nice, get hardly any."""
    return sum(one.cpu_s + (one.delay_s or 0.0) for one in process_tree.look(pid).values())


def address_of(environ: Mapping[str, str]) -> str:
    """Return where MLflow's runs go, without a password; "" for the study's own server."""
    return mask_url(environ.get(MLFLOW_URI, ""))


class Outbox:
    """Passes the beginnings and ends of attempts on to a study's trackers.

    Args:
        environ: The environment of the training, where MLFLOW_TRACKING_URI and its like are.
    """

    def __init__(self, study: Study, folder: StudyFolder, environ: Mapping[str, str]) -> None:
        self._study = study
        self._folder = folder
        self._environ = environ
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def begin(
        self,
        trial: int,
        attempt: int,
        first_step: int,
        host: str,
        first: int = 1,
        earlier: Sequence[int] = (),
        replicate: int = 1,
    ) -> None:
        """Say that an attempt trains.

        Args:
            first_step: Where steps counted from the output go on.
            host: The node that it runs on.
            first: The first attempt of the trial whose reports count.
            earlier: Where counted steps began in the attempts before it, from attempt 1 on.
            replicate: Which of the trial's trainings it belongs to, from 1.
        """
        self._say(
            {
                "event": "begin",
                "trial": trial,
                "attempt": attempt,
                "first_step": first_step,
                "host": host,
                "first": first,
                "earlier": list(earlier),
                "replicate": replicate,
                "mlflow": address_of(self._environ),
            }
        )

    def end(self, trial: int, attempt: int, state: str) -> None:
        """Say that an attempt has ended, and what that made of its trial."""
        self._say({"event": "end", "trial": trial, "attempt": attempt, "state": state})

    def close(self, wait_s: float, busy_s: float = 0.0) -> list[str]:
        """Let the trackers finish, for some seconds; return the names of those that did not.

        Args:
            busy_s: For how long one is waited for that still computes: on a busy node the import of
                its package alone may take a minute.
        """
        for process in self._processes.values():
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
        begin = time.monotonic()
        late = []
        for name, process in self._processes.items():
            if not wait_while_busy(process, begin + wait_s, begin + busy_s):
                late.append(name)
                process.kill()
                process.wait()
        self._processes.clear()
        return late

    def _say(self, message: Mapping[str, Any]) -> None:
        line = (json.dumps(message) + "\n").encode()
        if self._study.track:
            with contextlib.suppress(OSError):
                tracker_gaps.note_told(self._folder, message)
        for name in dict.fromkeys(self._study.track):
            # What a tracker's process does must never become the worker's trouble.
            with contextlib.suppress(OSError):
                process = self._processes.get(name)
                is_begin = message["event"] == tracker_gaps.BEGIN
                if process is None or (is_begin and (process.poll() or 0) < 0):  # it was killed
                    process = self._start(name)
                assert process.stdin is not None
                os.write(process.stdin.fileno(), line)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        process = start(name, self._folder, self._environ, subprocess.PIPE)
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._processes[name] = process
        return process


def start(
    name: str, folder: StudyFolder, environ: Mapping[str, str], stdin: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start the process of a tracker, which reads from there what it is told.

    Args:
        environ: The environment of the training.

    Raises:
        OSError: It cannot be started.
    """
    environ = without_database(environ, environ)
    if name == "mlflow":  # a process of ours that reaches the database as the worker does
        environ |= {key: text for key, text in os.environ.items() if key.startswith("PG")}
    with (make_private(folder.tracking) / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "sweep.tasks.tracking.feeder", str(folder.root), name],
            stdin=stdin,
            stdout=log,
            stderr=log,
            env=environ,
            bufsize=0,
            start_new_session=True,  # signals to the task are not meant for it
        )


def wait_while_busy(
    process: subprocess.Popen[bytes],
    until: float,
    busy_until: float,
    busy_s_of: Callable[[int], float] = busy_s_of,
    look_s: float = LOOK_S,
) -> bool:
    """Wait for a process until then, and as long as it computes; return whether it has ended.

    Args:
        until: In seconds of the monotonic clock, as is busy_until: no longer than that.
        busy_s_of: Returns for how long a process has computed or wanted to, by its number.
    """
    used_s = busy_s_of(process.pid)
    while True:
        try:
            process.wait(max(0.0, until - time.monotonic()))
            return True
        except subprocess.TimeoutExpired:
            last_s, used_s = used_s, busy_s_of(process.pid)
            if used_s - last_s < COMPUTES_S or time.monotonic() >= busy_until:
                return False
            until = min(time.monotonic() + look_s, busy_until)
