"""Compare two trials, re-runs or studies: values, what made them, metrics and curves."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sweep.control.open_study import Opened
from sweep.core import outcomes
from sweep.core.errors import InputError
from sweep.core.study import Study
from sweep.provenance import manifest
from sweep.provenance.differences import differences
from sweep.results.cost_to_solution import CommonLevel, CostToSolution, common_levels, cost
from sweep.results.page import source
from sweep.storage import records, reruns
from sweep.storage.reruns import Rerun
from sweep.studyfile import changes
from sweep.tasks.side_runs.side_run import ask
from sweep.training.command import launchers
from sweep.training.journal import Journal

Curves = Mapping[str, Mapping[int, float]]  # metric → step → value


@dataclass(frozen=True)
class Side:
    """One of the two.

    Attributes:
        label: "trial 7 of digits", "re-run 2 of digits" or "digits".
        values: What is compared one by one: parameters, seed, value, state, hosts, ….
        record: The four axes, as provenance has them.
        curves: Every metric's lineage; empty of a study.
        cost: What it took; of a study alone.
    """

    label: str
    study: Study
    values: Mapping[str, Any]
    record: Mapping[str, Any]
    curves: Curves = field(default_factory=dict)
    cost: CostToSolution | None = None


def find(name: str, open_study: Callable[[str | None], Opened]) -> Side:
    """Return what a name means: "7", "digits:7" (a trial), "r2", "digits:r2" (a re-run), "digits".

    Args:
        open_study: Opens a study by name; the one last launched for None.

    Raises:
        InputError: There is no such study, trial or re-run.
    """
    match = re.fullmatch(r"(?:(?P<study>.+):)?(?P<rerun>r?)(?P<number>\d+)", name)
    if match is None:
        return _study_side(open_study(name))
    opened, number = open_study(match["study"]), int(match["number"])
    return _rerun_side(opened, number) if match["rerun"] else _trial_side(opened, number)


def _trial_side(opened: Opened, number: int) -> Side:
    ledger, study = opened.ledger, opened.study
    found = ledger.db.retry(
        lambda db: records.read_trials(db, ledger.study_id, study, metrics=True, numbers=[number])
    )
    if not found:
        raise opened.no_trial(number)
    record = found[0]
    values = _values(study, record.params, record.seed, record.values) | {
        "state": record.state,
        "attempts": len(record.attempts),
        "hosts": sorted({attempt.host for attempt in record.attempts}),
    }
    curves = {name: dict(series) for name, series in record.metrics.items()}
    made = manifest.of_trial(opened.folder, number)
    return Side(f"trial {number} of {study.name}", study, values, made, curves)


def _rerun_side(opened: Opened, k: int) -> Side:
    ledger, study = opened.ledger, opened.study
    run = ask(ledger, reruns.read, k)
    if run is None:
        raise InputError(
            f"{study.name} has no re-run {k}.", "`sweep rerun-best` and `sweep confirm` make them."
        )
    if run.outcome is None:
        raise InputError(f"Re-run {k} of {study.name} has not ended.", "Wait for it.")
    trial = ledger.db.retry(
        lambda db: records.read_trials(db, ledger.study_id, study, numbers=[run.trial])
    )[0]
    results = [value for value in run.result.get("values", ()) if value is not None]
    values = _values(study, trial.params, run.seed, results) | {
        "state": outcomes.COMPLETE if run.outcome == outcomes.FINISHED else outcomes.FAILED,
        "attempts": 1,
        "hosts": [run.host] if run.host else [],
    }
    label = f"re-run {k} of {study.name} (trial {run.trial})"
    made = run.result.get("provenance") or {}
    return Side(label, study, values, made, _read_curves(opened, run))


def _journal(opened: Opened, run: Rerun) -> Journal:
    study = opened.study
    return Journal(opened.folder.rerun(run.k), study.objectives, read=launchers.reader(study))


def _read_curves(opened: Opened, run: Rerun) -> Curves:
    curves: dict[str, dict[int, float]] = {}
    for report in _journal(opened, run).rest():
        for name, value in report.metrics.items():
            curves.setdefault(name, {})[report.step] = value
    return {name: dict(sorted(curve.items())) for name, curve in sorted(curves.items())}


def _study_side(opened: Opened) -> Side:
    ledger, study = opened.ledger, opened.study
    counts = ledger.db.retry(lambda db: records.count_states(db, ledger.study_id))
    values: dict[str, Any] = {f"trials {state}": count for state, count in counts.items()}
    if not study.is_multi_objective:
        best = ledger.db.retry(lambda _: ledger.best_numbers(1))
        if best:
            side = _trial_side(opened, best[0])
            values |= {f"best {name}": side.values[name] for name in side.values}
            values["best trial"] = best[0]
    made = manifest.of_run(manifest.read(opened.folder), None)
    return Side(study.name, study, values, made, cost=cost(source.read(opened)))


def _values(
    study: Study, params: Mapping[str, Any], seed: int, results: Sequence[float]
) -> dict[str, Any]:
    names = [objective.metric for objective in study.objectives]
    return {**study.fixed, **params, "seed": seed} | dict(zip(names, results, strict=False))


@dataclass(frozen=True)
class Comparison:
    """What differs.

    Attributes:
        values: Of each name that differs, both values; None (also) where one has none.
        only_in: Of the names that one side alone has: which, "a" or "b".
        study: What the two studies' files differ in, in sentences.
        axes: What made them, in sentences; each begins with its axis.
        curves: Of each metric that either reported: how many steps each has, how many are common,
            the first common step where they differ (None if none), the greatest difference there.
        costs: What either took; None unless both are studies.
    """

    a: str
    b: str
    values: Mapping[str, tuple[Any, Any]]
    only_in: Mapping[str, str]
    study: Sequence[str]
    axes: Sequence[str]
    curves: Mapping[str, Mapping[str, Any]]
    costs: tuple[CostToSolution, CostToSolution] | None = None

    @property
    def levels(self) -> list[CommonLevel]:
        """Each quality that either study came to, with what it took in both."""
        return common_levels(*self.costs) if self.costs else []

    def to_json(self) -> str:
        costs = (
            {
                "cost": [one.to_data() for one in self.costs],
                "levels": [asdict(level) for level in self.levels],
            }
            if self.costs
            else {}
        )
        return json.dumps(
            {
                "a": self.a,
                "b": self.b,
                "values": {n: list(v) for n, v in self.values.items()},
                "only_in": dict(self.only_in),
                "study": list(self.study),
                "axes": list(self.axes),
                "curves": dict(self.curves),
                **costs,
            },
            indent=1,
        )


def compare(a: Side, b: Side) -> Comparison:
    """Return what differs between two sides."""
    names = list(dict.fromkeys([*a.values, *b.values]))
    values = {
        name: (a.values.get(name), b.values.get(name))
        for name in names
        if name not in a.values or name not in b.values or a.values[name] != b.values[name]
    }
    allowed, refused = changes(a.study, b.study) if a.study != b.study else ([], [])
    metrics = sorted({*a.curves, *b.curves})
    return Comparison(
        a=a.label,
        b=b.label,
        values=values,
        only_in={
            name: "a" if name in a.values else "b"
            for name in names
            if (name in a.values) != (name in b.values)
        },
        study=[*refused, *allowed],
        axes=differences(a.record, b.record),
        curves={name: _curve(a.curves.get(name, {}), b.curves.get(name, {})) for name in metrics},
        costs=(a.cost, b.cost) if a.cost and b.cost else None,
    )


def _curve(a: Mapping[int, float], b: Mapping[int, float]) -> dict[str, Any]:
    common = sorted(a.keys() & b.keys())
    apart = [step for step in common if not _same(a[step], b[step])]
    gaps = [abs(a[step] - b[step]) for step in apart]
    finite = [gap for gap in gaps if math.isfinite(gap)]
    return {
        "steps": [len(a), len(b)],
        "common": len(common),
        "first_difference": apart[0] if apart else None,
        "greatest_difference": max(finite) if finite else (None if apart else 0.0),
    }


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
