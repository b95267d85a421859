"""What tests of commands share: calls, and waiting for what they bring about."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweep.core.paths import StudyFolder
from sweep.core.system.processes import is_alive
from sweep.schedulers.local.job import JobFolder, RunnerRecord
from tests import waiting
from tests.conftest import Sweep
from tests.waiting import text_of


def collected(sweep: Sweep, *arguments: str) -> list[dict[str, Any]]:
    """Return the rows that ``collect`` gives as JSON."""
    ran = sweep("collect", *arguments, "--format", "json")
    assert ran.code == 0, ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


def gated(folder: Path) -> str:
    """Return the command of a training that waits for a file ``gate`` in a folder.

    By its absolute path: trainings start in a snapshot of the code.
    """
    return f"[python, train.py, --x, '{{x}}', --steps, '5', --gate, '{folder}/gate']"


def counts(sweep: Sweep) -> dict[str, int]:
    """Return how many trials are in which state, those without any left out."""
    ran = sweep("status", "--json")
    assert ran.code == 0, ran.err
    return {state: count for state, count in json.loads(ran.out)["counts"].items() if count}


def wait_for(condition: Callable[[], bool], what: str, wait_s: float = 180.0) -> None:
    waiting.wait_for(condition, what, wait_s, pause_s=0.1)


def steps_of(runs: Path, name: str, trial: int, attempt: int = 1) -> int:
    """Return how many lines a training has reported so far."""
    path = runs / name / "trials" / f"{trial:05d}" / "attempts" / str(attempt) / "metrics.jsonl"
    return len(text_of(path).splitlines())


def wait_for_runners(root: Path) -> None:
    """Wait until nothing of sweep's writes into a study's folder: ``launch --wait`` returns at its
    last trial's end, and its finaliser draws the page after that."""

    def have_ended() -> bool:
        records = StudyFolder(root).local.glob("*/runner.json")
        found = [RunnerRecord.read(JobFolder(path.parent)) for path in records]
        return not any(one is not None and is_alive(one.pid, one.start) for one in found)

    wait_for(have_ended, "its runners to end")


def type_ctrl_c(
    arguments: list[str], cwd: Path, env: dict[str, str], ready: Callable[[str], bool]
) -> tuple[int, str]:
    """Run sweep in a terminal and type Ctrl-C once its text is ``ready``; return code and text."""
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in a background job
        os.chdir(cwd)
        os.execve(sys.executable, [sys.executable, "-m", "sweep", *arguments], env)
    parts: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # Linux's way to say that the other end is closed
            while part := os.read(terminal, 65536):
                parts.append(part)

    def text() -> str:
        return b"".join(parts).decode("utf-8", "replace")

    reader = threading.Thread(target=read)
    reader.start()
    try:
        wait_for(lambda: ready(text()), "the study to run")
        os.write(terminal, b"\x03")
        wait_for(lambda: has_ended(pid), "the command to end")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        os.close(terminal)
        reader.join(10)
    return os.waitstatus_to_exitcode(status), text()


def has_ended(pid: int) -> bool:
    """Tell whether a child is a zombie: ended, and not yet waited for."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
