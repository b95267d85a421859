"""One GPU that several trials share, packed by what is measured: who trains on it, and when.

The process that starts the workers of a card, the local runner, keeps one of these and calls
``tick`` a few times a second. It reads what the workers say of their seats, asks ``packing`` how
many are to train, lets waiting attempts in, one after the other in their order, and writes what
each has used. It never raises: a card of which nothing can be measured is packed by reports alone.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from sweep.core.files import make_private, write_atomic
from sweep.core.packing.card import LIMIT, CardState, PackedLevel, ShareLimits, TrialState
from sweep.core.packing.level import Packing
from sweep.core.study import Share
from sweep.core.system import seats
from sweep.core.system.mps import OFF, Facts, Mps
from sweep.core.system.nvml import Sample
from sweep.core.system.processes import live_processes
from sweep.core.system.seats import IDLE, LEFT, READY, STUCK, TRAINING, SeatState, Use

DECIDE_EVERY_S = 1.0  # and at once where a seat has changed
KEPT_S = 60.0  # for which what an ended attempt has used can still be read


class Sampler(Protocol):
    """Asks a GPU.

    Attributes:
        model: Its name by its maker.
    """

    model: str

    def read(self) -> Sample:
        """Return what it says now; never raises."""


@dataclass
class _Seat:
    """A seat, as it was read last.

    Attributes:
        since: Monotonic second at which it was given.
        read: What the file that was read is known by: when it was written, its number, its size.
        let_in: Token of the attempt that was let in here last.
        peak_bytes: The most that its training was seen to hold.
        told_end: Token of the attempt whose end was seen last.
    """

    number: int
    state: SeatState = field(default_factory=SeatState)
    read: tuple[int, ...] = ()
    let_in: str = ""
    let_in_s: float = 0.0
    peak_bytes: int | None = None
    told_end: str = ""

    def trains(self) -> bool:
        """Whether it trains, or was let in and is about to."""
        return bool(self.let_in) and self.state.token == self.let_in

    @property
    def waits(self) -> bool:
        return self.state.state == READY and self.state.token != self.let_in


class SharedCard:
    """Packs one card.

    Args:
        name: The card, as CUDA_VISIBLE_DEVICES names it.
        folder: Where its seats' files lie; made.
        share: What the study file says.
        stored: What ``to_remember`` of an earlier one gave; {} for nothing.
        sampler: Asks the card; None where it cannot be asked.
        cpus: CPUs for this card's trials; None where not known.
        clock: Epoch seconds.
        mps: Serves the trainings; begun. None for none.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        share: Share,
        stored: Mapping[str, Any],
        sampler: Sampler | None = None,
        cpus: float | None = None,
        clock: Callable[[], float] = time.time,
        mps: Mps | None = None,
    ) -> None:
        self.name = name
        self.folder = make_private(folder)
        self.packing = Packing.from_json(stored)
        self.sampler = sampler
        self.clock = clock
        self.mps = mps or Mps(OFF, lambda: Facts(None, None))
        self.limits = ShareLimits(
            most=share.max,
            fixed=not share.measured,
            cpus=cpus,
            memory_bytes=share.memory_mb * 2**20 if share.memory_mb else None,
        )
        self.level = PackedLevel(1, "measuring", "nothing trains on it yet")
        self.is_lost = False
        self._seats: dict[int, _Seat] = {}
        self._uses: dict[str, Use] = {}
        self._sample = Sample()
        self._ours: dict[int, list[int]] = {}  # processes of our trainings, by their group
        self._joules: float | None = None
        self._counted_s = clock()
        self._decided_s = 0.0
        self._written = ""
        self._faulted_s = 0.0
        self._forget_notice()  # of whoever packed it before, and was killed
        self._measure()
        if self.closed_why:  # nobody will train here, and people are told
            self._write()

    # Seats

    @property
    def closed_why(self) -> str:
        """Why nobody may train here any more; "" where somebody may."""
        if self.is_lost:
            return "the GPU has failed"
        return f"mps: on, but {self.mps.refused}" if self.mps.refused else ""

    def open(self) -> None:
        """Get ready for the first of some workers."""
        self.mps.begin()

    @property
    def count(self) -> int:
        """Seats that are taken."""
        return len(self._seats)

    def beside(self, number: int) -> int:
        """Return how many trained at once here, at most, while a seat's attempt did; 0 where it
        does not train."""
        seat = self._seats.get(number)
        if seat is None or not seat.trains():
            return 0
        self._count()
        return self._uses.get(seat.let_in, Use()).most

    def note_short(self, number: int) -> None:
        """Lower the level: the host's memory ran out under a seat's worker, which can say no more.

        It blames nobody: the kernel ends whichever process it likes.
        """
        self.packing.note_out_of_memory(self.beside(number), on_host=True)
        self._decided_s = 0.0

    @property
    def idle(self) -> int:
        """Seats whose workers have no trial yet, or none any more."""
        return sum(seat.state.state == IDLE for seat in self._seats.values())

    @property
    def decided(self) -> int | None:
        """How many trials a card is known to train at once; None while that is measured, or where
        nothing but the trials that are left bounds it."""
        level = self.level
        if not level.settled or (level.why == LIMIT and level.trials < self.limits.most):
            return None
        return level.trials

    @property
    def room(self) -> int:
        """How many more workers are to be started."""
        if self.closed_why or self._wanted_alone() is not None:
            return 0
        return self.level.trials - len(self._seats)

    def give_seat(self, number: int) -> Path:
        """Return the file of a seat for a worker that is about to start."""
        make_private(self.folder)  # closing has removed it
        seats.remove(self.folder, number)
        self._seats[number] = _Seat(number)
        return seats.seat_path(self.folder, number)

    def take_seat(self, number: int) -> bool:
        """Take the seat of a worker that has ended, however it did.

        Returns:
            Whether it had been told to end: others may come later.
        """
        self._look()
        self._count()
        seat = self._seats.pop(number, None)
        seats.remove(self.folder, number)
        if seat is not None and seat.trains():  # its worker was killed, and its training with it
            self.mps.look()
        return seat is not None and seat.state.state == LEFT

    def close(self) -> None:
        """Forget what the workers were told, and end what has served them: they have ended."""
        self.mps.end()
        self._forget_notice()
        with contextlib.suppress(OSError):  # it is not empty, say
            os.rmdir(self.folder)

    def _forget_notice(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.folder / seats.CARD_FILE)

    # Packing

    def tick(self, available: int | None) -> None:
        """Look, decide, and tell the workers.

        Args:
            available: Trials that may train here, those that do included; None for no limit.
        """
        changed = self._look()
        now = self.clock()
        if changed or now - self._decided_s >= DECIDE_EVERY_S:
            self._decided_s = now
            self._measure()
            self._count()
            limits = replace(self.limits, available=available)
            if self.mps.takes_one:
                limits = replace(limits, most=1)
            self.level = self.packing.decide(now, self._memory(), self._trials(), limits)
        self._let_in()
        self._write()

    def _look(self) -> bool:
        """Read the seats whose files have changed; tell whether any has come, gone or begun."""
        changed = False
        for seat in self._seats.values():
            path = seats.seat_path(self.folder, seat.number)
            try:
                status = path.stat()
            except OSError:
                continue
            # Two files that are written within a tick of the system's clock have the same time.
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            if stamp == seat.read:
                continue
            found = seats.read_seat(path)
            if found is None:
                continue
            before, seat.state, seat.read = seat.state, found, stamp
            changed = changed or (before.state, before.token) != (found.state, found.token)
            if found.ended and found.ended != seat.told_end:
                self._end(seat, found)
        return changed

    def _end(self, seat: _Seat, found: SeatState) -> None:
        live = sum(one.trains() for one in self._seats.values() if one is not seat) + 1
        seat.told_end, seat.peak_bytes = found.ended, None
        self.packing.note_ended(found.ended, self.clock(), complete=found.is_complete)
        if found.ran_out in ("gpu", "host"):
            self.packing.note_out_of_memory(live, on_host=found.ran_out == "host")
            self._decided_s = 0.0
        elif found.ran_out:
            if found.ran_out != STUCK:
                self._faulted_s = self.clock()
            self.mps.look(failed=found.ran_out == "mps")
        elif found.is_complete:
            self.mps.note_complete()
        if seat.let_in == found.ended:
            seat.let_in = ""

    def _count(self) -> None:
        """Share out what has passed since the last time: seconds and energy."""
        now = self.clock()
        live = [seat for seat in self._seats.values() if seat.trains()]
        passed_s, joules = max(0.0, now - self._counted_s), 0.0
        if self._sample.energy_mj is not None:
            counted = self._sample.energy_mj / 1000.0
            if self._joules is not None:
                joules = max(0.0, counted - self._joules)
            self._joules = counted
        for seat in live:
            before = self._uses.get(seat.let_in, Use())
            begun = seat.state.since_s if seat.state.state == TRAINING else now
            mine_s = min(passed_s, max(0.0, now - begun)) / len(live)
            used_j = before.joules
            if self._joules is not None:
                used_j = (used_j or 0.0) + joules / len(live)
            most = max(before.most, len(live))
            used = Use(before.gpu_s + mine_s, used_j, most, now, 1 / len(live))
            self._uses[seat.let_in] = used
        self._counted_s = now
        names = {seat.let_in for seat in live}
        self._uses = {
            token: used
            for token, used in self._uses.items()
            if token in names or now - used.at_s < KEPT_S
        }

    def _measure(self) -> None:
        """Ask the card, and note what each training holds."""
        if self.sampler is None:
            return
        self._sample = self.sampler.read()
        self.is_lost = self.is_lost or self._sample.is_lost
        self._ours = self._find_ours()
        for seat in self._seats.values():
            held = self._sample.memory_of(self._ours.get(seat.state.group or -1, ()))
            if seat.trains() and held:
                seat.peak_bytes = max(seat.peak_bytes or 0, held)

    def _find_ours(self) -> dict[int, list[int]]:
        """Return the processes of each training that the driver may list, by their group."""
        groups = {seat.state.group for seat in self._seats.values() if seat.state.group}
        found: dict[int, list[int]] = {}
        for process in live_processes() if self._sample.processes else ():
            if process.group in groups:
                found.setdefault(process.group, []).append(process.pid)
        return found

    def _memory(self) -> CardState:
        return self._sample.card([pid for pids in self._ours.values() for pid in pids])

    def _trials(self) -> list[TrialState]:
        return [
            TrialState(
                key=seat.let_in,
                began_s=seat.state.since_s if seat.state.state == TRAINING else seat.let_in_s,
                reports=[(at, step) for at, step in seat.state.reports],
                memory_bytes=seat.peak_bytes,
                allocator_bytes=seat.state.allocator_bytes,
                params=seat.state.params,
            )
            for seat in self._seats.values()
            if seat.trains()
        ]

    def _waiting(self) -> list[_Seat]:
        """Return the seats that wait to be let in, the first one first."""
        found = [seat for seat in self._seats.values() if seat.waits]
        return sorted(found, key=lambda seat: (seat.state.since_s, seat.number))

    def _wanted_alone(self) -> _Seat | None:
        """Return the seat that has the card for itself, or is to have it next."""
        for seat in self._seats.values():
            if seat.trains() and seat.state.is_alone:
                return seat
        first = self._waiting()[:1]
        return first[0] if first and first[0].state.is_alone else None

    def _let_in(self) -> None:
        """Let in who may train: one after the other, so that none waits for ever."""
        for seat in self._waiting():
            live = [one for one in self._seats.values() if one.trains()]
            if self.closed_why or any(one.state.is_alone for one in live):
                return
            if live and (seat.state.is_alone or len(live) >= self.level.trials):
                return
            trials, memory = self._trials(), self._memory()
            if live and not self.packing.fits(seat.state.params, memory, trials, self.limits):
                return
            self.mps.check()
            if self.closed_why or (live and self.mps.takes_one):
                return
            seat.let_in, seat.let_in_s, seat.peak_bytes = seat.state.token, self.clock(), None
            self._count()

    def _leave(self) -> list[int]:
        """Return the seats that are too many: those that train longest first, which end soonest."""
        if self.closed_why:
            return sorted(self._seats)
        alone = self._wanted_alone()
        if alone is not None:
            return sorted(number for number in self._seats if number != alone.number)
        surplus = len(self._seats) - self.level.trials
        order = sorted(
            self._seats.values(),
            key=lambda seat: (seat.waits or seat.state.is_alone, seat.state.since_s, seat.number),
        )
        return sorted(seat.number for seat in order[: max(0, surplus)])

    def _write(self) -> None:
        live = [seat for seat in self._seats.values() if seat.trains()]
        state = seats.CardNotice(
            let_in=[seat.let_in for seat in live],
            leave=self._leave(),
            is_lost=bool(self.closed_why),
            used=self._uses,
            slowdown=max(1.0, self.packing.slowdown(max(1, len(live)))),
            mps=self.mps.variables(),
            generation=self.mps.generation,
            faulted_s=self._faulted_s,
            about=self.about(),
        )
        text = state.to_json()
        if text != self._written:
            with contextlib.suppress(OSError):  # a full disk: told later
                write_atomic(self.folder / seats.CARD_FILE, text)
                self._written = text

    def _text(self) -> str:
        if self.mps.takes_one and self.limits.most > 1:
            return f"its compute mode lets one process have it, and MPS is off: {self.mps.why}"
        return self.level.text

    def about(self) -> dict[str, Any]:
        """Return what people are told of the card."""
        sample = self._sample
        return {
            "gpu": self.name,
            "level": self.level.trials,
            "settled": self.level.settled,
            "why": "lost" if self.closed_why else self.level.why,
            "text": self.closed_why or self._text(),
            "training": sum(seat.trains() for seat in self._seats.values()),
            "trials": sorted(seat.state.trial for seat in self._seats.values() if seat.trains()),
            "memory_bytes": sample.used_bytes,
            "total_bytes": sample.total_bytes,
            "busy": sample.busy,
            "trouble": sample.trouble,
            "host": os.uname().nodename,
            "progress": self.level.progress,
            "mps": self.mps.word,
            "mps_why": self.mps.why,
            "slowdowns": {
                str(level): round(slower, 3) for level, slower in self.packing.slowdowns().items()
            },
        }
