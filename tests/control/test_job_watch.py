"""One job that is waited for: when it is asked after, and since when it has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sweep.control.job_watch import JobWatch
from sweep.core.errors import CouldNotAsk
from sweep.core.scheduler import ENDED, PENDING, RUNNING, TaskState

Answer = str | None | CouldNotAsk


def watch_of(answers: list[Answer], now_s: list[float]) -> JobWatch:
    """A watch that asks every 10 s, first after 3, and is given these answers, one a question."""

    def poll(jobs: list[str]) -> dict[tuple[str, int], TaskState]:
        answer = answers.pop(0)
        if isinstance(answer, CouldNotAsk):
            raise answer
        return {} if answer is None else {(jobs[0], 0): TaskState(answer)}

    schedule: Any = SimpleNamespace(poll=poll)
    return JobWatch(schedule, "7", every_s=10.0, first_s=3.0, now_s=lambda: now_s[0])


def test_it_asks_when_it_is_time() -> None:
    now_s = [0.0]
    watch = watch_of([PENDING, RUNNING, ENDED], now_s)
    asked = []
    for second in range(30):
        now_s[0] = float(second)
        if watch.look():
            asked.append(second)
    assert asked == [3, 13, 23]
    assert watch.state is not None
    assert watch.state.state == ENDED


@pytest.mark.parametrize(
    ("answers", "ended_s"),
    [
        ([RUNNING], None),
        ([ENDED], 0.0),
        ([None], 0.0),  # the scheduler knows no such job: it is gone
        ([ENDED, ENDED], 10.0),
        ([ENDED, PENDING], None),  # put back into the queue
        ([ENDED, RUNNING, ENDED], 0.0),
    ],
)
def test_since_when_it_has_ended(answers: list[Answer], ended_s: float | None) -> None:
    now_s = [0.0]
    watch = watch_of(list(answers), now_s)
    for number in range(len(answers)):
        now_s[0] = 3.0 + 10.0 * number
        assert watch.look()
    assert watch.ended_for_s() == ended_s


def test_no_answer_is_no_end() -> None:
    now_s = [0.0]
    watch = watch_of([RUNNING, CouldNotAsk("slurmctld is away"), ENDED], now_s)
    now_s[0] = 3.0
    watch.look()
    now_s[0] = 13.0
    with pytest.raises(CouldNotAsk):
        watch.look()
    assert watch.state is not None
    assert watch.state.state == RUNNING
    assert watch.ended_for_s() is None
    assert not watch.look()  # nor is it asked again at once
