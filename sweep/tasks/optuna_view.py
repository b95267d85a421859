"""The study as its sampler and pruner see it in a task: made when first needed, and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.core.trial import Claim
from sweep.search.own import Asked
from sweep.storage import promotion
from sweep.storage.ledger import Ledger
from sweep.tasks.own_code import OwnCode
from sweep.tasks.proposing import Proposer

if TYPE_CHECKING:
    from sweep.storage.optuna_storage import PostgresStorage


class OptunaView:
    """The study as Optuna sees it, with the history that this task has read so far, and the process
    that answers for the user's own sampler or pruner.

    Attributes:
        proposer: The process that prepares proposals, where this task has it.
        has_proposed: Whether this task has proposed a trial's parameters itself.
    """

    def __init__(self, ledger: Ledger, folder: StudyFolder) -> None:
        self.ledger = ledger
        self._storage: PostgresStorage | None = None
        self._own = OwnCode(ledger.study, folder)
        self.proposer = Proposer(ledger, folder)
        self.has_proposed = False

    def asked(self) -> Asked | None:
        """Return what answers for the user's own sampler or pruner; None where the study has none.

        Raises:
            InputError: Its code is gone.
        """
        return self._own.asked()

    def close(self) -> None:
        """End what was started."""
        self._own.close()
        self.proposer.close()

    def storage(self, claim: Claim) -> PostgresStorage:
        """Return it as a storage that writes for this attempt."""
        if self._storage is None:
            from sweep.storage.optuna_storage import PostgresStorage

            self._storage = PostgresStorage(
                self.ledger.db, patience_s=0.0, steps=_asks_pruner(self.ledger.study)
            )
        self._storage.token = claim.token
        self._storage.own = claim.trial_id
        return self._storage

    def warm(self, claim: Claim) -> None:
        """Load the history while a training runs, where a verdict or the next pull asks for it."""
        study = self.ledger.study
        self.proposer.tend()
        if self.proposer.is_wanted and not _asks_pruner(study):
            return  # another process has the history
        if not claim.sampled or _asks_pruner(study) or _samples_late(study):
            self.storage(claim).get_all_trials(self.ledger.study_id, deepcopy=False)


def _asks_pruner(study: Study) -> bool:
    """Tell whether one of Optuna's pruners judges trials."""
    return study.pruner.type not in ("none", promotion.NAME)


def _samples_late(study: Study) -> bool:
    fixed = study.sampler.type in ("grid", "random", "qmc")
    return not fixed and len(study.space) > 0
