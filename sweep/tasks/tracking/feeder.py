"""The process of one tracker: ``python -m sweep.tasks.tracking.feeder FOLDER NAME``.

Reads from its standard input which attempts begin and end, and what they report from their own
journals. What a tracker refuses is tried again, with growing pauses, until the worker has gone, and
some seconds more; where this process hangs, the worker ends it. The journals stay what they are,
and what was handed over whole is noted: the rest can be sent again (``resend``).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from sweep.control import tracker_gaps
from sweep.control.tracker_trouble import Trouble
from sweep.core.masking import mask
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.core.trial import Report, replicate_seed
from sweep.provenance import manifest
from sweep.provenance.capture import capture_host
from sweep.tasks.tracking.csv_files import CsvTracker
from sweep.tasks.tracking.earlier import Earlier
from sweep.tasks.tracking.tracker import Described, Tracker
from sweep.training.command import launchers
from sweep.training.journal import Journal
from sweep.training.printed_steps import first_printed

LOOK_EVERY_S = 1.0
PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0  # after a refusal
GIVE_UP_S = 20.0  # how long what is refused is tried again once the worker has gone
BATCH = 1000  # reports handed over at once


class FedAttempt:
    """An attempt that is fed to a tracker: what is due next, in order."""

    def __init__(self, study: Study, folder: StudyFolder, message: Mapping[str, Any]) -> None:
        self.trial, self.number = int(message["trial"]), int(message["attempt"])
        self._folder = folder.attempt(self.trial, self.number)
        self._journal = Journal(
            self._folder,
            study.objectives,
            partial(first_printed, study, self._folder, int(message["first_step"])),
            launchers.reader(study),
        )
        files = [folder.config(self.trial), self._folder.log]
        numbers = range(int(message.get("first", 1)), self.number)  # the attempts that count
        begins = [int(step) for step in message.get("earlier", ())]
        replicate = int(message.get("replicate", 1))
        again = bool(message.get("again"))
        # Those of another training of the trial count on, with its other seed.
        before = range(1, numbers.start) if replicate == 1 else range(0)
        read = partial(_read_earlier, study, folder, self.trial, numbers, begins)
        self.described = Described(
            study.name,
            self.trial,
            self.number,
            _params(study, folder, self.trial, replicate),
            _system(folder, self.number, str(message["host"]), {} if again else capture_host()),
            files,
            replicate,
            again,
            lambda: list(zip(numbers, read())),
            lambda: list(zip(before, _read_earlier(study, folder, self.trial, before, begins))),
        )
        self.state: str | None = None  # once it has ended
        self._begun = False
        self._due: list[Report] = []
        self._first = self.number > 1
        self._earlier = Earlier(read)
        self._owed: list[Report] = []  # of earlier attempts

    def _read(self, *, final: bool) -> bool:
        self._due.extend(self._journal.read(final=final))
        return bool(self._due)

    def feed(self, tracker: Tracker) -> bool:
        """Hand over what is new; return whether everything of it, its end too, was handed over."""
        if not self._begun:
            tracker.begin(self.described)
            self._begun = True
        has_ended = self.state is not None
        while self._due or self._read(final=has_ended):
            batch = self._due[:BATCH]
            if self._first:
                tracker.cut(self.described, min(report.step for report in self._due))
                self._first = False
            self._owed += self._earlier.before(batch)
            self._restore(tracker)
            tracker.log(self.described, batch)
            del self._due[: len(batch)]
        if self.state is None:
            return False
        self._owed += self._earlier.rest()
        self._restore(tracker)
        tracker.end(self.described, self.state)
        return True

    def _restore(self, tracker: Tracker) -> None:
        if self._owed:
            tracker.restore(self.described, self._owed)
            self._owed = []


def _read_earlier(
    study: Study, folder: StudyFolder, trial: int, numbers: range, begins: Sequence[int]
) -> Iterator[list[Report]]:
    for earlier in numbers:
        attempt = folder.attempt(trial, earlier)
        begin = begins[earlier - 1] if earlier <= len(begins) else 0
        journal = Journal(attempt, study.objectives, partial(int, begin), launchers.reader(study))
        yield list(journal.rest())


def _params(study: Study, folder: StudyFolder, trial: int, replicate: int) -> dict[str, Any]:
    with folder.config(trial).open(encoding="utf-8") as stream:
        found = dict(YAML(typ="safe", pure=True).load(stream) or {})
    return {**found, "seed": found.get("seed", replicate_seed(study.seed, trial, replicate))}


def _system(
    folder: StudyFolder, attempt: int, host: str, machine: Mapping[str, Any]
) -> dict[str, str]:
    """Describe where an attempt runs; its machine is this one, unless it is sent again."""
    code = manifest.read(folder).get("code") or {}
    found = {**machine, "host": host, "attempt": attempt}
    found |= {name: code.get(name) for name in ("commit", "branch", "dirty")}
    return {name: str(value) for name, value in found.items() if value not in (None, "", [])}


def feed(
    study: Study,
    folder: StudyFolder,
    tracker: Tracker,
    messages: Callable[[float], Sequence[Mapping[str, Any]] | None],
    say: Callable[[str], None],
    works: Callable[[], None] = lambda: None,
    sent: Callable[[int, int], None] = lambda trial, attempt: None,
    give_up_s: float = GIVE_UP_S,
) -> int:
    """Feed a tracker until nobody has anything more to say; return how many attempts are left over.

    Args:
        messages: Waits for so many seconds at most, and returns what has come; None once there is
            nobody left who could say more.
        say: Told what the tracker refuses.
        works: Called where it takes what it is given.
        sent: Told of each attempt that it has taken whole.
        give_up_s: For how long what it refuses is tried again once nobody is there any more.
    """
    live: dict[tuple[int, int], FedAttempt] = {}
    pause_s = PAUSE_S
    wait_s, is_over, over_s = LOOK_EVERY_S, False, 0.0
    while True:
        if is_over:
            time.sleep(wait_s if wait_s > LOOK_EVERY_S else 0.0)
        else:
            came = messages(wait_s)
            is_over, over_s = came is None, time.monotonic()
            for message in came or ():
                _take(study, folder, live, message)
        wait_s = LOOK_EVERY_S
        for key, attempt in list(live.items()):
            if is_over and attempt.state is None:
                attempt.state = "interrupted"  # the worker is gone; it can say no more
            try:
                if attempt.feed(tracker):
                    del live[key]
                    sent(*key)
                pause_s = PAUSE_S
                hindered = tracker.trouble()
                if hindered:
                    say(hindered)
                else:
                    works()
            except Exception as error:
                say(f"trial {key[0]}, attempt {key[1]}: {type(error).__name__}: {error}"[:500])
                if is_over and time.monotonic() - over_s > give_up_s:
                    return len(live)
                wait_s = pause_s
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                break
        if is_over and not live:
            tracker.close()
            return 0


def _take(
    study: Study,
    folder: StudyFolder,
    live: dict[tuple[int, int], FedAttempt],
    message: Mapping[str, Any],
) -> None:
    key = (int(message["trial"]), int(message["attempt"]))
    if message["event"] == "begin":
        live[key] = FedAttempt(study, folder, message)
    elif key in live:
        live[key].state = str(message["state"])


def open_tracker(name: str, study: Study, folder: StudyFolder) -> Tracker:
    """Return the tracker of this name.

    Raises:
        ImportError: Its package is not installed.
    """
    if name == "wandb":
        from sweep.tasks.tracking.wandb_runs import WandbTracker

        return WandbTracker(study, folder)
    if name == "mlflow":
        from sweep.tasks.tracking.mlflow import MlflowTracker

        return MlflowTracker(study, folder)
    if name == "csv":
        return CsvTracker(folder)
    from sweep.tasks.tracking.tensorboard import TensorboardTracker

    return TensorboardTracker(study, folder)


class _Lines:
    """Standard input as messages; read by a thread of its own."""

    def __init__(self) -> None:
        self._found: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._found.put(line)
        self._found.put(None)

    def wait(self, wait_s: float) -> list[Mapping[str, Any]] | None:
        found = list(self._take(wait_s))
        if None in found:
            self._found.put(None)
            found.remove(None)
            if not found:
                return None
        return [json.loads(line) for line in found if line is not None]

    def _take(self, wait_s: float) -> Iterator[str | None]:
        try:
            yield self._found.get(timeout=wait_s)
            while True:
                yield self._found.get_nowait()
        except queue.Empty:
            return


def main(arguments: Sequence[str]) -> int:
    """Feed one tracker of a study."""
    folder, name = StudyFolder(Path(arguments[0])), arguments[1]
    os.nice(10)  # training comes first
    study = Study.read(folder.study)

    trouble = Trouble(folder, name)

    def say(text: str) -> None:
        trouble.note(text)
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {mask(text)}", flush=True)

    def sent(trial: int, attempt: int) -> None:
        with contextlib.suppress(OSError):
            tracker_gaps.note_sent(folder, name, trial, attempt)

    at_work = tracker_gaps.begin_work(folder, name)  # until this process ends
    try:
        tracker = open_tracker(name, study, folder)
    except ImportError as error:
        say(f"{name} gets nothing: {error}; pip install 'sweep-hpo[{name}]'")
        return 1
    left = feed(study, folder, tracker, _Lines().wait, say, trouble.is_over, sent)
    tracker_gaps.end_work(at_work)
    return min(left, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
