"""Rank the trials of a study, and turn them into rows: the shape that every export starts from.

Imports nothing heavy: JSON, CSV and tables are made without pandas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from sweep import journal
from sweep import trial as words
from sweep.columns import columns
from sweep.errors import InputError, closest
from sweep.exports import export, format_of, write
from sweep.pareto import fronts
from sweep.paths import StudyFolder
from sweep.study import Objective, Study
from sweep.trial import TrialRecord, summarise

__all__ = ["export", "format_of", "frame", "nothing_complete", "rank", "ranks", "rows", "write"]

# Where trials without a rank come, after the complete ones.
ORDER = (words.PRUNED, words.FAILED, words.CANCELLED, words.RUNNING, words.WAITING)
RESULTS = (words.COMPLETE, words.PRUNED)  # what is shown when nothing else is asked for


def rank(
    records: Iterable[TrialRecord], study: Study, by: Objective | None = None
) -> list[TrialRecord]:
    """Return the trials, best first: complete ones, then the others as in ORDER.

    One objective: by value in its direction, equal ones by number, those without a finite value
    last. Several: by Pareto front, and by the first objective within a front.

    Args:
        by: Rank by this metric instead of the study's objectives; the records need their metrics.

    Raises:
        InputError: No trial reported that metric.
    """
    places = ranks(records := list(records), study, by)
    values = _values(records, study, by)
    sign = -1.0 if (by or study.objective).direction == "maximize" else 1.0

    def key(record: TrialRecord) -> tuple[float, ...]:
        if record.state != words.COMPLETE:
            return (1, ORDER.index(record.state), record.number)
        place = places[record.number]
        if place is None:
            return (0, math.inf, record.number)
        if by is None and study.is_multi_objective:
            return (0, place, sign * values[record.number][0], record.number)
        return (0, place, record.number)

    return sorted(records, key=key)


def ranks(
    records: Iterable[TrialRecord], study: Study, by: Objective | None = None
) -> dict[int, int | None]:
    """Return each trial's rank by its number: 1 is best; None unless complete with finite values.

    With several objectives it is the number of the Pareto front.
    """
    records = list(records)
    values = _values(records, study, by)
    found: dict[int, int | None] = dict.fromkeys((record.number for record in records), None)
    if by is None and study.is_multi_objective:
        numbers = list(values)
        placed = fronts([values[number] for number in numbers], study.directions)
        return found | dict(zip(numbers, placed, strict=True))
    sign = -1.0 if (by or study.objective).direction == "maximize" else 1.0
    order = sorted(values, key=lambda number: (sign * values[number][0], number))
    return found | {number: place for place, number in enumerate(order, 1)}


def _values(
    records: Sequence[TrialRecord], study: Study, by: Objective | None
) -> dict[int, tuple[float, ...]]:
    """Return what complete trials are ranked by, where it is finite, by number."""
    if by is not None:
        _check_metric(records, by.metric)
    found: dict[int, tuple[float, ...]] = {}
    for record in records:
        if record.state != words.COMPLETE:
            continue
        values = record.values
        if by is not None:
            value = summarise(record.metrics.get(by.metric, ()), by.at, by.direction)
            values = () if value is None else (value,)
        if values and all(math.isfinite(value) for value in values):
            found[record.number] = tuple(values)
    return found


def _check_metric(records: Sequence[TrialRecord], metric: str) -> None:
    known = sorted({name for record in records for name in record.metrics})
    if metric in known:
        return
    near = closest(metric, known)
    meant = f" Did you mean {near}?" if near else ""
    there = ", ".join(known) or "none"
    raise InputError(f"No trial has reported {metric}.{meant}", f"Reported so far: {there}.")


def rows(
    records: Iterable[TrialRecord],
    study: Study,
    top: int | None = None,
    *,
    states: Sequence[str] | None = None,
    by: Objective | None = None,
    folder: StudyFolder | None = None,
) -> list[dict[str, Any]]:
    """Return the trials as plain data, best first.

    Keys of a row: ``rank`` (None unless complete), ``trial``, ``state``, ``value`` (None with
    several objectives, then ``values`` maps each metric to its value), ``params``, ``seed``,
    ``attempts`` (how many), ``duration_s``, ``reason``, ``started``, ``ended`` (ISO 8601, UTC);
    ``metrics`` (each metric's last value) where the records have them, ``checkpoint`` (a path)
    where one is kept.

    Args:
        top: At most so many.
        states: Which trials; when None, those with a rank if ``top`` is given, else complete and
            pruned ones.
        by: As for ``rank``.
        folder: The study's, to look for checkpoints of the trials that keep theirs.
    """
    places = ranks(records := list(records), study, by)
    chosen = [r for r in rank(records, study, by) if r.state in (states or RESULTS)]
    if states is None and top is not None:
        chosen = [record for record in chosen if places[record.number] is not None]
    with_metrics = any(record.metrics for record in records)
    found = []
    for record in chosen[:top]:
        row = _row(record, study, places[record.number])
        if with_metrics:
            row["metrics"] = {name: max(series)[1] for name, series in record.metrics.items()}
        checkpoint = _checkpoint(record, folder) if keeps(places[record.number], study) else None
        if checkpoint is not None:
            row["checkpoint"] = checkpoint
        found.append(row)
    return found


def _row(record: TrialRecord, study: Study, place: int | None) -> dict[str, Any]:
    row: dict[str, Any] = {"rank": place, "trial": record.number, "state": record.state}
    if study.is_multi_objective:
        names = [objective.metric for objective in study.objectives]
        row |= {"value": None, "values": dict(zip(names, record.values, strict=False))}
    else:
        row["value"] = record.values[0] if record.values else None
    return row | {
        "params": dict(record.params),
        "seed": record.seed,
        "attempts": len(record.attempts),
        "duration_s": record.duration_s,
        "reason": record.reason,
        "started": _iso(record.started),
        "ended": _iso(record.ended),
    }


def keeps(place: int | None, study: Study) -> bool:
    """Tell whether a trial of this rank keeps its checkpoints: of a front, the first only."""
    return place is not None and place <= (1 if study.is_multi_objective else study.keep)


def _checkpoint(record: TrialRecord, folder: StudyFolder | None) -> str | None:
    for attempt in reversed(record.attempts):
        if folder is not None:
            found = journal.checkpoints(folder.attempt(record.number, attempt.number))
            if found:
                return str(found[0])
    return None


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(timezone.utc).isoformat() if moment is not None else None


def nothing_complete(counts: dict[str, int]) -> str:
    """Return a sentence that says why there is no ranking yet; empty where there is one."""
    if counts.get(words.COMPLETE):
        return ""
    others = [f"{counts[state]} {state}" for state in words.STATES if counts.get(state)]
    return f"No trial is complete yet: {', '.join(others) or 'there are none'}."


def frame(found: Sequence[dict[str, Any]], study: Study) -> Any:
    """Return rows as a pandas DataFrame, one column for each parameter (``params.lr``).

    Columns that can hold whole numbers, truth values or text and have gaps use pandas' nullable
    types; choices of mixed kinds stay Python objects (a choice of null is None, a parameter that
    the trial does not have is ``pandas.NA``). With several objectives there is a column for each,
    ``values.<metric>``.

    Raises:
        InputError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise InputError(
            "A data frame needs pandas, which is not installed.", "pip install 'sweep[report]'"
        ) from None
    kinds = {"int": "Int64", "float": "float64", "bool": "boolean", "text": "string"}
    data = {}
    for column in columns(found, study):
        values = [column.read(row) for row in found]
        if column.kind == "time":
            data[column.name] = pandas.to_datetime(pandas.Series(values), utc=True)
        elif column.kind == "json":
            cells = [pandas.NA if value is column.missing else value for value in values]
            data[column.name] = pandas.Series(cells, dtype="object")
        else:
            data[column.name] = pandas.Series(values, dtype=kinds[column.kind])
    return pandas.DataFrame(data)
