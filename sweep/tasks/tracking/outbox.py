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
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.core.files import make_private
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.training.command.environment import without_database


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
            }
        )

    def end(self, trial: int, attempt: int, state: str) -> None:
        """Say that an attempt has ended, and what that made of its trial."""
        self._say({"event": "end", "trial": trial, "attempt": attempt, "state": state})

    def close(self, wait_s: float) -> list[str]:
        """Let the trackers finish, for some seconds; return the names of those that did not."""
        for process in self._processes.values():
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
        deadline = time.monotonic() + wait_s
        late = []
        for name, process in self._processes.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(name)
                process.kill()
                process.wait()
        self._processes.clear()
        return late

    def _say(self, message: Mapping[str, Any]) -> None:
        line = (json.dumps(message) + "\n").encode()
        for name in dict.fromkeys(self._study.track):
            # What a tracker's process does must never become the worker's trouble.
            with contextlib.suppress(OSError):
                process = self._processes.get(name) or self._start(name)
                assert process.stdin is not None
                os.write(process.stdin.fileno(), line)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        folder = make_private(self._folder.tracking)
        environ = without_database(self._environ, self._environ)
        if name == "mlflow":  # a process of ours that reaches the database as the worker does
            environ |= {key: text for key, text in os.environ.items() if key.startswith("PG")}
        with (folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "sweep.tasks.tracking.feeder", str(self._folder.root), name],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environ,
                bufsize=0,
                start_new_session=True,  # signals to the task are not meant for it
            )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._processes[name] = process
        return process
