"""Output as a terminal shows it: nothing in it acts on the reader's terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core.files import read_tail
from sweep.core.terminal_text import VisibleText, plain, visible, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;32mgreen\x1b[0m", "green"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("\x1b[2J\x1b[H\x1b(B\x1b7\x1b[?25lcleared", "cleared"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x1b]0;no end", "0;no end"),
        ("colour, cut \x1b", "colour, cut "),
    ],
)
def test_escape_sequences_are_dropped(text: str, shown: str) -> None:
    assert plain(text) == shown
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\r 10%|█\r 20%|██", " 20%|██"),
        ("\r 10%|█\r      \rdone", "done"),
        ("\r 10%|█\r      \r", " 10%|█"),
        ("dos\r", "dos"),
        ("a\tb\x00\x07\x08c\u202ed", "a\tbcd"),
        ("Ünicode ∞ 数", "Ünicode ∞ 数"),
    ],
)
def test_a_line_is_shown_as_it_was_drawn_last(line: str, shown: str) -> None:
    assert visible(line) == shown


def test_lines_end_where_a_terminal_ends_them() -> None:
    assert visible_lines("a\r\nb\u2028c\x0cd\n\ne") == ["a", "bcd", "", "e"]
    assert visible_lines("") == []


def test_the_tail_of_a_log_with_bars(tmp_path: Path) -> None:
    """Its last lines are not the last drawings of one bar."""
    log = tmp_path / "log.txt"
    bars = "".join(f"\r{n}%|\x1b[31m{'█' * n}\x1b[0m" for n in range(50))
    log.write_text(f"first\nsecond\n{bars}Traceback (most recent call last):\n")
    assert read_tail(log, 2) == ["second", f"49%|{'█' * 49}Traceback (most recent call last):"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_parts_that_are_cut_anywhere(size: int) -> None:
    text = "one\r\n\r10%\r20%\x1b[31m red\x1b[0m\nlast \x1b]0;x\x07\r3"
    shown = VisibleText()
    parts = [shown.add(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join(parts) + shown.end() == "one\n20% red\n3\n"
    assert shown.end() == ""


def test_a_terminal_sees_a_bar_as_it_grows() -> None:
    """Drawn by us, within its width; then the line in its place."""
    shown = VisibleText(live=True, columns=8)
    assert shown.add("\r10%|\x1b[2J") == ""
    assert shown.pause() == "10%|"
    assert shown.pause() == ""
    assert shown.add("\r20%|long enough") == ""
    assert shown.pause() == "\r\x1b[K20%|lon"
    assert shown.add("\nnext") == "\r\x1b[K20%|long enough\n"
    assert shown.end() == "next\n"


def test_a_line_without_end_is_not_kept() -> None:
    shown = VisibleText()
    parts = [shown.add("x" * 50_000) for _ in range(10)]
    assert sum(len(part.replace("\n", "")) for part in parts) > 400_000
    shown = VisibleText()
    for number in range(100_000):
        shown.add(f"\r{number}%")
    assert shown.end() == "99999%\n"
