"""A ledger over a new study in a real database, used as its callers use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweep.core.attributes import PARALLEL
from sweep.core.study import Study
from sweep.search.propose import first_rows
from sweep.storage import bulk, records, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger


def make(db: Database, study: Study, *, limited: bool = False) -> Ledger:
    """Write a study with all its waiting trials; return its ledger.

    Args:
        limited: Claims keep to max_parallel.
    """
    with db.transaction():
        study_id = studies.insert_study(db, study)
        if not limited:
            studies.remove_attribute(db, study_id, PARALLEL)
        bulk.insert_waiting_trials(db, study_id, first_rows(study, study.trials))
    return Ledger(db, study_id, study)


def do(ledger: Ledger, work: Callable[[], Any]) -> Any:
    """Do something in one transaction, as the callers of the ledger do."""
    with ledger.db.transaction():
        return work()


def counts(ledger: Ledger) -> dict[str, int]:
    """Return how many trials are in each state, those without any left out."""
    found = records.count_states(ledger.db, ledger.study_id)
    return {state: count for state, count in found.items() if count}
