"""At which step a printed value stands: read beside it, else counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.core.paths import AttemptFolder
from sweep.core.study import Objective
from sweep.training.attempt_files import write_exit
from sweep.training.journal import Journal
from sweep.training.printed_steps import first_printed
from tests.study_rows import make_study


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder(tmp_path)


def read(
    folder: AttemptFolder, text: str, step: str | None, first: int = 0
) -> tuple[list[tuple[int, float]], Sequence[str]]:
    """Return what a journal reads of an output, in two parts as another reader goes on."""
    objective = Objective("acc", "maximize", pattern=r"\bacc=([0-9.]+)", step_pattern=step)
    found: list[tuple[int, float]] = []
    position = ""
    half = text.find("\n", len(text) // 2) + 1
    for part in (text[:half], text[half:]):
        with folder.log.open("a", newline="") as stream:
            stream.write(part)
        journal = Journal(folder, [objective], lambda: first, position=position)
        found += [(report.step, report.metrics["acc"]) for report in journal.read()]
        position = journal.position()
    return found, journal.notes()


OUTPUTS = {
    "in the same line": (
        "Epoch 1/3 acc=0.5\nEpoch 2/3 acc=0.6\nEpoch 3/3 acc=0.7\n",
        r"Epoch (\d+)",
        [(1, 0.5), (2, 0.6), (3, 0.7)],
    ),
    "in a line before": (
        "Epoch 10\nloss 3\nacc=0.5\nEpoch 20\nacc=0.6\n",
        r"Epoch (\d+)",
        [(10, 0.5), (20, 0.6)],
    ),
    "several of one step": (
        "[5] acc=0.5\n[5] acc=0.6\n[6] acc=0.7\n",
        r"\[(\d+)\]",
        [(5, 0.5), (5, 0.6), (6, 0.7)],
    ),
    "before the first": (
        "acc=0.1\nepoch 0\nacc=0.5\nepoch 1\nacc=0.6\n",
        r"epoch (\d+)",
        [(0, 0.1), (0, 0.5), (1, 0.6)],
    ),
    "large and odd": (
        "step 1,000 acc=0.5\nstep 2000.0 acc=0.6\nstep 3e3 acc=0.7\nstep 3_500 acc=0.8\n",
        r"step (\S+)",
        [(1000, 0.5), (2000, 0.6), (3000, 0.7), (3500, 0.8)],
    ),
    "by the group that took part": (
        "it=4 acc=0.5\nepoch=5 acc=0.6\n",
        r"it=(\d+)|epoch=(\d+)",
        [(4, 0.5), (5, 0.6)],
    ),
    "a table whose last row it is": (
        "".join(
            f"{'-' * 20}\n| rollout/ |     |\n|  acc=0.{n} |     |\n|  steps   | {n}00 |\n"
            for n in (1, 2)
        )
        + f"{'-' * 20}\n",
        r"steps\s*\| (\d+)",
        [(100, 0.1), (200, 0.2)],
    ),
    "tables, one without it": (
        "|acc=0.1|\n|steps| 5 |\n\n|acc=0.2|\n\n|steps| 7 |\n|acc=0.3|\n|acc=0.4|\n",
        r"steps\s*\| (\d+)",
        [(5, 0.1), (5, 0.2), (7, 0.3), (7, 0.4)],
    ),
    "none": ("acc=0.5\nacc=0.6\n", None, [(0, 0.5), (1, 0.6)]),
    "no match": ("acc=0.5\nacc=0.6\n", r"epoch (\d+)", [(0, 0.5), (1, 0.6)]),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_steps_as_printed(folder: AttemptFolder, name: str) -> None:
    text, step, expected = OUTPUTS[name]
    assert read(folder, text, step) == (expected, [])


def test_bars(folder: AttemptFolder) -> None:
    """A bar of an epoch that ends with the value before is a step of its own, at its epoch's."""
    text = ""
    for epoch, acc in ((10, 0.5), (20, 0.5), (30, 0.25)):
        for count in (1, 2, 3):
            bar = f"{33 * count:3d}%|{'#' * count}{' ' * (3 - count)}| {count}/3"
            text += f"\rEpoch {epoch}: {bar} [00:0{count}<00:00, 1.00it/s, acc={acc}]"
        text += "\n"
    found, _ = read(folder, text, r"Epoch (\d+)")
    assert found == [(10, 0.5), (20, 0.5), (30, 0.25)]


def test_what_is_no_step(folder: AttemptFolder) -> None:
    """The one before holds, and it is told."""
    text = "step 3 acc=0.5\nstep 3.5 acc=0.6\nstep -1 acc=0.7\nstep x acc=0.8\n"
    found, notes = read(folder, text, r"step (\S+)")
    assert found == [(3, 0.5), (3, 0.6), (3, 0.7), (3, 0.8)]
    assert list(notes) == [
        "acc: the pattern of its step takes '3.5', which is no whole number; the step before it "
        "holds"
    ]


def test_counting_goes_on(folder: AttemptFolder) -> None:
    """From where a resumed training is; steps that are read need no such thing."""
    assert read(folder, "acc=0.5\nacc=0.6\n", None, first=7)[0] == [(7, 0.5), (8, 0.6)]
    folder.log.unlink()
    assert read(folder, "e2 acc=0.5\n", r"e(\d+)", first=7)[0] == [(2, 0.5)]


@pytest.mark.parametrize(
    ("command", "resume", "answer", "expected"),
    [
        (["python", "train.py"], "path", None, 0),
        (["python", "train.py", "--ckpt={resume}"], "path", None, 7),
        (["python", "train.py", "{{resume}}"], "path", None, 0),
        (["python", "train.py"], "folder", None, 7),
        (["python", "train.py"], "path", "", 0),  # a reporter that has not asked
        (["python", "train.py"], "path", '{"resumed": true}\n', 7),
    ],
)
def test_who_begins_anew(
    folder: AttemptFolder, command: list[str], resume: str, answer: str | None, expected: int
) -> None:
    """A script that takes no checkpoint and knows nothing of sweep; also once it has ended."""
    study = replace(make_study(), command=tuple(command), resume=resume)
    if answer is not None:
        folder.answer.write_text(answer)
    assert first_printed(study, folder, 7) == expected
    assert first_printed(study, folder, 0) == 0
    write_exit(folder, 0, None, "")
    assert first_printed(study, folder, 7) == expected
