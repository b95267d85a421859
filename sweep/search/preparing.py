"""A few proposals ahead: parameters for the next waiting trials, renewed as results come.

With most at once the queue is as long as so many trials: those that end together are served
together. Those that are claimed next are renewed, where results have come since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sweep.core.study import Study
from sweep.search import propose
from sweep.storage import proposals
from sweep.storage.proposals import Waiting

if TYPE_CHECKING:
    from sweep.search.own import Asked
    from sweep.storage.optuna_storage import PostgresStorage

MOST = 16  # proposals ahead
FRONT = 4  # of them that are renewed: they are needed next
RENEW_SHARE = 8  # of the trials that run, one in so many ends before they are
REST = 3.0  # times as long as it took, after one was renewed, none is: training runs beside
PAUSES_S = (0.1, 1.0)  # between two looks where nothing is due, the first and the longest


def choose_next(
    waiting: Sequence[Waiting], results: int, study: Study, *, renews: bool = True
) -> Waiting | None:
    """Return the trial whose parameters are to be proposed next; None where nothing is due.

    Args:
        waiting: In the order in which they are needed.
        results: Trials that have ended.
        renews: Whether one that has parameters may be due.
    """
    for trial in waiting:
        if trial.prepared is None:
            return trial
    if not renews:
        return None
    old = max(1, study.parallel // RENEW_SHARE)
    # What a slot waits for is taken in a moment.
    for trial in [one for one in waiting if not one.is_wanted][:FRONT]:
        if not 0 <= results - trial.results < old:
            return trial
    return None


class Preparer:
    """Keeps a study's queue of proposals.

    Args:
        storage: Without a token: no trial is written to.
        ask_own: Returns what answers for the user's own sampler; None where the study has none.

    Attributes:
        has_begun: Whether it has looked once, and proposed where that was due.
    """

    def __init__(
        self,
        study: Study,
        storage: PostgresStorage,
        study_id: int,
        ask_own: Callable[[], Asked | None] = lambda: None,
    ) -> None:
        self.study = study
        self.storage = storage
        self.study_id = study_id
        self.ask_own = ask_own
        self.has_begun = False

    def step(self, renews: bool = True) -> tuple[bool, bool]:
        """Prepare one proposal where one is due.

        Args:
            renews: As for ``choose_next``.

        Returns:
            Whether one was, and whether it was renewed.

        Raises:
            SweepError: As ``propose.propose``.
        """
        db, study = self.storage.database, self.study
        results, waiting = proposals.look(db, self.study_id, min(study.parallel, MOST))
        trial = choose_next(waiting, results, study, renews=renews)
        if trial is None:
            return False, False
        others = {
            one.number: one.prepared
            for one in waiting
            if one.prepared is not None and one.number != trial.number
        }
        found = propose.prepare(
            study, self.storage, self.study_id, trial.trial_id, trial.number, others, self.ask_own()
        )
        proposals.store(
            db, self.study_id, trial.number, found.params, results, found.sampler, found.notes
        )
        return True, trial.prepared is not None

    def run(
        self,
        is_wanted: Callable[[], bool],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare proposals for as long as they are wanted.

        One that is missing is made at once; after one was renewed the next one is renewed later.

        Raises:
            As ``step``.
        """
        pause_s, rests_until = PAUSES_S[0], 0.0
        while is_wanted():
            began = clock()
            was_due, was_renewed = self.step(began >= rests_until)
            self.has_begun = True
            if was_due:
                pause_s = PAUSES_S[0]
                if was_renewed:
                    rests_until = clock() + REST * (clock() - began)
                continue
            sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSES_S[1])
