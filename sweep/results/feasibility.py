"""Which results keep to the study's constraints, and the sentence for where none does.

The sentence is the same wherever a winner would have stood: status, collect, report, pictures,
rerun-best and confirm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from sweep.core import outcomes
from sweep.core.study import Study
from sweep.core.trial import TrialRecord
from sweep.storage import records, status_rows
from sweep.storage.ledger import Ledger

BREAKS = "breaks the constraints"  # what a result that may not win is called


def none_feasible(study: Study, broken: Mapping[int, float]) -> str:
    """Return that no result keeps to the constraints; empty where one does, or none is there.

    Args:
        broken: By how much each complete trial with a finite value breaks them, by number.
    """
    if not study.constraints or not broken or not all(broken.values()):
        return ""
    bounds = ", ".join(f"{bound.metric} {bound.limits}" for bound in study.constraints)
    least = min(broken, key=lambda number: (broken[number], number))
    if len(broken) == 1:
        rest = f"trial {least}, the only complete one, breaks them."
    else:
        rest = f"all {len(broken)} complete trials break them, trial {least} the least."
    return f"No trial keeps to the constraints ({bounds}): {rest}"


def none_feasible_of(study: Study, found: Iterable[TrialRecord]) -> str:
    """Return ``none_feasible`` of trials that were read."""
    return none_feasible(
        study,
        {
            record.number: record.violation or 0.0
            for record in found
            if record.state == outcomes.COMPLETE
            and record.values
            and all(map(math.isfinite, record.values))
        },
    )


def read_none_feasible(ledger: Ledger) -> str:
    """Return ``none_feasible`` of the study's trials, from the database."""
    if not ledger.study.constraints:
        return ""
    broken = records.read_violations(ledger.db, ledger.study_id)
    complete = status_rows.read_complete_values(ledger.db, ledger.study_id)
    return none_feasible(ledger.study, {number: broken.get(number, 0.0) for number, _ in complete})
