"""The line of an output that says why a training failed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweep.training.exit_reason import classify
from sweep.training.failure_lines import find_cause

CASES = [
    (name, int(code), expected, log)
    for name, code, expected, log in re.findall(
        r"^=== (.+)\n(-?\d+)\n(.+)\n---\n((?:.*\n)*?)(?=^===|\Z)",
        Path(__file__).with_name("traces.txt").read_text("utf-8"),
        re.MULTILINE,
    )
]


def test_cases_of_most_runtimes_are_there() -> None:
    seen = {name.partition(":")[0] for name, *_ in CASES}
    assert {"abseil", "Python", "C++", "Rust", "R", "Java", "Node", "Julia", "Go"} <= seen
    assert len(CASES) >= 13


@pytest.mark.parametrize(
    ("code", "expected", "log"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_message_is_the_reason(code: int, expected: str, log: str) -> None:
    """Not the last frame, and not the runtime's farewell."""
    lines = ["epoch 1 loss 0.5", *log.splitlines()]
    exit_code, signal = (code, None) if code > 0 else (None, -code)
    head = f"exit code {code}" if code > 0 else f"crashed with signal {-code}"
    assert classify(exit_code, signal, "", lines).reason.startswith(f"{head}: {expected}")


def test_of_processes_that_died_the_first_counts() -> None:
    """Others may have died by it, and say so."""
    first = "F1130 21:19:39.511246    9632 loss.cc:12] Check failed: loss is finite"
    second = "F1130 21:19:39.611246    9633 client.h:80] Terminating: another task died"
    frame = "    @     0x7f7780440634  absl::LogMessage::Flush()"
    assert find_cause([first, frame, second, frame, frame]).startswith("loss.cc:12] Check failed")


def test_of_exceptions_the_last_counts() -> None:
    """One before it was caught, and printed."""
    log = ["Error in a(x) : was caught", "Error in b(x) : was not", "Execution halted"]
    assert find_cause(log, 1) == "was not"


def test_words_of_a_training_are_no_trace() -> None:
    """Without a runtime's trace the last line is the cause, whatever stands before it."""
    log = [
        "Error: retrying",
        "ERROR: slow disk",
        "panic: no",
        "F1 score: 0.9 at @ 0.5",
        "disk full",
    ]
    assert find_cause(log, 3) == "disk full"
