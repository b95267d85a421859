"""The GPUs of an array whose elements share them: which element gets a seat on which card."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweep.core.errors import DamagedFile
from sweep.core.files import make_private, read_object, write_atomic
from sweep.core.scheduler import ArrayJob
from sweep.core.system import nvml
from sweep.core.system.gpus import GpuPool
from sweep.core.system.shared_card import Sampler, SharedCard

TICK_S = 0.2
LEVELS_FILE = "levels.json"


class NvmlSampler:
    """Asks one GPU by NVML."""

    def __init__(self, cards: nvml.Cards) -> None:
        self.cards = cards
        self.model = cards.model(0)

    def read(self) -> nvml.Sample:
        return self.cards.sample(0)


def sampler_of(name: str) -> Sampler | None:
    """Return what asks a card, by its name in CUDA_VISIBLE_DEVICES; None where nothing can."""
    cards = nvml.Cards.open([name], os.environ)
    return None if cards is None else NvmlSampler(cards)


class SharedCards:
    """Hands out seats on shared GPUs, each card held by its lock while somebody sits there.

    Args:
        pool: The GPUs that the array may use.
        job: The array; it has ``share``.
        sampler_of: Returns what asks a card, by its name; None where it cannot be asked.
    """

    def __init__(
        self, pool: GpuPool, job: ArrayJob, sampler_of: Callable[[str], Sampler | None]
    ) -> None:
        assert job.share is not None, "only an array whose elements share GPUs has seats"
        self.pool = pool
        self.share = job.share
        self.packed_as = job.packed_as
        self.folder = make_private(Path(job.cards))
        self.sampler_of = sampler_of
        self.cpus = job.cpus or len(os.sched_getaffinity(0)) / max(1, len(pool.names))
        self.cards: dict[str, SharedCard] = {}
        self.seats: dict[int, str] = {}  # the card of each element
        self.next_tick = 0.0  # on the monotonic clock

    def take(self, index: int) -> tuple[str, Path] | None:
        """Give an element a seat: the card's name and the seat's file; None where there is no room.

        A free card comes before a further seat on one.

        Raises:
            SweepError: There is no place for the locks.
            OSError: There is no room for them, or for the files.
        """
        card = self._free_card()
        if card is None:
            held = [one for one in self.cards.values() if one.count and one.room > 0]
            if not held:
                return None
            card = max(held, key=lambda one: one.room)
        self.seats[index] = card.name
        self.next_tick = 0.0
        return card.name, card.give_seat(index)

    def _free_card(self) -> SharedCard | None:
        """Take a card on which nobody trains; those that have failed are kept from others."""
        while (taken := self.pool.take(1)) is not None:
            try:
                card = self._card(taken[0])
            except BaseException:
                self.pool.give(taken)
                raise
            if not card.is_lost:
                return card
        return None

    def give(self, index: int) -> None:
        """Take an element's seat back: it has ended."""
        card = self.cards[self.seats.pop(index)]
        card.take_seat(index)
        self._remember(card)
        if not card.count and not card.is_lost:  # a lost one is no other's either
            card.close()
            self.pool.give([card.name])

    def tick(self, left: int) -> None:
        """Pack the cards, where that is due.

        Args:
            left: Elements that may start beside those that run.
        """
        now = time.monotonic()
        if not self.seats or now < self.next_tick:
            return
        self.next_tick = now + TICK_S
        for card in self.cards.values():
            if card.count:
                card.tick(card.count + left)

    def deadline(self) -> float | None:
        """Return when the next tick is due, on the monotonic clock."""
        return self.next_tick if self.seats else None

    def all_lost(self) -> str:
        """Return what to say where every GPU has failed; "" where one may serve."""
        lost = [card.name for card in self.cards.values() if card.is_lost]
        return f"the GPU has failed: {', '.join(lost)}" if len(lost) == len(self.pool.names) else ""

    def _card(self, name: str) -> SharedCard:
        if name not in self.cards:
            folder = self.folder / re.sub(r"[^\w.-]", "_", f"{os.uname().nodename}-{name}")
            sampler = self.sampler_of(name)
            stored = self._levels().get(self._key(sampler), {})
            self.cards[name] = SharedCard(name, folder, self.share, stored, sampler, self.cpus)
        return self.cards[name]

    def _key(self, sampler: Sampler | None) -> str:
        """Return by what a level is remembered: the GPU's model, what serves its trials, and what
        they run."""
        model = sampler.model if sampler is not None else "GPU"
        return f"{model}, mps {self.share.mps}, command {self.packed_as}"

    def _levels(self) -> dict[str, Mapping[str, Any]]:
        try:
            found = read_object(self.folder / LEVELS_FILE) or {}
        except (OSError, DamagedFile):
            return {}
        return {key: value for key, value in found.items() if isinstance(value, dict)}

    def _remember(self, card: SharedCard) -> None:
        levels = {**self._levels(), self._key(card.sampler): card.packing.to_remember()}
        with contextlib.suppress(OSError):  # a full disk: it is measured again next time
            write_atomic(self.folder / LEVELS_FILE, json.dumps(levels, indent=1))
