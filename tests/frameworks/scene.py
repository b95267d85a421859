"""What every framework must stand: a study of its example, killed, stopped, pruned and run again.

A test holds the training at a step by the gate (``gate/sitecustomize.py``), acts, and lets it go
on: nothing depends on how fast the machine is.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sweep.report import decode
from tests.conftest import Ran, Sweep
from tests.needs import skip_or_fail
from tests.waiting import text_of, wait_for

# By a process's command and environment.
Which = Callable[[str, Mapping[str, str]], bool]
ROOT = Path(__file__).parents[2]
GATE = Path(__file__).parent / "gate"
KILLER = Path(__file__).parent / "killer"
LIMIT_S = 1500.0  # on a busy machine one training of DeepSpeed's took more than 300


def need(*names: str) -> None:
    """Skip or fail the test unless these packages and programs are there."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    missing = [
        name
        for name in names
        if not shutil.which(name, path=path) and ("." in name or not find_spec(name))
    ]
    if missing:
        text = f"{', '.join(missing)}: make test-frameworks installs them"
        if missing == ["deepspeed"]:  # it is compiled, which not every machine can
            pytest.skip(text)
        skip_or_fail("frameworks", text)


class Scene:
    """One example of ``studies/frameworks`` in a folder of its own.

    Attributes:
        name: The study's, and its file's.
        metric: Its objective.
        sets: Changes of the study file, as ``--set`` takes them.
    """

    def __init__(
        self, sweep: Sweep, folder: Path, runs: Path, name: str, metric: str, *sets: str
    ) -> None:
        self._sweep = sweep
        self.folder = folder / "checkout"
        self.runs = runs
        self.name = name
        self.metric = metric
        self.gate = folder / "gate"
        self.gate.mkdir()
        shutil.copytree(
            ROOT / "studies/frameworks",
            self.folder / "studies/frameworks",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        self.sets = [
            *("max_parallel=1", "pruner=none", "sampler=random"),
            # Only what is shipped into an image, and the gate.
            f"environment.env.PYTHONPATH={GATE}",
            f"environment.env.GATE={self.gate}",
            f"environment.env.GATE_METRIC={metric}",
            "environment.env.OMP_NUM_THREADS=1",
            *sets,
        ]

    def sweep(self, *args: object, code: int | None = 0) -> Ran:
        """Run a command of sweep's in the checkout; it must end with this code."""
        ran = self._sweep(*args, cwd=self.folder, env={"PYTHONPATH": str(ROOT)}, timeout_s=3600)
        assert code is None or ran.code == code, f"{args}\n{ran.out}\n{ran.err}\n{self.logs()}"
        return ran

    def launch(self, *sets: str, wait: bool = True, code: int = 0) -> Ran:
        """Launch the study on this machine; it must end with this code."""
        changes = [word for one in (*self.sets, *sets) for word in ("--set", one)]
        more = ["--wait"] if wait else []
        file = f"studies/frameworks/{self.name}.yaml"
        return self.sweep("launch", file, "--executor", "local", *changes, *more, code=code)

    def trials(self) -> list[dict[str, Any]]:
        """Return the trials as ``collect`` tells them, by number."""
        rows = json.loads(self.sweep("collect", self.name, "--format", "json").out)
        return sorted(rows, key=lambda row: int(row["trial"]))

    def attempt(self, number: int, trial: int = 0) -> Path:
        """Return the folder of an attempt."""
        return self.runs / self.name / f"trials/{trial:05d}/attempts/{number}"

    def steps(self, attempt: int, trial: int = 0) -> list[int]:
        """Return the steps at which an attempt has reported the objective, as they were written."""
        text = text_of(self.attempt(attempt, trial) / "metrics.jsonl")
        lines = text.splitlines(keepends=True)
        reports = [decode(line) for line in lines if line.endswith("\n")]
        return [step for step, _, values in reports if self.metric in values]

    def logs(self) -> str:
        """Return the ends of what the attempts printed."""
        paths = sorted(self.runs.glob(f"{self.name}/trials/*/attempts/*/log.txt"))
        return "\n".join(f"== {path}\n{path.read_text()[-3000:]}" for path in paths)

    def hold(self, step: int) -> None:
        """Let trainings wait once they have reported this step."""
        (self.gate / f"hold-{step}").touch()

    def release(self, step: int) -> None:
        """Let them go on."""
        (self.gate / f"hold-{step}").unlink()

    def wait_for_step(self, step: int, attempt: int = 1) -> None:
        """Return once an attempt has reported this step."""

        def is_there() -> bool:
            assert not (self.attempt(attempt) / "exit.json").exists(), self.logs()
            return step in self.steps(attempt)

        wait_for(is_there, f"step {step} of attempt {attempt}", LIMIT_S)

    def processes(self) -> dict[int, tuple[str, dict[str, str]]]:
        """Return the command and environment of each live process of a training, by its id."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environ = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            variables = dict(line.split("=", 1) for line in environ if "=" in line)
            if variables.get("SWEEP_METRICS", "").startswith(str(self.runs)) and command:
                found[int(entry.name)] = (command.replace("\0", " "), variables)
        return found

    def kill(self, which: Which) -> None:
        """SIGKILL one process of the training."""
        found = {pid: one for pid, one in self.processes().items() if which(*one)}
        assert found, self.processes()
        os.kill(max(found), signal.SIGKILL)

    def check_metric_and_rerun(self, expected: list[int]) -> None:
        """A trial reports every step once; run again, it gives the same value."""
        self.launch("trials=1")
        assert self.trials()[0]["state"] == "complete", self.logs()
        assert self.steps(1) == expected, self.logs()
        verdict = json.loads(self.sweep("rerun-best", self.name, "--wait", "--json").out)
        assert (verdict["verdict"], verdict["relative_difference"]) == ("reproduced", 0.0)

    def check_prune(self, at: int, last: int) -> None:
        """A pruner's verdict, at a step at which the training waits, ends it before the last."""
        self.hold(at)
        self.sets.append("pruner={type: threshold, lower: 1000000.0}")
        self.launch("trials=1", wait=False)
        self.wait_for_step(at)
        control = self.attempt(1) / "control.json"
        wait_for(lambda: "pruned" in text_of(control), "the verdict", LIMIT_S)
        self.release(at)
        self.launch("trials=1", code=1)  # none is complete
        assert self.trials()[0]["state"] == "pruned", self.logs()
        assert self.steps(1)[-1] < last

    def check_kill_and_stop(
        self, which: Which, first: int, last: int, interval: int, saved: int
    ) -> None:
        """One process is killed, the trial goes on; it is stopped, launched again, ends whole.

        Args:
            which: Tells which process is killed, by its command and environment.
            first: The first step that is reported.
            last: The last one.
            interval: Steps between two reports.
            saved: Steps between two saves.
        """
        kill_at = first + 2 * max(interval, saved)
        stop_at = kill_at + max(interval, saved)
        self.hold(kill_at)
        self.launch("trials=1", wait=False)
        self.wait_for_step(kill_at)
        self.kill(which)
        self.hold(stop_at)
        self.release(kill_at)
        wait_for(lambda: self.attempt(2).exists(), "a second attempt", LIMIT_S)
        self.wait_for_step(stop_at, attempt=2)
        # The step at which it was killed may not have been saved: one interval is repeated.
        resumed = self.steps(2)[0]
        assert kill_at - saved < resumed <= kill_at + interval, self.logs()
        self.sweep("stop", self.name)
        wait_for(lambda: (self.attempt(2) / "control.json").exists(), "the word to leave", LIMIT_S)
        self.release(stop_at)
        wait_for(
            lambda: (self.attempt(2) / "exit.json").exists(), "the second attempt's end", LIMIT_S
        )
        stopped = self.steps(2)[-1]
        assert stopped < last, "it went on to its end"
        self.launch("trials=1")
        trial = self.trials()[0]
        assert (trial["state"], trial["attempts"]) == ("complete", 3), self.logs()
        again = self.steps(3)
        assert stopped - saved < again[0] <= stopped + interval, self.logs()
        assert again[-1] == last
        reported = {step for attempt in (1, 2, 3) for step in self.steps(attempt)}
        assert reported == set(range(first, last + 1, interval))
