"""Trials with the same configuration: found, noted, and where the study says so, not run again."""

from __future__ import annotations

from sweep.core import outcomes
from sweep.core.attributes import CONSTRAINTS, DUPLICATE_OF, REPLICATES
from sweep.core.study import Study
from sweep.core.trial import Claim, End
from sweep.storage import same_params, trial_rows
from sweep.storage.ledger import Ledger


def may_have_duplicates(study: Study) -> bool:
    """Tell whether looking for them is worth a query: a float without steps hardly has any."""
    if not study.space:
        return False  # there all trials are the same, as the user wants it
    return study.duplicates != "keep" or all(p.count() is not None for p in study.space)


def notice(ledger: Ledger, claim: Claim) -> bool:
    """Note that a trial which is about to run is a duplicate; inside ``db.retry``.

    Returns whether the study reuses the earlier one's result: the trial is complete then.
    """
    if claim.attempt > 1 or not may_have_duplicates(ledger.study):
        return False
    db = ledger.db
    earlier = same_params.first_complete(db, ledger.study_id, claim.trial_id)
    if earlier is None:
        return False
    earlier_id, number = earlier
    trial_rows.write_attribute(db, "user", [claim.trial_id], DUPLICATE_OF, number)
    if ledger.study.duplicates != "reuse":
        return False
    broken = trial_rows.read_attribute(db, "system", earlier_id, CONSTRAINTS)
    if broken:
        ledger.note_violations(claim.trial_id, broken)
    replicates = trial_rows.read_attribute(db, "user", earlier_id, REPLICATES)
    if replicates:  # how many trainings the result is the mean of
        trial_rows.write_attribute(db, "user", [claim.trial_id], REPLICATES, replicates)
    values = trial_rows.read_values(db, earlier_id)
    reason = f"the same configuration as trial {number}, whose result it has"
    ledger.finish(claim.token, End(outcomes.FINISHED, reason), outcomes.COMPLETE, values)
    return True
