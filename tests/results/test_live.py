"""Following a study until it is over."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.results.live import IDLE_S, POLL_S, until_over
from sweep.results.status import Status
from tests.results.test_terminal import counts, make_status


class Clock:
    """Seconds that pass only where somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def follow(states: Iterator[str], every_s: float = 0.0) -> tuple[list[str], float]:
    """Return the states that were seen, and the seconds that it took."""
    clock = Clock()

    def look() -> Status:
        return make_status(state=next(states), counts=counts(complete=3, waiting=7))

    seen = until_over(look, every_s, sleep=clock.sleep, clock_s=clock)
    return [status.state for status in seen], clock.now_s


def test_the_last_status_is_shown_too() -> None:
    for word in ("finished", "held", "stopped"):
        seen, took_s = follow(iter(["queued", "running", word, "never asked"]))
        assert (seen, took_s) == (["queued", "running", word], 2 * POLL_S)


def test_an_idle_study_is_left_once_a_finaliser_had_its_time() -> None:
    """A wave may follow: what was idle for a moment only is followed on."""
    seen, _ = follow(iter(["running", "idle", "idle", "running", "finished"]))
    assert seen[-1] == "finished"
    for every_s in (0.0, 30.0):
        seen, took_s = follow(iter(["idle"] * 100), every_s)
        assert set(seen) == {"idle"}
        assert IDLE_S + every_s < took_s <= IDLE_S + every_s + 2 * POLL_S


def test_idleness_is_counted_anew() -> None:
    """Twice just below the limit is not once beyond it."""
    short = ["idle"] * int(IDLE_S / POLL_S)
    seen, _ = follow(iter([*short, "running", *short, "finished"]))
    assert seen == [*short, "running", *short, "finished"]
