"""What people see of a study: a panel, a table of trials, a progress bar, one line.

rich is imported when something is drawn. It leaves colours out where there is no terminal or
NO_COLOR is set; nothing here is told by colour alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sweep.core import outcomes
from sweep.core.json_text import is_mistakable
from sweep.core.study import Study
from sweep.core.times import clock, span, stopwatch
from sweep.results import status as states
from sweep.results.columns import Row
from sweep.results.counts import counted
from sweep.results.paper import means
from sweep.results.running_table import SHOWN, RunningTable, Sparkline
from sweep.results.running_text import VALUE_DIGITS, shown_value
from sweep.results.status import Status
from sweep.storage import studies

PARAM_DIGITS = 4
LEAST_ROOM = 20  # columns for all parameters of a trial; with less they stand below the table

# Of each state: colour, and its sign in the bar (in Unicode and in ASCII).
_LOOKS = {
    outcomes.COMPLETE: ("green", "█", "#"),
    outcomes.PRUNED: ("cyan", "▓", "+"),
    outcomes.FAILED: ("red", "✗", "x"),
    outcomes.CANCELLED: ("magenta", "-", "-"),
    outcomes.RUNNING: ("yellow", "▒", "="),
    outcomes.WAITING: ("bright_black", "·", "."),
}
_STATE_COLOURS = {
    studies.RUNNING: "green",
    states.FINISHED: "green",
    states.QUEUED: "yellow",
    studies.DRAINING: "yellow",
    studies.STOPPED: "yellow",
    states.IDLE: "yellow",
    studies.HELD: "red",
}


def shown(value: Any, digits: int = PARAM_DIGITS) -> str:
    """Return a value for people: few digits, no control characters.

    Strings are as they are, but in quotation marks where they would be taken for another value.
    """
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(inner, digits) for inner in value)}]"
    text = printable(str(value))
    return (
        json.dumps(text, ensure_ascii=False)
        if isinstance(value, str) and is_mistakable(text)
        else text
    )


def printable(text: str) -> str:
    """Return text without line breaks and what a terminal would take for a command."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def line(status: Status) -> str:
    """Return a study's status in one line, without colours."""
    parts = [f"{status.name}: {status.state}, {status.done} of {status.total} ended"]
    parts.append(counted(status.counts))
    if status.best:
        parts.append(f"best {_best(status)}")
    elif status.infeasible:
        parts.append(printable(status.infeasible).rstrip("."))
    if status.left_s is not None:
        parts.append(f"about {span(status.left_s, rough=True)} left")
    if status.reason:
        parts.append(printable(status.reason))
    return "; ".join(parts)


def _best(status: Status) -> str:
    assert status.best is not None
    value = f"{status.best['value']:.{VALUE_DIGITS}g}"
    count, spread = status.best.get("replicates"), status.best.get("sd")
    if spread is not None:
        value += f" ± {spread:.2g}"
    of = f", n {count}" if count else ""
    return f"{status.metric} {value} (trial {status.best['trial']}{of})"


class StateBar:
    """A bar with one sign for each share of the trials, in the order of their states."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = counts

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        bar = Text(no_wrap=True, overflow="crop")
        for state, cells in shares(self.counts, options.max_width):
            colour, sign, ascii_sign = _LOOKS[state]
            bar.append((ascii_sign if options.ascii_only else sign) * cells, style=colour)
        yield bar

    def __rich_measure__(self, console: Any, options: Any) -> Any:
        return Measurement(10, options.max_width)


def shares(counts: Mapping[str, int], width: int) -> list[tuple[str, int]]:
    """Split a width among the states: none that has a trial gets nothing, and all of it is used."""
    order = (*outcomes.FINAL_STATES, outcomes.RUNNING, outcomes.WAITING)
    present = [state for state in order if counts.get(state)]
    total = sum(counts[state] for state in present)
    cells = {state: max(1, counts[state] * width // total) for state in present}
    while present and sum(cells.values()) != width:
        change = 1 if sum(cells.values()) < width else -1
        # Give to the one most short of its share, take from the one most above it.
        pick = max(
            (state for state in present if change > 0 or cells[state] > 1),
            key=lambda state: change * (counts[state] * width / total - cells[state]),
            default=None,
        )
        if pick is None:
            break
        cells[pick] += change
    return list(cells.items())


def _legend(counts: Mapping[str, int]) -> Any:
    text = Text()
    for state in (*outcomes.FINAL_STATES, outcomes.RUNNING, outcomes.WAITING):
        if counts.get(state):
            text.append("  " if text else "")
            text.append(f"{counts[state]} {state}", style=_LOOKS[state][0])
    return text


def status_panel(status: Status, shown: int | None = SHOWN) -> Any:
    """Return a study's status as a rich renderable.

    Args:
        shown: How many running trials at most; all when None.
    """
    colour = _STATE_COLOURS.get(status.state, "white")
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="bold", no_wrap=True)
    lines.add_column(overflow="fold")
    if status.reason:
        lines.add_row("why", Text(printable(status.reason), style=colour))
    for label, text in facts(status):
        lines.add_row(label, Text(text))
        if label == "best" and len(status.best_so_far) > 1:
            lines.add_row("", Sparkline(status.best_so_far, "best so far"))
    if status.running:
        lines.add_row("running", RunningTable(status.running, shown=shown))
    for failure in status.failures:
        trials = "1 trial" if failure.count == 1 else f"{failure.count} trials"
        failed = Text(f"{trials}: ", style="red")
        if failure.reason and failure.reason == status.reason:
            failed = Text(f"{trials} for that reason", style="red")
        else:
            failed.append(printable(failure.reason) or "no reason was noted")
        lines.add_row("failed", failed)
        if failure.log:
            lines.add_row("", Text(f"trial {failure.trial}: {near(failure.log)}", style="dim"))
    held_by = status.failures[:1] if status.state == studies.HELD else ()
    for tail in (tail for failure in held_by for tail in failure.tail):
        lines.add_row("", Text(f"| {printable(tail)}", style="dim"))
    for note in status.notes:
        lines.add_row("note", Text(printable(note), style="yellow"))
    if status.next_step:
        lines.add_row("next", Text(printable(status.next_step)))
    title = Text(f"{printable(status.name)}: ", style="bold")
    title.append(status.state, style=f"bold {colour}")
    ended = Text(f"{status.done} of {status.total} trials have ended  ", style="bold")
    parts = [StateBar(status.counts), ended, _legend(status.counts), Text("")]
    return Panel(Group(*parts, lines), title=title, title_align="left", border_style=colour)


def facts(status: Status) -> list[tuple[str, str]]:
    """Return what is known of a study as labels and texts: its best, its time, its tasks."""
    found = (
        ("front" if status.front else "best", _best_lines(status) or status.infeasible),
        ("time", _time_line(status)),
        ("tasks", _task_line(status)),
        ("GPUs", "\n".join(gpu.line() for gpu in status.gpus)),
    )
    return [(label, text) for label, text in found if text]


def _best_lines(status: Status) -> str:
    if status.best:
        params = ", ".join(f"{k}={shown(v)}" for k, v in status.best["params"].items())
        return f"{_best(status)}" + (f"\n{params}" if params else "")
    members = []
    for member in status.front[:5]:
        values = ", ".join(f"{k} {v:.{VALUE_DIGITS}g}" for k, v in member["values"].items())
        members.append(f"trial {member['trial']}: {values}")
    if len(members) < status.front_size:
        members.append(f"and {status.front_size - len(members)} more on the Pareto front")
    return "\n".join(members)


def _time_line(status: Status) -> str:
    if status.elapsed_s is None:
        return ""
    if status.state == states.FINISHED:
        return f"took {span(status.elapsed_s)}"
    text = f"{span(status.elapsed_s)} so far"
    if status.left_s is not None and status.expected_end is not None:
        left = span(status.left_s, rough=True)
        text += f", about {left} left (until {clock(status.expected_end)})"
    if status.trials_per_hour:
        rate = status.trials_per_hour
        text += f", {rate:.0f} trials/h" if rate >= 100 else f", {rate:.2g} trials/h"
    return text


def near(path: str) -> str:
    """Return a path relative to here where it lies below, which is shorter to read and to type."""
    return path.removeprefix(os.path.join(os.getcwd(), ""))


def _task_line(status: Status) -> str:
    limit = f"at most {status.max_parallel} trials at once"
    if status.state == states.FINISHED:
        return ""
    if status.tasks is None:
        return f"not known, {limit}"
    running = f"{status.tasks['running']} running"
    if status.spare_tasks:
        running += f", {status.spare_tasks} of them without a trial"
    if status.slots > 1 and status.tasks["running"]:
        slots = status.tasks["running"] * status.slots
        running += f" ({status.counts[outcomes.RUNNING]} of their {slots} slots in use)"
    return f"{running}, {status.tasks['pending']} pending; {limit}"


def trials_table(
    rows: Sequence[Row], study: Study, width: int | None = None, metrics: Sequence[str] = ()
) -> Any:
    """Return rows as a rich table that fits the width.

    Each parameter has a column where that fits; else they share one, wrapped. Parameters for which
    that is too narrow and reasons that do not fit stand below, where they have the whole width.

    Args:
        width: Columns of the terminal; rich's idea of it when None.
        metrics: Of the rows, that have a column each: what they are ranked by, what was asked for.
    """
    width = width or Console().width
    found = _columns(rows, study, metrics, wide=True)
    below: list[str] = []
    if _needed(found) > width and found[-1][0] == "reason":
        reasons = zip(rows, found.pop()[2], strict=True)
        below = [f"trial {row['trial']}: {reason}" for row, reason in reasons if reason]
    if _needed(found) > width:
        found = [(fold(heading, cells), numeric, cells) for heading, numeric, cells in found]
    if _needed(found) > width:
        found = _columns(rows, study, metrics, wide=False)
        if below:
            found.pop()
        beside = [column for column in found if column[0] != "parameters"]
        if len(beside) < len(found) and width - _needed(beside) < LEAST_ROOM:
            texts = zip(
                rows, next(column[2] for column in found if column not in beside), strict=True
            )
            below = [f"trial {row['trial']}: {text}" for row, text in texts if text] + below
            found = beside
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for heading, numeric, _ in found:
        table.add_column(
            Text(heading),
            justify="right" if numeric else "left",
            no_wrap=heading not in ("parameters", "reason"),
            overflow="fold",
            vertical="bottom" if "\n" in heading else "top",
        )
    for index, row in enumerate(rows):
        is_ranked = row["rank"] and row.get("feasible") is not False
        style = "dim" if not is_ranked else "bold" if row["rank"] == 1 else ""
        table.add_row(*(Text(cells[index]) for _, _, cells in found), style=style)
    if not below:
        return table
    return Group(table, Text(""), *(Text(text, style="dim", overflow="fold") for text in below))


Shown = tuple[str, bool, list[str]]  # heading, whether its cells are numbers, cells


def _needed(found: Sequence[Shown]) -> int:
    return sum(max(map(len, (*heading.splitlines(), *cells))) + 2 for heading, _, cells in found)


def fold(heading: str, cells: Sequence[str]) -> str:
    """Break a heading that is wider than its column at its dots, slashes and underscores."""
    room = max((6, *map(len, cells)))
    lines = [""]
    for part in re.findall(r"[^_./-]+[_./-]*|[_./-]+", heading):
        if lines[-1] and len(lines[-1] + part) > room:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _columns(rows: Sequence[Row], study: Study, metrics: Sequence[str], wide: bool) -> list[Shown]:
    """Return the columns that say something; what has no rank shows its state there."""
    found = [
        ("rank", True, [str(row["rank"] or row["state"]) for row in rows]),
        ("trial", True, [str(row["trial"]) for row in rows]),
    ]
    for metric in metrics:
        reported = [row["metrics"].get(metric) for row in rows]
        found.append((printable(metric), True, [shown_value(v) for v in reported]))
    for objective in study.objectives:
        name = objective.metric
        if study.is_multi_objective:
            values = [row["values"].get(name) for row in rows]
        else:
            values = [row["value"] for row in rows]
        found.append((printable(name), True, [shown_value(v) for v in values]))
        if study.is_replicated:
            spreads = [row["sds"][name] if "sds" in row else row["sd"] for row in rows]
            found.append(("± sd", True, [shown_value(v) for v in spreads]))
    if study.is_replicated:
        found.append(("n", True, [str(row["replicates"]) for row in rows]))
    if any(row.get("confirmed") for row in rows):
        found.append(("mean", True, means(rows, VALUE_DIGITS)))
    if study.constraints:
        words = {True: "yes", False: "no", None: ""}
        found.append(("feasible", False, [words[row.get("feasible")] for row in rows]))
    names = dict.fromkeys([*study.space.names(), *(name for row in rows for name in row["params"])])
    if wide:
        for name in names:
            present = [row["params"][name] for row in rows if name in row["params"]]
            numeric = all(type(value) in (int, float) for value in present)
            cells = [shown(r["params"][name]) if name in r["params"] else "" for r in rows]
            found.append((printable(name), numeric, cells))
    elif names:
        texts = [", ".join(f"{k}={shown(v)}" for k, v in row["params"].items()) for row in rows]
        found.append(("parameters", False, texts))
    times = [row["duration_s"] for row in rows]
    found.append(("time", True, ["" if t is None else stopwatch(t) for t in times]))
    if any(row["attempts"] > row.get("replicates", 1) for row in rows):
        found.append(("attempts", True, [str(row["attempts"]) for row in rows]))
    if any(row.get("retried") for row in rows):
        found.append(("retried", True, [str(row.get("retried", "")) for row in rows]))
    if any(row.get("code") for row in rows):
        found.append(("code", False, [row["code"] for row in rows]))
    if any(row["reason"] and row["state"] != outcomes.PRUNED for row in rows):
        found.append(("reason", False, [printable(row["reason"]) for row in rows]))
    return found


def progress_lines(status: Status) -> Any:
    """Return the progress bar as a rich renderable of three lines."""
    head = Table.grid(padding=(0, 1), expand=True)
    head.add_column(no_wrap=True)
    head.add_column(ratio=1)
    head.add_column(no_wrap=True, justify="right")
    head.add_row(
        Text(printable(status.name), style="bold"),
        StateBar(status.counts),
        Text(f"{status.done}/{status.total}", style="bold"),
    )
    below = _legend(status.counts)
    below.append("\n")
    if status.best:
        below.append(f"best {_best(status)}  ", style="bold")
    if status.left_s is not None:
        below.append(f"about {span(status.left_s, rough=True)} left")
    if status.state not in (studies.RUNNING, states.FINISHED):
        below.append(f"{status.state}", style=_STATE_COLOURS.get(status.state, ""))
        below.append(f": {printable(status.reason)}" if status.reason else "")
    return Group(head, below)
