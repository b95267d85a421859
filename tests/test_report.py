"""The client inside training: what it notes of what training was told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
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
