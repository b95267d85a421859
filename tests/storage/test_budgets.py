"""Budgets and goals that end a study: what ends it, what becomes of the rest, that N holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.control import settle
from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Objective, Resources, Study
from sweep.core.trial import End, Place, Report
from sweep.storage import budgets, records, studies
from sweep.storage.budgets import Reached, Spent, judge
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from tests.storage.ledgers import counts, do, make
from tests.toys import write_toy

PLACE = Place("job", 0, "node1", "boot")
STUDY = Study(
    name="s",
    command=("python", "train.py"),
    objectives=(Objective("acc", "maximize"),),
    space=Space((Parameter("lr", "float", low=0.1, high=1.0),)),
    trials=8,
    sampler=Choice("random"),
    max_parallel=3,
    resources=Resources(gpus=2, nodes=2),
)


@pytest.mark.parametrize(
    ("changes", "spent", "by", "leave"),
    [
        ({}, Spent(1e9, 1e9, 1.0, 0, 999), None, None),
        ({"time_s": 10}, Spent(time_s=9.9), None, None),
        ({"time_s": 10}, Spent(time_s=10.0), "time", True),
        ({"gpu_hours": 4}, Spent(trial_s=3599), None, None),  # 4 GPUs a trial
        ({"gpu_hours": 4}, Spent(trial_s=3600), "gpu_hours", True),
        ({"target": 0.9}, Spent(), None, None),
        ({"target": 0.9}, Spent(best=0.89), None, None),
        ({"target": 0.9}, Spent(best=0.9, best_trial=3), "target", True),
        ({"patience": 3}, Spent(best=0.9, since_best=2), None, None),
        ({"patience": 3}, Spent(best=0.9, since_best=3), "patience", False),
    ],
)
def test_what_ends_a_study(changes: Any, spent: Spent, by: str | None, leave: bool | None) -> None:
    """Each limit at its edge; budgets and a target make running trials leave."""
    found = judge(replace(STUDY, **changes), spent)
    assert (found and found.by, found and found.leave) == (by, leave)


def test_a_target_to_minimize() -> None:
    study = replace(STUDY, objectives=(Objective("loss", "minimize"),), target=0.1)
    assert judge(study, Spent(best=0.11)) is None
    assert judge(study, Spent(best=0.1, best_trial=4)) == Reached(
        "its target 0.1 is reached: trial 4 has loss 0.1", True, "target"
    )


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    db = Database(database_url)
    yield make(db, STUDY)
    db.close()


def finish(ledger: Ledger, token: str, value: float) -> int:
    """Run one trial to its end; return its number."""
    claim = do(ledger, lambda: ledger.claim(token, PLACE))
    do(ledger, lambda: ledger.record(token, [Report(1, 1.0, {"acc": value})]))
    do(ledger, lambda: settle.settle(ledger, token, claim.trial_id, End("finished"), None))
    return int(claim.number)


def test_patience_counts_what_ended_after_the_best(ledger: Ledger) -> None:
    """Of equals the first is the best; the rest is cancelled with the reason, and N holds."""
    ledger.study = replace(STUDY, patience=3)
    for token, value in (("a", 0.5), ("b", 0.8), ("c", 0.8), ("d", 0.1)):
        finish(ledger, token, value)
        assert not do(ledger, lambda: budgets.look(ledger))
    finish(ledger, "e", 0.2)
    assert do(ledger, lambda: budgets.look(ledger))
    assert not do(ledger, lambda: budgets.look(ledger))  # it has ended already
    state = studies.read_state(ledger.db, ledger.study_id)
    assert (state.word, state.by, state.leave) == ("ended", "patience", False)
    assert state.reason == (
        "its patience is used up: 3 trials were no better than trial 1 (acc 0.8)"
    )
    assert counts(ledger) == {"complete": 5, "cancelled": 3}
    assert do(ledger, lambda: ledger.claim("f", PLACE)) is None
    last = records.read_trials(ledger.db, ledger.study_id, ledger.study, numbers=[7])[0]
    assert last.reason == f"the study ended: {state.reason}"


def test_every_kind_of_open_trial_at_the_end(ledger: Ledger) -> None:
    """Interrupted ones are cancelled, open failures have failed, a live one may end by itself."""
    for token in ("live", "left", "failed"):
        do(ledger, lambda token=token: ledger.claim(token, PLACE))
    do(ledger, lambda: ledger.leave("left", End("interrupted", "why"), None))
    do(ledger, lambda: ledger.fail("failed", End("error", "exit code 1")))
    do(ledger, lambda: budgets.end(ledger, Reached("so", False, "patience")))
    assert counts(ledger) == {"running": 1, "cancelled": 6, "failed": 1}
    trial_id = ledger.live_attempts()[0].trial_id
    do(ledger, lambda: settle.settle(ledger, "live", trial_id, End("killed", "by hand"), None))
    assert counts(ledger) == {"cancelled": 7, "failed": 1}
    assert ledger.unfinished() == 0


def test_time_counts_only_while_a_trial_runs(ledger: Ledger) -> None:
    """Overlapping attempts count once, gaps not at all; GPU-hours are the sum."""
    for token in ("a", "b", "c"):
        do(ledger, lambda token=token: ledger.claim(token, PLACE))
    for token, start, end in (("a", 0, 10), ("b", 5, 15), ("c", 100, 107)):
        ledger.db.execute(
            "UPDATE sweep_attempt SET claimed = to_timestamp(%s), seen = to_timestamp(%s), "
            "ended = CASE WHEN token = 'c' THEN NULL ELSE to_timestamp(%s) END WHERE token = %s",
            (start, end, end, token),
        )
    ledger.study = replace(STUDY, time_s=23)
    assert budgets.read_spent(ledger) == Spent(22.0, 27.0)
    assert not do(ledger, lambda: budgets.look(ledger))
    ledger.study = replace(STUDY, time_s=22)
    assert do(ledger, lambda: budgets.look(ledger))
    assert ledger.touch("c").wants_leaving


def test_a_claim_and_an_end_at_once(ledger: Ledger, database_url: str) -> None:
    """A trial that is claimed while the study ends is either cancelled or runs, never both."""
    other = Ledger(Database(database_url), ledger.study_id, STUDY)
    with ledger.db.transaction():
        claim = ledger.claim("a", PLACE)
        other.db.execute("SET lock_timeout = '200ms'")
        with pytest.raises(Exception, match=r"lock timeout"), other.db.transaction():
            budgets.end(other, Reached("so", True, "time"))  # it waits for our trial's row
    assert claim is not None
    do(other, lambda: budgets.end(other, Reached("so", True, "time")))
    assert counts(ledger) == {"running": 1, "cancelled": 7}
    other.db.close()


def test_a_raised_limit_takes_up_what_was_cut(ledger: Ledger) -> None:
    """The cancelled ones can be claimed again, those that had begun as their next attempt."""
    do(ledger, lambda: ledger.claim("a", PLACE))
    do(ledger, lambda: ledger.leave("a", End("halted", "why"), ("/x", None)))
    do(ledger, lambda: budgets.end(ledger, Reached("so", True, "time")))
    assert counts(ledger) == {"cancelled": 8}
    assert do(ledger, lambda: budgets.reopen(ledger)) == 8
    do(ledger, lambda: studies.write_state(ledger.db, ledger.study_id, studies.StudyState()))
    assert counts(ledger) == {"waiting": 8}
    again = do(ledger, lambda: ledger.claim("b", PLACE))
    assert (again.number, again.attempt) == (0, 2)


# The score is x from the first step on; "long" ones take minutes.
LONG = """
import pathlib, sys, time
from sweep.report import Reporter

reporter, x = Reporter(), float(sys.argv[1])
first = int(pathlib.Path(reporter.resume).read_text()) if reporter.resume else 0
print("starts at step", first, flush=True)
quick = x > 0.5 or pathlib.Path("quick").exists()
for step in range(first + 1, first + 3 if quick else 10**5):
    reporter.log(step=step, score=x)
    path = pathlib.Path(reporter.checkpoint_dir) / "last"
    path.with_suffix(".tmp").write_text(str(step))
    path.with_suffix(".tmp").replace(path)
    time.sleep(0.05)
    if reporter.should_stop():
        break
"""


def write(folder: Path, **more: str) -> None:
    points = "[{x: 0.1}, {x: 0.2}, {x: 0.95}, {x: 0.3}, {x: 0.4}, {x: 0.45}]"
    write_toy(
        folder,
        trials=6,
        parallel=2,
        command="python train.py {x}",
        training=LONG,
        points=points,
        **more,
    )


def test_a_target_ends_a_real_study(tmp_path: Path, sweep: Any, fresh_url: str) -> None:
    """Waiting trials are cancelled, the running one leaves with a checkpoint; N holds; launch says
    why; with a higher target the same trials go on from their checkpoints."""
    env = {"SWEEP_STORAGE": fresh_url}
    write(tmp_path, target="0.9", code="live")  # see "quick" below
    path = tmp_path / "study.yaml"
    path.write_text(
        path.read_text()
        .replace("[{x: 0.1}, {x: 0.2}, ", "[{x: 0.2}, ")
        .replace("{x: 0.45}]", "{x: 0.45}, {x: 0.46}]")
    )
    done = sweep("launch", "study.yaml", "--wait", env=env)
    assert done.code == 0, done
    found = json.loads(sweep("status", "--json", env=env).out)
    assert (found["state"], found["reason"]) == (
        "finished",
        "it ended early: its target 0.9 is reached: trial 1 has score 0.95",
    )
    assert found["counts"] == {
        "waiting": 0,
        "running": 0,
        "complete": 1,
        "pruned": 0,
        "failed": 0,
        "cancelled": 5,
    }
    assert "it ended early" in sweep("status", env=env).out
    again = sweep("launch", "study.yaml", env=env)
    assert "it has ended early: its target 0.9 is reached" in again.out
    (tmp_path / "quick").touch()
    done = sweep("launch", "study.yaml", "--wait", "--set", "target=0.99", env=env)
    assert "5 trials that its end had cancelled: taken up again" in done.out
    found = json.loads(sweep("status", "--json", env=env).out)
    assert (found["state"], found["reason"], found["counts"]["complete"]) == ("finished", "", 6)
    log = (tmp_path / "runs/toy/trials/00000/attempts/2/log.txt").read_text()
    assert int(log.split("starts at step ")[1].split()[0]) > 0, "it went on from its checkpoint"


def test_a_used_up_time_ends_a_real_study(tmp_path: Path, sweep: Any, fresh_url: str) -> None:
    """Trainings that would run for an hour leave within seconds, with their checkpoints."""
    env = {"SWEEP_STORAGE": fresh_url}
    write(tmp_path, time="2s")
    assert sweep("launch", "study.yaml", "--wait", env=env).code == 1  # nothing is complete
    found = json.loads(sweep("status", "--json", env=env).out)
    assert found["reason"] == "it ended early: its time is used up: 2 s"
    assert found["counts"]["cancelled"] == 6
    for number in (0, 1):
        folder = tmp_path / f"runs/toy/trials/{number:05}/attempts/1"
        assert int((folder / "checkpoints/last").read_text()) < 10**5 - 1
