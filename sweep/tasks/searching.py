"""What an attempt asks of the sampler and the terminator, and whose failure it is if they fail."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from sweep.core.errors import DatabaseUnavailable, StaleAttempt, SweepError
from sweep.core.trial import Claim
from sweep.search import propose, terminator
from sweep.search.own import OwnFailed
from sweep.search.samplers import choose
from sweep.storage.budgets import Reached
from sweep.tasks.context import Context
from sweep.tasks.optuna_view import OptunaView
from sweep.tasks.patience import Patience

T = TypeVar("T")


class SearchFailed(SweepError):
    """The study's sampler or terminator failed; it would do so in every task."""


class Searching:
    """Asks them within one task.

    Both questions raise ``SearchFailed`` where what is asked fails, whatever it raised (the
    traceback is in the task's log), and StaleAttempt or DatabaseUnavailable as the storage says.
    """

    def __init__(self, context: Context, patience: Patience, view: OptunaView) -> None:
        self.context = context
        self.study = context.study
        self.patience = patience
        self.view = view

    def sample(self, claim: Claim) -> dict[str, Any]:
        """Return a trial's parameters, as Optuna stores them."""

        def work() -> dict[str, Any]:
            return propose.propose(
                self.study,
                self.view.storage(claim),
                self.context.ledger.study_id,
                claim.trial_id,
                claim.number,
                self.view.asked(),
            )

        return self._ask(f"sampler {choose(self.study)[0]}", work)

    def judge_end(self, claim: Claim) -> Reached | None:
        """Return why the search is to end here; None where it goes on."""
        storage = self.view.storage(claim)
        return self._ask(
            f"terminator {self.study.terminator.type}",
            lambda: terminator.judge(self.study, storage, self.context.ledger.study_id),
        )

    def _ask(self, what: str, work: Callable[[], T]) -> T:
        """Do what Optuna does for the study; its failures are told from ours."""
        try:
            return self.patience.repeat(work)
        except (StaleAttempt, DatabaseUnavailable):
            raise
        except OwnFailed as error:  # it says itself what failed
            raise SearchFailed(f"{error.message} {error.hint}") from error
        except SweepError as error:
            advice = f" {error.hint}" if error.hint else ""
            raise SearchFailed(f"the {what} cannot work: {error.message}{advice}") from error
        except Exception as error:
            self.context.say(traceback.format_exc())
            raise SearchFailed(
                f"the {what} failed: {type(error).__name__}: {error}"[:500]
            ) from error
