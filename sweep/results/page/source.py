"""What a report is made from, read in a few statements whose number does not grow with N."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from sweep.control.open_study import Opened
from sweep.core.outcomes import RUNNING, STATES, WAITING
from sweep.core.study import Study
from sweep.core.trial import TrialRecord
from sweep.provenance import manifest
from sweep.results import held_back, mixed_code
from sweep.results.feasibility import none_feasible_of
from sweep.results.held_back import LookedAt
from sweep.results.mixed_code import MixedCode
from sweep.results.ranking import rank, ranks, rows
from sweep.results.shared_gpus import Shared, read_shared
from sweep.storage import records, reruns, series
from sweep.storage.reruns import Rerun
from sweep.storage.series import Series


@dataclass(frozen=True)
class Source:
    """A study as the report sees it.

    Attributes:
        records: All trials, best first, as ``collect`` ranks them; without metrics.
        places: Each trial's rank by its number; None without one.
        rows: Those trials as ``collect`` prints them, best first.
        series: The first objective's metric, by trial number: its lineage.
        code: Which code each trial ran, where that is not the same.
        provenance: What launch noted of code and machine; empty where that is gone.
        reruns: Re-runs of trials, by number.
        looked_at: Trainings that were profiled, and what holds them back.
        shared: What its trials have made of GPUs that they share.
        made: When this was read.
    """

    study: Study
    records: Sequence[TrialRecord]
    places: Mapping[int, int | None]
    rows: Sequence[Mapping[str, Any]]
    series: Mapping[int, Series]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    code: MixedCode = field(default_factory=MixedCode)
    reruns: Sequence[Rerun] = ()
    looked_at: Sequence[LookedAt] = ()
    shared: Shared = field(default_factory=Shared)
    made: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @property
    def counts(self) -> dict[str, int]:
        """How many trials are in each state."""
        return records.count(self.records)

    @property
    def is_over(self) -> bool:
        """Whether every trial is final."""
        counts = self.counts
        return not counts[RUNNING] and not counts[WAITING]

    @property
    def best(self) -> TrialRecord | None:
        """The trial of rank 1; of several on a front, the first. None that breaks constraints."""
        first = self.records[0] if self.records else None
        return first if first is not None and self.can_win(first) else None

    def can_win(self, record: TrialRecord) -> bool:
        """Tell whether a trial has a rank and keeps to the constraints."""
        return self.places[record.number] is not None and record.is_feasible

    @property
    def infeasible(self) -> str:
        """That no complete trial keeps to the constraints, in words; else empty."""
        return none_feasible_of(self.study, self.records)


def read(opened: Opened) -> Source:
    """Read what a report needs.

    Raises:
        DatabaseUnavailable: The database does not answer at present.
    """
    study, ledger = opened.study, opened.ledger
    found = ledger.db.retry(lambda db: records.read_trials(db, ledger.study_id, study))
    curves = ledger.db.retry(
        lambda db: series.read_series(db, ledger.study_id, names=[study.objective.metric])
    )
    code = mixed_code.read(opened.folder, study, found)
    again = ledger.db.retry(lambda db: reruns.read_all(db, ledger.study_id))
    first = next(iter(rank(found, study)), None)
    seen = held_back.read(ledger, opened.folder, None if first is None else first.number)
    shared = read_shared(opened.folder)
    return make(study, found, curves, manifest.read(opened.folder), code, again, seen, shared)


def make(
    study: Study,
    found: Sequence[TrialRecord],
    curves: Sequence[Series],
    provenance: Mapping[str, Any] | None = None,
    code: MixedCode | None = None,
    again: Sequence[Rerun] = (),
    seen: Sequence[LookedAt] = (),
    shared: Shared | None = None,
) -> Source:
    """Return the source of a report from what was read."""
    return Source(
        study,
        rank(found, study),
        ranks(found, study),
        rows(found, study, states=STATES, codes=code.ids if code else None),
        {s.trial: s for s in curves},
        provenance or {},
        code or MixedCode(),
        again,
        seen,
        shared or Shared(),
    )
