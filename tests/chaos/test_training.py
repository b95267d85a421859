"""The stand-in training keeps its promises: without them the auditor would accuse sweep wrongly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.auditor import Line, read_journals, read_ledger
from tests.chaos.ground import TRAINING
from tests.conftest import ROOT
from tests.waiting import PATIENCE_S, wait_for


class Trained:
    """One trial's trainings, started as sweep starts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"

    def attempt(self, number: int) -> Path:
        return self.folder / f"trials/00003/attempts/{number}"

    def start(
        self, number: int, resume: Path | None = None, epoch_s: float = 0.1, epochs: int = 9
    ) -> subprocess.Popen[bytes]:
        (self.attempt(number) / "checkpoints").mkdir(parents=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SWEEP_TRIAL": "3",
            "SWEEP_ATTEMPT": str(number),
            "SWEEP_METRICS": str(self.attempt(number) / "metrics.jsonl"),
            "SWEEP_CONTROL": str(self.attempt(number) / "control.json"),
            "SWEEP_CHECKPOINT_DIR": str(self.attempt(number) / "checkpoints"),
            "SWEEP_RESUME": str(resume or ""),
        }
        options = [f"--ledger={self.ledger}", f"--epochs={epochs}", f"--epoch-s={epoch_s}"]
        options.append("--every=3")
        return subprocess.Popen(
            [sys.executable, str(TRAINING), *options, "--x=0.5", "--kind=a"], env=environment
        )

    def lines(self, number: int) -> list[Line]:
        return [line for line in read_ledger(self.ledger) if line.attempt == number]

    def newest(self, number: int) -> Path:
        return max((self.attempt(number) / "checkpoints").glob("*.json"))

    def tell(self, number: int, word: str) -> None:
        path = self.attempt(number) / "control.json"
        path.with_suffix(".new").write_text(json.dumps({"stop": word}))
        path.with_suffix(".new").replace(path)


@pytest.fixture
def trained(tmp_path: Path) -> Trained:
    return Trained(tmp_path)


def cpu_of(child: subprocess.Popen[bytes]) -> float:
    """Wait for a training to end well; return the seconds of CPU that it has used."""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return used.ru_utime + used.ru_stime


def test_trains_to_its_end(trained: Trained) -> None:
    """It reports what it writes down, and uses less than a tenth of a core while it trains."""
    used_s = cpu_of(trained.start(1, epoch_s=0.6))
    lines = trained.lines(1)
    assert [line.epoch for line in lines if line.word == "ended"] == list(range(9))
    assert [line.epoch for line in lines if line.word == "saved"] == [3, 6, 9]
    assert (lines[0].word, lines[-1].word) == ("begin", "done")
    assert lines[0].params == {"x": 0.5, "kind": "a"}
    told = {(n, line.epoch, v) for line in lines for n, v in line.values.items()}
    rows = read_journals(trained.folder)
    assert {(row.name, row.step, row.value) for row in rows} == told
    # Beside what its start and its reports take on this machine.
    assert used_s - cpu_of(trained.start(2, epoch_s=0.0)) < 0.1 * 9 * 0.6


def test_goes_on_after_a_kill(trained: Trained) -> None:
    """From its checkpoint; and the values tell by which attempt they were reported."""
    child = trained.start(1)
    wait_for(lambda: any(line.word == "saved" for line in trained.lines(1)), "a checkpoint")
    child.send_signal(signal.SIGKILL)
    child.wait()
    saved = [line.epoch for line in trained.lines(1) if line.word == "saved"]
    newest = trained.newest(1)  # it may have been saved, and that not told
    assert trained.start(2, newest).wait(PATIENCE_S) == 0
    second = trained.lines(2)
    assert second[0].epoch == json.loads(newest.read_text())["epochs"] >= saved[-1]
    first = {line.epoch: line.values for line in trained.lines(1) if line.word == "ended"}
    again = {line.epoch: line.values for line in second if line.word == "ended"}
    assert sorted(set(first) | set(again)) == list(range(9))
    assert all(first[epoch] != again[epoch] for epoch in set(first) & set(again))


@pytest.mark.parametrize("word", ["checkpoint", "pruned"])
def test_leaves_when_told(trained: Trained, word: str) -> None:
    """With a checkpoint of every epoch that it ended, where that is asked for."""
    child = trained.start(1, epoch_s=0.2, epochs=10**6)  # it is there yet when it is told
    wait_for(lambda: any(line.word == "ended" for line in trained.lines(1)), "an epoch")
    trained.tell(1, word)
    assert child.wait(PATIENCE_S) == 0
    last = trained.lines(1)[-1]
    assert (last.word, last.told) == ("left", word)
    if word == "checkpoint":
        assert trained.start(2, trained.newest(1)).wait(PATIENCE_S) == 0
        assert trained.lines(2)[0].epoch == last.epoch


def test_refuses_another_trials_checkpoint(trained: Trained) -> None:
    path = trained.folder / "epochs-000003.json"
    path.write_text(json.dumps({"trial": 4, "params": {}, "epochs": 3}))
    assert trained.start(1, path, epoch_s=0.01).wait(PATIENCE_S) == 0
    lines = trained.lines(1)
    assert [line.word for line in lines[:2]] == ["foreign", "begin"]
    assert lines[1].epoch == 0
