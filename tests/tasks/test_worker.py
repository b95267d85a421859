"""How trials end that are not left to end by themselves, with real processes and PostgreSQL."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.scene import TRAIN, Scene, expected_losses, kill, read_journal
from tests.conftest import sweep_environment
from tests.waiting import PATIENCE_S, text_of

pytestmark = pytest.mark.real

# Takes no notice of anything; with "silent" it reports once and then hangs.
DEAF = """
import json, os, sys, time

for step in range(int(sys.argv[1])):
    line = json.dumps({"step": step, "metrics": {"loss": float(step)}})
    with open(os.environ["SWEEP_METRICS"], "a") as stream:
        stream.write(line + "\\n")
    time.sleep(float(sys.argv[2]))
"""

# Leaves a note when it was told to stop, and by which word.
POLITE = """
import sys
from sweep.report import Reporter

import time
reporter = Reporter()
for step in range(100_000):  # more than an hour
    reporter.log(step=step, loss=float(step))
    time.sleep(0.05)
    if reporter.should_stop():
        print("left on request:", reporter.should_stop(), flush=True)
        break
"""


@pytest.fixture
def scene(tmp_path: Path, runs: Path, sweep: Any, fresh_url: str) -> Scene:
    return Scene(tmp_path, runs, sweep, fresh_url, trials=1, parallel=1)


def test_pruned(scene: Scene) -> None:
    """The pruner's verdict reaches training by the control file; its last value counts."""
    scene.more = "pruner: {type: threshold, upper: 10.5}\n"
    scene.write(f"python {scene.name}-train.py", POLITE).launch()
    scene.wait()
    record = scene.record()
    log = scene.log(0, 1)
    assert (record.state, record.reason, log) == ("pruned", "pruned", "left on request: pruned\n")
    last = record.metrics["loss"][-1]
    assert record.values == (last[1],)
    assert 11 <= last[0] < 99_999
    assert [(a.outcome, a.exit_code) for a in record.attempts] == [("finished", 0)]


def test_a_stalled_training_is_ended_and_tried_again(scene: Scene) -> None:
    """No report and no output for ``stall_time``: a fault; after ``max_attempts`` it has failed."""
    scene.more = "stall_time: 3s\nretry: {max_attempts: 2}\n"
    scene.write(f"python {scene.name}-train.py 2 600", DEAF).launch()
    scene.wait()
    record = scene.record()
    assert [a.outcome for a in record.attempts] == ["stalled", "stalled"]
    assert (record.state, record.reason) == (
        "failed",
        "2 attempts ended in a fault, the last: no report and no output for too long",
    )
    assert record.metrics["loss"] == [(0, 0.0)]


def test_output_is_a_sign_of_life(scene: Scene) -> None:
    """A training that prints has not stalled."""
    scene.more = "stall_time: 8s\n"
    script = "import time\nfor n in range(5):\n    time.sleep(2)\n    print(n, flush=True)\n"
    script += DEAF
    scene.write(f"python {scene.name}-train.py 1 0", script).launch()
    scene.wait()
    assert (scene.record().state, len(scene.record().attempts)) == ("complete", 1)


@pytest.mark.long  # training/test_supervisor has its time, control/test_settle what comes of it
def test_trial_time(scene: Scene) -> None:
    """A trial that has used up its time is asked to end, and keeps what it has reached."""
    scene.more = "trial_time: 3s\n"
    scene.write(f"python {scene.name}-train.py", POLITE).launch()
    scene.wait()
    record = scene.record()
    log = scene.log(0, 1)
    assert (record.state, record.reason, log) == ("pruned", "too long", "left on request: pruned\n")
    assert record.values == (record.metrics["loss"][-1][1],)


@pytest.mark.long  # training/test_supervisor has the signal
def test_trial_time_ends_a_script_that_does_not_listen(scene: Scene) -> None:
    """One whose metric is read from its output gets SIGTERM at once."""
    scene.more = "trial_time: 3s\n"
    script = "import time\nfor n in range(600):\n    print('loss:', n, flush=True)\n"
    scene.write(f"python {scene.name}-train.py", script + "    time.sleep(0.1)\n")
    plain = "objective: {metric: loss,"
    pattern = f"{plain} from: {{stdout: 'loss: ([0-9.]+)'}},"
    scene.file.write_text(scene.file.read_text().replace(plain, pattern))
    scene.launch()
    scene.wait()
    record = scene.record()
    assert (record.state, record.reason) == ("pruned", "too long")
    steps = [step for step, _ in record.metrics["loss"]]
    assert steps == list(range(len(steps)))
    assert record.values == (float(steps[-1]),)


def test_terminated_worker_leaves_and_the_trial_goes_on(scene: Scene) -> None:
    """TERM: training saves and leaves; the next wave resumes it from its checkpoint."""
    scene.steps, scene.pause_s, scene.gated = 8, 0.0, True
    scene.write().launch()
    scene.wait_for(lambda: len(read_journal(scene.attempt(0, 1).metrics)) >= 4)
    (worker,) = scene.workers()
    kill(worker, signal.SIGTERM)
    scene.wait_for(lambda: "told" in scene.log(0, 1))
    scene.gate.touch()
    scene.wait()
    (record,) = scene.check()
    first, second = record.attempts
    assert (first.outcome, first.reason) == ("interrupted", "asked to leave")
    assert (second.outcome, second.resumed_from) == ("finished", first.checkpoint)
    assert 'told {"stop": "checkpoint"}' in scene.log(0, 1)


def test_a_terminated_worker_ends_a_training_that_does_not_listen(scene: Scene) -> None:
    """It is killed within the seconds that the worker has, and its reports are stored."""
    steps = 100_000  # more than an hour
    scene.write(f"python {scene.name}-train.py {steps} 0.05", DEAF).launch()
    scene.wait_for(lambda: len(read_journal(scene.attempt(0, 1).metrics)) >= 6)
    (worker,) = scene.workers()
    opened = scene.open()
    kill(worker, signal.SIGTERM)
    scene.wait_for(lambda: opened.ledger.all_attempts()[0].outcome)
    assert len(read_journal(scene.attempt(0, 1).metrics)) < steps
    (first, *_) = opened.ledger.all_attempts()
    assert first.outcome == "interrupted"
    stored = opened.ledger.db.execute("SELECT COUNT(*) FROM sweep_metric WHERE attempt = 1")
    assert stored == [(len(read_journal(scene.attempt(0, 1).metrics)),)]
    opened.ledger.db.close()
    assert scene.sweep("stop", scene.name, "--now", env=scene.env).code == 0
    scene.wait_for(lambda: not scene.processes())


@pytest.mark.long  # a cluster of Slurm has it in every form
def test_a_time_limit_shorter_than_the_trial(scene: Scene) -> None:
    """USR1 comes ``grace`` before the limit; wave after wave goes on until it is complete."""
    scene.steps, scene.pause_s = 25, 0.3
    scene.more = "resources: {time: 8s}\ngrace: 3s\n"
    scene.write().launch()
    scene.wait()
    (record,) = scene.check()
    assert len(record.attempts) >= 2
    outcomes = [a.outcome for a in record.attempts]
    assert outcomes == ["timeout"] * (len(outcomes) - 1) + ["finished"]
    assert [a.resumed_from for a in record.attempts] == [
        None,
        *(a.checkpoint for a in record.attempts[:-1]),
    ]


@pytest.mark.long  # control/test_settle has the rule
def test_a_trial_that_never_gets_anywhere_is_given_up(scene: Scene) -> None:
    """Two time limits without a checkpoint: it would go on so for ever."""
    scene.more = "resources: {time: 5s}\ngrace: 2s\n"
    scene.write(f"python {scene.name}-train.py 100000 0.05", DEAF).launch()
    scene.wait()
    record = scene.record()
    assert (record.state, record.reason) == (
        "failed",
        "its time limit came twice without a new checkpoint; it needs a longer resources.time, "
        "or checkpoints",
    )
    assert len(record.attempts) == 2


@pytest.mark.long  # cli/test_stop goes on from its checkpoints
def test_stop_and_go_on(scene: Scene) -> None:
    """``stop`` lets trials save and leave, as often as one likes; launch takes them up again."""
    scene.trials, scene.parallel, scene.steps, scene.pause_s = 3, 2, 8, 0.0
    scene.gated = True
    scene.write().launch()
    for _ in range(2):
        scene.wait_for(lambda: len(scene.trainings()) == 2)
        done = scene.sweep("stop", scene.name, env=scene.env)
        assert done.code == 0, done
        scene.wait_for(lambda: not scene.processes())
        status = scene.status()
        assert (status["state"], status["counts"]["running"]) == ("stopped", 0)
        assert status["counts"]["waiting"] + status["counts"]["complete"] == 3
        scene.launch()
    scene.gate.touch()
    scene.wait()
    records = scene.check()
    ends = {a.outcome for record in records for a in record.attempts}
    assert ends == {"halted", "finished"}


# Says when it gets SIGTERM, counted from when the word to leave was written.
SLOW = """
import os, signal, sys, time
from sweep.report import Reporter

def note(*_):
    told = os.stat(os.environ["SWEEP_CONTROL"]).st_mtime
    print("SIGTERM after", time.time() - told, flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, note)
reporter = Reporter()
reporter.log(step=0, loss=1.0)
while not os.path.exists(os.environ["SWEEP_CONTROL"]):
    time.sleep(0.01)
seen = time.monotonic()
if sys.argv[1] == "asks":
    print("told", reporter.should_stop(), flush=True)
while time.monotonic() < seen + float(sys.argv[2]):
    time.sleep(0.01)
reporter.log(step=1, loss=0.5)
if sys.argv[1] == "done":
    reporter.done()
"""


@pytest.mark.long  # training/test_supervisor has the grace time
def test_stop_gives_a_training_its_grace(scene: Scene) -> None:
    """It gets no SIGTERM before that, and its trial goes on later."""
    scene.more = "grace: 2s\n"
    scene.write(f"python {scene.name}-train.py asks 60", SLOW).launch()
    scene.wait_for(lambda: read_journal(scene.attempt(0, 1).metrics))
    assert scene.sweep("stop", scene.name, env=scene.env).code == 0
    scene.wait_for(lambda: not scene.processes())
    (attempt,) = scene.record().attempts
    assert (attempt.outcome, attempt.reason) == ("halted", "the study was stopped")
    told, signalled = scene.log(0, 1).splitlines()
    assert told == "told checkpoint"
    assert float(signalled.removeprefix("SIGTERM after ")) > 1.9


@pytest.mark.long  # training/test_supervisor has the signal
def test_stop_ends_a_script_that_does_not_listen(scene: Scene) -> None:
    """One whose metric is read from its output gets SIGTERM at once."""
    script = "import time\nfor n in range(6000):\n    print('loss:', n, flush=True)\n"
    scene.more = "grace: 600s\n"
    scene.write(f"python {scene.name}-train.py", script + "    time.sleep(0.1)\n")
    pattern = "objective: {metric: loss, from: {stdout: 'loss: ([0-9.]+)'},"
    scene.file.write_text(scene.file.read_text().replace("objective: {metric: loss,", pattern))
    scene.launch()
    scene.wait_for(lambda: "loss: 5" in scene.log(0, 1))
    assert scene.sweep("stop", scene.name, env=scene.env).code == 0
    scene.wait_for(lambda: not scene.processes())
    assert [a.outcome for a in scene.record().attempts] == ["halted"]


@pytest.mark.parametrize(("word", "state"), [("asks", "waiting"), ("no", "complete")])
def test_a_training_that_ends_while_it_is_to_leave(scene: Scene, word: str, state: str) -> None:
    """It is complete where it never saw that it was to leave."""
    scene.write(f"python {scene.name}-train.py {word} 0.5", SLOW).launch()
    scene.wait_for(lambda: read_journal(scene.attempt(0, 1).metrics))
    assert scene.sweep("stop", scene.name, env=scene.env).code == 0
    scene.wait_for(lambda: not scene.processes())
    record = scene.record()
    assert (record.state, record.metrics["loss"]) == (state, [(0, 1.0), (1, 0.5)])
    outcome = "finished" if state == "complete" else "halted"
    assert [a.outcome for a in record.attempts] == [outcome]
    files = {path.name for path in scene.attempt(0, 1).root.iterdir()}
    assert not files & {"control.json", "answer.jsonl"}


def test_stop_and_launch_again_at_once(scene: Scene) -> None:
    """What was told to leave goes on in the same tasks, and no trial is lost."""
    scene.trials, scene.parallel, scene.steps, scene.pause_s = 2, 2, 4, 0.0
    scene.gated = True
    scene.write().launch()
    scene.wait_for(lambda: len(scene.trainings()) == 2)
    assert scene.sweep("stop", scene.name, env=scene.env).code == 0
    scene.launch()
    scene.gate.touch()
    scene.wait()
    ends = {a.outcome for record in scene.check() for a in record.attempts}
    assert ends <= {"halted", "finished"}


# Trial 1 waits from its second step on, until its first attempt is over.
HELD_UP = TRAIN.replace(
    "    time.sleep(",
    """    while os.environ["SWEEP_TRIAL"] + os.environ["SWEEP_ATTEMPT"] == "11" and step > 1:
        time.sleep(0.05)
    time.sleep(""",
    1,
)


def test_the_last_task_is_killed_when_the_queue_is_empty(scene: Scene) -> None:
    """Its sibling has cancelled what waited: that was no wish of the user's to stop."""
    scene.trials, scene.parallel, scene.steps, scene.pause_s = 4, 2, 4, 0.02
    assert HELD_UP != TRAIN
    scene.write(script=HELD_UP).launch()
    scene.wait_for(lambda: [r.state for r in scene.records()].count("complete") == 3)
    (last,) = scene.wait_for(lambda: w if len(w := scene.workers()) == 1 else None)
    kill(last)
    scene.wait()
    assert [len(record.attempts) for record in scene.check()] == [1, 2, 1, 1]


# What Slurm gives an element of an array, and a rank of a step; its limit is all but reached.
OUTER_JOB = {
    "SLURM_JOB_ID": "907",
    "SLURM_ARRAY_JOB_ID": "900",
    "SLURM_ARRAY_TASK_ID": "7",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_JOB_NODELIST": "n[3-4]",
    "SLURMD_NODENAME": "n4",
    "PMI_RANK": "3",
    "SLURM_JOB_END_TIME": "1000",
    "SLURM_CPUS_ON_NODE": "2",
    "SWEEP_SLOTS": "2",
}
SHOWS = (
    TRAIN
    + """
names = ("SLURM_", "SLURMD_", "PMI_")
print("saw", *sorted(n for n in os.environ if n.startswith(names)), flush=True)
"""
)


def test_local_tasks_within_a_job_of_slurms(scene: Scene) -> None:
    """The job says nothing of the elements' identity, rank and end; what it holds stays told."""
    scene.trials, scene.parallel, scene.steps = 6, 3, 8
    scene.write(script=SHOWS)
    env = {**scene.env, **OUTER_JOB}
    assert scene.sweep("launch", scene.file.name, env=env).code == 0
    scene.wait()
    records = scene.check()
    assert [len(record.attempts) for record in records] == [1] * 6
    places = {(a.job, a.index) for record in records for a in record.attempts}
    assert len(places) >= 3 and all(job.startswith("sweep-") for job, _ in places)
    log = scene.log(0, 1)
    assert log.splitlines()[-1] == "saw SLURM_CPUS_ON_NODE"


@pytest.mark.long  # cli/test_stop drains a study
def test_drain(scene: Scene) -> None:
    """``stop --drain`` lets running trials end and starts no further one."""
    scene.trials, scene.parallel, scene.steps, scene.pause_s = 4, 2, 4, 0.0
    scene.gated = True
    scene.write().launch()
    scene.wait_for(lambda: len(scene.trainings()) == 2)
    assert scene.sweep("stop", scene.name, "--drain", env=scene.env).code == 0
    scene.gate.touch()
    scene.wait_for(lambda: not scene.processes())
    counts = scene.status()["counts"]
    assert (counts["complete"], counts["waiting"]) == (2, 2)
    scene.launch()
    scene.wait()
    assert [len(record.attempts) for record in scene.check()] == [1] * 4


def test_files_of_finished_trials(scene: Scene) -> None:
    """Six files of ours at most, and checkpoints only where they are kept."""
    scene.trials, scene.parallel, scene.steps, scene.pause_s = 6, 3, 3, 0.0
    scene.more = "keep: 2\n"
    scene.write().launch()
    scene.wait()
    records = scene.check()
    best = sorted(records, key=lambda record: record.values[0])[:2]
    kept = set()
    for record in records:
        folder = scene.root / "trials" / f"{record.number:05d}"
        files = [path for path in folder.rglob("*") if path.is_file()]
        ours = [path for path in files if path.parent.name != "checkpoints"]
        assert len(ours) <= 6, ours
        if len(files) > len(ours):
            kept.add(record.number)
    assert kept == {record.number for record in best}


@pytest.mark.long  # every test with scene.check() leans on it
def test_a_resumed_trial_reports_like_an_undisturbed_one(scene: Scene) -> None:
    """The helper's own promise: what ``check`` expects is what a training alone would report."""
    scene.steps, scene.pause_s = 3, 0.0
    scene.write(script=TRAIN).launch()
    scene.wait()
    record = scene.record()
    assert record.metrics["loss"] == expected_losses(record.params["lr"], 3)


def test_a_task_beyond_max_parallel_waits_for_room(scene: Scene, tmp_path: Path) -> None:
    """A second array, say, whose first the scheduler takes for gone while its training lives."""
    scene.trials, scene.steps, scene.pause_s, scene.gated = 3, 4, 0.0, True
    job = json.loads(scene.write().launch("--json"))["wave"]["job"]
    scene.wait_for(lambda: len(scene.trainings()) == 1)
    said = tmp_path / "said"
    place = {"SWEEP_JOB": job, "SWEEP_ARRAY_INDEX": str(scene.trials)}
    with said.open("w") as stream:
        task = subprocess.Popen(
            [sys.executable, "-m", "sweep.task", str(scene.root)],
            env=sweep_environment(scene.runs, {**scene.env, **place}),
            cwd=tmp_path,
            stdout=stream,
        )
    scene.wait_for(lambda: "max_parallel trials are at work already" in text_of(said))
    assert len(scene.trainings()) == 1
    scene.gate.touch()
    assert task.wait(PATIENCE_S) == 0
    scene.wait()
    assert [len(record.attempts) for record in scene.check()] == [1, 1, 1]
    assert_one_at_a_time(scene)


def test_a_trial_whose_task_was_killed_goes_on_before_others_begin(scene: Scene) -> None:
    """It counts towards max_parallel until it is settled, which its array's next task sees to."""
    scene.trials, scene.steps, scene.pause_s, scene.gated = 2, 4, 0.0, True
    scene.write().launch()
    scene.wait_for(lambda: len(read_journal(scene.attempt(0, 1).metrics)) >= 2)
    (worker,) = scene.workers()
    kill(worker)
    scene.wait_for(lambda: len(scene.trainings()) == 1 and scene.attempt(0, 2).log.exists())
    scene.gate.touch()
    scene.wait()
    assert [len(record.attempts) for record in scene.check()] == [2, 1]
    assert_one_at_a_time(scene)


def assert_one_at_a_time(scene: Scene) -> None:
    opened = scene.open()
    attempts = sorted(opened.ledger.all_attempts(), key=lambda one: one.claimed)
    opened.ledger.db.close()
    for before, after in pairwise(attempts):
        assert before.ended is not None
        assert before.ended <= after.claimed
