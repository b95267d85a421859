"""The attempt's journal: lines that are appended, cut, replaced, or not what they should be."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from sweep.core.paths import AttemptFolder
from sweep.core.study import Objective
from sweep.training import tail
from sweep.training.journal import Journal, read_line
from sweep.training.tail import LONGEST_LINE_BYTES, Position, Tail
from tests.waiting import returns


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder(tmp_path)


def line(step: int, **metrics: float) -> str:
    texts = ", ".join(f'"{name}": {value}' for name, value in metrics.items())
    return f'{{"step": {step}, "time": 1.0, "metrics": {{{texts}}}}}\n'


def test_lines_come_once_and_whole(path: Path) -> None:
    """A line without its end waits for it; when nobody writes any more, it counts."""
    reader = Tail(path)
    assert reader.lines(9) == []
    with path.open("a", buffering=1) as writer:
        writer.write("a\nb\nc")
        writer.flush()
        assert reader.lines(1) == ["a"]
        assert reader.lines(9) == ["b"]
        writer.write("c\nd")
        writer.flush()
        assert reader.lines(9) == ["cc"]
    assert reader.lines(9, final=True) == ["d"]
    assert reader.lines(9, final=True) == []
    assert reader.notes == []


def test_a_file_that_was_cut_is_read_anew(path: Path) -> None:
    path.write_text("one\ntwo\nhal")
    reader = Tail(path)
    assert reader.lines(9) == ["one", "two"]
    path.write_text("x\n")  # the same file, shorter
    assert reader.lines(9) == ["x"]
    assert reader.notes == [
        "metrics.jsonl was cut from 11 to 2 bytes; an unfinished line of 3 bytes is lost: it is "
        "read from its start, and what was read before stays"
    ]


def test_a_file_that_was_written_anew_and_is_longer_by_now(path: Path) -> None:
    """Its size alone does not tell."""
    path.write_text("one\ntwo\n")
    reader = Tail(path)
    assert reader.lines(9) == ["one", "two"]
    path.write_text("three\nfour\nfive\n")
    assert reader.lines(9) == ["three", "four", "five"]
    assert len(reader.notes) == 1 and "was written anew" in reader.notes[0]


def test_a_file_that_was_replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the old one still had is read, then the new one from its start."""
    monkeypatch.setattr(tail, "PATH_EVERY_S", 0.0)
    path.write_text("one\n")
    reader = Tail(path)
    assert reader.lines(9) == ["one"]
    old = path.open("a")
    path.unlink()
    old.write("two\n")
    old.close()
    path.write_text("three\n")
    assert reader.lines(9) == ["two", "three"]
    assert len(reader.notes) == 1 and "replaced by another file" in reader.notes[0]


def test_a_file_that_was_replaced_just_before_the_end(path: Path) -> None:
    """The last look does not wait for its time."""
    path.write_text("one\n")
    reader = Tail(path)
    assert reader.lines(9) == ["one"]
    path.rename(path.with_name("kept"))
    path.write_text("two")
    assert reader.lines(9, final=True) == ["two"]


@pytest.mark.parametrize("kind", ["folder", "fifo", "closed"])
def test_what_is_no_readable_file_is_noted(path: Path, kind: str) -> None:
    """It stops nothing, and nothing waits for it."""
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(path)  # ELOOP, also for root
    reader = Tail(path)
    assert returns(lambda: reader.lines(9)) == []
    assert returns(lambda: reader.lines(9, final=True)) == []
    assert len(reader.notes) == 1
    assert ("cannot be read" if kind == "closed" else "is no regular file") in reader.notes[0]


def test_a_line_without_end_costs_no_memory(path: Path) -> None:
    path.write_text("a\n" + "x" * (3 * LONGEST_LINE_BYTES) + "\nb\n")
    reader = Tail(path)
    found = []
    while more := reader.lines(9):
        found += more
    assert [text for text in found if text] == ["a", "b"]
    assert reader.position().offset == path.stat().st_size
    assert len(reader.notes) == 1 and "has a line of more than 1,048,576 bytes" in reader.notes[0]


def test_another_reader_goes_on(path: Path) -> None:
    path.write_text("one\ntwo\nthree\n")
    reader = Tail(path)
    assert reader.lines(2) == ["one", "two"]
    where = reader.position()
    assert where == Position(path.stat().st_ino, 8)
    assert Tail(path, where).lines(9, final=True) == ["three"]
    path.rename(path.with_name("kept"))
    path.write_text("four\n")
    other = Tail(path, where)
    assert other.lines(9, final=True) == ["four"]
    assert "replaced" in other.notes[0]


@pytest.mark.parametrize(
    ("text", "metrics", "faults"),
    [
        ('{"step": 3, "time": 1, "metrics": {"a": 1, "b": "nan"}}', {"a": 1.0, "b": math.nan}, []),
        ('{"step": 3, "metrics": {"a": NaN, "b": "-inf"}}', {"a": math.nan, "b": -math.inf}, []),
        ('\ufeff{"step": 3, "metrics": {"a": 1}}', {"a": 1.0}, ["a byte order mark"]),
        ('{"step": 3.0, "metrics": {"a": 1e999}}', {"a": math.inf}, []),
        (f'{{"step": 3, "metrics": {{"a": {"9" * 5000}, "b": 2}}}}', {"a": math.inf, "b": 2.0}, []),
        ('{"step": 3, "metrics": {}}', {}, []),
        (
            '{"step": 3, "metrics": {"a": "0.5", "b": 2}}',
            {"b": 2.0},
            ["a value of 'a' that is no number"],
        ),
        (
            '{"step": 3, "metrics": {"a": true, "b": 2, "c": null, "d": [1]}}',
            {"b": 2.0},
            [f"a value of '{name}' that is no number" for name in "acd"],
        ),
        (
            '{"step": 3, "metrics": {"a\\u0000": 1, "\\ud800": 1, "b": 2}}',
            {"b": 2.0},
            ["a name that no database could hold"] * 2,
        ),
        (
            '{"step": 3, "loss": 2}',
            None,
            ['metrics that are no JSON object, not as {"step": …, "metrics": {…}}'],
        ),
        ('{"step": -1, "metrics": {"a": 1}}', None, ["a step that is no whole number from 0 on"]),
        ('{"step": 2.5, "metrics": {"a": 1}}', None, ["a step that is no whole number from 0 on"]),
        ('{"step": true, "metrics": {"a": 1}}', None, ["a step that is no whole number from 0 on"]),
        (
            f'{{"step": {2**63}, "metrics": {{"a": 1}}}}',
            None,
            ["a step that is no whole number from 0 on"],
        ),
        ('{"metrics": {"a": 1}}', None, ["no step"]),
        ("[1]", None, ["no JSON object"]),
        ("epoch 3: loss 0.2", None, ["no JSON"]),
        ("[" * 100_000, None, ["no JSON"]),
        ("  ", None, []),
    ],
)
def test_each_line_for_itself(
    text: str, metrics: dict[str, float] | None, faults: list[str]
) -> None:
    """What is wrong with one value spoils no other."""
    report, found = read_line(text)
    assert found == faults
    assert (report and repr(report.metrics)) == (metrics if metrics is None else repr(metrics))
    assert report is None or report.step == 3


def test_steps_of_64_bits(folder: AttemptFolder) -> None:
    folder.metrics.write_text(line(2**63 - 1, loss=1.0))
    (report,) = Journal(folder).read(final=True)
    assert report.step == 2**63 - 1


def test_what_cannot_be_read_is_counted_and_shown(folder: AttemptFolder) -> None:
    folder.metrics.write_text("nonsense\n" + line(1, loss=1.0) + "\n" + '{"step": 2, "loss": 3}\n')
    journal = Journal(folder)
    assert [report.step for report in journal.read()] == [1]
    assert journal.unreadable == 2
    assert journal.notes() == [
        "2 lines or values of metrics.jsonl could not be read, the first: no JSON in 'nonsense'"
    ]


def test_a_part_at_a_time_and_on_from_there(folder: AttemptFolder) -> None:
    """What is not asked for stays in the file; another journal goes on where one has stopped."""
    objective = Objective("acc", "maximize", pattern="acc=([0-9.]+)")
    folder.metrics.write_text("".join(line(step, loss=step) for step in range(10)))
    folder.log.write_text("".join(f"acc=0.{step}\n" for step in range(5)))
    journal = Journal(folder, [objective], first_step=lambda: 7)
    assert [report.step for report in journal.read(4)] == [0, 1, 2, 3]
    assert [report.step for report in journal.read(8)] == [4, 5, 6, 7, 8, 9, 7, 8]
    again = Journal(folder, [objective], first_step=lambda: 7, position=journal.position())
    rest = again.read(final=True)
    assert [(report.step, report.metrics) for report in rest] == [
        (9, {"acc": 0.2}),
        (10, {"acc": 0.3}),
        (11, {"acc": 0.4}),
    ]
    assert again.read(final=True) == []


def test_many_reports_cost_little_memory(folder: AttemptFolder) -> None:
    """A file of any length is read by parts."""
    with folder.metrics.open("w") as stream:
        for step in range(200_000):
            stream.write(line(step, loss=0.5))
    journal, count, most = Journal(folder), 0, 0
    while found := journal.read(1000, final=True):
        count += len(found)
        most = max(most, len(journal._metrics._lines))
    assert count == 200_000
    assert most < 50_000
