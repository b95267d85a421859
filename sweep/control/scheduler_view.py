"""What the scheduler says of a study, for whoever looks at it for long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from sweep.control import finaliser, job_owners, tracker_gaps, tracker_trouble
from sweep.control.look_after import look_after
from sweep.control.open_study import Opened
from sweep.control.reconcile import UNSEEN_S
from sweep.core.errors import CouldNotAsk
from sweep.core.scheduler import ENDED, Scheduler
from sweep.storage import access, studies

EVERY_S = 30.0  # a cluster's queue belongs to everybody
TURN_EVERY_S = 10.0  # somebody looks after the study so often at most


class SchedulerView:
    """What the scheduler says of a study, which is looked after on the way; now and then only.

    A view that stays reads the database all the time; the queue it asks every EVERY_S seconds,
    one that is cheap to ask at each look.

    Args:
        say: Told what was done to the study's jobs.
        unseen_s: Attempts that have been silent for so long are looked after.
        only_looks: The study is not looked after.
    """

    def __init__(
        self,
        opened: Opened,
        schedule: Scheduler,
        say: Callable[[str], None] = lambda _: None,
        *,
        unseen_s: float = UNSEEN_S,
        only_looks: bool = False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.opened = opened
        self.schedule = schedule
        self.say = say
        self.unseen_s = unseen_s
        self.only_looks = only_looks
        self.now_s = now_s
        self.every_s = 0.0 if schedule.is_cheap_to_ask else EVERY_S
        self._answer: dict[str, Any] = {}
        self._asked = float("-inf")

    def ask(self) -> Mapping[str, Any]:
        """Return ``tasks``, ``notes`` and ``coming`` as ``status.snapshot`` takes them."""
        if self.now_s() - self._asked >= self.every_s:
            self._answer = self._ask()
            self._asked = self.now_s()
        return self._answer

    def _ask(self) -> dict[str, Any]:
        ledger, schedule = self.opened.ledger, self.schedule
        full = [note] if (note := access.explain_full(ledger.db)) else []
        full += tracker_trouble.notes(self.opened.folder)
        if not self.only_looks:
            look_after(
                ledger,
                self.opened.folder,
                schedule,
                self.say,
                unseen_s=self.unseen_s,
                every_s=TURN_EVERY_S,
            )
        waves = ledger.db.retry(lambda db: studies.read_waves(db, ledger.study_id))
        jobs = [wave.job for wave in waves if wave.job and not wave.over]
        try:
            tasks = job_owners.poll(ledger, schedule, jobs, ())[0] if jobs else {}
            has_task = any(task.state != ENDED for task in tasks.values())
            beside = finaliser.look_beside(ledger, schedule)
            if not (has_task or (beside and beside.finalisers)):
                full += self._gaps()
            return {
                "tasks": tasks,
                "notes": [*finaliser.notes(ledger, beside), *full],
                "coming": "" if has_task else finaliser.coming(beside),
            }
        except CouldNotAsk as error:
            said = f"the scheduler does not answer: {error.message}"
            return {"tasks": None, "notes": [said, *full], "coming": ""}

    def _gaps(self) -> list[str]:
        """Return what trackers lack of a study that is over; while it runs they are at it."""
        if self.opened.study.track and not self.opened.ledger.unfinished():
            return tracker_gaps.notes(self.opened.folder, self.opened.study)
        return []
