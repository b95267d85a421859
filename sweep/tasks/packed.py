"""A task whose GPUs are each shared by several trials: as many workers as measurably gain.

Each worker is a step of its own in the task's allocation, as a slot's is, but all of them share
what the task holds: its CPUs, its memory, its GPUs. This process decides who trains
(``SharedCards``), starts a worker where there is room for one more, and has those end that are too
many. A worker that finds nothing left to pull ends by itself, and its place stays empty; the task
ends with its last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from sweep.control import waves
from sweep.core import outcomes
from sweep.core.errors import CouldNotAsk, DatabaseUnavailable, SchedulerError, SweepError
from sweep.core.system import memory
from sweep.core.system.gpus import GPU_VARIABLE, find_gpus
from sweep.core.system.seats import SEAT_VARIABLE
from sweep.core.system.shared_card import Sampler
from sweep.core.system.shared_cards import TICK_S, Granted, SharedCards, sampler_of
from sweep.core.trial import End
from sweep.schedulers.arrays import packed_as
from sweep.tasks.context import Context
from sweep.tasks.slots import Slot, Slots

ROOM_EVERY_S = 5.0  # the database is asked so often what is left, while there is room for more
# What srun returns where the kernel has killed a step's process for memory (1: Slurm 22.05, 125 is
# its number for it). A worker that is alive to return one of these has left its seat before.
OUT_OF_MEMORY_CODES = frozenset({1, 125})
KILLED_CODE = 128 + 9


class Packed(Slots):
    """Serves one task's GPUs until nothing is left to train on them.

    Args:
        context: The task's.
        gpus: How many it was to get.
        environ: The task's environment, as Slurm made it: without the secrets of training.
        sampler_of: Returns what asks a card, by its name; None where it cannot be asked.

    Raises:
        SweepError: The environment names no GPUs.
    """

    def __init__(
        self,
        context: Context,
        gpus: int,
        environ: Mapping[str, str],
        sampler_of: Callable[[str], Sampler | None] = sampler_of,
    ) -> None:
        super().__init__(context, gpus, environ)
        names = find_gpus(environ) if GPU_VARIABLE in environ else []
        if not names:
            raise SweepError(
                f"This task sees no GPU that its trials could share: {GPU_VARIABLE} is "
                f"{environ.get(GPU_VARIABLE)!r}.",
                "Ask the site's staff whether GPUs are allotted to jobs (gres.conf), or remove "
                "resources.share.",
            )
        study = context.study
        assert study.resources.share is not None
        self.study = study
        self.slots: list[Slot] = []
        self.look_s = TICK_S
        self.closed = 0  # places that stay empty: their workers have found nothing left to pull
        self.cards = SharedCards(
            Granted(names),
            study.resources.share,
            self.folder.cards,
            packed_as(study),
            study.resources.cpus or _cpus(environ, len(names)),
            sampler_of,
            label=f"{self.place.job}_{self.place.index}",
        )
        self._left = 0  # trials that could be claimed, when that was asked last
        self._ask_at = 0.0
        self._has_begun = False
        self._levels: dict[str, int | None] = {}
        self._job = environ.get("SLURM_JOB_ID", "")
        self._kills = memory.count_job_kills(self._job)
        self._crowded: dict[int, int] = {}  # slots whose worker the kernel killed for memory

    def _argv(self) -> list[str]:
        assert self.schedule is not None, "only a scheduler gives a task GPUs"
        return self.schedule.seat_argv(self.environ, self.count)

    def _live(self) -> list[Slot]:
        if not self.signals:
            self._plan()
        return super()._live()

    def _plan(self) -> None:
        """Decide who trains, and add slots where there is room for more."""
        cards = self.cards
        left = self._ask_left()
        cards.tick(left)
        self._tell_levels()
        room = cards.wanted - len(cards.seats) - self.closed
        waiting = sum(slot.start_at is not None for slot in self.slots)
        more = min(room - waiting, left if self._has_begun else 1)
        for _ in range(more):
            self._add()

    def _add(self) -> None:
        """Have one more worker started, in the first slot that is free."""
        for slot in self.slots:
            if slot.step is None and slot.start_at is None and not slot.is_hopeless:
                slot.start_at = 0.0
                return
        self.slots.append(Slot(len(self.slots)))

    def _ask_left(self) -> int:
        """Return how many trials could be claimed beside those that workers are about to claim."""
        now = time.monotonic()
        has_room = self.cards.wanted > len(self.cards.seats) + self.closed
        if now >= self._ask_at and (has_room or not self._has_begun):
            self._ask_at = now + ROOM_EVERY_S
            try:
                with self.ledger.db.patient(0.0):
                    self._left = self.ledger.db.retry(lambda _: self.ledger.room())
            except DatabaseUnavailable:
                pass  # as it was: a worker that finds nothing ends
            self.ledger.db.close()  # the workers have connections of their own
        return max(0, self._left - self.cards.idle)

    def _tell_levels(self) -> None:
        """Have so many tasks run at once as fill K, once it is known what a GPU takes."""
        levels = {card.name: card.decided for card in self.cards.cards.values()}
        if levels == self._levels:
            return
        self._levels = levels
        if None in levels.values() or self.schedule is None:
            return
        try:
            with self.ledger.db.patient(0.0):
                waves.set_throttles(self.ledger, self.folder, self.schedule.quick())
        except (SchedulerError, CouldNotAsk, DatabaseUnavailable) as error:
            self.say(f"how many tasks run at once was not changed: {error.message}")
        self.ledger.db.close()

    def _place_of(self, slot: Slot) -> list[str] | None:
        """Give a slot's worker its seat; None where there is none any more."""
        taken = self.cards.take(slot.number)
        if taken is None:
            slot.start_at = None
            return None
        self._has_begun = True
        self._left = max(0, self._left - 1)
        card, seat = taken
        return [f"{GPU_VARIABLE}={card}", f"{SEAT_VARIABLE}={seat}"]

    def _ended(self, slot: Slot, code: int) -> None:
        beside = self.cards.beside(slot.number)
        kills, self._kills = self._kills, memory.count_job_kills(self._job)
        killed = kills is not None and self._kills is not None and self._kills > kills
        if beside > 1 and (code in OUT_OF_MEMORY_CODES or (code == KILLED_CODE and killed)):
            self._crowded[slot.number] = beside
            self.cards.note_short(slot.number)
        was_told = self.cards.give(slot.number)
        super()._ended(slot, code)
        self._ask_at = 0.0
        if slot.exit_code == 0:
            slot.deaths = 0
            self.closed += not was_told
        elif slot.is_hopeless:
            self.closed += 1

    def _end_of(self, slot: Slot) -> End:
        beside = self._crowded.pop(slot.number, None)
        if beside is None:
            return super()._end_of(slot)
        said = "memory ran out on the host, and its worker was killed"
        return End(outcomes.CROWDED, f"beside {beside - 1} others on its GPU: {said}")

    def _exit_code(self) -> int:
        lost = self.cards.all_lost()
        if lost:
            self.say(lost)
        self.cards.close()
        return 1 if lost else super()._exit_code()


def _cpus(environ: Mapping[str, str], gpus: int) -> float | None:
    """Return the CPUs that the task holds for each of its GPUs; None where it does not say."""
    held = environ.get("SLURM_CPUS_ON_NODE", "")
    return int(held) / gpus if held.isdecimal() else None
