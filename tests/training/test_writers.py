"""Two processes that write one attempt's metrics are noticed and named, and not mixed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sweep.core.paths import AttemptFolder
from sweep.report import encode
from sweep.training.journal import Journal

Line = tuple[str, int, Mapping[str, float], Mapping[str, float]]  # who, step, metrics, beside


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder(tmp_path)


def write(folder: AttemptFolder, lines: Iterable[Line]) -> None:
    with folder.metrics.open("a") as stream:
        for by, step, metrics, beside in lines:
            stream.write(encode(step, metrics, 1.0, by, beside))


def read(journal: Journal) -> list[tuple[int, dict[str, float]]]:
    return [(report.step, dict(report.metrics)) for report in journal.rest()]


def last_words(found: Iterable[tuple[int, dict[str, float]]], name: str) -> dict[int, float]:
    return {step: metrics[name] for step, metrics in found if name in metrics}


def test_beside_a_live_process(folder: AttemptFolder) -> None:
    """At steps that both report the first one's values count, whichever came first."""
    write(
        folder,
        [
            ("n1:7", 0, {"acc": 0.5}, {}),
            ("n1:8", 0, {}, {"acc": 0.9}),
            ("n1:8", 1, {"loss": 3.0}, {"acc": 0.9}),
            ("n1:7", 1, {"acc": 0.5}, {}),
            ("n2:9", 2, {}, {"acc": 0.8}),
        ],
    )
    journal = Journal(folder)
    found = read(journal)
    assert last_words(found, "acc") == {0: 0.5, 1: 0.5, 2: 0.8}
    assert last_words(found, "loss") == {1: 3.0}
    (note,) = journal.notes()
    assert note == (
        "Two processes wrote metrics at once: process 8 on n1 reported acc beside process 7 on n1 "
        "(3 values). At steps that both report the latter's count. Report from one process alone "
        "(rank 0), or under another name."
    )
    again = Journal(folder, position=journal.position())
    assert (read(again), again.notes()) == ([], [note])


@pytest.mark.parametrize("metric", ["acc", "val/acc"])
def test_in_turns(folder: AttemptFolder, metric: str) -> None:
    """Without locks, one that comes back after another has written is seen to live."""
    turns = [("n1:7", 1), ("n2:7", 1), ("n1:7", 2), ("n2:7", 2), ("n1:7", 3), ("n2:7", 3)]
    values = {"n1:7": 0.5, "n2:7": 0.9}
    write(folder, [(by, step, {metric: values[by]}, {}) for by, step in turns])
    journal = Journal(folder)
    assert last_words(read(journal), metric) == {1: 0.9, 2: 0.5, 3: 0.5}
    (note,) = journal.notes()
    assert f"process 7 on n2 reported {metric} beside process 7 on n1 (2 values)" in note


def test_one_after_the_other(folder: AttemptFolder) -> None:
    """A process that was started again, two stages, or two with names of their own: all counts."""
    write(folder, [("n1:7", step, {"acc": 0.5}, {}) for step in range(4)])
    write(folder, [("n1:8", step, {"acc": 0.6}, {}) for step in range(2, 5)])
    write(folder, [("n1:9", step, {"acc": 0.7}, {}) for step in range(5, 6)])
    write(folder, [(f"n1:{7 + n % 2}", n, {f"m{n % 2}": 1.0}, {}) for n in range(8)])
    journal = Journal(folder)
    found = read(journal)
    assert last_words(found, "acc") == {0: 0.5, 1: 0.5, 2: 0.6, 3: 0.6, 4: 0.6, 5: 0.7}
    assert (len(last_words(found, "m0")), len(last_words(found, "m1"))) == (4, 4)
    assert journal.notes() == []


def test_of_other_languages(folder: AttemptFolder) -> None:
    """They name no process: a step that comes again with another value is told."""
    lines = [(0, 0.5), (0, 0.9), (1, 0.5), (1, 0.5), (2, 0.5)]
    folder.metrics.write_text(
        "".join(json.dumps({"step": s, "metrics": {"acc": v}}) + "\n" for s, v in lines)
    )
    journal = Journal(folder)
    assert last_words(read(journal), "acc") == {0: 0.9, 1: 0.5, 2: 0.5}
    assert journal.notes() == [
        "Steps did not go up (1 values), at first acc at step 0 after step 0; the last word "
        "counts. If several processes report, let one of them do it."
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"by": 7},
        {"by": ""},
        {"by": "n" * 10_000},
        {"beside": [1]},
        {"by": "n", "beside": {"x": {}}},
    ],
)
def test_odd_lines(folder: AttemptFolder, more: dict[str, Any]) -> None:
    """Whatever a program writes there, the rest counts."""
    folder.metrics.write_text(json.dumps({"step": 0, "metrics": {"acc": 0.5}, **more}) + "\n")
    journal = Journal(folder)
    assert read(journal) == [(0, {"acc": 0.5})]
    assert len(journal.position()) < 1000
