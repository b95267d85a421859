"""``sweep logs`` of a study that has ended."""

from __future__ import annotations

from functools import partial

from tests.cli.commands import collected
from tests.conftest import Ran, Sweep


def test_logs_prints_what_training_printed(finished: Sweep) -> None:
    """`logs TRIAL` prints the attempt's output between lines that say which, and how it ended."""
    (best,) = collected(finished, "--top", "1")
    ran = finished("logs", best["trial"])
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"--- trial {best['trial']}, attempt 1",
        f"starts at step 0 with x={best['params']['x']}",
        "done",
        "--- attempt 1: finished",
    ]
    assert finished("logs", "toy", best["trial"]).out == ran.out


def test_output_does_not_act_on_the_terminal(finished: partial[Ran]) -> None:
    """Escape sequences and redraws are shown as what a terminal made of them; --raw has all."""
    printed = "\x1b]0;title\x07\x1b[31mred\x1b[0m\r 10%|█\r100%|██\nend\x07"
    (log,) = finished.keywords["runs"].glob("*/trials/00000/attempts/1/log.txt")
    before = log.read_bytes()
    log.write_text(printed)
    try:
        assert finished("logs", 0).out.splitlines()[1:3] == ["100%|██", "end"]
        # Reading the command's output as text makes \n of each \r.
        assert printed.replace("\r", "\n") in finished("logs", 0, "--raw").out
    finally:
        log.write_bytes(before)
