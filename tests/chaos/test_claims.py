"""Many processes claim at once and are killed: no trial is lost, and none is done twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from sweep.control.reconcile import reconcile
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import RUNNING, Task, TaskState
from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Objective, Retry, Study
from sweep.search.propose import first_rows
from sweep.storage import bulk, studies, tables
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from tests.chaos.scene import SEED
from tests.postgres_fixture import running_server

ROOT = Path(__file__).parents[2]


class Claimers:
    """The processes, and the scheduler that says which of them live."""

    explains_late = False

    def __init__(self, url: str, study_id: int) -> None:
        self.url = url
        self.study_id = study_id
        self.started = 0
        self.live: dict[int, subprocess.Popen[bytes]] = {}
        self.killed = 0

    def start(self) -> None:
        index, self.started = self.started, self.started + 1
        self.live[index] = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.claimer", self.url, str(self.study_id), str(index)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )

    def kill(self, index: int) -> None:
        self.live[index].kill()
        self.live.pop(index).wait()
        self.killed += 1

    def reap(self) -> None:
        """Forget those that found nothing left; none of them may have failed."""
        for index, one in list(self.live.items()):
            if one.poll() is not None:
                assert one.returncode == 0
                del self.live[index]

    def queued(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        return self.poll(jobs)

    def explain(
        self, jobs: Sequence[str], states: Mapping[Task, TaskState]
    ) -> dict[Task, TaskState]:
        return dict(states)

    def poll(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        assert set(jobs) <= {"claimers"}
        return {("claimers", index): TaskState(RUNNING, "RUNNING") for index in self.live}

    def end(self) -> None:
        for one in self.live.values():
            one.kill()
            one.wait()


@pytest.fixture
def wide_url() -> Iterator[str]:
    """A server of its own that takes fewer connections than there are processes."""
    with running_server(max_connections=50) as server:
        tables.create(server.url())
        yield server.url()


def claim_all(url: str, folder: Path, trials: int, processes: int, kills: int) -> None:
    study = Study(
        name="claims",
        command=("true",),
        objectives=(Objective("loss"),),
        space=Space((Parameter("lr", "float", low=0.1, high=1.0),)),
        trials=trials,
        sampler=Choice("random"),
        max_parallel=processes,
        retry=Retry(max_attempts=1000),
        keep=0,
    )
    db = Database(url)
    with db.transaction():
        study_id = studies.insert_study(db, study)
        bulk.insert_waiting_trials(db, study_id, first_rows(study, trials))
    ledger = Ledger(db, study_id, study)
    claimers = Claimers(url, study_id)
    chance = random.Random(SEED)
    print(f"seed {SEED}: {kills} kills among {processes} processes, {trials} trials")
    deadline = time.monotonic() + 300.0 + trials / 2
    try:
        while ledger.unfinished():
            assert time.monotonic() < deadline, ledger.count_states()
            while len(claimers.live) < processes:
                claimers.start()
            time.sleep(chance.uniform(0.0, 0.15))
            claimers.reap()
            done = ledger.count_states().get("COMPLETE", 0)
            # Spread over the whole of it, however fast this machine is.
            while claimers.live and claimers.killed < kills * (done + 1) // trials:
                claimers.kill(chance.choice(sorted(claimers.live)))
            reconcile(ledger, StudyFolder(folder), claimers, unseen_s=0.0, every_s=0.0)  # type: ignore[arg-type]
    finally:
        claimers.end()
    print(f"{claimers.killed} were killed")
    assert claimers.killed >= min(kills, 3)
    rows = db.execute("SELECT number, state::text FROM trials ORDER BY number")
    assert rows == [(number, "COMPLETE") for number in range(trials)]
    attempts = ledger.all_attempts()
    outcomes = Counter(a.outcome for a in attempts)
    assert set(outcomes) <= {"finished", "lost"}
    finished = Counter(a.trial for a in attempts if a.outcome == "finished")
    assert finished == Counter(range(trials))  # each exactly once
    for trial in range(trials):  # and an attempt began only when the one before had ended
        mine = sorted((a for a in attempts if a.trial == trial), key=lambda a: a.number)
        assert [a.number for a in mine] == list(range(1, len(mine) + 1))
        assert [a.outcome for a in mine[:-1]] == ["lost"] * (len(mine) - 1)
    # The value is the pid of the process whose attempt it was.
    wrong = db.execute(
        "SELECT t.number FROM trials t JOIN trial_values v USING (trial_id) JOIN sweep_attempt a "
        "USING (trial_id) WHERE a.outcome = 'finished' AND v.value <> a.slot"
    )
    assert wrong == []
    db.close()


def test_claims(fresh_url: str, tmp_path: Path) -> None:
    """8 processes, 200 trials."""
    claim_all(fresh_url, tmp_path, 200, 8, 10)


@pytest.mark.long
def test_many_claims(wide_url: str, tmp_path: Path) -> None:
    """64 processes, 5,000 trials, on 50 connections."""
    claim_all(wide_url, tmp_path, 5000, 64, 200)
