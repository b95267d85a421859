"""One array task: pull a trial, run an attempt at it, pull again while time lasts.

Optuna is imported only where the sampler is adaptive or a pruner has to judge, and then while
training runs.
"""

from __future__ import annotations

import os
import random
import signal
import time

from sweep.control import sick_nodes
from sweep.control.look_after import look_after
from sweep.control.notifying import tell
from sweep.control.reconcile import EVERY_S, UNSEEN_S, end_predecessors
from sweep.control.tracker_trouble import Trouble
from sweep.core import outcomes
from sweep.core.attributes import CANCEL
from sweep.core.errors import CouldNotAsk, NoRoom, SchedulerError, StaleAttempt
from sweep.core.trial import Claim
from sweep.storage import promotion, studies
from sweep.storage.closing import close_paused, close_untold
from sweep.tasks.attempt import AttemptRun, Tools
from sweep.tasks.attempt_record import Recorder
from sweep.tasks.context import Context
from sweep.tasks.onlooker import Onlooker
from sweep.tasks.optuna_view import OptunaView
from sweep.tasks.patience import PATIENCE_S, Patience
from sweep.tasks.tracking.outbox import Outbox
from sweep.training.exit_reason import last_lines
from sweep.training.leave import Leave

LOOK_WAIT_S = 3.0  # between two trials, for a look at the others
ATTRIBUTE_WAIT_S = 40.0  # for the scheduler to say who ended another's attempt
TRACK_CLOSE_S = 60.0  # for trackers to take what is left; what is refused is given up before
TRACK_BUSY_S = 300.0  # the same, of one that still computes
TRACK_LEAVE_S = 1.0  # the same, where this task has to go
INSIDE_S = 30.0  # for a container to say what it holds, once nothing is left to pull
CLEARED_S = 10.0  # after which waiting tasks are cancelled again
# Where max_parallel trials run: for another's attempt to be settled, before this task counts as one
# too many; between two looks at the others; and their silence before that.
ROOM_WAIT_S = 120.0
ROOM_LOOK_S = 5.0
ROOM_UNSEEN_S = 15.0
ROOM_PAUSES_S = (0.2, 4.0)  # between two claims, the first and the longest
MOST_FAULTS = 3  # of sweep or the disk, in a row, after which a task ends
# A next trial is pulled only while the time left is that many times the longest one seen.
TIME_MARGIN = 1.2


class Worker:
    """Runs trials of one study until none is left, its time is over, or it is asked to leave."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.folder = context.folder
        self.study = context.study
        self.ledger = context.ledger
        self.say = context.say
        self.leave = Leave(
            context.term_wait_s,
            max(1.0, context.study.grace_s - 2.0),
            context.end_time_s,
            term_follows=context.others_end_it,
        )
        self.longest_s = 0.0
        self.done = 0
        self._next_look = time.monotonic() + EVERY_S
        self._faults = 0  # attempts in a row that ended by no doing of their trainings
        self._over = False  # this run of the task has no business any more
        self._token = ""  # of the latest attempt
        self._parent = os.getppid()
        patience = Patience(context.ledger.db, self.leave, context.say)
        self.ask = patience.ask
        schedule = context.schedule
        self.quick = schedule.quick() if schedule else None  # for questions that a GPU waits for
        self.node = sick_nodes.Watch(
            context.ledger, context.place, self.quick, patience.ask, self.leave, context.say
        )
        beside = schedule is not None and not schedule.is_cheap_to_ask
        self.others = Onlooker(self._look, context.say, beside=beside)
        self._look_every_s, self._look_unseen_s = EVERY_S, UNSEEN_S
        self._gone = 0  # attempts whose tasks were gone at the latest look, unexplained
        self.tools = Tools(
            leave=self.leave,
            patience=patience,
            node=self.node,
            recorder=Recorder(context),
            outbox=Outbox(context.study, context.folder, context.environ),
            view=OptunaView(context.ledger, context.folder),
        )

    def run(self) -> int:
        """Pull and run trials; return how many attempts were made."""
        self.leave.listen()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for launch
        self._end_predecessors()
        self.node.shun_if_known()
        try:
            self._pull_and_run()
        finally:
            self.tools.view.close()
            self.tools.recorder.end(0.0 if self.leave.wanted else INSIDE_S)
            ends = (TRACK_LEAVE_S, 0.0) if self.leave.wanted else (TRACK_CLOSE_S, TRACK_BUSY_S)
            late = self.tools.outbox.close(*ends)
            if late:
                self.say(f"not all has reached {' and '.join(late)}; see {self.folder.tracking}")
            if not self.leave.wanted:  # else the trial's next attempt sends all that counts
                for name in late:
                    Trouble(self.folder, name).note("it was not done when a task ended")
        if not self.leave.wanted:  # else the finaliser does
            tell(self.ledger, self.folder, self.say)
        return self.done

    def _pull_and_run(self) -> None:
        while not (self.leave.wanted or self._over or self.node.is_shunned) and self._has_time():
            if self.done and self.context.place.slot is not None:
                self.node.shun_if_known()  # another slot may have found it to be sick
                if self.node.is_shunned:
                    break
            seat = self.context.seat
            if seat is not None and seat.must_leave():
                why = "has failed" if seat.is_lost() else "is to serve fewer trials now"
                self.say(f"its GPU {why}; this task ends")
                seat.leave()
                break
            claim = self._pull()
            if claim is None:
                if not self._over:
                    self._clear_queue()
                break
            self._run_attempt(claim)
            self.done += 1

    # Pulling

    def _has_time(self) -> bool:
        limit = self.study.trials_per_task
        if limit is not None and self.done >= limit:
            return False
        if self.context.may_run_twice and os.getppid() != self._parent:
            # slurmstepd is dead, say: Slurm takes this task for lost, and may run it again.
            self.say("the scheduler's process above this task is gone; it pulls no further trial")
            return False
        if self.done == 0 or self.context.end_time_s is None:
            return True
        left_s = self.context.end_time_s - time.time()
        return left_s > self.longest_s * TIME_MARGIN + self.study.grace_s

    def _end_predecessors(self) -> None:
        """End what an earlier run of this very task left: it was requeued, this is its next run.

        Where that run still lives (a node that is cut off), its writes are refused from here on.
        """
        place = self.context.place
        if place.job is None or place.index is None or place.slot is not None:
            return  # the process above a task's slots has done it for all of them
        with self.ledger.db.patient(PATIENCE_S):
            found = end_predecessors(
                self.ledger, self.folder, self.quick, place.job, place.index, place.host
            )
        for trial, attempt, end, state in found:
            self.say(f"trial {trial}, attempt {attempt} has ended ({end.reason}); now {state}")

    def _pull(self) -> Claim | None:
        if time.monotonic() >= self._next_look:
            self._look_after_others()
        if self._is_superseded():
            self.say("a later run of this very task is at work; this one ends")
            self._over = True
            return None
        token = os.urandom(16).hex()
        claim = self._claim(token)
        give_up_at = time.monotonic() + ATTRIBUTE_WAIT_S
        while claim is None and not (self.leave.wanted or self._over):
            leaving = self.ask(lambda _: self.ledger.terminated_attempts())
            left_s = give_up_at - time.monotonic()
            found = self._look_after_others(5.0 if leaving else EVERY_S, min(left_s, LOOK_WAIT_S))
            # None: a slow cluster has not answered yet; what it says may give us a trial.
            if not found and ((not leaving and found is not None) or left_s <= 0.0):
                break
            # Who ended these is known in some seconds; then their trials may be there to be pulled.
            claim = self._claim(token)
            if claim is None and (leaving or found is None):
                time.sleep(1.0)
        if claim is not None:
            self._token = token
        elif not (self.leave.wanted or self._over):
            if promotion.promotes(self.study):
                self.ask(lambda _: close_paused(self.ledger))
            self.ask(lambda _: close_untold(self.ledger))
        return claim

    def _claim(self, token: str) -> Claim | None:
        """Claim a trial, once there is room where max_parallel of them run; None if none is left.

        A task is one too many where another's attempt has not been settled yet, which a look does,
        or where max_parallel was lowered. Then it ends, and leaves the queue to the others.
        """
        give_up_at, pause_s = time.monotonic() + ROOM_WAIT_S, ROOM_PAUSES_S[0]
        gone, is_told = 0, False
        while not self.leave.wanted:
            try:
                return self.ask(
                    lambda _, gone=gone: self.ledger.claim(  # type: ignore[misc]
                        token, self.context.place, gone
                    ),
                    transaction=promotion.promotes(self.study),
                )
            except NoRoom:
                pass
            if time.monotonic() >= give_up_at:
                self.say("there are still max_parallel trials at work; this task is one too many")
                self._over = True
                break
            if not is_told:
                self.say("max_parallel trials are at work already; waiting for one of them to end")
                is_told = True
            if not self._look_for_room():
                self._pause(pause_s * random.uniform(0.5, 1.5))
                pause_s = min(2 * pause_s, ROOM_PAUSES_S[1])
            gone, self._gone = self._gone, 0
        return None

    def _look_for_room(self) -> bool:
        """Have the attempts settled whose tasks are dead; tell whether there may be room now."""
        cheap = self.context.schedule is not None and self.context.schedule.is_cheap_to_ask
        unseen_s = 0.0 if cheap else ROOM_UNSEEN_S
        return bool(self._look_after_others(ROOM_LOOK_S, unseen_s=unseen_s)) or self._gone > 0

    def _pause(self, pause_s: float) -> None:
        end = time.monotonic() + pause_s
        while not self.leave.wanted and (left_s := end - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.2))

    def _is_superseded(self) -> bool:
        """Tell whether this task was put back into the queue and runs again, while we live."""
        place = self.context.place
        if not self._token or place.job is None or not self.context.may_run_twice:
            return False
        latest = self.ask(lambda _: self.ledger.latest_token(place), transaction=False)
        return latest not in (None, self._token)

    def _look_after_others(
        self, every_s: float = EVERY_S, wait_s: float = LOOK_WAIT_S, unseen_s: float = UNSEEN_S
    ) -> bool | None:
        """Look after the others where that is due; tell whether something was settled, None where
        the look has not ended after so long."""
        if self.context.schedule is None:
            return False
        self._next_look = time.monotonic() + EVERY_S
        self._look_every_s, self._look_unseen_s = every_s, unseen_s
        self.others.begin()
        return self.others.result(max(0.0, wait_s))

    def _look(self) -> bool:
        schedule = self.context.schedule
        assert schedule is not None
        found = look_after(
            self.ledger,
            self.folder,
            schedule,
            self.say,
            unseen_s=self._look_unseen_s,
            every_s=self._look_every_s,
            host=self.context.place.host,
        )
        self._gone = found.gone if found else 0
        for trial, attempt, end, state in found.settled if found else ():
            self.say(f"trial {trial}, attempt {attempt} was dead ({end.reason}); now {state}")
        return bool(found and found.settled)

    def _clear_queue(self) -> None:
        """Nothing is left to pull: cancel what of our array has not started, recorded first."""
        job, schedule = self.context.place.job, self.quick
        if job is None or schedule is None:
            return
        key = CANCEL + job
        if self.context.place.slot is not None:
            before = self.ask(lambda db: studies.read_attribute(db, self.ledger.study_id, key))
            if before and time.time() - before.get("time", 0.0) < CLEARED_S:
                return  # another slot has just done it
        self.ask(
            lambda db: studies.note_cancel(db, self.ledger.study_id, job, studies.WAITING_ONES)
        )
        try:
            schedule.cancel(job, pending_only=True)
        except (SchedulerError, CouldNotAsk) as error:
            self.say(f"could not clear the queue: {error.message}")

    def _run_attempt(self, claim: Claim) -> None:
        began = time.monotonic()
        attempt = AttemptRun(self.context, self.tools, claim)
        try:
            state = attempt.run()
        except StaleAttempt as error:
            self.say(f"trial {claim.number}, attempt {claim.attempt}: {error.message}")
            self._over = self.context.may_run_twice
            return
        took_s = time.monotonic() - began
        self.longest_s = max(self.longest_s, took_s)
        self._faults = self._faults + 1 if attempt.is_fault else 0
        if self._faults >= MOST_FAULTS:
            self.say(f"{MOST_FAULTS} attempts in a row ended by such faults: this task ends")
            self._over = True
        self.say(f"trial {claim.number}, attempt {claim.attempt}: {state} after {took_s:.1f} s")
        if state == outcomes.FAILED:
            for line in last_lines(self.folder.attempt(claim.number, claim.attempt), 5):
                self.say(f"  | {line}")
