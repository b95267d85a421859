"""What passes between one attempt's training and the database: reports, signs of life, verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.control.settle import take_over
from sweep.core.outcomes import HALTED, PAUSED, STOPPED
from sweep.core.paths import StudyFolder
from sweep.core.trial import Claim, Reading, Report
from sweep.search.own import OwnFailed
from sweep.storage import budgets, promotion, studies
from sweep.storage.ledger import Ledger
from sweep.tasks.attempt_record import Recorder
from sweep.tasks.optuna_view import OptunaView
from sweep.tasks.turn import Turn
from sweep.training.best_checkpoint import BestKeeper
from sweep.training.supervisor import STOPPED_NOW, Channel


class AttemptChannel(Channel):
    """The supervisor's way to the database; never waits: what is away is tried again later."""

    def __init__(
        self,
        ledger: Ledger,
        folder: StudyFolder,
        claim: Claim,
        recorder: Recorder,
        view: OptunaView,
    ) -> None:
        self.ledger = ledger
        self.study = ledger.study
        self.folder = folder
        self.claim = claim
        self.recorder = recorder
        self.view = view
        self.keeper: BestKeeper | None = None  # sees all that is reported
        self.turn: Turn | None = None  # on a GPU that trials share
        self._has_reported = False
        self._is_unjudged = False  # the user's own pruner has failed
        self._steps: dict[int, float] = {}  # of the objective, once a verdict has been asked for

    def record(self, reports: Sequence[Report], reading: Reading) -> None:
        ledger, claim = self.ledger, self.claim
        if self.keeper is not None:
            self.keeper.see(reports)
        ledger.db.retry(
            lambda _: ledger.record(claim.token, reports, reading),
            patience_s=0.0,
            transaction=False,
        )
        if not reports:
            return
        if self.turn is not None:
            self.turn.report(reports)
        if claim.attempt > 1 and not self._has_reported:
            ledger.db.retry(lambda _: self.take_over(), patience_s=0.0)
        self._has_reported = True
        self.recorder.note_energy(claim)
        if self._steps:
            self._steps.update(ledger.objective_steps(claim.token, reports))

    def take_over(self) -> None:
        """Store, after the first reports, what an earlier run went on reporting before.

        Inside ``db.retry``.
        """
        if self.claim.attempt > 1 and not self._has_reported:
            take_over(self.ledger, self.claim.token, self.folder, self.claim.number)

    def touch(self) -> str:
        ledger = self.ledger
        if self.study.time_s is not None or self.study.gpu_hours is not None:
            ledger.db.retry(lambda _: budgets.look(ledger), patience_s=0.0)
        self.recorder.note_energy(self.claim)
        self.view.proposer.tend()
        turn = self.turn
        if turn is not None:
            ledger.db.retry(lambda _: turn.note(), patience_s=0.0)
        wanted = ledger.db.retry(lambda _: ledger.touch(self.claim.token), patience_s=0.0)
        if wanted.cancel:
            return STOPPED_NOW if wanted.now else STOPPED
        return HALTED if wanted.wants_leaving else ""

    def tend(self) -> None:
        self.view.proposer.mend()

    def judge(self) -> str:
        study, ledger, claim = self.study, self.ledger, self.claim
        if study.pruner.type == "none" or study.is_multi_objective or self._is_unjudged:
            return ""
        if claim.replicate > 1:
            return ""  # the first replicate has been compared with the others' first
        if promotion.promotes(study):
            pauses = ledger.db.retry(
                lambda _: ledger.judge_rung(claim.token, claim.trial_id), patience_s=0.0
            )
            return PAUSED if pauses else ""

        from sweep.search import pruning

        storage = self.view.storage(claim)
        if not self._steps:  # with those of earlier attempts
            self._steps.update(storage.get_trial(claim.trial_id).intermediate_values)
        try:
            prunes = pruning.should_prune(
                study, storage, ledger.study_id, claim.trial_id, self._steps, self.view.asked()
            )
        except OwnFailed as error:
            self._hold(f"{error.message} {error.hint}")
            return ""
        return "pruned" if prunes else ""

    def _hold(self, reason: str) -> None:
        """Hold the study; this trial goes on without verdicts, which it may as well."""
        db, study_id = self.ledger.db, self.ledger.study_id
        db.retry(lambda _: studies.hold(db, study_id, reason), patience_s=0.0)
        self._is_unjudged = True

    def slowdown(self) -> float:
        return 1.0 if self.turn is None else self.turn.seat.slowdown()

    def warm(self) -> None:
        self.view.warm(self.claim)

    def rest(self, unused_s: float) -> None:
        self.ledger.db.rest(unused_s)
