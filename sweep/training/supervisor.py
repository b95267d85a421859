"""Watch over one training process: forward its reports, pass on what it must know, see it end.

The worker's trials and the re-runs both come here. The database may be away for as long as it
likes: reports stay in the journal (and in ``unsent``), and training never waits.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sweep.core import outcomes
from sweep.core.errors import StaleAttempt, SweepError
from sweep.core.outcomes import HALTED, PAUSED, STOPPED
from sweep.core.paths import AttemptFolder
from sweep.core.study import Study
from sweep.core.system import processes
from sweep.core.trial import Reading, Report
from sweep.training.attempt_files import read_answer, tell
from sweep.training.command import launchers
from sweep.training.journal import MOST_REPORTS, Journal
from sweep.training.leave import Leave

FORWARD_EVERY_S = 0.5
TOUCH_EVERY_S = 10.0
LIMIT_EVERY_S = 3.0  # the same where a budget or a goal can end the study
WARM_AFTER_S = 0.25  # training starts first; one of a second must not end before this has begun
REST_AFTER_S = 2.0  # longer than between two forwards of a training that reports all the time
AWAY_PAUSE_S = 2.0  # between two tries to reach a database that is away
PRUNE_GRACE_S = 60.0  # for a training that was told to stop to leave by itself
TERM_GRACE_S = 3.0
SRUN_GRACE_S = 5.0
SUSPENDED_S = 2.0  # so late a waiting process comes only where it did not run
STATE_EVERY_S = 1.0  # between two looks whether training is stopped
END_AGAIN_S = 30.0  # after an end that did not end it
SIGNAL_LAG_S = 1.0  # between the signals that Slurm sends to training and to us
STOPPED_NOW = "cancelled now"
_TERMINATED = (-15, 128 + 15)  # by SIGTERM; a shell or container reports it the second way
_TICKS_S = (0.05, 0.25)  # between two looks: in the first second, and later
SILENT_S = 1.0  # between two looks at the files of a training that reports nothing; see _read


def abrupt_s(study: Study) -> float:
    """Return the seconds between SIGTERM and SIGKILL for a training that must end at once.

    srun gets some: at SIGTERM it ends its processes on all hosts, killed it would leave them.
    """
    return SRUN_GRACE_S if launchers.reaches_elsewhere(study) else 0.0


@dataclass(frozen=True)
class Ended:
    """How the process ended, and what it had been told.

    ``told`` is "" where that was nothing, or where training has finished all the same.
    ``suspended_s`` are the seconds in which it did not run.
    """

    exit_code: int | None
    signal: int | None
    told: str = ""
    suspended_s: float = 0.0


class Channel:
    """What the supervisor asks of the outside; each call may raise DatabaseUnavailable, or
    StaleAttempt, which ends the training.
    """

    def record(self, reports: Sequence[Report], reading: Reading) -> None:
        """Store reports of the attempt, and up to where they were read."""
        raise NotImplementedError

    def touch(self) -> str:
        """Say that the attempt lives; return why it is to leave: HALTED (the study was stopped),
        STOPPED (its trial is cancelled), STOPPED_NOW (the same, without grace), or ""."""
        raise NotImplementedError

    def judge(self) -> str:
        """Return "pruned" or "paused" when the trial is to stop now, else ""."""
        return ""

    def warm(self) -> None:
        """Load what the next pull needs; done once, a moment after training began."""

    def tend(self) -> None:
        """See to what was started beside the training; called at each look."""

    def slowdown(self) -> float:
        """Return how much longer training takes now than it would alone, at least 1."""
        return 1.0

    def rest(self, unused_s: float) -> None:
        """Give up the connection if it has not been used for so many seconds.

        Training takes longer than talking about it, and a server has fewer connections than a
        cluster tasks.
        """


class Observer:
    """Looks at a training from outside while it runs, with ``profile: true``."""

    def see(self, reports: Sequence[Report]) -> None:
        """Take note of what training has reported."""
        raise NotImplementedError

    def look(self) -> None:
        """Look, where it is time to.

        Raises:
            OSError: There is no room for what was seen.
        """
        raise NotImplementedError


class Supervisor:
    """Watches one training process until it is gone, its whole group with it.

    Args:
        child: The process, leader of its own group.
        token: Its attempt's token, which all its processes carry.
        folder: Its folder.
        study: Limits and objectives.
        journal: Reads its reports.
        channel: Where they go.
        leave: Requests to leave.
        used_s: Seconds that earlier attempts of the trial trained.
        began: When the process was started, on the monotonic clock; now when None.
        watch: Looks at it as well.
        let_go: Called before it is ended by signals.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        token: str,
        folder: AttemptFolder,
        study: Study,
        journal: Journal,
        channel: Channel,
        leave: Leave,
        used_s: float = 0.0,
        began: float | None = None,
        watch: Observer | None = None,
        let_go: Callable[[], None] | None = None,
    ) -> None:
        self.child = child
        self.token = token
        self.folder = folder
        self.study = study
        self.journal = journal
        self.channel = channel
        self.leave = leave
        self.used_s = used_s
        self.watch = watch
        self.let_go = let_go or (lambda: None)
        self.unsent: list[Report] = []
        self.told = ""
        self._kill_at: float | None = None
        self._deadline: float | None = None  # of the leave, as it was seen last
        self._signalled = False  # it was made to end
        self._started = self._last_step = time.monotonic() if began is None else began
        self._overslept = False
        self._next_state = self._started
        self._state_looked = self._started
        self._stops: list[tuple[float, float]] = []  # when it did not run, by our clock
        self._next_forward = 0.0
        self._next_read = self._next_quiet = 0.0
        self._read_pause_s = 0.0
        self._touch_every_s = LIMIT_EVERY_S if study.may_end_early else TOUCH_EVERY_S
        self._next_touch = self._started + self._touch_every_s
        self._warm_at: float | None = self._started + WARM_AFTER_S
        self._verdict_due = False
        self._said_missed = False

    def run(self) -> Ended:
        """Watch until the process has ended.

        Raises:
            StaleAttempt: The attempt is over; the process was killed.
        """
        try:
            descriptor = os.pidfd_open(self.child.pid)
        except (AttributeError, OSError):  # an old kernel: look at short intervals instead
            descriptor = None
        try:
            while not processes.has_ended(self.child):
                self._wait(descriptor)
                self.step()
        except BaseException:
            self.let_go()
            if processes.end_child(self.child, self.token, grace_s=abrupt_s(self.study)):
                self.child.wait()
            raise
        finally:
            if descriptor is not None:
                os.close(descriptor)
        # Children that it left behind belong to the attempt as well. Looking for them means to read
        # all of /proc, so not where a training ended well and no descendant of ours is left.
        # As long as it is not waited for, its number is its own, and its group known for certain.
        own = processes.children_of(os.getpid()) if processes.adopts_orphans() else None
        left = own is None or own != [self.child.pid]
        if (left or processes.has_failed(self.child)) and not processes.end_child(
            self.child, self.token, grace_s=0.0
        ):
            self._say("something that it left behind cannot be ended")
        self.child.wait()
        if processes.adopts_orphans():
            processes.reap_orphans()
        code = self.child.returncode
        # Slurm signals every process of a task: training may have left before we could say so.
        late = time.monotonic() + SIGNAL_LAG_S
        # A launcher makes an exit code of its own of its signal.
        unclear = code in _TERMINATED or (code != 0 and launchers.starts_ranks(self.study))
        unclear = unclear and not self._signalled  # by us: that is why
        while unclear and not self.leave.wanted and time.monotonic() < late:
            time.sleep(0.05)
        if self.leave.wanted and not self.told:
            self.told = "checkpoint"
        if self.told and code == 0 and self._has_finished():
            self.told = ""
        killed = -code if code < 0 else None
        return Ended(code if code >= 0 else None, killed, self.told, self.suspended_s)

    def _has_finished(self) -> bool:
        """Tell whether a training that was told to leave, and has left well, had finished."""
        answer = read_answer(self.folder)
        if answer is not None and answer.done:
            return True
        if self._signalled or self.leave.terminated:
            return False  # whoever signals its task may have signalled it as well
        # One that reports by other means may have read the word without saying so.
        return not answer.saw if answer is not None else self._knows_nothing

    @property
    def _knows_nothing(self) -> bool:
        """Whether training is a script that knows nothing of sweep: it reads no control file."""
        return any(o.pattern for o in self.study.objectives) and read_answer(self.folder) is None

    def _wait(self, descriptor: int | None) -> None:
        before = time.monotonic()
        tick_s = _TICKS_S[0] if before - self._started < 1.0 else _TICKS_S[1]
        if descriptor is None:
            tick_s = min(tick_s, 0.05)
            time.sleep(tick_s)
        else:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            poller.poll(tick_s * 1000)
        self._overslept = time.monotonic() - before > tick_s + SUSPENDED_S

    def _count_suspended(self, now: float) -> None:
        """Count the time in which this process, or training alone, was stopped: it did not run."""
        lost_s = 0.0
        if self._overslept or self.leave.continued:
            lost_s = now - self._last_step
            self._overslept = self.leave.continued = False
            self._state_looked = now
        elif (self.study.trial_time_s or self.study.stall_time_s) and now >= self._next_state:
            if processes.is_stopped(self.child.pid):
                lost_s = now - self._state_looked
            self._state_looked, self._next_state = now, now + STATE_EVERY_S
        self._last_step = now
        if lost_s:
            self._note_stop(now - lost_s, now)
        if self._kill_at is not None and not self.leave.wanted:
            self._kill_at += lost_s  # the scheduler's own limit does not wait

    @property
    def suspended_s(self) -> float:
        """Seconds in which it did not run."""
        return sum(ended - began for began, ended in self._stops)

    def _note_stop(self, began: float, ended: float) -> None:
        if self._stops and began <= self._stops[-1][1] + 0.01:
            began = self._stops.pop()[0]  # the same one goes on
        self._stops.append((began, ended))

    def _quiet_s(self) -> float:
        """Return for how many seconds training has run without a sign of life."""
        quiet_s = self.journal.idle_s()
        now = time.monotonic()
        # Stopped since this step began, which is a moment ago: what is quiet did not run.
        self._overslept = now - self._last_step > SUSPENDED_S
        self._count_suspended(now)
        sign = self.journal.last_sign
        stopped_s = sum(max(0.0, ended - max(began, sign)) for began, ended in self._stops)
        return quiet_s - stopped_s

    def step(self) -> None:
        """Do what is due now."""
        now = time.monotonic()
        self._count_suspended(now)
        if processes.adopts_orphans():
            processes.reap_orphans(self.child.pid)
        if now >= self._next_read:
            self._read(now)
        self._obey(now)
        if self.leave.hurry:
            self.leave.hurry = False
            self._next_touch = now
        # That lines came near and none matches is told while training can still be stopped.
        has_missed = not self._said_missed and self.journal.has_missed()
        if (self.unsent or has_missed) and now >= self._next_forward:
            self._forward(now)
        if now >= self._next_touch:  # also of one that reports all the time: it must hear of a stop
            self._touch(now)
        if self._warm_at is not None and now >= self._warm_at:
            self._warm_at = None
            self._guard(self.channel.warm, now)
        self._guard(self.channel.tend, now)
        self.channel.rest(REST_AFTER_S)
        if self.watch is not None:
            with contextlib.suppress(OSError):  # a full disk: it is written again later
                self.watch.look()

    def _read(self, now: float) -> None:
        """Read what training has reported, often while it does so.

        Its files lie on a file system that many tasks share: where nothing comes the pauses double.
        """
        # What the database has not taken stays in the file, however long it is away.
        room = MOST_REPORTS - len(self.unsent)
        found = self.journal.read(room) if room > 0 else []
        if found or room <= 0:
            self._read_pause_s = 0.0
        else:
            self._read_pause_s = min(2 * self._read_pause_s or _TICKS_S[0], SILENT_S)
        self._next_read = now + self._read_pause_s
        if found:
            self.unsent.extend(found)
            if self.watch is not None:
                self.watch.see(found)
            metric = self.study.objective.metric
            self._verdict_due = self._verdict_due or any(metric in r.metrics for r in found)

    def _obey(self, now: float) -> None:
        """Turn requests and limits into words to the training, and words into signals."""
        ask_after_s = self.leave.ask_after_s
        if ask_after_s is not None and not self.leave.wanted and now - self._started > ask_after_s:
            self.leave.on_signal(signal.SIGUSR1, None)
        if self.leave.wanted and self.told != "checkpoint":
            self._tell("checkpoint", "checkpoint")
        if self.leave.deadline != self._deadline:  # a signal has come, or a second one
            self._deadline = self.leave.deadline
            if self._deadline is not None:
                self._kill_at = self._deadline - TERM_GRACE_S
        limit_s = self.study.trial_time_s
        ran_s = self.used_s + now - self._started - self.suspended_s
        over = limit_s and not self.told and ran_s > limit_s
        if over and limit_s and ran_s > limit_s * self.channel.slowdown():
            self._tell("pruned", outcomes.TOO_LONG)
        stall_s = self.study.stall_time_s
        if stall_s and not self.told and now >= self._next_quiet:
            self._next_quiet = now + SILENT_S
            if self._quiet_s() > stall_s:
                self.told = outcomes.STALLED
                self._kill_at = now
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._signalled = True
            self.let_go()
            if not processes.end_child(self.child, self.token, grace_s=TERM_GRACE_S):
                self._say("it cannot be ended: killed, and alive (in the kernel?); tried again")
                self._kill_at = time.monotonic() + END_AGAIN_S

    def _say(self, what: str) -> None:
        """Say something about training in its log."""
        with contextlib.suppress(OSError), self.folder.log.open("a", encoding="utf-8") as log:
            log.write(f"sweep: process {self.child.pid}: {what}\n")

    def _tell(self, word: str, told: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: then only the signals reach it
            tell(self.folder, word)
        self.told = told
        if told == "checkpoint":
            self._kill_at = None  # the signals say until when
        elif self._knows_nothing:
            self._kill_at = time.monotonic()
        else:
            grace_s = float(self.study.grace_s)
            if told not in (HALTED, STOPPED):
                grace_s = max(PRUNE_GRACE_S, grace_s)
            self._kill_at = time.monotonic() + grace_s

    def _forward(self, now: float) -> None:
        self._next_forward = now + FORWARD_EVERY_S
        unsent, reading = self.unsent, self.journal.reading()
        if not self._guard(lambda: self.channel.record(unsent, reading), now):
            return
        self._said_missed = self._said_missed or self.journal.has_missed()
        if len(unsent) >= MOST_REPORTS:
            self._next_forward = now  # there is more
        self.unsent = []
        if self._verdict_due and not self.told:
            answer: list[str] = []
            if self._guard(lambda: answer.append(self.channel.judge()), now):
                self._verdict_due = False
                if answer[0] == PAUSED:
                    self._tell("checkpoint", PAUSED)
                elif answer[0]:
                    self._tell("pruned", "pruned")

    def _touch(self, now: float) -> None:
        self._next_touch = now + self._touch_every_s
        answer: list[str] = []
        reached = self._guard(lambda: answer.append(self.channel.touch()), now)
        word = answer[0] if reached else ""
        if word and not self.told:
            self._tell("checkpoint", STOPPED if word == STOPPED_NOW else word)
        if word == STOPPED_NOW and self.told and not self._signalled:
            self._kill_at = now
        if now > self._next_forward + REST_AFTER_S:
            self.channel.rest(0.0)  # a training that is silent stays so

    def _guard(self, work: Callable[[], object], now: float) -> bool:
        """Do something that needs the database; tell whether it was there.

        A refusal (a changed password, a server that does not start) is no reason to end a training
        either: what it reports stays in its folder.
        """
        try:
            work()
        except StaleAttempt:
            raise
        except SweepError:
            self._next_forward = now + AWAY_PAUSE_S
            self._next_touch = now + AWAY_PAUSE_S
            return False
        return True
