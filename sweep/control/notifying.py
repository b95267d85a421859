"""Telling the user by a command of his what has become of the study: ended, held, stuck.

Who brings the event about does it: a task at its end, and the finaliser, whichever comes first. The
event is taken in the database before the command starts, so that it runs once at most, whoever
races and whoever is killed; what came of it is noted there, and status shows what went wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sweep.control.place import training_environ
from sweep.core import outcomes
from sweep.core.errors import SweepError
from sweep.core.files import make_private, open_private, read_tail
from sweep.core.json_text import finite
from sweep.core.masking import mask
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.storage import notices, records
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.notices import Event, Notice
from sweep.training.command.environment import without_database

TIME_S = 60.0  # that the command may take
GRACE_S = 5.0  # between SIGTERM and SIGKILL
LATE_S = 300.0  # a notice that is so old and has no result will have none


def tell(
    ledger: Ledger,
    folder: StudyFolder,
    say: Callable[[str], None],
    *,
    stuck: str = "",
    time_s: float = TIME_S,
) -> None:
    """Run the study's command for what has become of it, unless somebody has done so.

    What goes wrong is said and noted, and stops nothing.

    Args:
        stuck: Why nothing of the study runs any more, where the caller has found that.
    """
    try:
        present = Study.read(folder.study)  # a launch may have changed whom to tell
        if present.notify.command:
            _tell(ledger, folder, present, say, stuck, time_s)
    except (SweepError, OSError) as error:
        say(f"notify: {error}")


def _tell(
    ledger: Ledger,
    folder: StudyFolder,
    study: Study,
    say: Callable[[str], None],
    stuck: str,
    time_s: float,
) -> None:
    db, study_id = ledger.db, ledger.study_id
    event = db.retry(lambda _: notices.read_event(ledger, stuck))
    if event is None or event.word not in study.notify.on:
        return
    token, host = os.urandom(8).hex(), os.uname().nodename
    mine = db.retry(lambda _: notices.claim(db, study_id, event, token, host))
    if mine is None:
        return
    log = make_private(folder.logs) / f"notify_{event.key}.log"
    found = json.dumps(finite(describe(ledger, folder, study, event)), ensure_ascii=False)
    environ = without_database(training_environ(folder, os.environ), os.environ)
    result, is_well = run(study.notify.command, mask(found), study.workdir, environ, log, time_s)
    say(f"notify ({event.word}): {result}")
    db.retry(lambda _: notices.finish(db, study_id, event, mine, result, is_well, str(log)))


def describe(ledger: Ledger, folder: StudyFolder, study: Study, event: Event) -> dict[str, Any]:
    """Return what the command is told of an event."""

    def read(db: Database) -> tuple[dict[str, int], list[Any]]:
        counts = records.count_states(db, ledger.study_id)
        numbers = [] if study.is_multi_objective else ledger.best_numbers(1)
        found = records.read_trials(db, ledger.study_id, study, numbers=numbers) if numbers else []
        return counts, list(found)

    counts, best = ledger.db.retry(read)
    names = [objective.metric for objective in study.objectives]
    found = [{"trial": b.number, "value": b.values[0], "params": dict(b.params)} for b in best]
    return {
        "event": event.word,
        "study": study.name,
        "reason": event.reason,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "trials": sum(counts.values()),
        "counts": {state: counts[state] for state in outcomes.STATES},
        "metric": names[0] if len(names) == 1 else names,
        "best": found[0] if found else None,
        "folder": str(folder.root),
        "report": str(folder.report) if folder.report.exists() else None,
    }


def run(
    command: tuple[str, ...],
    text: str,
    workdir: str,
    environ: Mapping[str, str],
    log: Path,
    time_s: float = TIME_S,
) -> tuple[str, bool]:
    """Run a command on a text as its standard input, in a process group of its own.

    Returns:
        What came of it, in words, and whether that was well.
    """
    began = time.monotonic()
    with open(log, "w", encoding="utf-8", opener=open_private) as output:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=workdir,
                env=dict(environ),
                text=True,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return f"{command[0]} could not be started: {error}", False
        try:
            child.communicate(text, timeout=time_s)
        except subprocess.TimeoutExpired:
            _end(child)
            return f"{command[0]} was ended: it took longer than {time_s:.0f} s", False
    took = f"after {time.monotonic() - began:.1f} s"
    if child.returncode == 0:
        return f"{command[0]} ran {took}", True
    last = next(iter(read_tail(log, 1)), "")
    said = f": {mask(last)[:200]}" if last else ""
    how = (
        f"exit code {child.returncode}"
        if child.returncode > 0
        else f"signal {signal.Signals(-child.returncode).name}"
    )
    return f"{command[0]} failed {took}, {how}{said}", False


def _end(child: subprocess.Popen[str]) -> None:
    """End a command with all that it has started in its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
    child.wait()


def complaints(found: Mapping[str, Notice], now_s: float) -> list[str]:
    """Return, in sentences, what went wrong when the user was to be told.

    Args:
        now_s: The database's clock, epoch seconds.
    """
    said = []
    for key, notice in found.items():
        word = key.partition("-")[0]
        if notice.result and not notice.is_well:
            said.append(f"notify ({word}): {notice.result}; what it printed: {notice.log}")
        elif not notice.result and now_s - notice.time > LATE_S:
            said.append(
                f"notify ({word}): begun on {notice.host}, and whoever did it was killed: the "
                "command may have run or not; it is not run again"
            )
    return said
