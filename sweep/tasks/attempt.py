"""One attempt at a trial: from its claim, through its training, to what its end means."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sweep.control import resuming, sick_nodes
from sweep.control.kept_checkpoints import remove_checkpoints
from sweep.control.next_step import find_next_step
from sweep.control.settle import drain, newest_of, settle
from sweep.core import outcomes
from sweep.core.errors import SweepError
from sweep.core.files import write_atomic
from sweep.core.outcomes import GIVEN_BACK, RETRIES, USER_FAILURES
from sweep.core.sharing import share
from sweep.core.system import memory, processes
from sweep.core.system.crash import write_crash
from sweep.core.system.disk import FULL_DISK, full_disk, has_room, is_full
from sweep.core.trial import Claim, End, Reading, Report, replicate_seed
from sweep.provenance import snapshot as code_snapshot
from sweep.provenance.record import choose_snapshot
from sweep.search import duplicates
from sweep.search.valid import Where
from sweep.storage import budgets, energy, studies
from sweep.tasks import profiled
from sweep.tasks.attempt_record import Recorder
from sweep.tasks.channel import AttemptChannel
from sweep.tasks.context import Context, config_of, logged_as
from sweep.tasks.optuna_view import OptunaView
from sweep.tasks.patience import Patience
from sweep.tasks.searching import SearchFailed, Searching
from sweep.tasks.staging.making import DataDiffer, Left
from sweep.tasks.staging.stage import DATA_FAULTS, Staged, Stager
from sweep.tasks.tracking.outbox import Outbox
from sweep.tasks.turn import Turn, small_at_first
from sweep.training import best_checkpoint, memory_messages, own_workdir, ready
from sweep.training.attempt_files import make_folder, odd_files, read_suspended_s, tell, write_exit
from sweep.training.best_checkpoint import BestKeeper
from sweep.training.carry_over import carry_over
from sweep.training.checkpoints import Found
from sweep.training.command import assembly, filling, launchers
from sweep.training.command.environment import TrialValues
from sweep.training.command.rendezvous import Rendezvous
from sweep.training.exit_reason import last_lines, read_end
from sweep.training.journal import Journal
from sweep.training.leave import Leave
from sweep.training.printed_steps import first_printed
from sweep.training.supervisor import Ended, Supervisor, abrupt_s


@dataclass(frozen=True)
class Tools:
    """What the attempts of one task share.

    Attributes:
        leave: Requests to leave.
        patience: Asks the database, however long it is away.
        node: An eye on the node, which may be what fails.
        recorder: Notes what made an attempt.
        outbox: Takes what trackers are to be sent.
        view: The study as its sampler and pruner see it.
    """

    leave: Leave
    patience: Patience
    node: sick_nodes.Watch
    recorder: Recorder
    outbox: Outbox
    view: OptunaView


@dataclass(frozen=True)
class _Started:
    """A training that runs, since when (monotonic), and from which snapshot of the code (None: the
    live code)."""

    child: subprocess.Popen[bytes]
    began: float
    argv: Sequence[str]
    snapshot: str | None
    placed: code_snapshot.Placed


class AttemptRun:
    """Runs the attempt that was claimed.

    Args:
        context: The task's.
        tools: What it shares with the task's other attempts.
    """

    def __init__(self, context: Context, tools: Tools, claim: Claim) -> None:
        self.context = context
        self.study = context.study
        self.ledger = context.ledger
        self.claim = claim
        self.folder = context.folder.attempt(claim.number, claim.attempt)
        self.tools = tools
        self.leave = tools.leave
        self.ask = tools.patience.ask
        self.channel = AttemptChannel(
            context.ledger, context.folder, claim, tools.recorder, tools.view
        )
        self.searching = Searching(context, tools.patience, tools.view)
        self._resumed: Found | None = None  # what it goes on from
        self._meeting: Rendezvous | None = None  # of its ranks
        self._staged: Staged | None = None  # its data
        self._turn = Turn.of(context, claim)  # on a GPU that trials share
        self.is_fault = False  # that it ended as it did was no doing of the training's

    def run(self) -> str:
        """Train, and write down how that ended.

        Returns:
            The trial's state afterwards; the attempt's outcome where the trial is to go on.

        Raises:
            StaleAttempt: The attempt is over; its trial belongs to another one, or has ended.
        """
        try:
            state = self._train()
        except SearchFailed as error:
            state = self._write_end(End(GIVEN_BACK, error.message), 0)
            self._hold(error.message)  # it would fail in every task
        except DATA_FAULTS as error:
            state = self._end_without_data(error)
        except SweepError:
            raise
        except Exception as error:
            state = self._end_by_fault(error)
        finally:
            self.leave.folder = None
            self._end_keeper()
            if self._turn is not None:
                self._turn.end()
            if self._meeting is not None:
                self._meeting.close()
            if self._staged is not None:
                self._staged.close()
            share(self.study, self.context.folder, self.context.folder.trial(self.claim.number))
        self.tools.outbox.end(self.claim.number, self.claim.attempt, state)
        return state

    def _end_without_data(self, error: SweepError) -> str:
        """End an attempt whose data are not what they were, have no room, or came too late."""
        said = f"{error.message} {error.hint}".strip()
        if isinstance(error, Left):
            asks_who = self.leave.terminated and self.context.others_end_it
            outcome = outcomes.TERMINATED if asks_who else outcomes.INTERRUPTED
            return self._write_end(End(outcome, said), 0)
        self.context.say(said)
        state = self._write_end(End(GIVEN_BACK, said), 0)
        if not (isinstance(error, DataDiffer) and self.tools.node.shun(said)):
            self._hold(said)
        return state

    def _end_by_fault(self, error: Exception) -> str:
        """End an attempt that cannot go on by no fault of its training's; the task's next one may.

        Where the disk refuses, that is said; anything else is a fault of ours, with a crash file.
        """
        root = self.context.folder.root
        if isinstance(error, OSError) and is_full(error):
            place = Path(os.fsdecode(error.filename)).parent if error.filename else root
            return self._write_end(End(GIVEN_BACK, full_disk(place)), 0)
        self.is_fault = True
        said = str(error).strip().partition("\n")[0]
        if isinstance(error, OSError) and error.filename is not None:
            name = error.filename2 or error.filename  # the second of a renaming
            reason = f"{name} cannot be written or read: {error.strerror}"
        else:
            what = ["trial", str(self.claim.number), "attempt", str(self.claim.attempt)]
            where = write_crash(root.parent, error, what)
            reason = f"a fault of sweep's own ({type(error).__name__}: {said}); details in {where}"
        self.context.say(f"trial {self.claim.number}: {reason}")
        self.ask(lambda _: self.ledger.add_notes(self.claim.token, [reason]))
        return self._write_end(End(outcomes.LOST, reason), 0)

    def _train(self) -> str:
        began, kills = time.monotonic(), memory.count_kills()
        if self.claim.attempt > 1:
            self._end_earlier()
        for moved in make_folder(self.folder, self.claim.token):
            self.context.say(
                f"trial {self.claim.number}: a folder of a forgotten attempt is now {moved}"
            )
        values = self._values()
        if self._has_a_result():
            self.context.say(
                f"trial {self.claim.number} has the configuration and the result of an earlier one"
            )
            return outcomes.COMPLETE
        params = config_of(self.study, values)
        for path, text in filling.config_files(self.study, values.config, params).items():
            write_atomic(path, text)
        snapshot = choose_snapshot(
            self.context.folder,
            self._resumed.path if self._resumed else None,
            keep=self.claim.attempt > 1 and not self._was_corrected(),
        )
        try:
            values = self._stage(values)
            if self._turn is not None:
                self._turn.wait(values.params, self.leave, self.channel.touch)
            started = self._start(values, snapshot)
        except DATA_FAULTS:
            raise
        except SweepError as error:
            return self._not_started(error, time.monotonic() - began)
        self._note_start(values, started)
        journal = Journal(
            self.folder,
            self.study.objectives,
            partial(first_printed, self.study, self.folder, values.next_step),
            launchers.reader(self.study),
        )
        supervisor = Supervisor(
            started.child,
            self.claim.token,
            self.folder,
            self.study,
            journal,
            self.channel,
            self.leave,
            self._used_s(),
            started.began,
            watch := profiled.begin(self.context, self.folder, started.child.pid),
            None if self._turn is None else self._turn.let_go,
        )
        if best_checkpoint.is_wanted(self.study):
            pattern = self.study.checkpoint_files
            self.channel.keeper = BestKeeper(self.folder, self.study.objective, pattern)
            self.channel.keeper.start()
        ended = supervisor.run()
        if watch is not None:
            with contextlib.suppress(OSError):  # a full disk: the database may still take it
                watch.end()
            self.ask(lambda _: profiled.keep(self.ledger, self.claim.token, watch))
        joules = self.tools.recorder.joules()
        self.tools.recorder.end(0.0)
        end = self._read_end(ended, kills)
        left = drain(journal, self._record, supervisor.unsent)
        self._end_keeper()
        odd = [*odd_files(self.folder), *(self._turn.notes if self._turn is not None else ())]
        if broken := Where(self.study).describe(values.params):
            odd.append(f"ran with what it was given, which breaks where: {broken}")
        if odd:
            self.ask(lambda _: self.ledger.add_notes(self.claim.token, odd))
        return self._write_end(end, left, time.monotonic() - began, joules)

    def _end_keeper(self) -> None:
        if self.channel.keeper is not None:
            self.channel.keeper.finish()
            self.channel.keeper = None

    def _record(self, reports: Sequence[Report], reading: Reading) -> None:
        self.tools.patience.repeat(lambda: self.channel.record(reports, reading))

    def _stage(self, values: TrialValues) -> TrialValues:
        """Return the values with the paths of the data as this node has them."""
        context = self.context
        if all(one.stage == "none" for one in self.study.datasets.values()):
            return values
        stager = Stager(self.study, context.folder, context.environ, context.say)
        staged = self._staged = stager.stage(values.data, lambda: self.leave.wanted)
        if staged.notes:
            self.ask(lambda _: self.ledger.add_notes(self.claim.token, staged.notes))
        return replace(values, data=staged.data)

    def _start(self, values: TrialValues, snapshot: str | None) -> _Started:
        context, place = self.context, self.context.place
        placed = code_snapshot.place(self.study, context.folder, snapshot, context.environ)
        self._meeting = launchers.meet(
            self.study, context.environ, place.job, place.index, place.slot
        )
        if self.study.environment.runtime != "none":
            ready.make_ready(self.study, context.environ, context.say)
        if self._turn is not None:
            placed = replace(placed, study=small_at_first(placed.study, placed.environ))
            values = replace(values, shares_gpu=True, mps=self._turn.variables())
        laid = own_workdir.lay(placed.study, placed.environ, self.folder)
        argv, environ = assembly.build(
            laid.study, values, laid.environ, context.folder.python_path, self._meeting
        )
        child = processes.spawn(
            argv,
            cwd=laid.cwd,
            env={**environ, **profiled.variables(self.study)},
            stdout=self.folder.log,
            die_with_parent=True,
            inherited=self._staged.locks if self._staged else (),
        )
        if (turn := self._turn) is not None:
            turn.begin(child.pid, self.folder)
            self.channel.turn = turn
        return _Started(child, time.monotonic(), argv, snapshot, placed)

    def _note_start(self, values: TrialValues, started: _Started) -> None:
        """Write down what has started."""
        claim = self.claim
        self.leave.folder = self.folder
        if self.leave.wanted:
            tell(self.folder, "checkpoint")  # the signal came while we were not looking
        resumed = (str(self._resumed.path), self._resumed.digest) if self._resumed else None
        try:
            self.ask(
                lambda _: self.ledger.started(claim.token, started.child.pid, resumed),
                transaction=False,
            )
            # Now that it trains: the record costs it no time.
            self.tools.recorder.begin(claim, started.snapshot, values, started.argv, started.placed)
        except BaseException:
            processes.end_child(started.child, claim.token, grace_s=abrupt_s(self.study))
            started.child.wait()
            raise
        host, steps = self.context.place.host, self._earlier_steps()
        self.tools.outbox.begin(
            claim.number, claim.attempt, values.next_step, host, claim.first, steps, claim.replicate
        )

    def _earlier_steps(self) -> list[int]:
        """Return the first steps of the attempts before, as trackers count what these printed."""
        if not self.study.track or self.claim.attempt < 3:  # the first one begins at 0
            return [0] * (self.claim.attempt - 1)
        attempts = self.ask(lambda _: self.ledger.attempts(self.claim.trial_id))
        return [one.first_step or 0 for one in attempts if one.number < self.claim.attempt]

    def _used_s(self) -> float:
        """Return for how many seconds earlier attempts have trained."""
        earlier = [
            self.context.folder.attempt(self.claim.number, n)
            for n in range(self.claim.first, self.claim.attempt)
        ]
        return max(0.0, self.claim.used_s - sum(read_suspended_s(folder) for folder in earlier))

    def _read_end(self, ended: Ended, kills: int | None) -> End:
        """Say how a training ended, which is noted in its folder."""
        told = ended.told
        asks_who = self.leave.terminated and self.context.others_end_it
        if told == "checkpoint" and self.leave.is_for_limit and not asks_who:
            told = outcomes.TIMEOUT
        end = read_end(self.study, self.folder, ended.exit_code, ended.signal, told)
        with contextlib.suppress(OSError):  # a full disk: the database may still take it
            write_exit(self.folder, end.exit_code, end.signal, told, ended.suspended_s)
        own_workdir.tidy(self.folder)
        if end.outcome == outcomes.INTERRUPTED and asks_who:
            end = End(outcomes.TERMINATED, "ended by SIGTERM", end.exit_code, end.signal)
        may_be = (outcomes.KILLED, outcomes.ERROR)
        if end.outcome in may_be and kills != memory.count_kills():
            end = End(outcomes.OUT_OF_MEMORY, "memory ran out", end.exit_code, end.signal)
        if end.outcome == outcomes.ERROR and not has_room(self.folder.root):
            end = End(GIVEN_BACK, full_disk(self.context.folder.root))
        if self._turn is not None:
            end = self._turn.read_end(end, last_lines(self.folder, memory_messages.WINDOW))
        return end

    def _has_a_result(self) -> bool:
        """Tell whether an earlier trial's result is the trial's, which is complete then."""
        may_have = self.claim.replicate == 1 and duplicates.may_have_duplicates(self.study)
        return may_have and self.ask(lambda _: duplicates.notice(self.ledger, self.claim))

    def _was_corrected(self) -> bool:
        """Tell whether the attempt before failed by its own code, which a launch has given back,
        or was taken back by a retry: this one runs the code as it is now."""
        before = self.ask(lambda _: self.ledger.attempts(self.claim.trial_id))[-2:-1]
        return any(attempt.outcome in (GIVEN_BACK, *RETRIES) for attempt in before)

    def _end_earlier(self) -> None:
        """End what earlier attempts of the trial have left on this machine."""
        for attempt in self.ask(lambda _: self.ledger.attempts(self.claim.trial_id)):
            if attempt.number < self.claim.attempt and attempt.host == self.context.place.host:
                processes.end_attempt_group(attempt.group, attempt.token)

    def _values(self) -> TrialValues:
        params = dict(self.claim.params)
        if not self.claim.sampled:
            params = self.searching.sample(self.claim)
        resume = self._checkpoint_before()
        return TrialValues.within(
            self.folder,
            config=filling.config_path(self.study, self.context.folder.config(self.claim.number)),
            params={**self.study.space.from_optuna(params), **self.study.fixed},
            seed=replicate_seed(self.study.seed, self.claim.number, self.claim.replicate),
            token=self.claim.token,
            number=self.claim.number,
            attempt=self.claim.attempt,
            resume=resume,
            run=logged_as(self.study, self.context.folder, self.claim.number),
            next_step=self._next_step(),
            data=self.study.data_paths,
        )

    def _next_step(self) -> int:
        """Return at which step it goes on from its checkpoint."""
        if self._resumed is None:
            return 0
        saved = self._resumed.path
        return self.ask(
            lambda _: find_next_step(
                self.ledger,
                self.context.folder,
                self.ledger.attempts(self.claim.trial_id)[-1],
                saved,
                self.folder,
            )
        )

    def _checkpoint_before(self) -> Path | None:
        if self.claim.attempt == 1:
            return None
        claim = self.claim
        past = self.ask(lambda _: resuming.read_past(self.ledger, claim.trial_id, claim.attempt))
        pattern = self.study.checkpoint_files
        found = self._resumed = resuming.choose_checkpoint(self.context.folder, past, pattern)
        if found is None:
            return None
        self.context.say(f"trial {claim.number} goes on from {found.path}")
        if self.study.resume == "folder":
            return carry_over(found.path, found.folder, self.folder, pattern)
        return found.path

    def _not_started(self, error: SweepError, took_s: float) -> str:
        with self.folder.log.open("a", encoding="utf-8") as log:
            log.write(f"sweep: {error}\n")
        return self._write_end(End(outcomes.NOT_STARTED, error.message), 0, took_s)

    def _write_end(
        self, end: End, left: int, took_s: float = math.inf, joules: float | None = None
    ) -> str:
        judged = end.outcome in USER_FAILURES and not left and self.tools.node.judges(took_s)
        if judged and self.tools.node.look().is_doubtful:
            reason = f"failed at once on {self.context.place.host}: {end.reason}"
            end = End(GIVEN_BACK, reason, end.exit_code, end.signal)
        checkpoint = None
        if end.outcome != outcomes.FINISHED:
            checkpoint = newest_of(self.folder, self.study.checkpoint_files)
        tries = 0

        def work(_: object) -> str:
            nonlocal tries
            tries += 1
            written = self.ledger.state_after(self.claim.token) if tries > 1 else None
            if written is not None:
                return written  # the answer to our own COMMIT was lost
            if self._turn is not None:
                self._turn.note()
            if joules is not None:
                energy.note(self.ledger.db, self.claim.token, joules)
            return settle(self.ledger, self.claim.token, self.claim.trial_id, end, checkpoint)

        state = self.ask(work)
        if judged:
            self.tools.node.judge(end.reason)
        if end.reason.startswith(FULL_DISK):
            self._hold(end.reason)
        self._end_study(state)
        if state != outcomes.RUNNING:
            self.ask(
                lambda _: remove_checkpoints(self.ledger, self.context.folder, self.claim.number),
                transaction=False,
            )
            return state
        if end.outcome == outcomes.ERROR:
            self.context.say(
                f"trial {self.claim.number} could not go on from its checkpoint "
                f"({end.reason}); it is tried with an older one"
            )
            return outcomes.RESUME_FAILED
        if end.outcome == outcomes.FINISHED:
            return outcomes.REPLICATED
        return end.outcome

    def _end_study(self, state: str) -> None:
        """End the study where this trial's result, or what it used, is what ends it."""
        if not self.study.may_end_early:
            return
        if self.ask(lambda _: budgets.look(self.ledger)):
            return
        if state != outcomes.COMPLETE or self.study.terminator.type == "none" or self.leave.wanted:
            return
        try:
            reached = self.searching.judge_end(self.claim)
        except SearchFailed as error:
            self._hold(error.message)
            return
        if reached is not None:
            self.ask(lambda _: budgets.end(self.ledger, reached))

    def _hold(self, reason: str) -> None:
        """Hold the study: what is wrong is wrong for every task."""
        self.ask(lambda db: studies.hold(db, self.ledger.study_id, reason))
