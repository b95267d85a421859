"""An attempt's turn on a GPU that trials share: it waits to be let in, says what it does there, and
is told what it has used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sweep.core import outcomes
from sweep.core.errors import DatabaseUnavailable
from sweep.core.files import read_head
from sweep.core.paths import AttemptFolder
from sweep.core.study import Study
from sweep.core.system import mps
from sweep.core.system.processes import live_processes
from sweep.core.system.seats import STUCK, Seat, SeatState, numbers_of
from sweep.core.trial import Claim, End, Report
from sweep.storage import energy, gpu_shares
from sweep.storage.ledger import Ledger
from sweep.tasks.context import Context
from sweep.tasks.staging.making import Left
from sweep.training import gpu_faults, memory_messages
from sweep.training.attempt_files import read_answer
from sweep.training.leave import Leave

LOOK_S = 0.1
TOUCH_EVERY_S = 10.0
# What trainings need to begin with small memory on a GPU: frameworks take most of it otherwise.
SMALL_AT_FIRST = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
GPU, HOST = "gpu", "host"  # whose memory ran out
# Of a fault under MPS: the clients learn of it one after the other, each at its next call.
FAULT_LAG_S = 5.0
FAULT_AGO_S = 60.0


class LeftBeforeTurn(Left):
    """The task, or the trial, is to end before the attempt was let in."""


class Turn:
    """One attempt's turn.

    Args:
        seat: The worker's.
        say: Prints a line into the task's log.
    """

    def __init__(
        self, seat: Seat, ledger: Ledger, claim: Claim, say: Callable[[str], None] = print
    ) -> None:
        self.seat = seat
        self.ledger = ledger
        self.claim = claim
        self.say = say
        self._folder: AttemptFolder | None = None  # of the attempt, once it trains
        self._ran_out = ""
        self._is_complete = False
        self._mps: Mapping[str, str] = {}
        self._generation = 0
        self._group = -1
        self._clings = False  # a server did not let go of its training
        self.notes: list[str] = []  # of the attempt, for people

    @classmethod
    def of(cls, context: Context, claim: Claim) -> Turn | None:
        """Return the turn of an attempt; None where its task shares no GPU."""
        seat = context.seat
        return None if seat is None else cls(seat, context.ledger, claim, context.say)

    def wait(self, params: Mapping[str, Any], leave: Leave, touch: Callable[[], str]) -> None:
        """Return once this attempt may train.

        Args:
            touch: Says that the attempt lives; returns why it is to leave, or "".

        Raises:
            LeftBeforeTurn: It is not to train any more.
            StaleAttempt: It is over.
        """
        claim = self.claim
        self.seat.ask(
            SeatState(
                token=claim.token,
                trial=claim.number,
                attempt=claim.attempt,
                params=numbers_of(params),
                is_alone=claim.is_alone,
            )
        )
        next_touch, is_told = time.monotonic() + TOUCH_EVERY_S, False
        while not self.seat.is_let_in():
            if leave.wanted:
                raise LeftBeforeTurn("asked to leave before its turn on the GPU")
            if self.seat.is_lost():
                raise LeftBeforeTurn("its GPU failed before its turn")
            if leave.hurry or time.monotonic() >= next_touch:
                leave.hurry, next_touch = False, time.monotonic() + TOUCH_EVERY_S
                try:
                    if touch():
                        raise LeftBeforeTurn("left before its turn on the GPU")
                except DatabaseUnavailable:
                    pass  # it is asked again
                if not is_told:
                    why = "it is to have the GPU for itself" if claim.is_alone else "no room yet"
                    self.say(f"trial {claim.number} waits for its turn on the GPU: {why}")
                    is_told = True
            time.sleep(LOOK_S)

    def begin(self, group: int, folder: AttemptFolder) -> None:
        """Say that training has begun, by its process group, in the attempt's folder."""
        self._folder, self._group = folder, group
        self.seat.begin(group)

    def variables(self) -> dict[str, str]:
        """Return what training needs in its environment to be served by MPS; {} where that is
        off."""
        self._mps, self._generation = self.seat.mps()
        return dict(self._mps)

    def let_go(self) -> None:
        """Have MPS let go of the training, which is about to be ended by signals."""
        if self._mps:
            self._clings = not mps.end_clients(self._mps, self._processes())

    def _processes(self) -> list[int]:
        return [one.pid for one in live_processes() if one.group == self._group]

    def report(self, reports: Sequence[Report]) -> None:
        """Tell whoever packs the card what training has reported."""
        answer = None if self._folder is None else read_answer(self._folder)
        held = None if answer is None else answer.gpu_bytes
        self.seat.report([(report.time_s, float(report.step)) for report in reports], held)

    def note(self) -> None:
        """Store what the attempt, which lives, has used of its GPU so far; inside ``db.retry``."""
        use, db, token = self.seat.use(), self.ledger.db, self.claim.token
        gpu_shares.note(db, token, use.gpu_s)
        if use.joules is not None:
            energy.note(db, token, use.joules)

    def read_end(self, end: End, log: Sequence[str]) -> End:
        """Return what an end means where others trained on the card.

        What ran out of memory beside others goes on alone; what ended as its GPU failed goes on
        elsewhere.

        Args:
            log: The last lines of its output.
        """
        use = self.seat.use()
        self._is_complete = end.outcome == outcomes.FINISHED and not end.reason
        if self._mps and self._is_complete:
            self._note_unserved()
        if end.outcome in (outcomes.ERROR, outcomes.KILLED) and self.seat.is_lost():
            return replace(
                end, outcome=outcomes.NODE_FAILED, reason=f"its GPU failed: {end.reason}"
            )
        if self._mps and end.outcome in (outcomes.ERROR, outcomes.KILLED):
            told = self._read_fault(end, log, use.most)
            if told is not None:
                return told
        short = ""
        if end.outcome == outcomes.OUT_OF_MEMORY:
            short = GPU if memory_messages.GPU in end.reason else HOST
        elif end.outcome == outcomes.ERROR and memory_messages.may_be_short(log):
            short = GPU
        if not short or use.most < 2:
            return end
        self._ran_out = short
        reason = f"beside {use.most - 1} others on its GPU: {end.reason}; it goes on alone"
        return replace(end, outcome=outcomes.CROWDED, reason=reason)

    def _note_unserved(self) -> None:
        """Note it where MPS did not serve a training that went on all the same."""
        log = [] if self._folder is None else read_head(self._folder.log)
        if line := gpu_faults.find_unserved(log):
            self._ran_out = gpu_faults.MPS
            self.notes.append(f"may have trained without the GPU, as MPS did not serve it: {line}")

    def _read_fault(self, end: End, log: Sequence[str], most: int) -> End | None:
        """Return what an end under MPS means where it may be another's doing, or the server's."""
        kind, line = gpu_faults.find(log)
        if kind == gpu_faults.MPS or self.seat.mps()[1] != self._generation:
            self._ran_out = gpu_faults.MPS if kind == gpu_faults.MPS else ""
            reason = f"CUDA's MPS let it down: {line or end.reason}"
            return replace(end, outcome=outcomes.INTERRUPTED, reason=reason)
        if most < 2:
            return None
        if not kind and not self._is_beside_a_fault(end):
            return None
        self._ran_out = gpu_faults.FAULT if kind else ""
        reason = (
            f"beside {most - 1} others on its GPU, and MPS does not say whose fault it was: "
            f"{line or end.reason}; it goes on alone"
        )
        return replace(end, outcome=outcomes.FAULTED, reason=reason)

    def _is_beside_a_fault(self, end: End) -> bool:
        """Tell whether another training says that the GPU faulted, now or a moment later."""
        if end.outcome == outcomes.KILLED:  # it goes on anyway
            return False
        now = time.time()
        while self.seat.faulted_s() < now - FAULT_AGO_S:
            if time.time() - now >= FAULT_LAG_S:
                return False
            time.sleep(LOOK_S)
        return True

    def end(self) -> None:
        """Leave the card."""
        if self._clings:
            self._ran_out = self._ran_out or STUCK
        self.seat.end(complete=self._is_complete, ran_out=self._ran_out)


def small_at_first(study: Study, environ: Mapping[str, str]) -> Study:
    """Return the study with the variables that keep frameworks from taking a whole GPU, unless they
    are set."""
    given = study.environment
    missing = {
        name: value
        for name, value in SMALL_AT_FIRST.items()
        if name not in given.env and name not in environ
    }
    return replace(study, environment=replace(given, env={**missing, **given.env}))
