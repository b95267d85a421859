"""What an attempt asks of the sampler and the terminator, and whose failure it is if they fail."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from sweep.core.errors import DatabaseUnavailable, StaleAttempt, SweepError
from sweep.core.trial import Claim
from sweep.search import cost, propose, terminator
from sweep.search.own import OwnFailed
from sweep.search.samplers import choose, is_there, takes_long
from sweep.storage import proposals
from sweep.storage.budgets import Reached
from sweep.storage.claims import stored_value
from sweep.tasks.context import Context
from sweep.tasks.optuna_view import OptunaView
from sweep.tasks.patience import Patience
from sweep.tasks.staging.making import Left

T = TypeVar("T")

WAIT_S = 30.0  # for the process that prepares, before a task brings the sampler in itself
LOOK_S = 0.1  # between two looks for what it has prepared


class SearchFailed(SweepError):
    """The study's sampler or terminator failed; it would do so in every task."""


class LeftBeforeProposal(Left):
    """The task is to end before its trial has parameters."""


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
        """Return a trial's parameters, as Optuna stores them: those that were prepared for it, else
        such as this task proposes itself, while its slot waits.

        Where its sampler takes seconds to bring in, it waits for the process that prepares, which
        has it: all tasks would bring it in at the same moment, on CPUs that they may share.

        Raises:
            LeftBeforeProposal: The task is to end.
        """
        study, db, study_id = self.study, self.context.ledger.db, self.context.ledger.study_id
        is_late = propose.prepares(study)

        def take() -> dict[str, Any] | None:
            behind, resamples = propose.most_behind(study), study.duplicates == "resample"
            found = proposals.take(db, study_id, claim.token, behind, resamples=resamples)
            if found is None:
                return None
            prepared = {name: stored_value(value, kind) for name, value, kind in found}
            return {**prepared, **claim.params}

        def work() -> dict[str, Any]:
            return propose.propose(
                study,
                self.view.storage(claim),
                study_id,
                claim.trial_id,
                claim.number,
                self.view.asked(),
                is_late=is_late,
            )

        name = f"sampler {choose(study)[0]}"
        taken = self._ask(name, take) if is_late else None
        if taken is None and is_late and self._needs_long(claim):
            taken = self._await_prepared(claim, name, take)
        if taken is not None:
            return taken
        params = self._ask(name, work)
        is_first, self.view.has_proposed = not self.view.has_proposed, True
        self.patience.ask(lambda _: proposals.note_made(db, claim.token, is_first=is_first))
        return params

    def _needs_long(self, claim: Claim) -> bool:
        """Tell whether this task would have to bring in its sampler first."""
        is_asked = not propose.is_by_chance(self.study, claim.number)
        return is_asked and takes_long(self.study) and not is_there()

    def _one_keeps_up(self) -> bool:
        db, study_id = self.context.ledger.db, self.context.ledger.study_id
        took_s = self.patience.ask(lambda _: proposals.typical_s(db, study_id))
        return cost.keeps_up(self.study, took_s)

    def _await_prepared(
        self, claim: Claim, name: str, take: Callable[[], dict[str, Any] | None]
    ) -> dict[str, Any] | None:
        """Return what the process that prepares has for a trial, once it has; None where it does
        not come to it, or there is nothing to wait for. Where there is none, or it was killed, this
        task starts it.
        """
        ledger, proposer = self.context.ledger, self.view.proposer
        if not self._one_keeps_up():
            return None
        give_up_at, lacks = time.monotonic() + WAIT_S, self._wants(claim)
        while lacks and proposer.is_wanted and time.monotonic() < give_up_at:
            if self.patience.leave.wanted:
                raise LeftBeforeProposal("asked to leave before its parameters were proposed")
            self.patience.repeat(proposer.tend)
            if proposer.has_failed:
                break  # so that this task finds out why
            has_come, hangs = self.patience.ask(
                lambda db: proposals.progress(db, ledger.study_id, claim.token)
            )
            if hangs:
                break
            if has_come:
                taken = self._ask(name, take)
                if taken is not None:
                    return taken
                lacks = self._wants(claim)  # it was stale, or the answer was lost
            time.sleep(LOOK_S)
        return None

    def _wants(self, claim: Claim) -> bool:
        db = self.context.ledger.db
        return self.patience.ask(lambda _: proposals.want(db, claim.token))

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
