"""Sick nodes: where everything fails in a second, a task must not pull trial after trial.

A quick failure on a node where no training of this array has reported anything, while on another
node one has, is the node's fault until the opposite is shown: the trial is given back. After a few
of them the node is avoided: Slurm keeps the array's waiting elements from it, or, where that is
refused, the task holds it for ten minutes, lest the next element falls into the same hole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweep.paths import StudyFolder
from sweep.storage import studies
from sweep.storage.ledger import GIVEN_BACK, USER_FAILURES, Ledger

SICK = "sweep:sick:"
QUICK_S = 10.0  # a training that fails later has come to work
FAILURES = 3  # so many quick ones on a node make it sick
HOLD_S = 600.0
VALID_S = 3600.0  # a node is tried again after an hour
WAIT_S = 20.0  # for news from other nodes, when a first training has failed at once
MARKS = "sick-nodes.txt"  # in the logs folder; written by tasks whose interpreter did not start


@dataclass(frozen=True)
class Record:
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


def look(ledger: Ledger, job: str, node: str) -> Record:
    """Return what is known of a node; inside ``db.retry``."""
    rows = ledger.db.execute(
        "SELECT COUNT(*) FILTER (WHERE a.host = %s AND a.outcome = ANY(%s) AND a.job = %s "
        "  AND a.first_step IS NULL AND a.ended - a.claimed < %s * interval '1 second'), "
        "COALESCE(bool_or(a.host = %s AND a.first_step IS NOT NULL), FALSE), "
        "COALESCE(bool_or(a.host <> %s AND a.first_step IS NOT NULL), FALSE), "
        "COALESCE(bool_or(a.host <> %s AND a.outcome IS NULL), FALSE) "
        "FROM sweep_attempt a JOIN trials t USING (trial_id) WHERE t.study_id = %s",
        (node, [*USER_FAILURES, GIVEN_BACK], job, QUICK_S, node, node, node, ledger.study_id),
    )
    quick, here, elsewhere, live = rows[0]
    return Record(int(quick), bool(here), bool(elsewhere), bool(live))


def give_back(ledger: Ledger, job: str, node: str) -> None:
    """Let trials be claimed again that failed at once on a node and are still open."""
    open_trials = ledger.open_failures()
    ledger.db.execute(
        "UPDATE sweep_attempt a SET outcome = %s WHERE a.trial_id = ANY(%s::int[]) "
        "AND a.host = %s AND a.job = %s AND a.first_step IS NULL AND a.outcome = ANY(%s) AND "
        "a.number = (SELECT MAX(number) FROM sweep_attempt b WHERE b.trial_id = a.trial_id)",
        (GIVEN_BACK, open_trials, node, job, list(USER_FAILURES)),
    )


def note(ledger: Ledger, node: str, reason: str, *, avoided: bool) -> None:
    """Note that a node is sick; inside ``db.retry``."""
    value = {"time": time.time(), "reason": reason, "avoided": avoided}
    studies.write_attribute(ledger.db, ledger.study_id, SICK + node, value)


def read(ledger: Ledger) -> dict[str, Mapping[str, Any]]:
    """Return the notes on nodes that are sick at present, by node; inside ``db.retry``."""
    rows = ledger.db.execute(
        "SELECT key FROM study_system_attributes WHERE study_id = %s AND key LIKE %s ORDER BY key",
        (ledger.study_id, SICK + "%"),
    )
    found: dict[str, Mapping[str, Any]] = {}
    for (key,) in rows:
        value = studies.read_attribute(ledger.db, ledger.study_id, key)
        if isinstance(value, dict) and time.time() - float(value.get("time", 0)) < VALID_S:
            found[key[len(SICK) :]] = value
    return found


def explain(ledger: Ledger, folder: StudyFolder) -> list[str]:
    """Return a sentence on each sick node, for status; inside ``db.retry``."""
    found = []
    for node, value in read(ledger).items():
        doing = "is avoided" if value.get("avoided") else "is sick, and could not be excluded"
        found.append(f"the node {node} {doing}: {value.get('reason', '')}")
    try:
        text = (folder.logs / MARKS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return found
    return found + sorted({line.strip() for line in text.splitlines() if line.strip()})
