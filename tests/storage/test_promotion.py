"""Successive halving by promotion: who pauses, who goes on, in which order, and the end of it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.control import settle
from sweep.control.open_study import open_study
from sweep.core.paths import Runs
from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Objective, Study
from sweep.core.trial import End, Place, Report, TrialRecord
from sweep.storage import budgets, bulk, promotion, records
from sweep.storage.budgets import Reached
from sweep.storage.closing import close_paused, prune_trials
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from tests.processes import find_processes
from tests.storage.ledgers import counts, do, make
from tests.toys import write_toy
from tests.waiting import PATIENCE_S

PLACE = Place("job", 0, "node1", "boot")
PRUNER = Choice("promotion", {"min_resource": 1, "max_resource": 9, "reduction_factor": 3})
STUDY = Study(
    name="s",
    command=("python", "train.py"),
    objectives=(Objective("acc", "maximize"),),
    space=Space((Parameter("lr", "float", low=0.1, high=1.0),)),
    trials=9,
    sampler=Choice("random"),
    pruner=PRUNER,
    max_parallel=3,
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_resource": 27}, [3, 9]),
        ({"max_resource": 27, "min_resource": 1}, [1, 3, 9]),
        ({"max_resource": 28, "min_resource": 1}, [1, 3, 9, 27]),
        ({"max_resource": 1000, "reduction_factor": 4}, [100, 400]),
        ({"max_resource": 3}, []),
    ],
)
def test_rungs(options: dict[str, int], expected: list[int]) -> None:
    assert promotion.rungs(replace(STUDY, pruner=Choice("promotion", options))) == expected


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    db = Database(database_url)
    yield make(db, STUDY)
    db.close()


def pull(ledger: Ledger, token: str) -> tuple[int, int] | None:
    """Claim; return (trial, attempt)."""
    claim = do(ledger, lambda: ledger.claim(token, PLACE))
    return (claim.number, claim.attempt) if claim else None


def report(ledger: Ledger, token: str, step: int, value: float) -> bool:
    """Report one step; return whether the trial is to pause."""
    do(ledger, lambda: ledger.record(token, [Report(step, time.time(), {"acc": value})]))
    trial_id = next(a.trial_id for a in ledger.live_attempts() if a.token == token)
    return bool(do(ledger, lambda: ledger.judge_rung(token, trial_id)))


def end(ledger: Ledger, token: str, outcome: str = "paused") -> str:
    trial_id = next(a.trial_id for a in ledger.live_attempts() if a.token == token)
    return str(do(ledger, lambda: settle.settle(ledger, token, trial_id, End(outcome), None)))


def run_rung(ledger: Ledger, token: str, step: int, value: float) -> tuple[int, int]:
    """Claim, report the rung's step, and pause if told to; return (trial, attempt)."""
    found = pull(ledger, token)
    assert found is not None
    if report(ledger, token, step, value):
        assert end(ledger, token) == "running"
    return found


def test_the_best_third_goes_on_before_new_ones_start(ledger: Ledger) -> None:
    """Three pause; the best of them is pulled next, before the fourth; then a new one again."""
    for number, value in enumerate((0.3, 0.5, 0.1)):
        assert run_rung(ledger, f"a{number}", 1, value) == (number, 1)
    assert pull(ledger, "b") == (1, 2)
    assert pull(ledger, "c") == (3, 1)
    assert counts(ledger) == {"running": 2, "waiting": 7}
    assert not report(ledger, "b", 2, 0.6), "it may leave rung 1 behind"
    assert report(ledger, "b", 3, 0.6), "and pauses at the next, where it is alone"


def test_one_that_is_among_the_best_need_not_pause(ledger: Ledger) -> None:
    """At a rung of three, the best one goes on at once, on the same task."""
    run_rung(ledger, "a", 1, 0.3)
    run_rung(ledger, "b", 1, 0.2)
    assert pull(ledger, "c") == (2, 1)
    assert not report(ledger, "c", 1, 0.9)
    assert not report(ledger, "c", 2, 0.1)


def test_an_interrupted_trial_gains_nothing_by_it(ledger: Ledger) -> None:
    """Killed while it paused, it goes on as interrupted, and pauses at its next report."""
    run_rung(ledger, "a", 1, 0.3)
    assert pull(ledger, "b") == (1, 1)
    assert report(ledger, "b", 1, 0.2)
    assert end(ledger, "b", "killed") == "running"
    assert pull(ledger, "c") == (1, 2)
    assert report(ledger, "c", 2, 0.9)


def test_small_rungs_promote_their_best_at_the_end(ledger: Ledger) -> None:
    """Two trials make no third, but one of them is complete at the end; the other is pruned."""
    other = make(ledger.db, replace(STUDY, name="two", trials=2))
    run_rung(other, "a", 1, 0.3)
    assert pull(other, "b") == (1, 1)
    assert pull(other, "none") is None, "trial 1 may yet be better"
    do(other, lambda: close_paused(other))
    assert report(other, "b", 1, 0.2)
    end(other, "b")
    assert pull(other, "c") == (0, 2)
    assert not report(other, "c", 2, 0.4)
    assert report(other, "c", 3, 0.4)
    end(other, "c")
    assert do(other, lambda: close_paused(other)) == 0
    assert pull(other, "d") == (0, 3)
    assert not report(other, "d", 9, 0.7)
    end(other, "d", "finished")
    assert pull(other, "e") is None
    assert do(other, lambda: close_paused(other)) == 1
    assert counts(other) == {"complete": 1, "pruned": 1}
    pruned = records.read_trials(other.db, other.study_id, other.study)[1]
    assert (pruned.values, pruned.reason) == ((0.2,), "not promoted from its rung")


def test_failed_trials_leave_their_rung(ledger: Ledger) -> None:
    """A promoted one that fails gives its place to the next best."""
    other = make(ledger.db, replace(STUDY, name="three", trials=3))
    for number, value in enumerate((0.3, 0.5, 0.1)):
        run_rung(other, f"a{number}", 1, value)
    assert pull(other, "b") == (1, 2)
    assert end(other, "b", "error") == "failed"
    assert pull(other, "c") == (0, 2)


def test_a_study_that_ends_prunes_what_is_paused(ledger: Ledger) -> None:
    """A budget cancels what waits; paused ones have a value, and are pruned with it."""
    run_rung(ledger, "a", 1, 0.3)
    do(ledger, lambda: budgets.end(ledger, Reached("so", True, "time")))
    assert counts(ledger) == {"pruned": 1, "cancelled": 8}


def test_without_promotion_paused_trials_go_on(ledger: Ledger) -> None:
    """`pruner: none` in the edited file takes them all up."""
    run_rung(ledger, "a", 1, 0.3)
    ledger.study = replace(STUDY, pruner=Choice("none"))
    assert pull(ledger, "b") == (0, 2)


def test_many_claims_at_once_promote_each_once(ledger: Ledger, database_url: str) -> None:
    """Eight threads pull at once: no trial twice, and the best third of nine among them."""
    from concurrent.futures import ThreadPoolExecutor

    values = [0.1 * n for n in range(9)]
    random.Random(0).shuffle(values)
    db = ledger.db
    for number, value in enumerate(values):
        claim = do(ledger, lambda number=number: ledger.claim(f"a{number}", PLACE))
        do(
            ledger,
            lambda number=number, value=value: ledger.record(
                f"a{number}", [Report(1, 1.0, {"acc": value})]
            ),
        )
        promotion._write_attribute(db, claim.trial_id, "sweep:rung:0", value)
    for number in range(9):
        end(ledger, f"a{number}")

    def claim_one(number: int) -> int | None:
        mine = Ledger(Database(database_url), ledger.study_id, STUDY)
        found = mine.db.retry(lambda _: mine.claim(f"b{number}", PLACE), patience_s=10)
        mine.db.close()
        return found.number if found else None

    with ThreadPoolExecutor(8) as pool:
        got = [found for found in pool.map(claim_one, range(8)) if found is not None]
    assert len(got) == len(set(got))
    best = sorted(range(9), key=lambda n: -values[n])[:3]
    assert sorted(got) == sorted(best)


def finish_all(ledger: Ledger, value_of: Any, prefix: str) -> None:
    """Pull trial after trial, each reports up to where it pauses or ends, until none is left."""
    for pulled in range(200):
        token = f"{prefix}{pulled}"
        found = pull(ledger, token)
        if found is None:
            do(ledger, lambda: close_paused(ledger))
            if not ledger.unfinished():
                return
            continue
        before = [a for a in ledger.attempts_at(found[0]) if a.outcome is not None]
        for step in (1, 3, 9):
            if len(before) > (1, 3, 9).index(step):
                continue
            if report(ledger, token, step, value_of(found[0])) and step < 9:
                end(ledger, token)
                break
        else:
            end(ledger, token, "finished")
    raise AssertionError(f"it never ends: {counts(ledger)}")


def test_more_trials_leave_final_ones_final(ledger: Ledger) -> None:
    """N raised after the end: what is pruned or complete stays so, however good it was."""
    finish_all(ledger, lambda number: 1.0 - number / 100, "a")
    before = records.read_trials(ledger.db, ledger.study_id, STUDY)
    assert counts(ledger) == {"complete": 1, "pruned": 8}
    with ledger.db.transaction():
        bulk.insert_waiting_trials(ledger.db, ledger.study_id, [{"lr": 0.5}] * 21)
    ledger.study = replace(STUDY, trials=30)
    ended = [len(before)]
    pull_one = ledger.claim

    def claim(token: str, place: Place) -> Any:
        found = pull_one(token, place)
        done = counts(ledger)
        ended.append(done.get("complete", 0) + done.get("pruned", 0))
        return found

    ledger.claim = claim  # type: ignore[method-assign]
    finish_all(ledger, lambda number: 0.5 - number / 100, "b")
    assert ended == sorted(ended), "the count of ended trials falls"
    after = records.read_trials(ledger.db, ledger.study_id, ledger.study)
    assert len(after) == 30 and {record.state for record in after} == {"complete", "pruned"}
    assert after[: len(before)] == before


def test_one_that_is_ended_while_it_is_promoted_stays_ended(
    ledger: Ledger, database_url: str
) -> None:
    """A stop between promotion and claim: the claim waits for it, and takes another trial."""
    from concurrent.futures import ThreadPoolExecutor

    for number, value in enumerate((0.3, 0.5, 0.1)):
        run_rung(ledger, f"a{number}", 1, value)
    best = ledger.attempts_at(1)[0].trial_id
    other = Ledger(Database(database_url), ledger.study_id, STUDY)

    observer = Database(database_url)  # within a transaction, what it has seen stays as it is

    def is_waiting() -> bool:
        rows = observer.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock'"
        )
        return bool(rows)

    def claim() -> Any:
        return other.db.retry(lambda _: other.claim("b", PLACE), patience_s=30)

    with ThreadPoolExecutor(1) as pool:
        with ledger.db.transaction():
            prune_trials(ledger, [best], End("paused", "it was ended"))
            claiming = pool.submit(claim)
            give_up_at = time.monotonic() + PATIENCE_S
            while not is_waiting():
                assert time.monotonic() < give_up_at, "the claim did not wait"
                time.sleep(0.02)
        found = claiming.result()
    other.db.close()
    observer.close()
    assert (found.number, found.attempt) == (3, 1)
    assert counts(ledger) == {"pruned": 1, "running": 1, "waiting": 7}


# Whole studies

TRAINING = """
import os, pathlib, sys, time
from sweep.report import Reporter

reporter, x, pause_s = Reporter(), float(sys.argv[1]), float(sys.argv[2])
first = 0
if reporter.resume:
    first = int(pathlib.Path(reporter.resume).read_text())
print("starts after step", first, flush=True)
for step in range(first + 1, 10):
    time.sleep(pause_s)
    reporter.log(step=step, score=x * step)
    path = pathlib.Path(reporter.checkpoint_dir) / "last"
    path.with_suffix(".tmp").write_text(str(step))
    path.with_suffix(".tmp").replace(path)
    for _ in range(30):  # a step takes longer than a verdict
        if reporter.should_stop():
            sys.exit(0)
        time.sleep(0.05)
"""


def check(found: list[TrialRecord], folder: Path, runs_name: str = "toy") -> None:
    """Hold what must be true at the end of a promotion study."""
    states = [record.state for record in found]
    assert set(states) <= {"complete", "pruned"}, states
    assert states.count("complete") >= 1
    best = max(found, key=lambda record: record.params["x"])
    assert best.state == "complete", "the best of a noiseless study is promoted to the end"
    for record in found:
        outcomes = [attempt.outcome for attempt in record.attempts]
        if record.state == "pruned":
            assert outcomes[-1] == "paused"
            kept = folder / f"{runs_name}/trials/{record.number:05}/attempts/{len(outcomes)}"
            assert (kept / "checkpoints/last").exists(), "paused checkpoints stay"
        steps = [step for step, _ in record.metrics["score"]]
        assert steps == list(range(1, len(steps) + 1)), "no step twice, none left out"
        assert record.state == "pruned" or len(steps) == 9


@pytest.mark.parametrize(
    ("trials", "kills"), [(6, 2), pytest.param(18, 12, marks=pytest.mark.long)]
)
def test_a_whole_study_with_kills(
    tmp_path: Path,
    runs: Path,
    sweep: Any,
    fresh_url: str,
    monkeypatch: pytest.MonkeyPatch,
    trials: int,
    kills: int,
) -> None:
    """Trainings are killed at random times; each goes on; every trial is final and N holds."""
    env = {"SWEEP_STORAGE": fresh_url}
    write_toy(
        tmp_path,
        trials=trials,
        parallel=3,
        training=TRAINING,
        command="python train.py {x} 0.05",
        pruner="{type: promotion, min_resource: 1, max_resource: 9}",
        retry="{max_attempts: 100}",
    )
    assert sweep("launch", "study.yaml", env=env).code == 0
    chance, done = random.Random(trials), 0
    monkeypatch.setenv("SWEEP_STORAGE", fresh_url)
    opened = open_study(Runs(runs), "toy")
    ledger = opened.ledger
    give_up_at = time.monotonic() + 60 + 30 * trials
    while ledger.unfinished():
        assert time.monotonic() < give_up_at, counts(ledger)
        trainings = [p for p in find_processes(tmp_path) if "train.py" in p.command]
        if done < kills and trainings and ledger.count_attempts() > done + 1:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(trainings).pid, signal.SIGKILL)
                done += 1
        time.sleep(chance.uniform(0.2, 1.0))
    assert done == kills
    found = records.read_trials(ledger.db, ledger.study_id, opened.study, metrics=True)
    ledger.db.close()
    assert len(found) == trials
    check(found, runs)
