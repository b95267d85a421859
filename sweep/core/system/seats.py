"""Places on a GPU that several trials share: what a worker and whoever packs the GPU tell each
other, by small files in one folder.

    <folder>/seat-<number>.json   written by the worker that has the seat: what it trains
    <folder>/card.json            written by the one process that packs the card: who may begin, who
                                  is to end, what each has used

A worker begins no training before it was let in. Both look a few times a second; both are processes
of one machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sweep.core.errors import DamagedFile
from sweep.core.files import read_object, write_atomic

SEAT_VARIABLE = "SWEEP_SEAT"  # of a worker: the file of its seat
CARD_FILE = "card.json"
MOST_REPORTS = 200  # the latest, of the training that runs
WRITE_EVERY_S = 0.4  # reports come much faster

IDLE = "idle"  # between two trials
READY = "ready"  # has a trial, and waits to be let in
TRAINING = "training"
STUCK = "stuck"  # of a training that was ended: MPS did not let go of it
LEFT = "left"  # ends because it was told to


@dataclass(frozen=True)
class Use:
    """What an attempt has used of its card.

    Attributes:
        gpu_s: GPU-seconds: of each second, as much as one of so many that trained.
        joules: The same of the card's energy; None where it is not measured.
        most: So many trained on the card at once, at most, while it did; itself included.
        at_s: Until when this was counted, epoch seconds; share: its part of what came after.
    """

    gpu_s: float = 0.0
    joules: float | None = None
    most: int = 1
    at_s: float = 0.0
    share: float = 1.0


@dataclass(frozen=True)
class SeatState:
    """What a worker says of its seat.

    Attributes:
        state: IDLE, READY, TRAINING or LEFT; since_s: from when on, epoch seconds.
        token, trial, attempt: Of the attempt that it has.
        params: Its parameters, those that are numbers.
        is_alone: It wants the card for itself.
        group: Process group of its training.
        reports: (epoch second, step) of the latest reports.
        allocator_bytes: The most of the GPU's memory that its training says it has reserved; None
            where it says nothing.
        ended: The token of the attempt that ended last here; ended_s: when.
        is_complete: Whether that one trained to its end, and was neither stopped early nor failed.
        ran_out: What others on the card may have done to that one: "", its memory ran out ("gpu",
            "host"), a fault of a GPU's that MPS passes on to all ("fault"), or MPS let it down
            ("mps") or did not let it go (STUCK).
    """

    state: str = IDLE
    since_s: float = 0.0
    token: str = ""
    trial: int = -1
    attempt: int = 0
    params: Mapping[str, float] = field(default_factory=dict)
    is_alone: bool = False
    group: int | None = None
    reports: Sequence[tuple[float, float]] = ()
    allocator_bytes: int | None = None
    ended: str = ""
    ended_s: float = 0.0
    is_complete: bool = False
    ran_out: str = ""


@dataclass(frozen=True)
class CardNotice:
    """What is said of a card by whoever packs it.

    Attributes:
        let_in: Tokens of the attempts that may train.
        leave: Numbers of the seats whose workers are to end instead of pulling another trial.
        is_lost: The GPU has failed: what ends there says nothing of its trial.
        used: By the token of each attempt that trains, or has done so a moment ago.
        slowdown: How much longer a trial takes now than alone.
        mps: What a training needs in its environment to be served by CUDA's MPS; {} where that is
            off. generation: one more whenever its server was renewed.
        faulted_s: When a training ended last by a fault that MPS passes on; 0.0 for never.
        about: For people and for ``status``: gpu, level, training, why, text, ….
    """

    let_in: Sequence[str] = ()
    leave: Sequence[int] = ()
    is_lost: bool = False
    used: Mapping[str, Use] = field(default_factory=dict)
    slowdown: float = 1.0
    mps: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0
    faulted_s: float = 0.0
    about: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def read_card(path: Path) -> CardNotice | None:
    """Return what is said of a card; None where nothing (that can be read) is."""
    try:
        found = read_object(path)
        if found is None:
            return None
        found["used"] = {token: Use(**use) for token, use in found["used"].items()}
        return CardNotice(**found)
    except (OSError, DamagedFile, KeyError, TypeError, AttributeError):
        return None


def read_seat(path: Path) -> SeatState | None:
    """Return what a worker says of its seat; None where it has said nothing yet."""
    try:
        found = read_object(path)
        return None if found is None else SeatState(**found)
    except (OSError, DamagedFile, TypeError):
        return None


def seat_path(folder: Path, number: int) -> Path:
    return folder / f"seat-{number}.json"


class Seat:
    """A worker's side.

    Args:
        path: The seat's file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = int(path.stem.rpartition("-")[2])
        self.card = path.with_name(CARD_FILE)
        self._said = SeatState()
        self._reports: list[tuple[float, float]] = []
        self._written = 0.0
        self._say(SeatState(since_s=time.time()))

    @classmethod
    def take(cls, environ: Mapping[str, str]) -> Seat | None:
        """Return the seat that this worker has; None where it shares no GPU."""
        path = environ.get(SEAT_VARIABLE)
        return cls(Path(path)) if path else None

    def must_leave(self) -> bool:
        """Tell whether this worker is to end instead of pulling another trial."""
        card = read_card(self.card)
        return card is not None and (self.number in card.leave or card.is_lost)

    def leave(self) -> None:
        """Say that this worker ends because it was told to: others may come later."""
        self._say(replace(self._said, state=LEFT, since_s=time.time(), token=""))

    def ask(self, said: SeatState) -> None:
        """Ask to be let in with an attempt (its token, trial, attempt, params, is_alone)."""
        self._reports, before = [], self._said
        self._say(
            replace(
                said,
                state=READY,
                since_s=time.time(),
                ended=before.ended,
                ended_s=before.ended_s,
                is_complete=before.is_complete,
                ran_out=before.ran_out,
            )
        )

    def is_let_in(self) -> bool:
        """Tell whether the attempt that asks may train now."""
        card = read_card(self.card)
        return card is not None and self._said.token in card.let_in

    def begin(self, group: int) -> None:
        """Say that its training has begun."""
        self._say(replace(self._said, state=TRAINING, since_s=time.time(), group=group))

    def report(
        self, reports: Sequence[tuple[float, float]], allocator_bytes: int | None = None
    ) -> None:
        """Say what training has reported: (epoch second, step) each, and the most of the GPU's
        memory that it says it has reserved."""
        self._reports = [*self._reports, *reports][-MOST_REPORTS:]
        if self._said.state == TRAINING and time.monotonic() - self._written >= WRITE_EVERY_S:
            told = allocator_bytes or self._said.allocator_bytes
            self._say(replace(self._said, reports=self._reports, allocator_bytes=told))

    def use(self) -> Use:
        """Return what the attempt has used up to now."""
        card = read_card(self.card)
        found = card.used.get(self._said.token) if card is not None else None
        if found is None or self._said.state != TRAINING:
            return Use()
        later_s = max(0.0, time.time() - max(found.at_s, self._said.since_s))
        return replace(found, gpu_s=found.gpu_s + later_s * found.share)

    def slowdown(self) -> float:
        """Return how much longer training takes now than alone: at least 1."""
        card = read_card(self.card)
        return 1.0 if card is None else max(1.0, card.slowdown)

    def mps(self) -> tuple[Mapping[str, str], int]:
        """Return what a training needs to be served by MPS, {} where it is off, and how often its
        server was renewed."""
        card = read_card(self.card)
        return ({}, 0) if card is None else (card.mps, card.generation)

    def faulted_s(self) -> float:
        """Return when a training on the card ended last by a fault that MPS passes on."""
        card = read_card(self.card)
        return 0.0 if card is None else card.faulted_s

    def is_lost(self) -> bool:
        """Tell whether the GPU has failed."""
        card = read_card(self.card)
        return card is not None and card.is_lost

    def end(self, *, complete: bool = False, ran_out: str = "") -> None:
        """Say that the attempt has ended.

        Args:
            complete: It trained to its end.
            ran_out: As in ``SeatState``.
        """
        now = time.time()
        self._say(
            SeatState(
                since_s=now,
                ended=self._said.token,
                ended_s=now,
                is_complete=complete,
                ran_out=ran_out,
            )
        )

    def _say(self, said: SeatState) -> None:
        self._said, self._written = said, time.monotonic()
        with contextlib.suppress(OSError):  # a full disk: nobody is let in meanwhile
            write_atomic(self.path, json.dumps(asdict(said)))


def numbers_of(params: Mapping[str, Any]) -> dict[str, float]:
    """Return the parameters that are numbers."""
    return {
        name: float(value)
        for name, value in params.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def remove(folder: Path, number: int) -> None:
    """Forget a seat whose worker has ended."""
    with contextlib.suppress(OSError):
        os.unlink(seat_path(folder, number))
