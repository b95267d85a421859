"""The client inside training: what it notes of what training was told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.core.paths import AttemptFolder
from sweep.report import Reporter
from sweep.training.attempt_files import Reply, has_resumed, read_answer, tell, write_exit


def reporter(folder: AttemptFolder, **more: str) -> Reporter:
    files = {"SWEEP_METRICS": str(folder.metrics), "SWEEP_CONTROL": str(folder.control)}
    return Reporter({**files, **more})


def lines_of(folder: AttemptFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in folder.metrics.read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder(tmp_path)


def test_that_no_word_was_seen(folder: AttemptFolder) -> None:
    """Who never asked, or asked when there was nothing, has seen nothing; and says even that."""
    assert read_answer(folder) is None
    one = reporter(folder)
    assert one.should_stop() is None
    tell(folder, "checkpoint")
    assert read_answer(folder) == Reply(saw=False, done=False)


def test_a_word_is_noted_once(folder: AttemptFolder) -> None:
    """However often it is asked for, and by however many reporters of one training."""
    tell(folder, "checkpoint")
    one = reporter(folder)
    assert [one.should_stop() for _ in range(1000)] == ["checkpoint"] * 1000
    assert folder.answer.read_text() == '{"saw": "checkpoint"}\n'
    reporter(folder).log(step=0, loss=1.0)
    assert read_answer(folder) == Reply(saw=True, done=False)
    assert [json.loads(line)["step"] for line in folder.metrics.read_text().splitlines()] == [0]


def test_done(folder: AttemptFolder) -> None:
    """It says that training has finished, whatever it was told."""
    tell(folder, "pruned")
    one = reporter(folder)
    one.should_stop()
    one.done()
    assert read_answer(folder) == Reply(saw=True, done=True)
    write_exit(folder, 0, None, "")
    assert {path.name for path in folder.root.iterdir()} == {"exit.json"}


@pytest.mark.parametrize(
    ("way", "first"), [("read", 4), ("argument", 4), ("inside", 4), ("nothing", 0)]
)
def test_steps_of_a_resumed_training(
    folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch, way: str, first: int
) -> None:
    """They count on where it goes on from its checkpoint: has asked for it, has it from its
    command, or finds it where it saves; else they begin at 0."""
    where = folder.checkpoints if way == "inside" else folder.root.parent / "1/checkpoints"
    resume = str(where / "last.pt")
    given = {"SWEEP_RESUME": resume, "SWEEP_CHECKPOINT_DIR": str(folder.checkpoints)}
    monkeypatch.setattr(sys, "argv", ["train.py", f"--ckpt={resume}" if way == "argument" else ""])
    one = reporter(folder, SWEEP_NEXT_STEP="4", **given)
    if way == "read":
        assert one.resume == resume
    one.log(loss=1.0)
    one.log(loss=1.0)
    assert [line["step"] for line in lines_of(folder)] == [first, first + 1]
    assert has_resumed(folder) == (way != "nothing")
    write_exit(folder, 0, None, "")
    assert not folder.answer.exists() and has_resumed(folder) == (way != "nothing")


def test_steps_at_the_first_attempt(folder: AttemptFolder) -> None:
    """There is nothing to go on from, whoever asks."""
    one = reporter(folder)
    assert one.resume is None
    one.log(loss=1.0)
    one.log(step=7, loss=1.0)
    one.log(loss=1.0)
    assert [line["step"] for line in lines_of(folder)] == [0, 7, 8]
    assert not has_resumed(folder)


def test_rank_0_alone_notes(folder: AttemptFolder) -> None:
    """The others hear of it from there."""
    tell(folder, "checkpoint")
    other = reporter(folder, RANK="1")
    assert other.should_stop() == "checkpoint"
    other.done()
    assert read_answer(folder) is None


def test_outside_of_sweep_it_does_nothing(tmp_path: Path) -> None:
    """No file, no error."""
    alone = Reporter({})
    assert alone.should_stop() is None
    alone.done()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_noted_says_nothing(
    folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an empty note would say that the word was never seen."""
    tell(folder, "checkpoint")
    one = reporter(folder)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sweep.report._append", full)
    assert one.should_stop() == "checkpoint"
    assert read_answer(folder) is None
    one.done()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", Reply()),
        ("no JSON\n[1]\n7\n", Reply()),
        ('{"saw": "pruned"', Reply()),
        ('{"saw": "pruned"}\n\nx\n{"done": true}', Reply(True, True)),
        ('{"done": "yes"}\n', Reply()),
        ('{"gpu_bytes": 7}\n{"gpu_bytes": 9}\n', Reply(gpu_bytes=9)),
        ('{"gpu_bytes": true}\n', Reply()),
        ('{"gpu_bytes": "much"}\n', Reply()),
        ("\x00" * 100_000, Reply()),
    ],
)
def test_answers_of_any_kind(folder: AttemptFolder, text: str, answer: Reply) -> None:
    """Whatever a program writes there, the rest counts."""
    folder.answer.write_text(text)
    assert read_answer(folder) == answer


def test_a_folder_in_its_place(folder: AttemptFolder) -> None:
    """It is no answer, and no error."""
    folder.answer.mkdir()
    assert read_answer(folder) is None
    tell(folder, "checkpoint")
    assert reporter(folder).should_stop() == "checkpoint"
    write_exit(folder, 0, None, "checkpoint")


class Cuda:
    """torch.cuda, as far as the reporter asks it."""

    def __init__(self, *, initialized: bool = True) -> None:
        self.peak = 0
        self.initialized = initialized

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.initialized

    def max_memory_reserved(self) -> int:
        return self.peak


def test_what_torch_reserves(folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said where trials share a GPU, and again once it has grown; nowhere else."""
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    one = reporter(folder, SWEEP_SHARED_GPU="1")
    for cuda.peak in (0, 10**9, 10**9 + 1, 3 * 10**9, 2 * 10**9):
        one.log(loss=1.0)
    assert folder.answer.read_text() == '{"gpu_bytes": 1000000000}\n{"gpu_bytes": 3000000000}\n'
    assert read_answer(folder) == Reply(gpu_bytes=3 * 10**9)
    cuda.peak = 9 * 10**9
    reporter(folder).log(loss=1.0)
    cuda.initialized = False
    one.log(loss=1.0)
    assert read_answer(folder) == Reply(gpu_bytes=3 * 10**9)


def test_memory_that_grows_all_the_time(
    folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the largest card it is said often enough, and a word is still read after it."""
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    one = reporter(folder, SWEEP_SHARED_GPU="1")
    while cuda.peak < 300 * 10**9:
        cuda.peak = int(cuda.peak * 1.03) + 10**6
        one.log(loss=1.0)
    tell(folder, "checkpoint")
    assert one.should_stop() == "checkpoint"
    found = read_answer(folder)
    assert found is not None and found.saw
    assert found.gpu_bytes is not None and found.gpu_bytes > 0.97 * cuda.peak
