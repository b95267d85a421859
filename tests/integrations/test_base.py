"""What the integrations share; the frameworks themselves are in ``tests/frameworks``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.integrations.base import (
    KEPT,
    Link,
    Loop,
    is_first,
    number_in,
    numbers,
    on_first,
    processes,
    saved,
    whole,
)
from sweep.report import decode
from sweep.training.checkpoints import newest


class Counting(Loop):
    """A loop whose state is a list of the epochs that it has seen."""

    seen: list[int] = []

    def _save(self, path: str) -> None:
        Path(path).write_text(json.dumps(self.seen))

    def _load(self, path: str) -> None:
        self.seen = json.loads(Path(path).read_text())


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An attempt's folder, as training is told of it."""
    monkeypatch.setenv("SWEEP_METRICS", str(tmp_path / "metrics.jsonl"))
    monkeypatch.setenv("SWEEP_CONTROL", str(tmp_path / "control.json"))
    monkeypatch.setenv("SWEEP_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    monkeypatch.delenv("SWEEP_RESUME", raising=False)
    yield tmp_path


def run(total: int, save_every: int = 1, stop_at: int | None = None, word: str = "") -> list[int]:
    """Run a loop, which is told to stop while it is at an epoch; return what it has seen."""
    loop = Counting(total, save_every)
    loop.seen = []
    for epoch in loop:
        loop.seen.append(epoch)
        loop.log(loss=1.0 / (epoch + 1))
        if epoch == stop_at:
            Path(os.environ["SWEEP_CONTROL"]).write_text(json.dumps({"stop": word}))
    return loop.seen


def steps(attempt: Path) -> list[int]:
    """Return the reported steps."""
    lines = (attempt / "metrics.jsonl").read_text().splitlines(keepends=True)
    return [decode(line)[0] for line in lines]


def test_a_loop_reports_saves_and_ends(attempt: Path) -> None:
    assert run(4) == [0, 1, 2, 3]
    assert steps(attempt) == [0, 1, 2, 3]
    assert saved(str(attempt / "checkpoints"), "epoch") == ["epoch-000002", "epoch-000003"]


def test_a_loop_saves_before_it_leaves_to_be_resumed(
    attempt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between two saves; and goes on with the next epoch, from that state."""
    assert run(10, save_every=4, stop_at=1, word="checkpoint") == [0, 1]
    path = newest(attempt / "checkpoints")
    assert path is not None and path.name == "epoch-000001"
    (attempt / "control.json").unlink()
    monkeypatch.setenv("SWEEP_RESUME", str(path))
    assert run(10, save_every=4) == list(range(10))
    assert steps(attempt) == list(range(10))


def test_a_pruned_loop_does_not_save_once_more(attempt: Path) -> None:
    assert run(10, save_every=4, stop_at=5, word="pruned") == [0, 1, 2, 3, 4, 5]
    assert saved(str(attempt / "checkpoints"), "epoch") == ["epoch-000003"]


def test_what_is_told_at_the_last_epoch_changes_nothing(attempt: Path) -> None:
    """All is done: nobody asks, and so nobody says that it was left."""
    assert run(3, stop_at=2, word="checkpoint") == [0, 1, 2]
    assert "saw" not in (attempt / "answer.jsonl").read_text()


def test_alone_a_loop_only_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SWEEP_METRICS", "SWEEP_CONTROL", "SWEEP_CHECKPOINT_DIR", "SWEEP_RESUME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert run(3) == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []
    assert Link().word() is None


def test_a_save_is_whole_or_nothing(tmp_path: Path) -> None:
    """Broken off in a folder or a file, it is no checkpoint; the next one takes its place."""
    folder = tmp_path / "checkpoints"
    for number in range(KEPT + 2):
        with whole(str(folder), f"epoch-{number:06d}.ckpt") as path:
            Path(path).write_text("all")
    with pytest.raises(KeyboardInterrupt), whole(str(folder), "epoch-000009.ckpt") as path:
        Path(path).write_text("ha")
        raise KeyboardInterrupt
    found = newest(folder)
    assert found is not None and found.name == f"epoch-{KEPT + 1:06d}.ckpt"
    with whole(str(folder), "epoch-000009.ckpt") as path:
        os.makedirs(path)
        (Path(path) / "part").write_text("all")
    assert saved(str(folder), "epoch")[-1] == "epoch-000009.ckpt"
    assert not list(folder.glob(".*"))


def test_only_what_saved_it_goes_when_a_new_one_comes(tmp_path: Path) -> None:
    """Other files of the training's lie in the same folder."""
    for name in ("epoch-notes.txt", "best.ckpt", "epoch-000001.ckpt", "epoch-000002.ckpt"):
        (tmp_path / name).touch()
    with whole(str(tmp_path), "epoch-000003.ckpt") as path:
        Path(path).touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("best.ckpt", "epoch-000002.ckpt", "epoch-000003.ckpt", "epoch-notes.txt")
    ]


@pytest.mark.parametrize(
    ("path", "number"),
    [("/a/epoch-000003", 3), ("round-12.ubj", 12), ("epoch-000004.weights.h5", 4), ("e-7/", 7)],
)
def test_a_checkpoint_bears_its_number(path: str, number: int) -> None:
    assert number_in(path) == number


def test_a_foreign_checkpoint_is_named() -> None:
    with pytest.raises(ValueError, match=r"last\.pt is none of the checkpoints"):
        number_in("last.pt")


def test_numbers_are_taken_out_of_whatever_a_framework_logs() -> None:
    import numpy as np

    wanted = {"loss": 1, "acc": np.float32(0.5), "one": np.ones((1, 1))}
    others = {"name": "x", "on": True, "many": np.ones(3), "none": None}
    values = {**wanted, **others}
    assert numbers(values) == {"loss": 1.0, "acc": 0.5, "one": 1.0}


def test_the_package_imports_nothing_until_a_module_is_asked_for() -> None:
    code = (
        "import sys, sweep; before = set(sys.modules);"
        "import sweep.integrations; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["sweep.integrations"]


def test_the_first_of_several_saves_for_all(attempt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who that is, is known of launchers too; nobody is waited for where one alone saves."""
    assert is_first() and processes() == 1
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    assert not is_first() and processes() == 2
    monkeypatch.setenv("PMI_RANK", "0")
    assert is_first() and processes() == 2
    waited: list[str] = []
    folder = str(attempt / "checkpoints")
    with on_first(folder, "round-000009.txt") as path:
        Path(path).write_text("model")
    assert saved(folder, "round") == ["round-000009.txt"] and not waited
    with whole(folder, "round-000019.txt", wait=lambda: waited.append("all")) as path:
        Path(path).write_text("model")
    assert saved(folder, "round") == ["round-000009.txt", "round-000019.txt"]
    assert waited == ["all"] * 3
