"""When each slot trained, waited and failed: attempts packed into lanes, node by node. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sweep.core import outcomes
from sweep.core.times import span
from sweep.core.trial import Attempt, TrialRecord
from sweep.results.page import accounts
from sweep.results.page.source import Source
from sweep.results.page.views import MOST_LANES, View

TRAINED, PRUNED, INTERRUPTED, FAILED, RUNS, WAITED = (
    "trained",
    "pruned",
    "interrupted",
    "failed",
    "running",
    "waited",
)
KINDS = (TRAINED, PRUNED, INTERRUPTED, FAILED, RUNS, WAITED)
SHORTEST_WAIT_S = 0.5  # a gap below is the time between two pulls


def kind_of(record: TrialRecord, attempt: Attempt) -> str:
    """Return what an attempt did with its time, in one of KINDS."""
    if attempt.outcome is None:
        return RUNS
    if attempt.outcome in accounts.INTERRUPTIONS:
        return INTERRUPTED
    is_open = record.state in (outcomes.RUNNING, outcomes.WAITING)
    if is_open and attempt.outcome == outcomes.REPLICATED:
        return TRAINED
    if record.state == outcomes.PRUNED:
        return PRUNED
    return TRAINED if record.state == outcomes.COMPLETE else FAILED


def timeline(source: Source) -> View:
    """Return one bar an attempt, and one for each gap between two of a lane.

    A lane is a place on a node that serves one trial at a time: each attempt takes the lane of its
    node that has been free for the shortest time. Rows: lane, start and end (UTC, ISO), kind,
    trial, attempt, node, minutes, took (in words).
    """
    ordered = sorted(accounts.attempts(source), key=lambda pair: (pair[1].claimed, pair[0].number))
    free: dict[str, list[tuple[datetime, int]]] = {}  # by node: when each lane was freed, lately
    busy: dict[str, list[tuple[datetime, int]]] = {}
    counts: dict[str, int] = {}
    cells: list[dict[str, Any]] = []
    for record, attempt in ordered:
        host, start, end = attempt.host, attempt.claimed, accounts.end_of(attempt)
        running, idle = busy.setdefault(host, []), free.setdefault(host, [])
        while running and running[0][0] <= start:
            idle.append(heapq.heappop(running))
        if idle:
            freed, lane = idle.pop(max(range(len(idle)), key=idle.__getitem__))
            if (start - freed).total_seconds() >= SHORTEST_WAIT_S:
                cells.append(_bar(host, lane, freed, start, WAITED))
        else:
            lane = counts[host] = counts.get(host, 0) + 1
        heapq.heappush(running, (end, lane))
        cells.append(
            {
                **_bar(host, lane, start, end, kind_of(record, attempt)),
                "trial": record.number,
                "attempt": attempt.number,
            }
        )
    names = sorted({(cell["node"], cell["number"]) for cell in cells})
    kept = set(names[:MOST_LANES])
    drawn = [cell for cell in cells if (cell["node"], cell["number"]) in kept]
    hosts = short_hosts({cell["node"] for cell in drawn})
    for cell in drawn:
        cell["lane"] = f"{hosts[cell['node']]} {cell.pop('number'):02d}"
    return View(drawn, len(kept), len(names))


def short_hosts(hosts: Iterable[str]) -> dict[str, str]:
    """Return what a picture calls each host: its first word, where that tells all apart."""
    found = {host: host.partition(".")[0] for host in hosts}
    is_clear = len(set(found.values())) == len(found)
    return (
        found
        if is_clear and not any(map(str.isdigit, found.values()))
        else {host: host for host in found}
    )


def _bar(host: str, lane: int, start: datetime, end: datetime, kind: str) -> dict[str, Any]:
    return {
        "node": host,
        "number": lane,
        "kind": kind,
        "start": start.isoformat(timespec="milliseconds"),
        "end": end.isoformat(timespec="milliseconds"),
        "minutes": round((end - start).total_seconds() / 60, 3),
        "took": span((end - start).total_seconds()),
    }
