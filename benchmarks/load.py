"""What 1,000 running tasks of one study cost those they share: the file system, the scheduler, the
database.

    python -m benchmarks.load [--seconds 60]

One training that reports nothing, and one that reports once a second, are watched by the worker's
own supervisor against a real PostgreSQL, and what that does to the study's files and to the server
is counted; tasks do not know of each other, so a thousand do a thousand times that. Slurm's
commands are counted by a stand-in that answers as squeue does of an array of 1,000 running
elements: there they do take turns.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.control.look_after import look_after
from sweep.core.outcomes import HALTED
from sweep.core.paths import Runs, StudyFolder
from sweep.core.scheduler import TASK_FORMAT, Wave
from sweep.core.study import Study
from sweep.core.system import processes
from sweep.core.trial import Place
from sweep.schedulers.slurm.ask import Answer
from sweep.schedulers.slurm.scheduler import SlurmScheduler
from sweep.search.propose import first_rows
from sweep.storage import bulk, studies, tables
from sweep.storage.connection import Database
from sweep.storage.embedded import start_stop
from sweep.storage.ledger import Ledger
from sweep.studyfile import loads
from sweep.training.journal import Journal
from sweep.training.leave import Leave
from sweep.training.supervisor import Channel, Supervisor

TASKS = 1000
TOKEN = "load-1f"
STUDY = """
name: load
command: "true"
objective: {metric: loss, direction: minimize}
space: {x: {type: float, low: 0, high: 1}}
sampler: random
executor: slurm
"""
TALKS = """
import json, os, sys, time
for step in range(int(float(sys.argv[1]))):
    time.sleep(1)
    if sys.argv[2] == "talks":
        with open(os.environ["SWEEP_METRICS"], "a") as stream:
            stream.write(json.dumps({"step": step, "metrics": {"loss": 1.0}}) + chr(10))
"""


class Through(Channel):
    """What passes between a training and the database, as a worker has it, without verdicts."""

    def __init__(self, ledger: Ledger, token: str) -> None:
        self.ledger, self.token = ledger, token

    def record(self, reports: Any, reading: Any) -> None:
        self.ledger.db.retry(
            lambda _: self.ledger.record(self.token, reports, reading), transaction=False
        )

    def touch(self) -> str:
        wanted = self.ledger.db.retry(lambda _: self.ledger.touch(self.token))
        return HALTED if wanted.wants_leaving else ""

    def rest(self, unused_s: float) -> None:
        self.ledger.db.rest(unused_s)


def make(url: str) -> Ledger:
    """Return the ledger of a study of so many waiting trials."""
    study: Study = loads(STUDY + f"trials: {TASKS}\nmax_parallel: {TASKS}\n", "load.yaml")
    db = Database(url)
    with db.transaction():
        study_id = studies.insert_study(db, study)
        bulk.insert_waiting_trials(db, study_id, first_rows(study, study.trials))
    return Ledger(db, study_id, study)


def watch(ledger: Ledger, root: Path, how: str, seconds: float) -> dict[str, float]:
    """Watch one training; return opens and looks at its files, and sessions, each a minute."""
    token = f"token-{how}"
    with ledger.db.transaction():
        ledger.claim(token, Place("7", 0 if how == "silent" else 1, "n1"))
    folder = StudyFolder(root).attempt(0 if how == "silent" else 1, 1)
    folder.checkpoints.mkdir(parents=True)
    counts: collections.Counter[str] = collections.Counter()
    mine = threading.get_ident()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and threading.get_ident() == mine:
            counts["opens"] += str(arguments[0]).startswith(str(root))

    def stat(*arguments: Any, **more: Any) -> os.stat_result:
        counts["looks"] += 1
        return real(*arguments, **more)

    real = os.fstat
    sys.addaudithook(hook)
    before = sessions(ledger.db)
    child = processes.spawn(
        [sys.executable, "-c", TALKS, str(seconds), how],
        cwd=root,
        env={**os.environ, "SWEEP_METRICS": str(folder.metrics), "SWEEP_TOKEN": token},
        stdout=folder.log,
    )
    # fstat raises no audit event; it is what a look at an open file costs.
    os.fstat = stat  # type: ignore[assignment]
    try:
        channel, journal = Through(ledger, token), Journal(folder)
        Supervisor(child, token, folder, ledger.study, journal, channel, Leave(4.0, 58.0)).run()
    finally:
        os.fstat = real
    made = sessions(ledger.db) - before
    return {
        "opens": 60 * counts["opens"] / seconds,
        "looks": 60 * counts["looks"] / seconds,
        "sessions": 60 * made / seconds,
    }


def sessions(db: Database) -> int:
    """Return how many sessions the database has seen."""
    sql = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
    with contextlib.closing(Database(db.url)) as other:
        found = int(other.execute(sql)[0][0])
    return found


def ask(ledger: Ledger, root: Path) -> collections.Counter[str]:
    """Return Slurm's commands in a minute in which all tasks look after the study, by kind."""
    counts: collections.Counter[str] = collections.Counter()

    def run(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Answer:
        jobs = argv[argv.index("-j") + 1] if "-j" in argv else ""
        kind = argv[0]
        if kind == "squeue":
            bounded = "-u" in argv or (jobs and "," not in jobs)
            kind += " (one job or user)" if bounded else " (the whole cluster)"
        counts[kind] += 1
        if argv[0] != "squeue":
            return Answer("", "", 0)
        rows = (f"7|{i}|{100 + i}|RUNNING|9:00|N/A|N/A|n1|None\n" for i in range(TASKS))
        end = f"{TOKEN}-end|8|N/A|8|PENDING|30:00|N/A|N/A||Dependency\n"
        return Answer(end if "-n" in argv else "".join(rows), "", 0)

    wave = Wave(TOKEN, TASKS, TASKS, "slurm", 0.0, job="7", format=TASK_FORMAT)
    with ledger.db.transaction():
        studies.write_wave(ledger.db, ledger.study_id, wave)
    for index in range(2, TASKS):
        with ledger.db.transaction():
            ledger.claim(f"t{index}", Place("7", index, "n1"))
    schedule = SlurmScheduler(StudyFolder(root), ledger.study, {}, run=run, say=lambda _: None)
    for _ in range(TASKS):
        look_after(ledger, StudyFolder(root), schedule, unseen_s=0.0)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="sweep-load-") as folder:
        runs = Runs(Path(folder))
        server = start_stop.start(runs.postgres)
        try:
            tables.create(server.url(), own=True)
            ledger = make(server.url())
            for how in ("silent", "talks"):
                found = watch(ledger, runs.root / "load", how, seconds)
                shown = ", ".join(f"{TASKS * value:,.0f} {name}" for name, value in found.items())
                print(f"{TASKS} tasks, {how}, a minute: {shown}", flush=True)
            print(f"{TASKS} tasks look after the study, a minute: {dict(ask(ledger, runs.root))}")
            ledger.db.close()
        finally:
            start_stop.stop(runs.postgres)


if __name__ == "__main__":
    main()
