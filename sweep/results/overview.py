"""Many studies in short: what ``sweep list`` prints.

From the databases alone: no scheduler is asked, which for many studies would take long. What a
study is doing is therefore as far as its rows know; ``sweep status`` asks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sweep.control.identity import read_mark
from sweep.control.known_databases import KnownDatabase, opened
from sweep.core.errors import SweepError
from sweep.core.paths import StudyFolder
from sweep.core.times import iso_utc
from sweep.results.status import FINISHED, IDLE, QUEUED
from sweep.storage import all_studies, studies, tables
from sweep.storage.all_studies import StudyRow

PATIENCE_S = 10.0  # for a database that is away: who looks wants to know
NOT_OURS = "not sweep's"  # made by a notebook, say
FOLDER_GONE = "folder gone"
OTHER_FOLDER = "its folder holds another study"


@dataclass(frozen=True)
class StudyLine:
    """One study.

    Attributes:
        state: A word of ``status``'s, or NOT_OURS.
        reason: Why, where it is held, stopped or has ended early.
        launched, active: Seconds since 1970 of its first submission, and of its last sign of life.
        mark: What is odd about its folder; "" where it is there.
        where: Its database.
    """

    name: str
    state: str
    reason: str
    counts: Mapping[str, int]
    trials: int
    launched: float | None
    active: float | None
    folder: str | None
    mark: str
    where: str

    def to_dict(self) -> dict[str, Any]:
        """Return what ``list --json`` prints of it."""
        return {
            "name": self.name,
            "state": self.state,
            "reason": self.reason,
            "counts": dict(self.counts),
            "trials": self.trials,
            "launched": _iso(self.launched),
            "active": _iso(self.active),
            "folder": self.folder,
            "mark": self.mark,
            "database": self.where,
        }


def _iso(when_s: float | None) -> str | None:
    return None if when_s is None else iso_utc(datetime.fromtimestamp(when_s, timezone.utc))


def line_of(row: StudyRow, where: str, host: str | None = None) -> StudyLine:
    """Return one study's line.

    Args:
        where: Its database, in words without a password.
        host: This machine's name.
    """
    state, reason = state_of(row)
    return StudyLine(
        name=row.name,
        state=state,
        reason=reason,
        counts=row.counts,
        trials=max(row.trials or 0, sum(row.counts.values())),
        launched=row.launched,
        active=None if row.active is None else row.active.timestamp(),
        folder=row.folder,
        mark=mark_of(row, host or os.uname().nodename),
        where=where,
    )


def state_of(row: StudyRow) -> tuple[str, str]:
    """Return what a study is doing, as far as its rows know, and why."""
    if row.state is None:
        return NOT_OURS, ""
    has_ended = row.state.word == studies.ENDED
    if not row.unfinished:
        return FINISHED, f"it ended early: {row.state.reason}" if has_ended else ""
    if has_ended:
        return studies.DRAINING, f"it ends early: {row.state.reason}"
    if row.state.word != studies.RUNNING:
        return row.state.word, row.state.reason
    if row.live:
        return studies.RUNNING, ""
    return (QUEUED, "") if row.has_array else (IDLE, "")


def mark_of(row: StudyRow, host: str) -> str:
    """Return what is odd about a study's folder, seen from a machine of this name."""
    if row.folder is None:
        return ""
    folder = StudyFolder(Path(row.folder))
    if not folder.study.is_file():
        if row.host not in (None, host):
            return f"on {row.host}, or gone"
        return FOLDER_GONE
    mark = read_mark(folder)
    return OTHER_FOLDER if None not in (mark, row.identity) and mark != row.identity else ""


def read_overview(
    places: Sequence[KnownDatabase],
) -> tuple[dict[str, tuple[StudyLine, ...]], list[str]]:
    """Return the studies of databases, by the database, and what was wrong with others of them."""
    lines: dict[str, tuple[StudyLine, ...]] = {}
    problems: list[str] = []
    for place in places:
        try:
            with opened(place) as db:
                db.retry(tables.check_optuna, patience_s=PATIENCE_S)
                found = db.retry(all_studies.read_all)
        except SweepError as error:
            problems.append(f"{place}: {error}")
            continue
        lines[str(place)] = tuple(line_of(row, str(place)) for row in found)
    return lines, problems
