"""Which trial is run again, and which re-runs are taken for lost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from sweep.control.open_study import Opened
from sweep.core import executors
from sweep.core.errors import CouldNotAsk, InputError
from sweep.core.paths import Runs
from sweep.core.scheduler import RUNNING, TaskState
from sweep.core.trial import End, Replicate
from sweep.storage import replicates, reruns
from sweep.tasks.side_runs.reproduction import agrees_alone, judge, trained_beside
from sweep.tasks.side_runs.rerun import choose_trial, choose_trials, newest, passes, plan, refresh
from sweep.tasks.side_runs.side_run import ask
from tests.study_rows import Row, Tried, fill, make_study


@pytest.fixture
def opened(database_url: str, tmp_path: Path) -> Iterator[Opened]:
    rows = [
        Row(values=[0.5]),
        Row(values=[0.9]),
        Row("RUNNING", attempts=[Tried(None)]),
        Row(values=[-math.inf]),
    ]
    ledger = fill(database_url, make_study(trials=4), rows)
    with closing(ledger.db):
        folder = Runs(tmp_path).study("digits")
        yield Opened(folder, ledger.study, ledger)


def test_the_best_or_one_by_its_number(opened: Opened) -> None:
    """With its id and value, also where a notebook has told one that is not finite."""
    first = opened.ledger.find_trial(0)
    assert first is not None
    assert choose_trial(opened, None) == (1, first[0] + 1, 0.9)
    assert choose_trial(opened, 0) == (0, first[0], 0.5)
    assert choose_trial(opened, 3) == (3, first[0] + 3, -math.inf)
    assert [number for number, _, _ in choose_trials(opened, None, 2)] == [1, 0]


@pytest.mark.parametrize(
    ("number", "message"), [(2, "Trial 2 of digits is not complete"), (4, "digits has no trial 4")]
)
def test_what_cannot_be_run_again(opened: Opened, number: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_trial(opened, number)


class Asked:
    """A scheduler that is only asked about jobs."""

    def __init__(self, name: str, runs: Sequence[str], answers: bool = True) -> None:
        self.name, self.runs, self.answers = name, runs, answers
        self.jobs: list[str] = []

    def of(self, *_: Any) -> Asked:
        return self

    def is_named(self, executor: str) -> bool:
        return executor in ("", self.name)

    def queued(self, jobs: Sequence[str]) -> dict[tuple[str, int], TaskState]:
        self.jobs += jobs
        if not self.answers:
            raise CouldNotAsk("nobody answers")
        return {(job, 0): TaskState(RUNNING, "RUNNING") for job in jobs if job in self.runs}


def test_a_rerun_is_asked_of_the_executor_that_has_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The study has moved since: its present scheduler knows nothing of that job."""
    ledger = opened.ledger
    found = ledger.find_trial(0)
    assert found is not None
    plan = [(found[0], reruns.SAME_SEED, n) for n in range(4)]
    numbers = ask(ledger, reruns.insert_all, plan)
    for k, job, executor in zip(
        numbers, ("7", "8", "here", "9"), ("old", "old", "new", "away"), strict=True
    ):
        ask(ledger, reruns.set_job, k, job, executor)
    old, away = Asked("old", ["7"]), Asked("away", [], answers=False)
    for other in (old, away):
        monkeypatch.setitem(executors._kinds, other.name, other)
    new: Any = Asked("new", [])
    refresh(dataclasses.replace(opened), new)
    assert (old.jobs, new.jobs, away.jobs) == (["7", "8"], ["here"], ["9"])
    outcomes = {r.job: r.outcome for r in ask(ledger, reruns.read_all)}
    assert outcomes == {"7": None, "8": "lost", "here": "lost", "9": None}


def test_a_lost_rerun_says_what_its_task_said(opened: Opened) -> None:
    """A task that could not make the re-run's folder, say; and nothing is said of its code then."""
    ledger = opened.ledger
    _, trial_id, _ = choose_trial(opened, 0)
    numbers = ask(ledger, reruns.insert_all, [(trial_id, reruns.SAME_SEED, 5)] * 3)
    for k in numbers:
        ask(ledger, reruns.set_job, k, "7", "local")
    opened.folder.logs.mkdir(parents=True)
    said = "The system refuses: /runs/digits/reruns: No space left on device."
    (opened.folder.logs / f"rerun-{numbers[0]}_1.log").write_text(f"starts\nsweep: {said}\nRoom.\n")
    refresh(opened, cast(Any, Asked("local", [])))
    plain = "its task ended without a result"
    reasons = [run.reason for run in ask(ledger, reruns.read_all)]
    assert reasons == [plain, f"{plain}: sweep: {said} Room.", plain]
    verdict = judge(opened, numbers[1])
    assert verdict.verdict == "failed" and verdict.axes == []
    assert verdict.differences == [
        f"the re-run ended without a result: {plain}: sweep: {said} Room."
    ]


def repeat(opened: Opened, trial_id: int, values: Sequence[float | None], job: str) -> list[int]:
    """Run trial 0 again as a whole: each value is what one of its runs gave, or that it failed."""
    ledger = opened.ledger
    numbers = ask(ledger, reruns.insert_all, plan(ledger, 0, trial_id))
    for k, value in zip(numbers, values, strict=True):
        ask(ledger, reruns.set_job, k, job, "local")
        end = End("error", "exit code 1") if value is None else End("finished", "")
        ask(ledger, reruns.end, k, end, {"values": [value], "steps": 0})
    return numbers


@pytest.mark.parametrize(
    ("values", "verdict", "again"),
    [
        ([0.3, 0.5, 0.7], "reproduced", 0.5),
        # Each differs, and the means do not: the mean is the trial's value.
        ([0.4, 0.5, 0.6], "reproduced", 0.5),
        ([0.3, 0.5, 1.0], "differs", 0.6),
        ([0.3, None, 0.7], "failed", None),
    ],
)
def test_a_trial_of_replicates_is_repeated_whole(
    values: list[float | None], verdict: str, again: float | None, opened: Opened
) -> None:
    """With each seed; by any of the runs the means are compared, and one that fails fails all."""
    ledger = opened.ledger
    _, trial_id, _ = choose_trial(opened, 0)
    done = [Replicate(n + 1, 70 + n, n + 1, (0.3 + 0.2 * n,)) for n in range(3)]
    ledger.db.retry(lambda db: replicates.write(db, trial_id, done))
    numbers = repeat(opened, trial_id, values, "7")
    assert [run.seed for run in ask(ledger, reruns.read_all)] == [70, 71, 72]
    assert [run.k for run in newest(opened, 0, untold=True)] == numbers
    for k in numbers:
        found = judge(opened, k)
        assert (found.verdict, found.original) == (verdict, 0.5)
        assert found.rerun == (None if again is None else pytest.approx(again))
        assert [one["rerun"] for one in found.replicates] == values
        assert found.noise is None and found.k == numbers[2]
    assert newest(opened, 0, untold=True) == []
    if verdict == "failed":
        assert found.differences == ["the re-run ended without a result: exit code 1"]
        assert found.folder == str(opened.folder.rerun(numbers[1]).root)
    second = repeat(opened, trial_id, [0.5, 0.5, 0.5], "8")
    known = ask(ledger, reruns.read_all)
    assert [[run.k for run in one] for one in passes(known, 0)] == [numbers, second]
    noise = judge(opened, second[0]).noise
    if again is None:
        assert noise is None
    else:
        assert noise is not None and (noise.runs, noise.high) == (2, pytest.approx(max(again, 0.5)))


@pytest.mark.parametrize(
    ("beside", "value", "others", "explains"),
    [
        (3, 0.90, [0.90], True),
        (3, 0.90, [0.80, 0.9001], True),
        (3, 0.90, [0.80], False),  # the training itself differs from run to run
        (3, 0.90, [], False),  # one run alone tells nothing
        (3, 0.90, [None], False),
        (3, None, [0.90], False),
        (0, 0.90, [0.90], False),  # it had its GPU for itself
    ],
)
def test_sharing_a_gpu_explains_a_difference(
    beside: int, value: float | None, others: list[float | None], explains: bool
) -> None:
    """Only where a second run alone agrees with the first."""
    assert agrees_alone(beside, value, others, 0.01) is explains


def test_a_trial_that_trained_beside_others(opened: Opened) -> None:
    """One run alone that differs says what to do; a second one that agrees with it explains it."""
    _, trial_id, _ = choose_trial(opened, 0)
    for attempt, trials in ((1, 4), (2, 1), (3, "x")):
        made = opened.folder.attempt(0, attempt)
        made.root.mkdir(parents=True)
        made.provenance.write_text(f'{{"execution": {{"trials_on_gpu": "{trials}"}}}}')
    assert trained_beside(opened.folder, 0) == 0
    text = '{"execution": {"trials_on_gpu": 4}}'
    opened.folder.attempt(0, 1).provenance.write_text(text)
    assert trained_beside(opened.folder, 0) == 3
    assert trained_beside(opened.folder, 1) == 0
    (first,) = repeat(opened, trial_id, [0.4], "7")
    found = judge(opened, first)
    assert found.verdict == "differs" and "rerun-best once more" in found.causes[0]
    (second,) = repeat(opened, trial_id, [0.4], "8")
    found = judge(opened, second)
    assert found.verdict == "explained"
    assert found.differences == [
        "the trial trained beside 3 others on its GPU; two runs alone agree with each other"
    ]
    (third,) = repeat(opened, trial_id, [0.3], "9")
    found = judge(opened, third)
    assert found.verdict == "differs" and found.differences == []
