"""What a study of 1,000 running tasks asks of the cluster: bounded for all of them together."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweep.control.look_after import look_after
from sweep.control.scheduler_view import SchedulerView
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import TASK_FORMAT, Wave
from sweep.core.trial import Place
from sweep.schedulers.slurm.ask import Answer
from sweep.schedulers.slurm.scheduler import SlurmScheduler
from sweep.schedulers.slurm.text.queue import NAMED_FORMAT
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from tests.schedulers.scripted_slurm import ScriptedSlurm
from tests.storage import ledgers
from tests.study_rows import make_study

pytestmark = pytest.mark.real

TASKS = 1000
TOKEN = "sweep-digits-1f"


def squeue(argv: Sequence[str]) -> str:
    """Answer as squeue does of an array of so many running tasks, and of its finaliser."""
    if NAMED_FORMAT in argv:
        return f"{TOKEN}-end|8|N/A|8|PENDING|30:00|N/A|N/A||Dependency\n"
    return "".join(f"7|{i}|{100 + i}|RUNNING|9:00|N/A|N/A|n1|None\n" for i in range(TASKS))


@pytest.fixture
def ledger(fresh_url: str) -> Ledger:
    made = ledgers.make(Database(fresh_url), make_study(trials=TASKS, executor="slurm"))
    wave = Wave(TOKEN, TASKS, TASKS, "slurm", 0.0, job="7", format=TASK_FORMAT)
    ledgers.do(made, lambda: studies.write_wave(made.db, made.study_id, wave))
    for index in range(TASKS):
        ledgers.do(made, lambda index=index: made.claim(f"t{index}", Place("7", index, "n1")))
    return made


def is_bounded(argv: Sequence[str]) -> bool:
    """Tell whether squeue loads one user's jobs, or one job, and not the whole cluster's."""
    jobs = argv[argv.index("-j") + 1] if "-j" in argv else ""
    return "-u" in argv or (bool(jobs) and "," not in jobs)


def test_a_minute_of_a_thousand_tasks(ledger: Ledger, tmp_path: Path) -> None:
    """Together they ask twice, for this user's jobs alone, and sacct never."""
    run = ScriptedSlurm(squeue=squeue, sacct=Answer("", "nobody is to ask", 1))
    folder = StudyFolder(tmp_path / "study")
    schedule = SlurmScheduler(folder, ledger.study, {}, run=run, say=print)
    for _ in range(50):  # of them; who comes later finds the look done, as these do
        look_after(ledger, folder, schedule, print, unseen_s=0.0)
    asked = [argv[0] for argv in run.asked]
    assert sorted(asked) == ["squeue", "squeue"], run.asked
    assert all(is_bounded(argv) for argv in run.of("squeue")), run.asked
    with contextlib.closing(ledger.db):
        states = ledgers.counts(ledger)
    assert states == {"running": TASKS}


def test_a_view_asks_for_this_users_jobs(ledger: Ledger, tmp_path: Path) -> None:
    """`status --watch` and `launch --wait` alike: what runs is in the queue."""
    run = ScriptedSlurm(squeue=squeue, sacct=Answer("", "nobody is to ask", 1))
    folder = StudyFolder(tmp_path / "study")
    schedule = SlurmScheduler(folder, ledger.study, {}, run=run, say=print)
    opened = SimpleNamespace(ledger=ledger, folder=folder)
    view = SchedulerView(opened, schedule)  # type: ignore[arg-type]
    for _ in range(20):
        tasks = view.ask()["tasks"]
    assert len(tasks) == TASKS
    assert run.of("sacct") == []
    assert all(is_bounded(argv) for argv in run.of("squeue")), run.asked
    assert len(run.asked) <= 4
