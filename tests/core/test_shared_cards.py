"""Seats on the GPUs of an array whose elements share them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.core.scheduler import ArrayJob
from sweep.core.study import Share
from sweep.core.system.gpus import GpuPool
from sweep.core.system.nvml import Sample
from sweep.core.system.seats import CARD_FILE, CardNotice, Seat, read_card
from sweep.core.system.shared_cards import Granted, SharedCards, known_level
from sweep.schedulers.local.job import JobFolder


class Driver:
    model = "H200"

    def __init__(self) -> None:
        self.is_lost = False

    def read(self) -> Sample:
        return Sample(is_lost=self.is_lost)


Make = Callable[..., SharedCards]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Returns what hands out the seats of two GPUs, each to two elements."""

    def build(share: Share | None = None, command: str = "c", **drivers: Driver) -> SharedCards:
        pool = GpuPool(["0", "1"], tmp_path / "locks")
        share = share or Share(max=2, measured=False)
        folder = tmp_path / "cards"
        return SharedCards(
            pool, share, folder, command, None, lambda name: drivers.get(f"gpu{name}")
        )

    return build


def take(cards: SharedCards, *indices: int) -> list[str | None]:
    found = []
    for index in indices:
        taken = cards.take(index)
        found.append(taken[0] if taken else None)
        cards.tick(8)
    return found


def test_free_cards_come_first(make: Make) -> None:
    """Trials spread over the GPUs before they share one, and no card has more than its level."""
    cards = make()
    assert take(cards, 0, 1) == ["0", "1"]
    assert sorted(map(str, take(cards, 2, 3))) == ["0", "1"]
    assert take(cards, 4) == [None]
    cards.give(2)
    assert take(cards, 5) == [cards.seats[5]]


def test_a_card_that_nobody_uses_is_given_back(make: Make) -> None:
    """Another array of the user's may have it then, and not before."""
    cards, others = make(), make()
    take(cards, 0)
    assert take(others, 0) == ["1"]
    assert others.pool.take(1) is None
    cards.give(0)
    assert cards.deadline() is None
    assert others.pool.take(1) == ["0"]


def test_a_gpu_that_has_failed_is_left(make: Make, tmp_path: Path) -> None:
    """Nothing begins on it, and others go on; where none is left that is said."""
    first, second = Driver(), Driver()
    first.is_lost = True
    cards = make(gpu0=first, gpu1=second)
    assert take(cards, 0, 1, 2) == ["1", "1", None]
    assert cards.all_lost() == ""
    second.is_lost = True
    cards.cards["1"].take_seat(99)  # no seat: it only looks
    cards.cards["1"].clock = lambda: 9e9
    cards.next_tick = 0.0
    cards.tick(8)
    assert cards.all_lost() == "the GPU has failed: 0, 1"
    cards.give(0)
    cards.give(1)
    assert make(gpu0=first, gpu1=second).take(0) is None  # nor does another array begin there
    cards.pool.give(["0", "1"])  # its process has ended
    assert make(gpu0=first, gpu1=second).take(0) is None
    told = [read_card(path) for path in (tmp_path / "cards").glob(f"*/{CARD_FILE}")]
    assert [card is not None and card.is_lost for card in told] == [True, True]


def test_what_was_found_is_remembered(make: Make, tmp_path: Path) -> None:
    """By the model of the GPU and the command: the next array begins with it."""
    cards = make(Share(max=4, measured=False), gpu0=Driver(), gpu1=Driver())
    take(cards, 0)
    cards.cards["0"].packing.note_out_of_memory(4)
    cards.cards["0"].clock = lambda: 9e9  # the next look is due
    cards.next_tick = 0.0
    cards.tick(8)
    cards.give(0)
    stored = json.loads((tmp_path / "cards/levels.json").read_text())
    assert list(stored) == ["H200, mps off, command c"]
    share = Share(max=4)
    assert known_level(tmp_path / "cards", share, "c") == 3
    assert known_level(tmp_path / "cards", share, "d") is None
    assert known_level(tmp_path / "cards", replace(share, measured=False), "d") == 4
    again = make(Share(max=4, measured=False), gpu0=Driver(), gpu1=Driver())
    take(again, 0)
    assert again.cards["0"].level.trials == 3
    again.give(0)
    other = make(Share(max=4, measured=False), command="d", gpu0=Driver(), gpu1=Driver())
    take(other, 0)
    assert other.cards["0"].level.trials == 4


def test_what_only_the_trials_left_bound_is_not_known(make: Make, tmp_path: Path) -> None:
    """A relaunch, and the other tasks, learn nothing of a card from a study's last trials."""
    cards = make(Share(max=16), gpu0=Driver())
    assert cards.wanted == 2  # one on each card, until more is known
    cards.take(0)
    cards.tick(0)
    assert cards.cards["0"].level.why == "limit" and cards.cards["0"].decided is None
    cards.give(0)
    assert known_level(tmp_path / "cards", Share(max=16), "c") is None


def test_gpus_that_a_task_was_granted() -> None:
    """They are taken and given back without anybody else's leave."""
    pool = Granted(["0", "3"])
    assert pool.take(1) == ["0"] and pool.take(2) is None and pool.take(1) == ["3"]
    pool.give(["0"])
    assert pool.take(1) == ["0"]


def test_a_worker_that_was_told_to_end(make: Make) -> None:
    """Its place may be taken again; that of one that ended by itself is told apart. What a packer
    that was killed has left tells nobody to end."""
    cards = make(Share(max=2, measured=False))
    seats = []
    for index in range(3):
        seats.append(Seat(cards.take(index)[1]))  # type: ignore[index]
        assert cards.beside(index) == 0
        cards.tick(8)
    cards.next_tick = 0.0
    cards.tick(8)
    assert cards.idle == 3
    seats[0].leave()
    assert [cards.give(index) for index in range(3)] == [True, False, False]
    folder = cards.cards["0"].folder
    assert not folder.exists()
    folder.mkdir()
    (folder / CARD_FILE).write_text(CardNotice(leave=[7]).to_json())
    again = make(Share(max=2, measured=False))
    seat = Seat(again.take(7)[1])  # type: ignore[index]
    assert not seat.must_leave()


def test_damaged_levels_are_measured_again(make: Make, tmp_path: Path) -> None:
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards/levels.json").write_text("{")
    assert take(make(gpu0=Driver()), 0) == ["0"]


def test_a_request_keeps_how_trials_share(tmp_path: Path) -> None:
    """The runner reads what was submitted."""
    share = Share(max=8, memory_mb=100, measured=True)
    job = ArrayJob("t", 1, 1, ["x"], tmp_path, "", gpus=1, share=share, cards="/c", cpus=3)
    folder = JobFolder(tmp_path)
    folder.write_request(job, ["0"])
    read, gpus = folder.read_request()
    assert (read.share, read.cards, read.cpus, gpus) == (share, "/c", 3, ["0"])


def test_the_course_of_a_card(make: Make, tmp_path: Path) -> None:
    """A look at first and then at intervals, for the report; two launches write into one file."""
    for _ in range(2):
        cards = make(gpu0=Driver())
        take(cards, 0)
        for _ in range(3):
            cards.next_tick = 0.0
            cards.tick(8)
        cards.give(0)
    (path,) = (tmp_path / "cards").glob("*.course.jsonl")
    looks = [json.loads(line) for line in path.read_text().splitlines()]
    assert [look["gpu"] for look in looks] == ["0", "0"]
    assert set(looks[0]) >= {"at_s", "host", "busy", "memory_bytes", "total_bytes", "trials"}
