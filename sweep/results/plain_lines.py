"""A study's status as plain lines: for a pipe, a log, and a terminal that draws nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweep.core.times import stopwatch
from sweep.results import running_table, terminal
from sweep.results.counts import count_trials, counted
from sweep.results.running import RunningLine
from sweep.results.status import Status
from sweep.storage import studies


def is_plain(console: Any) -> bool:
    """Tell whether a console gets plain lines: it is no terminal, or one without a cursor."""
    return not console.is_terminal or console.is_dumb_terminal


def status_lines(status: Status) -> Iterator[str]:
    """Yield a study's status, a fact a line; each line begins with its label."""
    yield f"{terminal.printable(status.name)}: {status.state}"
    if status.reason:
        yield f"why: {terminal.printable(status.reason)}"
    ended = f"{status.done} of {status.total} trials have ended"
    yield f"trials: {ended} ({counted(status.counts)})"
    for label, text in terminal.facts(status):
        yield from (f"{label}: {part}" for part in text.splitlines())
    for line in status.running:
        yield f"running: {_running(line, status)}"
    for failure in status.failures:
        reason = terminal.printable(failure.reason) or "no reason was noted"
        yield f"failed: {count_trials(failure.count)}: {reason}"
        if failure.log:
            yield f"log: {terminal.near(failure.log)}"
        if status.state == studies.HELD and failure is status.failures[0]:
            yield from (f"log: | {terminal.printable(tail)}" for tail in failure.tail)
    yield from (f"note: {terminal.printable(note)}" for note in status.notes)
    if status.next_step:
        yield f"next: {terminal.printable(status.next_step)}"


def _running(line: RunningLine, status: Status) -> str:
    """Return one running trial in a line."""
    name = terminal.printable(status.metric)
    parts = [f"trial {line.trial}", f"on {running_table.where(line)}"]
    if line.replicate > 1:
        parts.append(f"training {line.replicate}")
    if line.attempt > line.replicate:
        parts.append(f"attempt {line.attempt}")
    if line.step is not None:
        parts.append(f"step {running_table.progress(line)}")
    if line.last is not None:
        parts.append(f"{name} {running_table.shown_value(line.last)}")
        if line.best != line.last:
            parts.append(f"best {running_table.shown_value(line.best)}")
    parts.append(f"for {stopwatch(line.elapsed_s)}")
    if end := running_table.ends(line, status.now):
        parts.append(f"ends {end}")
    if line.waits:
        parts.append(line.waits)
    return ", ".join(parts)
