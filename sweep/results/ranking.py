"""Rank the trials of a study, and turn them into rows: the shape that every export starts from.

Imports nothing heavy: JSON, CSV and tables are made without pandas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from sweep.control import chosen_checkpoint
from sweep.core import outcomes
from sweep.core.errors import InputError, closest
from sweep.core.pareto import constrained_fronts
from sweep.core.paths import StudyFolder
from sweep.core.study import Objective, Study
from sweep.core.times import iso_utc
from sweep.core.trial import TrialRecord, deviation, mean_bounded, summarise
from sweep.storage.series import Summary, summarised

# Where trials without a rank come, after the complete ones.
ORDER = (outcomes.PRUNED, outcomes.FAILED, outcomes.CANCELLED, outcomes.RUNNING, outcomes.WAITING)
RESULTS = (outcomes.COMPLETE, outcomes.PRUNED)  # what is shown when nothing else is asked for


def rank(
    records: Iterable[TrialRecord], study: Study, by: Objective | None = None
) -> list[TrialRecord]:
    """Return the trials, best first: complete ones, then the others as in ORDER.

    One objective: by value in its direction, equal ones by number, those without a finite value
    last. Several: by Pareto front, and by the first objective within a front.

    Args:
        by: Rank by this metric instead of the study's objectives; the records need their metrics.
            What breaks the study's constraints comes last all the same.

    Raises:
        InputError: No trial reported that metric.
    """
    records = list(records)
    return _ranked(records, study, by, ranks(records, study, by))


def _ranked(
    records: Sequence[TrialRecord],
    study: Study,
    by: Objective | None,
    places: Mapping[int, int | None],
) -> list[TrialRecord]:
    fronts_only = by is None and study.is_multi_objective
    values = _values(records, study, by) if fronts_only else {}
    sign = -1.0 if (by or study.objective).direction == "maximize" else 1.0

    def key(record: TrialRecord) -> tuple[float, ...]:
        if record.state != outcomes.COMPLETE:
            return (1, ORDER.index(record.state), record.number)
        place = places[record.number]
        if place is None:
            return (0, math.inf, record.number)
        if fronts_only:
            return (0, place, sign * values[record.number][0], record.number)
        return (0, place, record.number)

    return sorted(records, key=key)


def ranks(
    records: Iterable[TrialRecord], study: Study, by: Objective | None = None
) -> dict[int, int | None]:
    """Return each trial's rank by its number: 1 is best; None unless complete with finite values.

    With several objectives it is the number of the Pareto front. Trials that break the study's
    constraints come after those that keep to them, the least broken first.
    """
    records = list(records)
    values = _values(records, study, by)
    amounts = {r.number: r.violation or 0.0 for r in records}
    found: dict[int, int | None] = dict.fromkeys((record.number for record in records), None)
    if by is None and study.is_multi_objective:
        numbers = list(values)
        broken = [amounts.get(number) or 0.0 for number in numbers]
        points = [values[number] for number in numbers]
        placed = constrained_fronts(points, study.directions, broken)
        return found | dict(zip(numbers, placed, strict=True))
    sign = -1.0 if (by or study.objective).direction == "maximize" else 1.0
    order = sorted(
        values, key=lambda number: (amounts.get(number, 0.0), sign * values[number][0], number)
    )
    return found | {number: place for place, number in enumerate(order, 1)}


def _values(
    records: Sequence[TrialRecord], study: Study, by: Objective | None
) -> dict[int, tuple[float, ...]]:
    """Return what complete trials are ranked by, where it is finite, by number."""
    metrics = [objective.metric for objective in study.objectives]
    if by is not None and by.metric not in metrics:
        _check_metric(records, by.metric)
    found: dict[int, tuple[float, ...]] = {}
    for record in records:
        if record.state != outcomes.COMPLETE:
            continue
        values = record.values
        if by is not None and by.metric in metrics:
            values = values[metrics.index(by.metric) :][:1]
        elif by is not None:
            value = summarise(record.metrics.get(by.metric, ()), by.at, by.direction)
            values = () if value is None else (value,)
        if values and all(math.isfinite(value) for value in values):
            found[record.number] = tuple(values)
    return found


def _check_metric(records: Sequence[TrialRecord], metric: str) -> None:
    check_metrics([metric], {name for record in records for name in record.metrics})


def check_metrics(asked: Iterable[str], reported: Collection[str]) -> None:
    """Raises: InputError: One of the metrics that are asked for was reported by no trial."""
    for metric in asked:
        if metric not in reported:
            near = closest(metric, sorted(reported))
            meant = f" Did you mean {near}?" if near else ""
            there = ", ".join(sorted(reported)) or "none"
            raise InputError(
                f"No trial has reported {metric}.{meant}", f"Reported so far: {there}."
            )


@dataclass(frozen=True)
class Wanted:
    """A metric to show, and which of its values: last, min or max over the steps."""

    name: str
    which: str = "last"

    @property
    def label(self) -> str:
        return self.name if self.which == "last" else f"{self.name}:{self.which}"


def parse_wanted(text: str, study: Study) -> Wanted:
    """Return "loss", "loss:min" or "val_accuracy:best" as what to show.

    Raises:
        InputError: "best" of a metric whose direction nothing says.
    """
    name, colon, which = text.rpartition(":")
    if not colon or which not in ("last", "min", "max", "best"):
        return Wanted(text)  # a metric's own name may hold a colon
    if which != "best":
        return Wanted(name, which)
    for objective in study.objectives:
        if objective.metric == name:
            return Wanted(name, "max" if objective.direction == "maximize" else "min")
    raise InputError(
        f"--metric {text}: {name} is no objective, so nothing says which of its values is best.",
        f"Use {name}:min, {name}:max or {name}:last.",
    )


_DIRECTIONS = {"minimize": "minimize", "min": "minimize", "maximize": "maximize", "max": "maximize"}


def parse_by(text: str, direction: str | None, study: Study) -> Objective:
    """Return "val_loss" or "val_loss:minimize" as what to rank by.

    Args:
        direction: Given apart from the name; None where it was not.

    Raises:
        InputError: A metric that is no objective, and nothing says which of its values are good;
            or two directions.
    """
    name, _, word = text.rpartition(":")
    if not name or word not in _DIRECTIONS:
        name, word = text, ""  # a metric's own name may hold a colon
    if word and direction not in (None, _DIRECTIONS[word]):
        raise InputError(
            f"--by {text} and --{direction} contradict each other.", "Leave one of the two out."
        )
    given = _DIRECTIONS.get(word) or direction
    for objective in study.objectives:
        if objective.metric == name:
            return replace(objective, direction=given or objective.direction)
    if given is None:
        raise InputError(
            f"--by {text}: {name} is no objective of the study, so nothing says whether less or "
            "more of it is better.",
            f"Write --by {name}:minimize or --by {name}:maximize.",
        )
    return Objective(name, given)


def shown_for(by: Objective | None, study: Study) -> Wanted | None:
    """Return the metric that a ranking by it shows as well; None where the objectives say it."""
    if by is None or by.metric in [objective.metric for objective in study.objectives]:
        return None
    return Wanted(by.metric, "max" if by.direction == "maximize" else "min")


def all_wanted(summaries: Mapping[int, Mapping[str, Summary]]) -> list[Wanted]:
    """Return every metric's last, least and greatest value."""
    names = sorted({name for summary in summaries.values() for name in summary})
    return [Wanted(name, which) for name in names for which in ("last", "min", "max")]


def _shower(
    wanted: Sequence[Wanted] | None, also: Wanted | None
) -> Callable[[Mapping[str, Summary]], dict[str, float | None]]:
    """Return what picks the metrics to show from a trial's: each one's last value for None.

    Args:
        also: What is shown besides.
    """
    read = {"last": attrgetter("last"), "min": attrgetter("least"), "max": attrgetter("greatest")}
    chosen = [
        (w.label, w.name, read[w.which]) for w in (*(wanted or ()), *([also] if also else ()))
    ]

    def show(summaries: Mapping[str, Summary]) -> dict[str, float | None]:
        last = {name: s.last for name, s in summaries.items()} if wanted is None else {}
        return last | {
            label: pick(summaries[name]) for label, name, pick in chosen if name in summaries
        }

    return show


def rows(
    records: Iterable[TrialRecord],
    study: Study,
    top: int | None = None,
    *,
    states: Sequence[str] | None = None,
    by: Objective | None = None,
    folder: StudyFolder | None = None,
    summaries: Mapping[int, Mapping[str, Summary]] | None = None,
    wanted: Sequence[Wanted] | None = None,
    codes: Mapping[int, str] | None = None,
) -> list[dict[str, Any]]:
    """Return the trials as plain data, best first.

    Keys of a row: ``rank`` (None unless complete), ``trial``, ``state``, ``value`` (None with
    several objectives, then ``values`` maps each metric to its value), ``params``, ``seed``,
    ``attempts`` (how many), ``duration_s``, ``gpu_hours``, ``energy_j`` (None where nothing was
    measured), ``reason``, ``started``, ``ended`` (ISO 8601, UTC); ``metrics`` (each metric's last
    value, or what ``wanted`` says) where they were read, ``checkpoint`` (a path) where one is kept,
    with ``checkpoint_of`` (``best``: known to be of the step whose value counts; else ``last``),
    ``replicates`` and ``sd`` (how many trainings, and the standard deviation of the first objective
    over them; ``sds`` of each where there are several) in a study with several a trial,
    ``retried`` (how often) where a launch has given the trial back, ``notes`` (sentences) where
    something of the trial could not be read or stored.

    Args:
        top: At most so many.
        states: Which trials; when None, those with a rank if ``top`` is given, else complete and
            pruned ones.
        by: As for ``rank``; the value that ranks is among the row's metrics.
        folder: The study's, to look for checkpoints of the trials that keep theirs.
        summaries: The metrics in short, by trial number; from the records' own when None.
        wanted: Which of them to show; each metric's last value when None.
        codes: Of each trial what code it ran, for the key ``code``, where that is not the same.

    Raises:
        InputError: No trial has reported a metric that is asked for.
    """
    places = ranks(records := list(records), study, by)
    wanted_states = frozenset(states or RESULTS)
    chosen = [r for r in _ranked(records, study, by, places) if r.state in wanted_states]
    if states is None and top is not None:
        chosen = [record for record in chosen if places[record.number] is not None]
    if summaries is None:
        summaries = {r.number: summarised(r.metrics) for r in records if r.metrics}
    reported = {name for summary in summaries.values() for name in summary}
    check_metrics([metric.name for metric in wanted or ()], reported)
    show = _shower(wanted, shown_for(by, study))
    found = []
    for record in chosen[:top]:
        row = _row(record, study, places[record.number])
        if study.is_replicated:
            done = record.replicates
            row |= {"replicates": len(done), "sd": deviation(done)}
            if study.is_multi_objective:
                names = [objective.metric for objective in study.objectives]
                row["sds"] = {name: deviation(done, place) for place, name in enumerate(names)}
        if record.retries:
            row["retried"] = len(record.retries)
        if record.notes:
            row["notes"] = list(record.notes)
        if summaries:
            row["metrics"] = show(summaries.get(record.number, {})) | _means(record, study, wanted)
        if codes:
            row["code"] = codes.get(record.number, "")
        if folder is not None and keeps(places[record.number], study):
            kept = chosen_checkpoint.choose(study, folder, record)
            if kept is not None:
                row |= {"checkpoint": str(kept.path), "checkpoint_of": kept.of}
        found.append(row)
    return found


def _means(
    record: TrialRecord, study: Study, wanted: Sequence[Wanted] | None
) -> dict[str, float | None]:
    """Return the metrics to show by which a trial of several trainings is held against the
    constraints: their means."""
    done = record.replicates
    if not (study.is_replicated and done) or any(
        len(one.bounded) != len(study.constraints) for one in done
    ):
        return {}
    shown = None if wanted is None else {metric.label for metric in wanted}
    means = mean_bounded(study.constraints, done)
    return {name: value for name, value in means.items() if shown is None or name in shown}


def of_one_training(
    study: Study, wanted: Iterable[Wanted], by: Objective | None, names: Iterable[str]
) -> str:
    """Return a sentence that says which metrics are of each trial's last training alone, where a
    trial has several; "" where none is.

    Args:
        wanted: Metrics that are shown.
        by: What is ranked by.
        names: Of columns that are asked for.
    """
    if not study.is_replicated:
        return ""
    objectives = [objective.metric for objective in study.objectives]
    means = {constraint.metric for constraint in study.constraints}
    labels = [metric.label for metric in wanted]
    labels += [name.removeprefix("metrics.") for name in names if name.startswith("metrics.")]
    found = [label for label in labels if label not in means]
    if by is not None and by.metric not in objectives:
        found.append(by.metric)
    if not found:
        return ""
    verb = "is" if len(found := list(dict.fromkeys(found))) == 1 else "are"
    has = "is" if len(objectives) == 1 else "are"
    return (
        f"{', '.join(found)} {verb} of each trial's last training alone; {', '.join(objectives)} "
        f"{has} the mean of all."
    )


def _row(record: TrialRecord, study: Study, place: int | None) -> dict[str, Any]:
    row: dict[str, Any] = {"rank": place, "trial": record.number, "state": record.state}
    if study.is_multi_objective:
        names = [objective.metric for objective in study.objectives]
        row |= {"value": None, "values": dict(zip(names, record.values, strict=False))}
    else:
        row["value"] = record.values[0] if record.values else None
    if study.constraints:
        row["feasible"] = None if record.violation is None else not record.violation
    return row | {
        "params": dict(record.params),
        "seed": record.seed,
        "attempts": len(record.attempts),
        "duration_s": record.duration_s,
        "gpu_hours": study.resources.gpu_hours(record.held_s),
        "energy_j": record.energy_j,
        "reason": record.reason,
        "started": iso_utc(record.started),
        "ended": iso_utc(record.ended),
    }


def keeps(place: int | None, study: Study) -> bool:
    """Tell whether a trial of this rank keeps its checkpoints: of a front, the first only."""
    return place is not None and place <= (1 if study.is_multi_objective else study.keep)


def nothing_complete(counts: dict[str, int]) -> str:
    """Return a sentence that says why there is no ranking yet; empty where there is one."""
    if counts.get(outcomes.COMPLETE):
        return ""
    others = [f"{counts[state]} {state}" for state in outcomes.STATES if counts.get(state)]
    return f"No trial is complete yet: {', '.join(others) or 'there are none'}."
