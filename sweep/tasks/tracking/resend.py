"""Sends again what trackers have missed: their processes were killed, or their server away.

Who settles a study does it once, and ``sweep resend``. An attempt's journal is read from its start,
for all attempts of a trial in order; a tracker writes what it has not, or the trial anew.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sweep.control import tracker_gaps, tracker_trouble
from sweep.control.tracker_gaps import BEGIN, END, Messages
from sweep.core.errors import SweepError
from sweep.core.files import make_private, take_lock
from sweep.core.outcomes import FINAL_STATES, INTERRUPTED
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.storage import records
from sweep.storage.ledger import Ledger
from sweep.tasks.tracking.outbox import address_of, start, wait_while_busy

LOCK = "resend.lock"
OTHERS_S = 30.0  # for a process that its task has left behind: it gives up by then


@dataclasses.dataclass(frozen=True)
class Resent:
    """What came of one tracker.

    Attributes:
        trials: Those that were sent again.
        lacking: Those that it still lacks.
        why: Why it lacks them, in words.
    """

    name: str
    trials: Sequence[int]
    lacking: Sequence[int]
    why: str = ""


def resend(
    states_of: Callable[[Sequence[int]], Mapping[int, str]],
    folder: StudyFolder,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    *,
    wait_s: float,
    busy_s: float,
    others_s: float = OTHERS_S,
) -> list[Resent]:
    """Send again what trackers lack of trials that are final; return what came of each that does.

    Args:
        states_of: Returns the states of those of these trials that are final (``final_states``).
        environ: The environment of the training.
        wait_s: For how long each tracker is waited for.
        busy_s: The same, of one that still computes.
        others_s: For how long one that is at work already is waited for.

    Raises:
        SweepError: Another process sends at this moment; the file system has no locks.
        DatabaseUnavailable: The server does not answer.
    """
    present = Study.read(folder.study)
    told = tracker_gaps.read_told(folder)
    names = [n for n in dict.fromkeys(present.track) if tracker_gaps.missing(folder, n, told)]
    if not names:
        return []
    lock = take_lock(make_private(folder.tracking) / LOCK)
    if lock is None:
        raise SweepError(
            f"Another process sends again what trackers of {present.name} lack.",
            "Wait for it; `sweep status` says what is left.",
        )
    try:
        states = states_of(sorted({trial for trial, _ in told}))
        return [
            _resend(folder, name, told, states, environ, say, (wait_s, busy_s, others_s))
            for name in names
        ]
    finally:
        os.close(lock)


def _resend(
    folder: StudyFolder,
    name: str,
    told: Messages,
    states: Mapping[int, str],
    environ: Mapping[str, str],
    say: Callable[[str], None],
    waits_s: tuple[float, float, float],
) -> Resent:
    wait_s, busy_s, others_s = waits_s
    until = time.monotonic() + others_s
    while tracker_gaps.is_at_work(folder, name):
        if time.monotonic() >= until:
            lacking = tracker_gaps.missing(folder, name, told)
            return Resent(name, (), lacking, "its process of a task is still at work")
        time.sleep(0.5)
    lacking = tracker_gaps.missing(folder, name, told)
    trials = [trial for trial in lacking if trial in states and folder.config(trial).exists()]
    if elsewhere := _elsewhere(name, told, trials, environ):
        return Resent(name, (), lacking, elsewhere)
    if not trials:
        why = "they are not over, or their folders are gone" if lacking else ""
        return Resent(name, (), lacking, why)
    say(f"{name}: sending again {tracker_gaps.describe(trials)}")
    troubles = tracker_trouble.noted(folder, name)
    with tempfile.TemporaryFile() as messages:
        for message in _messages(told, set(trials), states):
            messages.write((json.dumps(message) + "\n").encode())
        messages.seek(0)
        process = start(name, folder, environ, messages)
    begin = time.monotonic()
    is_done = False
    try:
        is_done = wait_while_busy(process, begin + wait_s, begin + busy_s)
    finally:
        if not is_done:
            process.kill()
            process.wait()
    left = tracker_gaps.missing(folder, name, told)
    if not left:
        tracker_trouble.forget(troubles)
    why = f"see {folder.tracking / name}.log" if left else ""
    return Resent(name, [trial for trial in trials if trial not in left], left, why)


def _elsewhere(name: str, told: Messages, trials: Sequence[int], environ: Mapping[str, str]) -> str:
    """Return why trials would be sent to another place than the one that has the rest of them."""
    if name != "mlflow":
        return ""
    now = address_of(environ)
    for (trial, _), message in told.items():
        then = message[BEGIN].get("mlflow", "")
        if trial in trials and then != now:
            if then:
                return f"its runs are on another server: export MLFLOW_TRACKING_URI={then}"
            return "its runs are in the study's own database: unset MLFLOW_TRACKING_URI"
    return ""


def _messages(
    told: Messages, trials: set[int], states: Mapping[int, str]
) -> Iterator[dict[str, Any]]:
    """Yield what a tracker is told of these trials, as their tasks would have."""
    last = dict(list(told))  # of each trial: attempts come in order
    for (trial, attempt), message in told.items():
        if trial not in trials:
            continue
        yield {**message[BEGIN], "again": True}
        killed = states[trial] if attempt == last[trial] else INTERRUPTED
        end = {"event": END, "trial": trial, "attempt": attempt, "state": killed}
        yield message.get(END, end)


def final_states(ledger: Ledger, numbers: Sequence[int]) -> dict[int, str]:
    """Return the states of those of a study's trials that are final.

    Raises:
        DatabaseUnavailable: The server does not answer.
    """
    trials = ledger.db.retry(
        lambda db: records.read_trials(db, ledger.study_id, ledger.study, numbers=numbers)
    )
    return {trial.number: trial.state for trial in trials if trial.state in FINAL_STATES}
