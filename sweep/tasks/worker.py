"""One array task: pull a trial, run it, forward, stop early, finish, pull again while time lasts.

Optuna is imported only where the sampler is adaptive or a pruner has to judge, and then while
training runs.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sweep.control import sick_nodes
from sweep.control.look_after import look_after
from sweep.control.reconcile import EVERY_S, succeed
from sweep.control.settle import newest_of, remove_checkpoints, settle, take_over
from sweep.core import outcomes
from sweep.core.errors import (
    CouldNotAsk,
    DatabaseUnavailable,
    SchedulerError,
    StaleAttempt,
    SweepError,
)
from sweep.core.files import make_private, write_atomic
from sweep.core.outcomes import GIVEN_BACK, PAUSED, USER_FAILURES
from sweep.core.system import memory, processes
from sweep.core.system.disk import FULL_DISK, full_disk, has_room, is_full
from sweep.core.trial import Claim, End, Report, trial_seed
from sweep.provenance import record as origin
from sweep.provenance import snapshot as frozen
from sweep.search import duplicates, propose, terminator
from sweep.storage import budgets, energy, promotion, studies
from sweep.storage.closing import close_paused
from sweep.storage.connection import Database
from sweep.tasks.attempt_record import Recorder
from sweep.tasks.context import Context, config_of
from sweep.tasks.tracking.outbox import Outbox
from sweep.training import build
from sweep.training.attempt_files import tell, write_exit
from sweep.training.checkpoints import newest_checkpoint
from sweep.training.command import assembly, filling, launchers
from sweep.training.command.environment import TrialValues
from sweep.training.command.rendezvous import Rendezvous
from sweep.training.exit_reason import last_lines, read_end
from sweep.training.journal import Journal
from sweep.training.supervisor import Channel, Leave, Supervisor, abrupt_s

if TYPE_CHECKING:
    from sweep.core.paths import AttemptFolder
    from sweep.storage.optuna_storage import PostgresStorage
    from sweep.training.supervisor import Channel, Ended

T = TypeVar("T")

PATIENCE_S = 3600.0  # for a database that is away between two trials
LEAVE_PATIENCE_S = 10.0  # once this task has to go
ATTRIBUTE_WAIT_S = 40.0  # for the scheduler to say who ended another's attempt
TRACK_CLOSE_S = 20.0  # for trackers to take what is left, once nothing is left to pull
TRACK_LEAVE_S = 1.0  # the same, where this task has to go
INSIDE_S = 30.0  # for a container to say what it holds, once nothing is left to pull
CLEARED_S = 10.0  # after which waiting tasks are cancelled again
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
        self.leave = Leave(context.term_wait_s, max(1.0, context.study.grace_s - 2.0))
        self.longest_s = 0.0
        self.done = 0
        self._next_look = time.monotonic() + EVERY_S
        self._over = False  # this run of the task has no business any more
        self._token = ""  # of the latest attempt
        self._has_reported = False  # so has that attempt
        self._meeting: Rendezvous | None = None  # of its ranks
        self._parent = os.getppid()
        self._optuna_storage: PostgresStorage | None = None
        self.recorder = Recorder(context)
        self.outbox = Outbox(context.study, context.folder, context.environ)
        self.node = sick_nodes.Watch(
            context.ledger, context.place, context.schedule, self._ask, self.leave, context.say
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
            self.recorder.end(0.0 if self.leave.wanted else INSIDE_S)
            late = self.outbox.close(TRACK_LEAVE_S if self.leave.wanted else TRACK_CLOSE_S)
            if late:
                self.say(f"not all has reached {' and '.join(late)}; see {self.folder.tracking}")
        return self.done

    def _pull_and_run(self) -> None:
        while not (self.leave.wanted or self._over or self.node.is_shunned) and self._has_time():
            if self.done and self.context.place.slot is not None:
                self.node.shun_if_known()  # another slot may have found it to be sick
                if self.node.is_shunned:
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
        if self._is_on_slurm() and os.getppid() != self._parent:
            # slurmstepd is dead: Slurm takes this task for lost, and may run it again.
            self.say("Slurm's process above this task is gone; it pulls no further trial")
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
        found = succeed(
            self.ledger,
            self.folder,
            self.context.schedule,
            place.job,
            place.index,
            place.host,
            PATIENCE_S,
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
        promotes = promotion.promotes(self.study)
        claim = self._ask(
            lambda _: self.ledger.claim(token, self.context.place), transaction=promotes
        )
        give_up_at = time.monotonic() + ATTRIBUTE_WAIT_S
        while claim is None and not self.leave.wanted:
            leaving = self._ask(lambda _: self.ledger.terminated_attempts())
            found = self._look_after_others(5.0 if leaving else EVERY_S)
            if not found and (not leaving or time.monotonic() >= give_up_at):
                break
            # Who ended these is known in some seconds; then their trials may be there to be pulled.
            claim = self._ask(
                lambda _: self.ledger.claim(token, self.context.place), transaction=promotes
            )
            if claim is None and leaving:
                time.sleep(1.0)
        if claim is not None:
            self._token = token
        elif promotes and not self.leave.wanted:
            self._ask(lambda _: close_paused(self.ledger))
        return claim

    def _is_superseded(self) -> bool:
        """Tell whether this task was put back into the queue and runs again, while we live."""
        place = self.context.place
        if not self._token or place.job is None or not self._is_on_slurm():
            return False
        return self._ask(lambda _: self.ledger.latest_token(place)) not in (None, self._token)

    def _is_on_slurm(self) -> bool:
        return self.context.schedule is not None and self.context.schedule.name != "local"

    def _look_after_others(self, every_s: float = EVERY_S) -> bool:
        if self.context.schedule is None:
            return False
        self._next_look = time.monotonic() + EVERY_S
        found = look_after(
            self.ledger,
            self.folder,
            self.context.schedule,
            self.say,
            every_s=every_s,
            patience_s=PATIENCE_S,
            host=self.context.place.host,
        )
        for trial, attempt, end, state in found.settled if found else ():
            self.say(f"trial {trial}, attempt {attempt} was dead ({end.reason}); now {state}")
        return bool(found and found.settled)

    def _clear_queue(self) -> None:
        """Nothing is left to pull: cancel what of our array has not started, recorded first."""
        job, schedule = self.context.place.job, self.context.schedule
        if job is None or schedule is None:
            return
        key = studies.CANCEL + job
        if self.context.place.slot is not None:
            before = self._ask(lambda db: studies.read_attribute(db, self.ledger.study_id, key))
            if before and time.time() - before.get("time", 0.0) < CLEARED_S:
                return  # another slot has just done it
        note = {"time": time.time(), "what": studies.WAITING_ONES}
        self._ask(lambda db: studies.write_attribute(db, self.ledger.study_id, key, note))
        try:
            schedule.cancel(job, pending_only=True)
        except (SchedulerError, CouldNotAsk) as error:
            self.say(f"could not clear the queue: {error.message}")

    def _ask(self, work: Callable[[Database], T], *, transaction: bool = True) -> T:
        patience_s = LEAVE_PATIENCE_S if self.leave.wanted else PATIENCE_S
        return self.ledger.db.retry(
            work, patience_s=patience_s, on_wait=self._report_wait, transaction=transaction
        )

    def _report_wait(self, waited_s: float, error: DatabaseUnavailable) -> None:
        if self.leave.wanted and waited_s > LEAVE_PATIENCE_S:
            raise error
        self.say(f"waiting for the database ({waited_s:.0f} s): {error.message}")

    # One attempt

    def _run_attempt(self, claim: Claim) -> None:
        began = time.monotonic()
        attempt_folder = self.folder.attempt(claim.number, claim.attempt)
        try:
            state = self._train(claim)
        except StaleAttempt as error:
            self.say(f"trial {claim.number}, attempt {claim.attempt}: {error.message}")
            self._over = self._is_on_slurm()
            return
        except OSError as error:
            if not is_full(error):
                raise
            state = self._write_end(claim, End(GIVEN_BACK, full_disk(self.folder.root)), [])
        finally:
            self.leave.folder = None
            if self._meeting is not None:
                self._meeting.close()
        self.outbox.end(claim.number, claim.attempt, state)
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        took_s = time.monotonic() - began
        self.say(f"trial {claim.number}, attempt {claim.attempt}: {state} after {took_s:.1f} s")
        if state == outcomes.FAILED:
            for line in last_lines(attempt_folder, 5):
                self.say(f"  | {line}")

    def _train(self, claim: Claim) -> str:
        folder = self.folder.attempt(claim.number, claim.attempt)
        began, kills = time.monotonic(), memory.count_kills()
        self._has_reported = False
        if claim.attempt > 1:
            self._end_earlier(claim)
        make_private(folder.checkpoints)
        values = self._values(claim)
        if self._has_a_result(claim):
            self.say(f"trial {claim.number} has the configuration and the result of an earlier one")
            return outcomes.COMPLETE
        write_atomic(values.config, filling.write_config(config_of(self.study, values)))
        resumed = (str(values.resume), self._resumed_hash) if values.resume else None
        place = self.context.place
        snapshot = origin.choose_snapshot(
            self.folder, values.resume, keep=claim.attempt > 1 and not self._was_corrected(claim)
        )
        try:
            placed = frozen.place(self.study, self.folder, snapshot, self.context.environ)
            self._meeting = launchers.meet(
                self.study, self.context.environ, place.job, place.index, place.slot
            )
            if self.study.environment.runtime != "none":
                build.make_ready(self.study, self.context.environ, self.say)
            argv, environ = assembly.build(
                placed.study, values, placed.environ, self.folder.python_path, self._meeting
            )
            child = processes.spawn(
                argv, cwd=placed.study.workdir, env=environ, stdout=folder.log, die_with_parent=True
            )
        except SweepError as error:
            return self._not_started(claim, error, time.monotonic() - began)
        self.leave.folder = folder
        if self.leave.wanted:
            tell(folder, "checkpoint")  # the signal came while we were not looking
        try:
            self._ask(
                lambda _: self.ledger.started(claim.token, child.pid, resumed), transaction=False
            )
            # Now that it trains: the record costs it no time.
            self.recorder.begin(claim, snapshot, values, argv, placed)
            first_step = 0
            if resumed:
                first_step = self._ask(
                    lambda _: self.ledger.next_step(claim.trial_id, claim.attempt)
                )
        except BaseException:
            processes.end_group(child.pid, claim.token, grace_s=abrupt_s(self.study))
            child.wait()
            raise
        self.outbox.begin(claim.number, claim.attempt, first_step, place.host)
        supervisor = Supervisor(
            child,
            claim.token,
            folder,
            self.study,
            Journal(folder, self.study.objectives, first_step, launchers.reader(self.study)),
            self._channel(claim),
            self.leave,
            claim.used_s,
        )
        ended = supervisor.run()
        joules = self.recorder.joules()
        self.recorder.end(0.0)
        end = self._read_end(folder, ended, kills)
        return self._write_end(claim, end, supervisor.unsent, time.monotonic() - began, joules)

    def _read_end(self, folder: AttemptFolder, ended: Ended, kills: int | None) -> End:
        """Say how a training ended, which is noted in its folder."""
        end = read_end(self.study, folder, ended.exit_code, ended.signal, ended.told)
        with contextlib.suppress(OSError):  # a full disk: the database may still take it
            write_exit(folder, end.exit_code, end.signal, ended.told)
        if end.outcome == outcomes.INTERRUPTED and self.leave.terminated and self._asks_who():
            end = End(outcomes.TERMINATED, "ended by SIGTERM", end.exit_code, end.signal)
        may_be = (outcomes.KILLED, outcomes.ERROR)
        if end.outcome in may_be and kills != memory.count_kills():
            end = End(outcomes.OUT_OF_MEMORY, "memory ran out", end.exit_code, end.signal)
        if end.outcome == outcomes.ERROR and not has_room(folder.root):
            end = End(GIVEN_BACK, full_disk(self.folder.root))
        return end

    def _has_a_result(self, claim: Claim) -> bool:
        """Tell whether a twin's result is the trial's, which is complete then."""
        return duplicates.may_have_twins(self.study) and self._ask(
            lambda _: duplicates.notice(self.ledger, claim)
        )

    def _was_corrected(self, claim: Claim) -> bool:
        """Tell whether the attempt before failed by its own code, which a launch has given back."""
        before = self._ask(lambda _: self.ledger.attempts(claim.trial_id))[-2:-1]
        return any(attempt.outcome == GIVEN_BACK for attempt in before)

    def _end_earlier(self, claim: Claim) -> None:
        """End what earlier attempts of the trial have left on this machine."""
        for attempt in self._ask(lambda _: self.ledger.attempts(claim.trial_id)):
            if attempt.number < claim.attempt and attempt.host == self.context.place.host:
                processes.end_attempt_group(attempt.group, attempt.token)

    def _values(self, claim: Claim) -> TrialValues:
        folder = self.folder.attempt(claim.number, claim.attempt)
        params = dict(claim.params)
        if not claim.sampled:
            params = self._sample(claim)
        resume = self._checkpoint_before(claim)
        return TrialValues(
            number=claim.number,
            attempt=claim.attempt,
            seed=trial_seed(self.study.seed, claim.number),
            params={**self.study.space.from_optuna(params), **self.study.fixed},
            config=self.folder.config(claim.number),
            trial_dir=folder.root,
            checkpoint_dir=folder.checkpoints,
            resume=resume,
            metrics=folder.metrics,
            control=folder.control,
            token=claim.token,
        )

    def _checkpoint_before(self, claim: Claim) -> Path | None:
        self._resumed_hash = ""
        if claim.attempt == 1:
            return None
        earlier = [self.folder.attempt(claim.number, n) for n in range(claim.attempt - 1, 0, -1)]
        known = self._ask(lambda _: self.ledger.checkpoint_hashes(claim.trial_id))
        found = newest_checkpoint(earlier, known)
        if found is None:
            return None
        path, self._resumed_hash = found
        self.say(f"trial {claim.number} goes on from {path}")
        return path

    def _sample(self, claim: Claim) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            return propose.propose(
                self.study, self._storage(claim), self.ledger.study_id, claim.trial_id, claim.number
            )

        return self._patiently(work)

    def _storage(self, claim: Claim) -> PostgresStorage:
        """Return Optuna's view of the study, with the history that it has read so far."""
        if self._optuna_storage is None:
            from sweep.storage.optuna_storage import PostgresStorage

            self._optuna_storage = PostgresStorage(
                self.ledger.db, patience_s=0.0, steps=self._asks_pruner()
            )
        self._optuna_storage.token = claim.token
        return self._optuna_storage

    def _patiently(self, work: Callable[[], T]) -> T:
        """Repeat something that opens its own transactions while the database is away."""
        start, pause_s = time.monotonic(), 0.1
        while True:
            try:
                return work()
            except DatabaseUnavailable as error:
                waited_s = time.monotonic() - start
                if waited_s > (LEAVE_PATIENCE_S if self.leave.wanted else PATIENCE_S):
                    raise
                self._report_wait(waited_s, error)
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 5.0)

    def _channel(self, claim: Claim) -> Channel:
        ledger = self.ledger
        steps: dict[int, float] = {}  # of the objective, once a verdict has been asked for

        def record(reports: Sequence[Report]) -> None:
            ledger.db.retry(
                lambda _: ledger.record(claim.token, reports), patience_s=0.0, transaction=False
            )
            if claim.attempt > 1 and not self._has_reported:
                ledger.db.retry(lambda _: self._take_over(claim), patience_s=0.0)
            self._has_reported = True
            self.recorder.note_energy(claim)
            if steps:
                steps.update(ledger.objective_steps(claim.token, reports))

        def touch() -> bool:
            if self.study.time_s is not None or self.study.gpu_hours is not None:
                ledger.db.retry(lambda _: budgets.look(ledger), patience_s=0.0)
            self.recorder.note_energy(claim)
            state = ledger.db.retry(lambda _: ledger.touch(claim.token), patience_s=0.0)
            return state.wants_leaving

        def judge() -> str:
            if promotion.promotes(self.study):
                pauses = ledger.db.retry(
                    lambda _: ledger.judge_rung(claim.token, claim.trial_id), patience_s=0.0
                )
                return PAUSED if pauses else ""

            from sweep.search import pruning

            storage = self._storage(claim)
            if not steps:  # with those of earlier attempts
                steps.update(storage.get_trial(claim.trial_id).intermediate_values)
            prunes = pruning.should_prune(
                self.study, storage, ledger.study_id, claim.trial_id, steps
            )
            return "pruned" if prunes else ""

        judges = self.study.pruner.type != "none" and not self.study.is_multi_objective
        return Channel(
            record, touch, judge if judges else None, self._warmer(claim), ledger.db.rest
        )

    def _take_over(self, claim: Claim) -> None:
        """Store, after an attempt's first reports, what an earlier run went on reporting before."""
        if claim.attempt > 1 and not self._has_reported:
            take_over(self.ledger, claim.token, self.folder, claim.number)

    def _warmer(self, claim: Claim) -> Callable[[], None] | None:
        if claim.sampled and not self._asks_pruner() and not self._samples_late():
            return None

        def warm() -> None:
            self._storage(claim).get_all_trials(self.ledger.study_id, deepcopy=False)

        return warm

    def _asks_pruner(self) -> bool:
        """Tell whether one of Optuna's pruners judges trials."""
        return self.study.pruner.type not in ("none", promotion.NAME)

    def _samples_late(self) -> bool:
        fixed = self.study.sampler.type in ("grid", "random", "qmc")
        return not fixed and len(self.study.space) > 0

    def _not_started(self, claim: Claim, error: SweepError, took_s: float) -> str:
        folder = self.folder.attempt(claim.number, claim.attempt)
        with folder.log.open("a", encoding="utf-8") as log:
            log.write(f"sweep: {error}\n")
        return self._write_end(claim, End(outcomes.NOT_STARTED, error.message), [], took_s)

    def _asks_who(self) -> bool:
        """Tell whether a SIGTERM may have been the user's wish, which is asked later.

        On a cluster it is the same signal for a preemption, a time limit and an scancel; on this
        machine only sweep itself sends it.
        """
        return self._is_on_slurm()

    def _write_end(
        self,
        claim: Claim,
        end: End,
        unsent: Sequence[Report],
        took_s: float = math.inf,
        joules: float | None = None,
    ) -> str:
        folder = self.folder.attempt(claim.number, claim.attempt)
        judged = end.outcome in USER_FAILURES and not unsent and self.node.judges(took_s)
        if judged and self.node.look().is_doubtful:
            reason = f"failed at once on {self.context.place.host}: {end.reason}"
            end = End(GIVEN_BACK, reason, end.exit_code, end.signal)
        checkpoint = newest_of(folder) if end.outcome != outcomes.FINISHED else None
        tries = 0

        def work(_: object) -> str:
            nonlocal tries
            tries += 1
            written = self.ledger.state_after(claim.token) if tries > 1 else None
            if written is not None:
                return written  # the answer to our own COMMIT was lost
            if unsent:
                self.ledger.record(claim.token, unsent)
                self._take_over(claim)
            if joules is not None:
                energy.note(self.ledger.db, claim.token, joules)
            return settle(self.ledger, claim.token, claim.trial_id, end, checkpoint)

        state = self._ask(work)
        if judged:
            self.node.judge(end.reason)
        if end.reason.startswith(FULL_DISK):
            self._hold(end.reason)
        self._end_study(claim, state)
        if state != outcomes.RUNNING:
            self._ask(
                lambda _: remove_checkpoints(self.ledger, self.folder, claim.number),
                transaction=False,
            )
            return state
        return end.outcome

    def _end_study(self, claim: Claim, state: str) -> None:
        """End the study where this trial's result, or what it used, is what ends it."""
        if not self.study.may_end_early:
            return
        if self._ask(lambda _: budgets.look(self.ledger)):
            return
        if state != outcomes.COMPLETE or self.study.terminator.type == "none" or self.leave.wanted:
            return
        storage = self._storage(claim)
        reached = self._patiently(
            lambda: terminator.judge(self.study, storage, self.ledger.study_id)
        )
        if reached is not None:
            self._ask(lambda _: budgets.end(self.ledger, reached))

    def _hold(self, reason: str) -> None:
        """Hold the study: what is wrong is wrong for every task."""

        def work(db: Database) -> None:
            studies.lock_study(db, self.ledger.study_id)
            if studies.read_state(db, self.ledger.study_id).word == studies.RUNNING:
                held = studies.StudyState(studies.HELD, reason)
                studies.write_state(db, self.ledger.study_id, held)

        self._ask(work)
