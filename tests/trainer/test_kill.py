"""SIGKILL at chosen and at random moments: the resumed run equals the uninterrupted one."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from sweep.report import Reporter, decode  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.fork_server import Forked  # noqa: E402
from tests.trainer.ranks_of_trainer import torch_server  # noqa: E402
from tests.waiting import PATIENCE_S  # noqa: E402
from trainer import checkpoint, loop  # noqa: E402
from trainer.config import Options  # noqa: E402

pytestmark = pytest.mark.real

OPTIONS = Options(epochs=4, width=16, dropout=0.2, optimizer="adamw", lr=0.01, device="cpu")


def attempt(folder: Path, resume: Path | None = None) -> Reporter:
    folder.mkdir(parents=True, exist_ok=True)
    return Reporter(
        {
            "SWEEP_METRICS": str(folder / "metrics.jsonl"),
            "SWEEP_CHECKPOINT_DIR": str(folder / "checkpoints"),
            "SWEEP_RESUME": str(resume or ""),
        }
    )


def reports(folder: Path) -> dict[int, dict[str, float]]:
    """What was reported, by step, the last report of a step counting; without epoch times."""
    journal = folder / "metrics.jsonl"
    found = {}
    for line in journal.read_text().splitlines() if journal.exists() else []:
        step, _, metrics = decode(line)
        metrics.pop("epoch_s", None)
        found[step] = metrics
    return found


def newest(folder: Path) -> Path | None:
    found = checkpoint.find(folder / "checkpoints")
    return found[0] if found else None


def run_in_child(folder: Path, resume: Path | None, plant: Callable[[], None]) -> int:
    """Train in a forked process with something planted; return how it ended (-9: SIGKILL)."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            plant()
            loop.train(OPTIONS, attempt(folder, resume), lambda line: None)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_at_call(owner: Any, name: str, count: int, after: bool) -> None:
    """Make the count-th call of a function the last thing that this process does."""
    original, calls = getattr(owner, name), [0]

    def replaced(*args: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == count and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **more)
        if calls[0] == count and after:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, replaced)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    loop.train(OPTIONS, attempt(folder), lambda line: None)
    return folder


def assert_equal_run(attempts: list[Path], whole: Path) -> None:
    merged: dict[int, dict[str, float]] = {}
    for folder in attempts:
        found = reports(folder)
        merged = {step: m for step, m in merged.items() if step < min(found, default=9999)} | found
    assert merged == reports(whole)
    last, expected = newest(attempts[-1]), newest(whole)
    assert last is not None and expected is not None
    got, want = checkpoint.load(last)["model"], checkpoint.load(expected)["model"]
    assert all(torch.equal(got[name], want[name]) for name in want)


# 18 steps an epoch; a checkpoint syncs its file, then (open, fsync) its folder.
POINTS = [
    (loop.Run, "step", 1, True),
    (loop.Run, "step", 18, False),
    (loop.Run, "step", 25, True),
    (loop.Run, "step", 72, True),
    (loop.Run, "end_epoch", 2, False),
    (loop.Run, "end_epoch", 3, True),
    (Reporter, "log", 1, True),
    (Reporter, "log", 4, True),
    (checkpoint, "save", 1, False),
    (checkpoint, "save", 4, True),
    (checkpoint.torch, "save", 2, True),
    (checkpoint.os, "fsync", 1, False),
    (checkpoint.os, "fsync", 5, True),
    (checkpoint.os, "replace", 3, False),
    (checkpoint.os, "replace", 3, True),
    (checkpoint, "_sync", 2, True),
]


@pytest.mark.parametrize(
    ("owner", "name", "count", "after"),
    POINTS,
    ids=[f"{'after' if after else 'before'}-{name}-{count}" for _, name, count, after in POINTS],
)
def test_killed_at_a_chosen_point(
    tmp_path: Path, uninterrupted: Path, owner: Any, name: str, count: int, after: bool
) -> None:
    """In mid-epoch, around a report, inside the write of a checkpoint, after the last one."""
    first, second = tmp_path / "1", tmp_path / "2"
    assert run_in_child(first, None, lambda: kill_at_call(owner, name, count, after)) == -9
    assert run_in_child(second, newest(first), lambda: None) == 0
    assert_equal_run([first, second], uninterrupted)


def test_killed_at_twenty_random_steps_in_a_row(tmp_path: Path, uninterrupted: Path) -> None:
    """Attempt after attempt, each going on from the newest checkpoint of all before."""
    source = random.Random(7)
    attempts: list[Path] = []
    resume: Path | None = None
    for number in range(20):
        folder = tmp_path / str(number)
        count = source.randint(1, 24)
        ended = run_in_child(folder, resume, partial(kill_at_call, loop.Run, "step", count, True))
        attempts.append(folder)
        resume = newest(folder) or resume
        if ended == 0:
            break
        assert ended == -9
    else:
        attempts.append(tmp_path / "last")
        assert run_in_child(attempts[-1], resume, lambda: None) == 0
    assert_equal_run(attempts, uninterrupted)


def test_killed_with_a_truncated_newest_checkpoint(tmp_path: Path, uninterrupted: Path) -> None:
    """The disk lost half of the newest file: the one before serves."""
    first, second = tmp_path / "1", tmp_path / "2"
    assert run_in_child(first, None, lambda: kill_at_call(loop.Run, "step", 60, True)) == -9
    cut, older, *_ = checkpoint.find(first / "checkpoints")  # killed before it removed a third?
    left = checkpoint.load(older)["epoch"]
    cut.write_bytes(cut.read_bytes()[:5000])
    assert run_in_child(second, cut, lambda: None) == 0
    assert sorted(reports(second)) == list(range(left + 1, 5))
    assert_equal_run([first, second], uninterrupted)


COMMAND = (
    "trainer.train",
    *("--data", "synthetic", "--epochs", "3", "--synthetic-size", "6000"),
    *("--model", "mlp", "--width", "16", "--dropout", "0.1", "--device", "cpu"),
)


def test_the_command_killed_from_outside_goes_on(tmp_path: Path) -> None:
    """The whole program, a real SIGKILL, --resume auto: the same last line as without."""

    def start(folder: str, *more: str) -> Forked:
        argv = [*COMMAND, "--output", str(tmp_path / folder), *more]
        return torch_server(os.environ).start(argv, cwd=str(ROOT), environ=os.environ)

    def run(folder: str, *more: str) -> str:
        process = start(folder, *more)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        return out

    whole = run("a")
    process = start("b")
    assert process.stdout.readline()  # the first epoch's
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    resumed = run("b", "--resume", "auto")
    assert resumed.splitlines()[-1] == whole.splitlines()[-1]
    files = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in "ab"]
    assert [len(names) for names in files] == [2, 2]
