"""Sick nodes: where everything fails in a second, a task must not pull trial after trial.

A quick failure on a node where no training of this array has reported anything, while on another
node one has, is the node's fault until the opposite is shown: the trial is given back. After a few
of them the node is avoided: Slurm keeps the array's waiting elements from it, or, where that is
refused, the task holds it for ten minutes, lest the next element falls into the same hole.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sweep.core.attributes import SICK_NODE
from sweep.core.errors import CouldNotAsk, SchedulerError
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.trial import Place
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.training.leave import Leave

QUICK_S = 10.0  # a training that fails later has come to work
FAILURES = 3  # so many quick ones on a node make it sick
HOLD_S = 600.0
HOLD_VARIABLE = "SWEEP_SICK_HOLD"  # seconds; the batch script reads it as well
VALID_S = 3600.0  # a node is tried again after an hour
WAIT_S = 20.0  # for news from other nodes, when a first training has failed at once
MARKS = "sick-nodes.txt"  # in the logs folder; written by tasks whose interpreter did not start
_MARK = r"the node (?P<node>\S+) is .*"


@dataclass(frozen=True)
class NodeRecord:
    """What an array's trainings have met on one node, and on the others.

    Attributes:
        quick: Quick failures here.
        here: Whether a training here has reported a metric.
        elsewhere: Whether one on another node has.
        live_elsewhere: Whether one runs on another node.
    """

    quick: int
    here: bool
    elsewhere: bool
    live_elsewhere: bool

    @property
    def is_doubtful(self) -> bool:
        """Whether a quick failure here is the node's fault until the opposite is shown."""
        return self.elsewhere and not self.here

    @property
    def is_sick(self) -> bool:
        return self.is_doubtful and self.quick >= FAILURES


def hold_s(environ: Mapping[str, str]) -> float:
    """Return how long a task holds a node that is sick and could not be excluded, in seconds."""
    try:
        return float(environ[HOLD_VARIABLE])
    except (KeyError, ValueError):
        return HOLD_S


def look(ledger: Ledger, job: str, node: str) -> NodeRecord:
    """Return what is known of a node; inside ``db.retry``."""
    return NodeRecord(*ledger.seen_at(node, job, QUICK_S))


def note(ledger: Ledger, node: str, reason: str, *, avoided: bool) -> None:
    """Note that a node is sick; inside ``db.retry``."""
    value = {"time": time.time(), "reason": reason, "avoided": avoided}
    studies.write_attribute(ledger.db, ledger.study_id, SICK_NODE + node, value)


def read(ledger: Ledger) -> dict[str, Mapping[str, Any]]:
    """Return the notes on nodes that are sick at present, by node; inside ``db.retry``."""
    return {
        node: value
        for node, value in studies.read_attributes(ledger.db, ledger.study_id, SICK_NODE).items()
        if isinstance(value, dict) and time.time() - float(value.get("time", 0)) < VALID_S
    }


def avoided(ledger: Ledger, folder: StudyFolder) -> list[str]:
    """Return the nodes that a new array is to stay away from; inside ``db.retry``."""
    return sorted({*read(ledger), *read_marks(folder)})


def read_marks(folder: StudyFolder) -> dict[str, str]:
    """Return what tasks whose interpreter did not start have noted of their nodes, by node."""
    path = folder.logs / MARKS
    try:
        if time.time() - path.stat().st_mtime > VALID_S:
            return {}
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found = (re.match(_MARK, line.strip()) for line in text.splitlines())
    return {mark["node"]: mark[0] for mark in found if mark}


def explain(ledger: Ledger, folder: StudyFolder) -> list[str]:
    """Return a sentence on each sick node, for status; inside ``db.retry``."""
    found = []
    for node, value in read(ledger).items():
        doing = "is avoided" if value.get("avoided") else "is sick, and could not be excluded"
        found.append(f"the node {node} {doing}: {value.get('reason', '')}")
    return found + sorted(read_marks(folder).values())


class Watch:
    """A worker's eye on the node that it runs on; of use on a cluster only.

    Args:
        ask: Asks the database, however long it is away.
        leave: Requests to leave, which end every wait.
        say: Prints a line into the task's log.

    Attributes:
        is_shunned: Whether the node was found to be sick: nothing more is to be pulled here.
    """

    def __init__(
        self,
        ledger: Ledger,
        place: Place,
        schedule: Scheduler | None,
        ask: Callable[[Callable[[Database], Any]], Any],
        leave: Leave,
        say: Callable[[str], None],
    ) -> None:
        self.ledger = ledger
        self.schedule = schedule
        self.job, self.host = place.job or "", place.host
        self.ask = ask
        self.leave = leave
        self.say = say
        self.is_shunned = False
        self._judges = bool(place.job and schedule is not None and not schedule.shares_this_machine)

    def judges(self, took_s: float) -> bool:
        """Tell whether a failure after so many seconds may have been the node's."""
        return self._judges and took_s < QUICK_S

    def look(self) -> NodeRecord:
        found: NodeRecord = self.ask(lambda _: look(self.ledger, self.job, self.host))
        return found

    def judge(self, reason: str) -> None:
        """After a quick failure: find out whether it was the node's, and shun it if it is sick."""
        give_up_at = time.monotonic() + WAIT_S
        record = self.look()
        while not (record.here or record.elsewhere or self.leave.wanted):
            # A first failure: is it the code, or this node? Those that run elsewhere will tell.
            state = self.ask(lambda db: studies.read_state(db, self.ledger.study_id))
            late = time.monotonic() >= give_up_at
            if late or not record.live_elsewhere or state.word != studies.RUNNING:
                return
            time.sleep(0.5)
            record = self.look()
        if not record.is_doubtful:
            return
        self.ask(lambda _: self.ledger.give_back_failures_at(self.host, self.job))
        if self.look().is_sick:
            self._shun(f"{record.quick} trials failed there at once, the last: {reason}")

    def shun(self, reason: str) -> bool:
        """Shun the node for what was found on it; tell whether that is enough: on one machine, and
        where another node was shunned for the like, the fault is not the node's."""
        if not self._judges:
            return False
        kind = reason.partition(":")[0]
        others = dict(self.ask(lambda _: read(self.ledger)))
        others.pop(self.host, None)
        self._shun(reason)
        return not any(str(note.get("reason", "")).startswith(kind) for note in others.values())

    def shun_if_known(self) -> None:
        """Shun a node that has shown itself to be sick to others."""
        if self._judges and (known := self.ask(lambda _: read(self.ledger)).get(self.host)):
            self._shun(str(known.get("reason", "")))

    def _shun(self, reason: str) -> None:
        """Keep what waits of the array from this node; where that is refused, hold the node."""
        self.is_shunned = True
        self.say(f"the node {self.host} is sick: {reason}")
        assert self.schedule is not None
        try:
            self.schedule.exclude(self.job, self.host)
            avoided = True
        except (SchedulerError, CouldNotAsk) as error:
            self.say(f"it could not be excluded: {error.message}")
            avoided = False
        self.ask(lambda _: note(self.ledger, self.host, reason, avoided=avoided))
        give_up_at = time.monotonic() + (0.0 if avoided else hold_s(os.environ))
        while time.monotonic() < give_up_at and not self.leave.wanted:
            time.sleep(1.0)  # or the next element would fall into the same hole
