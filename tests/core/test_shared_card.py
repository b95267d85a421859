"""A card that trials share: both sides of its seats, with a clock of the test's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sweep.core.packing.peaks import CONTEXT_BYTES
from sweep.core.study import Share
from sweep.core.system.mps import Facts, Mps
from sweep.core.system.nvml import Sample
from sweep.core.system.seats import SEAT_VARIABLE, Seat, SeatState, numbers_of, read_card
from sweep.core.system.shared_card import SharedCard


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Driver:
    """What the card says."""

    model = "H200"

    def __init__(self) -> None:
        self.sample = Sample()

    def read(self) -> Sample:
        return self.sample


class Scene:
    """A card and the workers on it."""

    def __init__(self, folder: Path, share: Share, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.driver = Clock(), Driver()
        monkeypatch.setattr("sweep.core.system.seats.time.time", self.clock)
        self.card = SharedCard("0", folder, share, {}, self.driver, 4.0, self.clock)
        self.seats: dict[int, Seat] = {}

    def sit(self, *numbers: int) -> None:
        for number in numbers:
            path = self.card.give_seat(number)
            found = Seat.take({SEAT_VARIABLE: str(path)})
            assert found is not None
            self.seats[number] = found

    def ask(self, number: int, *, alone: bool = False) -> None:
        said = SeatState(token=f"t{number}", trial=number, attempt=1, is_alone=alone)
        self.seats[number].ask(said)
        self.pass_s(0.01)

    def begin(self, *numbers: int) -> None:
        for number in numbers:
            assert self.seats[number].is_let_in()
            self.seats[number].begin(group=10_000_000 + number)

    def pass_s(self, seconds: float) -> None:
        self.clock.now += seconds

    def tick(self) -> list[int]:
        """Look once; return the seats that may train."""
        self.card.tick(None)
        return [number for number, seat in self.seats.items() if seat.is_let_in()]

    def end(self, number: int, ran_out: str = "") -> None:
        self.seats[number].end(complete=not ran_out, ran_out=ran_out)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Share], Scene]:
    return lambda share: Scene(tmp_path / "card", share, monkeypatch)


TWO = Share(max=2, measured=False)


def test_in_their_order_and_no_more_than_the_level(scene: Callable[[Share], Scene]) -> None:
    s = scene(TWO)
    s.tick()
    assert s.card.room == 2
    s.sit(0, 1, 2)
    for number in (2, 0, 1):
        s.ask(number)
    assert s.tick() == [0, 2]
    s.begin(0, 2)
    s.tick()
    s.end(0)
    assert s.tick() == [1, 2]
    assert s.card.room == -1


def test_what_is_said_within_a_tick_of_the_systems_clock(scene: Callable[[Share], Scene]) -> None:
    """Files that follow each other so quickly have the same time, which lasts up to 10 ms."""
    s = scene(TWO)
    s.sit(0)
    path = s.seats[0].path
    written_ns = path.stat().st_mtime_ns
    assert s.tick() == []
    s.ask(0)
    os.utime(path, ns=(written_ns, written_ns))
    assert s.tick() == [0]


def test_too_many_are_to_leave(scene: Callable[[Share], Scene]) -> None:
    """Those that end soonest: the one that has trained longest goes first."""
    s = scene(TWO)
    s.tick()
    s.sit(0, 1, 2)
    s.ask(1)
    s.tick()
    s.begin(1)
    s.pass_s(1.0)
    s.ask(0)
    s.ask(2)
    s.tick()
    assert [n for n, seat in s.seats.items() if seat.must_leave()] == [1]
    s.card.take_seat(1)
    s.tick()
    assert not any(s.seats[n].must_leave() for n in (0, 2))


def test_alone(scene: Callable[[Share], Scene]) -> None:
    """It waits until the others have ended, they pull nothing meanwhile, and nobody joins it."""
    s = scene(TWO)
    s.tick()
    s.sit(0, 1)
    s.ask(0)
    assert s.tick() == [0]
    s.begin(0)
    s.ask(1, alone=True)
    assert s.tick() == [0]
    assert s.seats[0].must_leave() and not s.seats[1].must_leave()
    assert s.card.room == 0
    s.end(0)
    assert s.tick() == [1]
    s.begin(1)
    s.ask(0)
    assert s.tick() == [1]
    s.end(1)
    assert s.tick() == [0]
    assert not s.seats[0].must_leave()


def test_two_that_are_each_to_be_alone(scene: Callable[[Share], Scene]) -> None:
    """One after the other: neither waits for the other's claim."""
    s = scene(TWO)
    s.tick()
    s.sit(0, 1)
    s.ask(1, alone=True)
    s.ask(0, alone=True)
    assert s.tick() == [1]
    s.begin(1)
    s.tick()
    s.end(1)
    assert s.tick() == [0]


def test_gpu_seconds_and_energy_are_shared_out(scene: Callable[[Share], Scene]) -> None:
    """All together they are the card's, whoever came and went."""
    s = scene(TWO)
    s.driver.sample = Sample(energy_mj=500_000)
    s.tick()
    s.sit(0, 1)
    s.ask(0)
    s.tick()
    s.begin(0)
    s.tick()
    began = s.clock.now
    s.driver.sample = Sample(energy_mj=600_000)
    s.pass_s(10.0)
    s.ask(1)
    s.tick()
    s.begin(1)
    s.driver.sample = Sample(energy_mj=800_000)
    s.pass_s(10.0)
    s.tick()
    s.pass_s(2.0)
    uses = [s.seats[number].use() for number in (0, 1)]
    assert sum(use.gpu_s for use in uses) == pytest.approx(s.clock.now - began, abs=0.1)
    assert uses[0].gpu_s == pytest.approx(10 + 5 + 1, abs=0.1)
    assert sum(use.joules or 0.0 for use in uses) == pytest.approx(300.0)
    assert [use.most for use in uses] == [2, 2]


def test_a_level_falls_by_memory_alone(scene: Callable[[Share], Scene]) -> None:
    """Also a fixed one: who is too many leaves, and the next one waits."""
    s = scene(Share(max=4, measured=False))
    s.tick()
    s.sit(0, 1, 2, 3)
    for number in range(4):
        s.ask(number)
    assert s.tick() == [0, 1, 2, 3]
    s.begin(0, 1, 2, 3)
    s.tick()
    s.end(3, "gpu")
    s.tick()
    assert s.card.level.trials == 3 and s.card.level.why == "memory"
    stored = json.loads(json.dumps(s.card.packing.to_remember()))
    assert stored


def test_a_gpu_that_is_lost(scene: Callable[[Share], Scene]) -> None:
    """Nobody begins there, and all are told why what they train ends."""
    s = scene(TWO)
    s.tick()
    s.sit(0, 1)
    s.ask(0)
    s.tick()
    s.begin(0)
    s.driver.sample = Sample(is_lost=True)
    s.ask(1)
    assert s.tick() == [0]
    assert s.seats[0].is_lost() and s.seats[1].is_lost() and s.seats[1].must_leave()
    assert s.card.room == 0 and s.card.is_lost


def test_what_a_killed_worker_left(scene: Callable[[Share], Scene]) -> None:
    """Its seat is nobody's, and the next one begins with an empty file."""
    s = scene(TWO)
    s.tick()
    s.sit(0)
    s.ask(0)
    s.tick()
    s.begin(0)
    s.tick()
    path = s.seats[0].path
    s.card.take_seat(0)
    assert not path.exists()
    s.tick()
    found = read_card(path.with_name("card.json"))
    assert found is not None and found.let_in == [] and found.about["training"] == 0
    s.card.close()
    assert not path.parent.exists()


def test_without_a_seat() -> None:
    environ: Mapping[str, str] = {}
    assert Seat.take(environ) is None


def test_parameters_that_are_numbers() -> None:
    assert numbers_of({"a": 1, "b": "x", "c": True, "d": 0.5}) == {"a": 1.0, "d": 0.5}


def test_a_driver_that_hides_whose_memory_it_is(scene: Callable[[Share], Scene]) -> None:
    """What training itself says counts then, with its context; before, what the card holds."""
    s = scene(Share(max=4))
    s.driver.sample = Sample(total_bytes=80 * 10**9, used_bytes=0)
    s.tick()
    s.sit(0)
    s.ask(0)
    s.tick()
    s.begin(0)
    s.seats[0]._written = 0.0
    s.seats[0].report([(s.clock.now, 1.0)], 30 * 10**9)
    s.driver.sample = Sample(total_bytes=80 * 10**9, used_bytes=50 * 10**9)
    s.pass_s(2.0)
    s.tick()
    ((_, _, peak),) = s.card.packing.to_json()["peaks"]
    assert peak == 30 * 10**9 + CONTEXT_BYTES


class Served(Mps):
    """MPS that needs no program; counts the looks at it."""

    def __init__(self, wanted: str = "auto") -> None:
        super().__init__(wanted, lambda: Facts(None, None))
        self.is_on = True
        self.looks: list[bool] = []

    def variables(self) -> dict[str, str]:
        return {"PIPE": "/p"} if self.is_on else {}

    def look(self, *, failed: bool = False) -> None:
        self.looks.append(failed)
        if len(self.looks) > 2:
            self.give_up("it failed")


def test_ends_under_mps(scene: Callable[[Share], Scene]) -> None:
    """A fault lowers no level; the server is looked after, and who fails then is told of it."""
    s = scene(TWO)
    s.card.mps = served = Served()
    s.tick()
    s.sit(0, 1, 2)
    for number, ran_out, looks in (
        (0, "fault", [False]),
        (1, "mps", [False, True]),
        (2, "stuck", [False, True, False]),
    ):
        s.ask(number)
        s.tick()
        assert s.seats[number].mps() == ({"PIPE": "/p"}, 0)
        s.begin(number)
        s.tick()
        s.end(number, ran_out)
        s.pass_s(1.0)
        s.tick()
        assert served.looks == looks
        assert s.card.level.trials == 2
    assert s.seats[0].faulted_s() == pytest.approx(s.clock.now - 1.0, abs=1.1)
    assert s.seats[0].mps() == ({}, 0)
    about = s.card.about()
    assert (about["mps"], about["mps_why"]) == ("off", "it failed")
    assert s.card.closed_why == "" and not s.seats[0].is_lost()


def test_a_worker_killed_under_mps(scene: Callable[[Share], Scene]) -> None:
    s = scene(TWO)
    s.card.mps = served = Served()
    s.tick()
    s.sit(0, 1)
    s.ask(0)
    s.tick()
    s.begin(0)
    s.tick()
    s.card.take_seat(0)
    s.card.take_seat(1)  # it trained nothing
    assert served.looks == [False]


def test_a_gpu_without_the_mps_that_it_is_to_have(scene: Callable[[Share], Scene]) -> None:
    """Nobody trains there, and it is said."""
    s = scene(TWO)
    s.card.mps = served = Served("on")
    s.tick()
    s.sit(0)
    s.ask(0)
    served.give_up("it failed")
    s.tick()
    assert s.seats[0].must_leave() and s.seats[0].is_lost() and not s.seats[0].is_let_in()
    assert s.card.room == 0
    assert s.card.about()["text"] == "mps: on, but it failed"


def test_an_exclusive_gpu_without_mps(scene: Callable[[Share], Scene]) -> None:
    s = scene(Share(max=4, measured=False))
    s.card.mps.is_exclusive = True
    s.tick()
    assert s.card.level.trials == 1
    assert "lets one process have it, and MPS is off" in s.card.about()["text"]
