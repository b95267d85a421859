"""A worker hangs past its lease, its trial goes to another, and it wakes up and writes: refused."""

from __future__ import annotations

import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from sweep.control.reconcile import reconcile
from sweep.core.paths import StudyFolder
from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Objective, Retry, Study
from sweep.core.trial import End, Place, Report
from sweep.search.propose import first_rows
from sweep.storage import bulk, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from tests.chaos.scene import SEED
from tests.chaos.sleeper import STALE_VALUE
from tests.chaos.test_stale import Gone

ROOT = Path(__file__).parents[2]
STEPS = 4


@pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=pytest.mark.long)])
def test_split_brains(rounds: int, fresh_url: str, tmp_path: Path) -> None:
    """Stopped at a random moment, in a statement or between two; woken at another, while the new
    owner writes or after it has finished."""
    study = Study(
        name="brains",
        command=("true",),
        objectives=(Objective("loss"),),
        space=Space((Parameter("lr", "float", low=0.1, high=1.0),)),
        trials=rounds,
        sampler=Choice("random"),
        max_parallel=2,
        retry=Retry(max_attempts=1000),
        keep=0,
    )
    db = Database(fresh_url)
    with db.transaction():
        study_id = studies.insert_study(db, study)
        bulk.insert_waiting_trials(db, study_id, first_rows(study, rounds))
    ledger, chance = Ledger(db, study_id, study), random.Random(SEED)
    sleeper = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.sleeper", fresh_url, str(study_id)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert sleeper.stdout is not None
    refused, awake_early, written = 0, 0, 0
    try:
        for number in range(rounds):
            assert sleeper.stdout.readline() == f"claimed {number}\n"
            time.sleep(chance.uniform(0.0, 0.05))
            sleeper.send_signal(signal.SIGSTOP)
            found = reconcile(
                ledger,
                StudyFolder(tmp_path),
                Gone(),  # type: ignore[arg-type]
                unseen_s=0.0,
                every_s=0.0,
                host="other-node",
            )
            assert found is not None and [s[0] for s in found.settled] == [number]
            written += count_first(db, number)
            token = secrets.token_hex(16)
            claim = ledger.claim(token, Place("other", number, "other-node"))
            assert claim is not None and (claim.number, claim.attempt) == (number, 2)
            wakes_at = chance.randrange(STEPS + 1)  # before that step, or after the end
            for step in range(STEPS):
                if step == wakes_at:
                    sleeper.send_signal(signal.SIGCONT)
                    awake_early += 1
                ledger.record(token, [Report(step, time.time(), {"loss": 100.0 + step})])
            ledger.finish(token, End("finished"), "complete", [100.0 + STEPS - 1])
            sleeper.send_signal(signal.SIGCONT)
            word, times, _ = sleeper.stdout.readline().split()
            assert word == "refused"
            refused += int(times)
        assert sleeper.wait(180) == 0
    finally:
        sleeper.kill()
        sleeper.wait()
    # Each woke to two refusals: its report, and its end.
    assert refused == 2 * rounds
    # Nothing was written by it after it had been given up, and nothing of it counts.
    assert sum(count_first(db, number) for number in range(rounds)) == written
    assert db.execute("SELECT number, state::text FROM trials ORDER BY number") == [
        (number, "COMPLETE") for number in range(rounds)
    ]
    assert db.execute("SELECT DISTINCT value FROM trial_values") == [(100.0 + STEPS - 1,)]
    values = db.execute(
        "SELECT step, intermediate_value, COUNT(*) FROM trial_intermediate_values "
        "GROUP BY 1, 2 ORDER BY 1"
    )
    assert values == [(step, 100.0 + step, rounds) for step in range(STEPS)]
    ended = Counter((a.number, a.outcome) for a in ledger.all_attempts())
    assert ended == {(1, "lost"): rounds, (2, "finished"): rounds}
    print(f"{rounds} split brains, {awake_early} awake while the other wrote: 0 stale writes")
    db.close()


def count_first(db: Database, number: int) -> int:
    """Return how many rows the trial's first attempt has stored; all the sleeper's."""
    rows = db.execute(
        "SELECT m.value FROM sweep_metric m JOIN trials t USING (trial_id) "
        "WHERE t.number = %s AND m.attempt = 1",
        (number,),
    )
    assert all(value == STALE_VALUE for (value,) in rows)
    return len(rows)
