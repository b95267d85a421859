"""The stage of the fault tests: a study that trains, faults at random times, and what must hold.

The training uses the standard library alone. It saves a checkpoint after every step, goes on from
the one that it is given, and refuses to go on from a wrong one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.control.open_study import Opened, open_study
from sweep.core.outcomes import RESUME_FAILED
from sweep.core.paths import AttemptFolder, Runs
from sweep.core.system import processes as process
from sweep.core.trial import TrialRecord
from sweep.schedulers.local.element import END_NAME, TASK_NAME
from sweep.storage import records
from tests.processes import find_processes
from tests.waiting import PATIENCE_S, text_of

# By this seed the first fault of each kind comes while its study runs, on an idle machine too.
SEED = 20263391
ROUNDS = 1  # of each kind in the short form; the long one goes on from there
AT_ONCE = 3
LONG_ROUNDS = 20
LOOK_S = 0.1  # between two looks at what is waited for

TRAIN = """
import json, os, sys, time

steps, pause_s, lr = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
gate = sys.argv[4] if len(sys.argv) > 4 else ""
folder, resume = os.environ["SWEEP_CHECKPOINT_DIR"], os.environ["SWEEP_RESUME"]
start, total = 0, 0.0
if resume:
    state = json.load(open(resume))
    start, total = state["step"] + 1, state["total"]
    before = os.path.join(os.path.dirname(os.path.dirname(resume)), "metrics.jsonl")
    lines = open(before).read().split("\\n")[:-1]
    reported = json.loads(lines[-1])["step"]
    # Killed after a checkpoint, or between a report and its checkpoint.
    assert start - 1 <= reported <= start, (start, reported)
    assert int(os.environ["SWEEP_ATTEMPT"]) > 1, "the first attempt got a checkpoint"
    print("resumed at", start, flush=True)
else:
    print("from the start", flush=True)
for step in range(start, steps):
    time.sleep(pause_s)
    total += lr * (step + 1)
    metrics = {"loss": total, "other": step}
    line = json.dumps({"step": step, "time": time.time(), "metrics": metrics})
    with open(os.environ["SWEEP_METRICS"], "a") as stream:
        stream.write(line + "\\n")
    path = os.path.join(folder, "step-%d.json" % step)
    with open(path + ".tmp", "w") as stream:
        json.dump({"step": step, "total": total}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(path + ".tmp", path)
    if step >= 2:
        os.remove(os.path.join(folder, "step-%d.json" % (step - 2))) if step - 2 >= start else None
    # The test decides how long this trial takes: after its second step it waits for the gate.
    while gate and step > 0 and not os.path.exists(gate):
        if os.path.exists(os.environ["SWEEP_CONTROL"]):
            break
        time.sleep(0.02)
    if os.path.exists(os.environ["SWEEP_CONTROL"]):
        print("told", open(os.environ["SWEEP_CONTROL"]).read(), flush=True)
        break
"""


def expected_losses(lr: float, steps: int) -> list[tuple[int, float]]:
    """Return the series that an uninterrupted training reports."""
    total, found = 0.0, []
    for step in range(steps):
        total += lr * (step + 1)
        found.append((step, total))
    return found


@dataclass
class Scene:
    """One study, its file and its folders.

    Attributes:
        sweep: Runs a command of sweep's (the fixture).
        storage: A PostgreSQL URL, or None for the embedded server.
        gated: Its trainings wait after their second step until the gate is open.
    """

    tmp: Path
    runs: Path
    sweep: Callable[..., Any]
    storage: str | None = None
    name: str = "study"
    trials: int = 4
    parallel: int = 2
    steps: int = 6
    pause_s: float = 0.1
    more: str = ""
    gated: bool = False

    @property
    def env(self) -> dict[str, str | None]:
        return {"SWEEP_STORAGE": self.storage, "SWEEP_RUNS": str(self.runs)}

    @property
    def file(self) -> Path:
        return self.tmp / f"{self.name}.yaml"

    @property
    def root(self) -> Path:
        return self.runs / self.name

    @property
    def gate(self) -> Path:
        return self.tmp / f"{self.name}-gate"

    def write(self, command: str | None = None, script: str = TRAIN) -> Scene:
        """Write the script and the study file."""
        path = self.tmp / f"{self.name}-train.py"
        path.write_text(script)
        gate = str(self.gate) if self.gated else ""
        command = command or f"python {path.name} {self.steps} {self.pause_s} {{lr}} {gate}"
        self.file.write_text(
            f"name: {self.name}\ncommand: {json.dumps(command)}\n"
            "objective: {metric: loss, direction: minimize, at: last}\n"
            "space:\n  lr: {type: float, low: 0.1, high: 1.0}\n"
            f"trials: {self.trials}\nmax_parallel: {self.parallel}\nsampler: random\n"
            f"executor: local\n{self.more}"
        )
        return self

    def launch(self, *more: str) -> str:
        """Launch, and return what it printed."""
        done = self.sweep("launch", self.file.name, *more, env=self.env)
        assert done.code == 0, done
        return str(done.out)

    def open(self) -> Opened:
        return open_study(Runs(self.runs), self.name)

    def status(self) -> dict[str, Any]:
        done = self.sweep("status", self.name, "--json", env=self.env)
        assert done.code == 0, done
        return dict(json.loads(done.out))

    # Waiting

    def wait(self, limit_s: float = PATIENCE_S) -> None:
        """Wait until no trial is left and nothing of the study runs."""
        opened = self.open()
        deadline = time.monotonic() + limit_s
        while True:
            left = opened.ledger.db.retry(lambda _: opened.ledger.unfinished(), patience_s=60.0)
            running = [] if left else self.processes()
            if not left and not running:
                break
            assert time.monotonic() < deadline, f"{left} trials left\n{running}\n{self.story()}"
            time.sleep(LOOK_S)
        opened.ledger.db.close()

    def wait_state(self, word: str, limit_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait until status shows a state; return the status."""
        deadline = time.monotonic() + limit_s
        while True:
            began = time.monotonic()
            if (found := self.status())["state"] == word:
                return found
            assert began < deadline, f"{found}\n{self.story()}"
            time.sleep(max(0.5, time.monotonic() - began))  # it is a command each time

    def wait_for(self, done: Callable[[], Any], limit_s: float = PATIENCE_S) -> Any:
        """Wait until something is true, and return it."""
        deadline = time.monotonic() + limit_s
        while not (found := done()):
            assert time.monotonic() < deadline, self.story()
            time.sleep(LOOK_S)
        return found

    def story(self) -> str:
        """Return what is known of the study, for the message of a failed test."""
        lines = []
        for path in sorted(self.root.glob("logs/*")) + sorted(self.root.glob("local/*/*")):
            if path.is_file() and path.name not in ("request.json", "lock"):
                lines += [f"--- {path}", path.read_text(errors="replace")[-1500:]]
        opened = self.open()
        attempts = opened.ledger.db.retry(lambda _: opened.ledger.all_attempts(), patience_s=30.0)
        lines += [f"{a.trial}/{a.number} {a.outcome} {a.reason} {a.checkpoint}" for a in attempts]
        return "\n".join(lines)

    def log(self, trial: int, number: int) -> str:
        """Return what an attempt has printed so far, "" before it has begun."""
        return text_of(self.attempt(trial, number).log)

    # Processes

    def processes(self) -> list[str]:
        """Return the command lines of the study's live processes; the database's do not count."""
        return [f"{found.pid} {found.command}" for found in self._find()]

    def _find(self) -> list[Any]:
        script = f"{self.name}-train.py"
        return [
            one
            for one in find_processes(self.root, self.tmp)
            if one.folder == self.root or script in one.command
            if process.start_time(one.pid) is not None
        ]

    def workers(self) -> list[int]:
        return [p.pid for p in self._find() if p.name == TASK_NAME]

    def trainings(self) -> list[int]:
        return [p.pid for p in self._find() if f"{self.name}-train.py" in p.command]

    def runners(self) -> list[int]:
        return [
            p.pid
            for p in self._find()
            if "sweep.schedulers.local.runner" in p.command
            if p.name not in (TASK_NAME, END_NAME)
        ]

    # What must hold

    def records(self) -> list[TrialRecord]:
        opened = self.open()
        db = opened.ledger.db
        found = db.retry(
            lambda _: records.read_trials(db, opened.ledger.study_id, opened.study, metrics=True),
            patience_s=60.0,
        )
        db.close()
        return found

    def record(self) -> TrialRecord:
        """Return the trial of a study that has one."""
        (found,) = self.records()
        return found

    def attempt(self, trial: int, number: int) -> AttemptFolder:
        return Runs(self.runs).study(self.name).attempt(trial, number)

    def check(self, state: str = "complete") -> list[TrialRecord]:
        """Assert all that must hold of an ended study, whatever happened to it."""
        found = self.records()
        assert [record.number for record in found] == list(range(self.trials)), self.story()
        assert {record.state for record in found} == {state}, self.story()
        assert self.processes() == []
        opened = self.open()
        db = opened.ledger.db
        for record in found:
            lr = record.params["lr"]
            expected = expected_losses(lr, self.steps)
            assert record.metrics["loss"] == expected, (record.number, self.story())
            stored = db.execute(
                "SELECT step, intermediate_value FROM trial_intermediate_values "
                "WHERE trial_id = %s ORDER BY step",
                (record.trial_id,),
            )
            assert stored == expected, record.number
            assert record.values == (expected[-1][1],)
            assert [a.number for a in record.attempts] == list(range(1, len(record.attempts) + 1))
            assert all(attempt.outcome for attempt in record.attempts)
            # The training refuses a wrong checkpoint, and would be given an older one.
            assert all(a.outcome != RESUME_FAILED for a in record.attempts), self.story()
            self._check_journals(db, record)
        db.close()
        return found

    def _check_journals(self, db: Any, record: TrialRecord) -> None:
        for attempt in record.attempts:
            logged = read_journal(self.attempt(record.number, attempt.number).metrics)
            stored = db.execute(
                "SELECT name, step, value FROM sweep_metric WHERE trial_id = %s AND attempt = %s",
                (record.trial_id, attempt.number),
            )
            assert set(stored) == logged, (record.number, attempt.number)
            earlier = [
                a.number
                for a in record.attempts[: attempt.number - 1]
                if len(read_journal(self.attempt(record.number, a.number).metrics)) >= 4
            ]  # two lines of two metrics: the first step's checkpoint was complete
            if earlier:
                assert attempt.resumed_from is not None, (record.number, attempt.number)


def read_journal(path: Path) -> set[tuple[str, int, float]]:
    """Return (name, step, value) of every whole line that training wrote."""
    lines = text_of(path).split("\n")[:-1]
    found = set()
    for line in lines:
        report = json.loads(line)
        found |= {(name, report["step"], float(v)) for name, v in report["metrics"].items()}
    return found


def choose_time(kind: str, round_: int, longest_s: float) -> float:
    """Return the round's time of the fault, always the same, and print it."""
    at_s = random.Random(f"{SEED}:{kind}:{round_}").uniform(0.0, longest_s)
    print(f"{kind}, round {round_}, seed {SEED}: fault after {at_s:.3f} s")
    return at_s


def play(rounds: Iterable[int], act: Callable[[int], None]) -> None:
    """Play rounds, three at a time: they wait more than they work, and disturb each other."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for ended in [pool.submit(act, round_) for round_ in rounds]:
            ended.result()


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Signal a process; tell whether it was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
