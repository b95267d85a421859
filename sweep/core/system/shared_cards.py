"""GPUs on which several trials train: which of their workers gets a seat on which card."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from sweep.core.errors import DamagedFile
from sweep.core.files import make_private, open_private, read_object, write_atomic
from sweep.core.study import Share
from sweep.core.system import nvml
from sweep.core.system.mps import Facts, Mps, find_facts
from sweep.core.system.shared_card import Sampler, SharedCard

TICK_S = 0.2
LEVELS_FILE = "levels.json"
COURSE = ".course.jsonl"  # behind the name of a card's folder: its memory and work over time
COURSE_EVERY_S = 10.0  # at first; at most some hundred looks are kept of any length
COURSE_LOOKS = 300
DECIDED = "decided"  # of a level that is remembered: trials at once on a card


def known_level(folder: Path, share: Share, packed_as: str) -> int | None:
    """Return how many trials of a study train at once on a card, by what was found; the least
    where cards differ, None while it is not known.

    Args:
        folder: Of the study's cards.
    """
    suffix = f", command {packed_as}"
    found = [
        value[DECIDED]
        for key, value in _read_levels(folder).items()
        if key.endswith(suffix) and isinstance(value.get(DECIDED), int)
    ]
    if not share.measured:
        found.append(share.max)
    return max(1, min(found)) if found else None


def _read_levels(folder: Path) -> dict[str, Mapping[str, Any]]:
    try:
        found = read_object(folder / LEVELS_FILE) or {}
    except (OSError, DamagedFile):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, dict)}


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


def mps_of(wanted: str, sampler: Sampler | None) -> Mps:
    """Return what serves the trials of a card by CUDA's MPS, not begun.

    Args:
        wanted: The study file's word.
        sampler: Asks the card.
    """

    def find() -> Facts:
        gpu = sampler.cards.identity(0) if isinstance(sampler, NvmlSampler) else None
        return find_facts(gpu, os.environ)

    return Mps(wanted, find)


class Pool(Protocol):
    """GPUs to be had, as ``GpuPool`` hands them out.

    Attributes:
        names: All of them, as CUDA_VISIBLE_DEVICES names them.
    """

    names: list[str]

    def take(self, count: int) -> list[str] | None:
        """Take so many free ones; None where fewer are free."""

    def give(self, names: Sequence[str]) -> None:
        """Give some back."""


class Granted:
    """GPUs that belong to this process's task alone: nobody else takes any.

    Args:
        names: As CUDA_VISIBLE_DEVICES names them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._free = list(names)

    def take(self, count: int) -> list[str] | None:
        if len(self._free) < count:
            return None
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def give(self, names: Sequence[str]) -> None:
        self._free += names


class SharedCards:
    """Hands out seats on shared GPUs, each card taken from the pool while somebody sits there.

    Args:
        pool: The GPUs that may be used.
        share: How trials share them.
        folder: Where what is known of them lies; made.
        packed_as: A name of what the trials run: what is learnt of them holds for it.
        cpus: CPU cores for the trials of one; None for an equal part of this machine's.
        sampler_of: Returns what asks a card, by its name; None where it cannot be asked.
        label: Of this task, where several on a machine may call their GPUs by the same names.
        mps_of: Returns what serves a card's trials by MPS, by the study file's word.
    """

    def __init__(
        self,
        pool: Pool,
        share: Share,
        folder: Path,
        packed_as: str,
        cpus: float | None,
        sampler_of: Callable[[str], Sampler | None],
        label: str = "",
        mps_of: Callable[[str, Sampler | None], Mps] = mps_of,
    ) -> None:
        self.pool = pool
        self.share = share
        self.packed_as = packed_as
        self.folder = make_private(folder)
        self.sampler_of = sampler_of
        self.cpus = cpus or len(os.sched_getaffinity(0)) / max(1, len(pool.names))
        self.label = label
        self.mps_of = mps_of
        self._keys: dict[str, str] = {}  # by which the cards' levels are remembered
        self.cards: dict[str, SharedCard] = {}
        self.seats: dict[int, str] = {}  # the card of each element
        self.next_tick = 0.0  # on the monotonic clock
        self._courses: dict[str, tuple[float, float]] = {}  # begun, and the next look; epoch

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
            if not card.closed_why:
                return card
        return None

    def give(self, index: int) -> bool:
        """Take an element's seat back: it has ended; tell whether it was told to."""
        card = self.cards[self.seats.pop(index)]
        was_told = card.take_seat(index)
        self._remember(card)
        if not card.count and card.closed_why:  # it is no other's either, and people are told why
            card.mps.end()
        elif not card.count:
            card.close()
            self.pool.give([card.name])
        return was_told

    @property
    def wanted(self) -> int:
        """How many workers are to be at work on all cards."""
        known = self.cards
        new = sum(name not in known for name in self.pool.names)
        return new + sum(card.count + max(0, card.room) for card in known.values())

    @property
    def idle(self) -> int:
        """Workers that have no trial yet."""
        return sum(card.idle for card in self.cards.values())

    def beside(self, index: int) -> int:
        """Return how many trained at once on an element's card, at most, while it did; 0 where it
        does not train."""
        return self.cards[self.seats[index]].beside(index)

    def note_short(self, index: int) -> None:
        """Lower the level of an element's card: the host's memory ran out under its worker."""
        self.cards[self.seats[index]].note_short(index)

    def close(self) -> None:
        """Forget what the workers were told: all have ended."""
        for card in self.cards.values():
            card.close()

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
                before = card.decided
                card.tick(card.count + left)
                self._note_course(card)
                if card.decided not in (None, before):
                    self._remember(card)

    def _note_course(self, card: SharedCard) -> None:
        """Write down now and then how much of a card is used, for the report."""
        now = time.time()
        began, due = self._courses.setdefault(card.name, (now, now))
        if now < due:
            return
        # The longer it takes, the longer the intervals: their number grows by its logarithm.
        later_s = max(COURSE_EVERY_S, (now - began) / COURSE_LOOKS)
        self._courses[card.name] = (began, now + later_s)
        about = card.about()
        told = {key: about[key] for key in ("gpu", "host", "busy", "memory_bytes", "total_bytes")}
        line = json.dumps({"at_s": round(now, 1), **told, "trials": about["training"]}) + "\n"
        path = card.folder.with_name(card.folder.name + COURSE)
        with (
            contextlib.suppress(OSError),  # a full disk: the report lacks it
            open(path, "a", encoding="utf-8", opener=open_private) as stream,
        ):
            stream.write(line)

    def deadline(self) -> float | None:
        """Return when the next tick is due, on the monotonic clock."""
        return self.next_tick if self.seats else None

    def all_lost(self) -> str:
        """Return what to say where every GPU has failed; "" where one may serve."""
        lost = {card.name: card.closed_why for card in self.cards.values() if card.closed_why}
        whys = "; ".join(dict.fromkeys(lost.values()))
        return f"{whys}: {', '.join(lost)}" if len(lost) == len(self.pool.names) else ""

    def _card(self, name: str) -> SharedCard:
        if name not in self.cards:
            parts = filter(None, (os.uname().nodename, self.label, name))
            folder = self.folder / re.sub(r"[^\w.-]", "_", "-".join(parts))
            sampler = self.sampler_of(name)
            mps = self.mps_of(self.share.mps, sampler)
            mps.begin()
            key = self._keys[name] = self._key(sampler, mps)
            stored = self._levels().get(key, {})
            self.cards[name] = SharedCard(
                name, folder, self.share, stored, sampler, self.cpus, mps=mps
            )
        else:
            self.cards[name].open()
        return self.cards[name]

    def _key(self, sampler: Sampler | None, mps: Mps) -> str:
        """Return by what a level is remembered: the GPU's model, what serves its trials, and what
        they run."""
        model = sampler.model if sampler is not None else "GPU"
        return f"{model}, mps {mps.word}, command {self.packed_as}"

    def _levels(self) -> dict[str, Mapping[str, Any]]:
        return _read_levels(self.folder)

    def _remember(self, card: SharedCard) -> None:
        key, levels = self._keys[card.name], self._levels()
        if self._key(card.sampler, card.mps) != key:
            return  # MPS has ended meanwhile: what was measured is of both
        known = card.decided
        if known is None:
            known = levels.get(key, {}).get(DECIDED)
        levels[key] = {**card.packing.to_remember(), DECIDED: known}
        with contextlib.suppress(OSError):  # a full disk: it is measured again next time
            write_atomic(self.folder / LEVELS_FILE, json.dumps(levels, indent=1))
