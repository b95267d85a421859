"""Which line of a training's output says why it failed.

It is rarely the last one: runtimes print a stack trace after what they say, or a word of farewell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TRACEBACK = "Traceback (most recent call last):"
_LAST = 20  # lines among which the end of a stack trace stands


@dataclass(frozen=True)
class Trace:
    """How a runtime says what ended a process.

    Attributes:
        whose: Its name.
        head: The line that says what, as its first group; where that is empty or ends with a
            colon, the message begins on the next line.
        after: What only stands after the head: frames, a farewell.
        ends: Whether no process prints the head and lives on. Of several heads the first one
            counts then, for others may have died by it; else the last, as others were caught.
    """

    whose: str
    head: str
    after: str
    ends: bool = True


# Seen with abseil as JAX 0.10 has it, CPython 3.11, libstdc++ 12, rustc 1.95, R 4.3, OpenJDK 17,
# Node 20; Go and Julia as their manuals show it.
TRACES = (
    Trace(
        "abseil and glog",
        r"F\d{4}(?:\d{4})? \d\d:\d\d:\d\d\.\d+ +\d+ (\S+:\d+\] .+)",
        r"\*\*\* (?:Check failure stack trace|SIG\w+ received)|\s*(?:PC: )?@ +0x[0-9a-f]+ ",
    ),
    Trace(
        "Python",
        r"Fatal Python error: (.+)",
        r"(?:Current thread|Thread) 0x[0-9a-f]+|Extension modules: ",
    ),
    Trace("C++", r"\s*what\(\): +(.*)", r"\s*what\(\): "),
    Trace(
        "C++", r"terminate called ((?:after|without) .+)", r"terminate called (?:after|without) "
    ),
    Trace(
        "Rust",
        r"thread '.*'(?: \(\d+\))? panicked at (?:'(.+)', \S+|\S+:\d+:\d+:)$",
        r"note: .*RUST_BACKTRACE=|stack backtrace:$|thread '.*' panicked at ",
        ends=False,
    ),
    Trace("Go", r"panic: (.+)", r"goroutine \d+ \[", ends=False),
    Trace(
        "Julia", r"ERROR: (.+)", r"Stacktrace:$|in expression starting at |\s+@ .+:\d+$", ends=False
    ),
    Trace("R", r"Error(?: in .+? :|:)(.*)", r"Execution halted$", ends=False),
    Trace(
        "Java",
        r'Exception in thread "[^"]*" (.+)',
        r"\tat \S+\(.*\)$|\t\.\.\. \d+ more$",
        ends=False,
    ),
    Trace("Node", r"(?:Uncaught )?(\w*(?:Error|Exception)\b.*)", r"Node\.js v\d", ends=False),
)


def find_cause(log: Sequence[str], exit_code: int | None = None) -> str:
    """Return what says why a training failed; "" where it printed nothing.

    Args:
        log: The end of its output; some hundred lines, for a trace may be long.
        exit_code: None where a signal ended it. Python leaves with 1 where an exception did.
    """
    found = _exception(log[-_LAST:]) if exit_code == 1 else ""
    found = found or _before_a_trace(log)
    return found or next((line.strip() for line in reversed(log) if line.strip()), "")


def _exception(log: Sequence[str]) -> str:
    """Return the line in which Python names the exception that ended it, or "" where none is.

    It need not be the last one: what the training had printed and not flushed comes after it.
    """
    # A progress bar may stand before it, on the same line.
    heads = [place for place, line in enumerate(log) if line.rstrip().endswith(_TRACEBACK)]
    for line in log[heads[-1] + 1 :] if heads else ():
        if line.strip() and not line.startswith((" ", "\t")):
            return line.strip()
    return ""


def _before_a_trace(log: Sequence[str]) -> str:
    """Return the message of the runtime whose stack trace or farewell ends the log, or ""."""
    for trace in TRACES:
        if not any(re.match(trace.after, line) for line in log[-_LAST:]):
            continue
        heads = [
            (place, one) for place, line in enumerate(log) if (one := re.match(trace.head, line))
        ]
        if not heads:
            continue
        place, head = heads[0] if trace.ends else heads[-1]
        message = (head[1] or "").strip()
        if not message or message.endswith(":"):
            following = log[place + 1].strip() if place + 1 < len(log) else ""
            message = f"{message} {following}".strip()
        if message:
            return message
    return ""
