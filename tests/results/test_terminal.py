"""What people see: texts, tables and live views, drawn into memory."""

from __future__ import annotations

import dataclasses
import io
import itertools
import time
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from sweep.core.errors import DatabaseUnavailable
from sweep.core.outcomes import STATES
from sweep.core.space import Parameter, Space
from sweep.core.study import Objective, Replicates
from sweep.core.times import clock
from sweep.results import live, status, terminal
from sweep.results.failure_kinds import FailureKind, merge
from sweep.results.status import Status
from sweep.results.time_left import time_left_s
from sweep.storage.status_rows import Failure, Times
from tests.study_rows import NOON, make_study


def counts(**some: int) -> dict[str, int]:
    return dict.fromkeys(STATES, 0) | some


def make_status(**changes: Any) -> Status:
    given: dict[str, Any] = {
        "name": "digits",
        "state": "running",
        "reason": "",
        "metric": "acc",
        "trials": 10,
        "counts": counts(complete=3, pruned=1, running=2, waiting=4),
        "max_parallel": 2,
        "best": {"trial": 7, "value": 0.98123456, "params": {"lr": 0.0123456, "net": [1, 2]}},
        "tasks": {"pending": 1, "running": 2},
        "elapsed_s": 100.0,
        "left_s": 250.0,
        "started": NOON,
        "expected_end": NOON + timedelta(days=1),
        "trials_per_hour": 144.0,
    }
    return Status(**(given | changes))


def drawn(renderable: Any, width: int = 80, **options: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=width, **options).print(renderable)
    return out.getvalue()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (7, "7"),
        (0.000123456, "0.0001235"),
        ([1, 0.5, None], "[1, 0.5, null]"),
        ("a\x1b[31mb\nc", "a [31mb c"),
        ("é[red]", "é[red]"),
        ("1", '"1"'),
        ("null", '"null"'),
        (["1", 1, "a"], '["1", 1, a]'),
    ],
)
def test_shown(value, expected):
    """A value is short, and never a command to the terminal."""
    assert terminal.shown(value) == expected


@pytest.mark.parametrize(
    ("given", "width", "expected"),
    [
        (counts(), 10, []),
        (counts(waiting=3), 10, [("waiting", 10)]),
        (counts(complete=1, waiting=999), 10, [("complete", 1), ("waiting", 9)]),
        (
            counts(complete=1, pruned=1, running=1),
            10,
            [("complete", 4), ("pruned", 3), ("running", 3)],
        ),
        (
            counts(complete=1, pruned=1, running=1),
            2,
            [("complete", 1), ("pruned", 1), ("running", 1)],
        ),
        (
            counts(complete=98, failed=1, running=1),
            10,
            [("complete", 8), ("failed", 1), ("running", 1)],
        ),
    ],
)
def test_shares(given, width, expected):
    """Each state that has a trial is seen, and the bar is full."""
    assert terminal.shares(given, width) == expected


def test_panel():
    """The panel says everything, in 80 columns, without colours outside a terminal."""
    failure = FailureKind("exit code 1: [bold]x[/bold]", 2, 3, "/elsewhere/log.txt", ("tail",))
    found = make_status(
        counts=counts(complete=4, failed=2, waiting=4),
        failures=[failure],
        notes=["squeue did not answer."],
        state="held",
        reason="exit code 1",
        left_s=None,
        expected_end=None,
    )
    assert (
        drawn(terminal.status_panel(found))
        == """\
╭─ digits: held ───────────────────────────────────────────────────────────────╮
│ ███████████████████████████████✗✗✗✗✗✗✗✗✗✗✗✗✗✗✗······························ │
│ 6 of 10 trials have ended                                                    │
│ 4 complete  2 failed  4 waiting                                              │
│                                                                              │
│ why     exit code 1                                                          │
│ best    acc 0.981235 (trial 7)                                               │
│         lr=0.01235, net=[1, 2]                                               │
│ time    1 min 40 s so far, 144 trials/h                                      │
│ tasks   2 running, 1 pending; at most 2 trials at once                       │
│ failed  2 trials: exit code 1: [bold]x[/bold]                                │
│         trial 3: /elsewhere/log.txt                                          │
│         | tail                                                               │
│ note    squeue did not answer.                                               │
│ next    correct the command or the study file; then `sweep launch` goes on   │
╰──────────────────────────────────────────────────────────────────────────────╯
"""
    )


def test_panel_says_a_reason_once():
    """A study that is held by its failures does not repeat their reason."""
    failure = FailureKind("exit code 1: no", 2, 3)
    found = make_status(failures=[failure], state="held", reason="exit code 1: no")
    lines = drawn(terminal.status_panel(found)).splitlines()
    assert [line.strip("│ ") for line in lines if "exit code" in line or "reason" in line] == [
        "why     exit code 1: no",
        "failed  2 trials for that reason",
    ]


def test_panel_in_ascii():
    """A terminal without Unicode gets other signs, not an error."""

    class Ascii(io.StringIO):
        encoding = "ascii"  # type: ignore[assignment]

    out = Ascii()
    Console(file=out, width=40).print(terminal.status_panel(make_status()))
    first, bar, *_ = out.getvalue().splitlines()
    assert first == "+- digits: running --------------------+"
    assert bar == "| ###########++++=======.............. |"
    assert out.getvalue().isascii()


def test_panel_of_a_front():
    """Several objectives show trials of the front, and how many more there are."""
    front = [{"trial": n, "values": {"acc": 0.5, "ms": 1 / 3}, "params": {}} for n in range(9)]
    text = drawn(terminal.status_panel(make_status(best=None, front=front, front_size=30)))
    assert "trial 4: acc 0.5, ms 0.333333" in text
    assert "trial 5" not in text
    assert "and 25 more on the Pareto front" in text
    assert "│ front  trial 0:" in text


def test_no_colour_where_there_is_none(monkeypatch):
    """NO_COLOR is honoured on a terminal; a pipe gets no escape codes at all."""
    renderable = terminal.progress_lines(make_status())
    assert "\x1b" not in drawn(renderable)
    assert "\x1b[32m" in drawn(renderable, force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    text = drawn(renderable, force_terminal=True, color_system="standard")
    assert "\x1b[3" not in text


def test_the_best_of_several_trainings():
    """Its value is their mean."""
    best = {"trial": 7, "value": 0.98123456, "params": {}, "sd": 0.0123, "replicates": 3}
    assert "best acc 0.981235 ± 0.012 (trial 7, n 3);" in terminal.line(make_status(best=best))
    alone = {**best, "sd": None, "replicates": 1}
    assert "best acc 0.981235 (trial 7, n 1);" in terminal.line(make_status(best=alone))


def test_line():
    """One line for logs."""
    assert terminal.line(make_status(state="queued", reason="the scheduler says: Priority")) == (
        "digits: queued, 4 of 10 ended; 3 complete, 1 pruned, 2 running, 4 waiting; "
        "best acc 0.981235 (trial 7); about 4 min left; the scheduler says: Priority"
    )


def row(**changes: Any) -> dict[str, Any]:
    given = {
        "rank": 1,
        "trial": 12,
        "state": "complete",
        "value": 0.123456789,
        "params": {"lr": 0.1},
        "seed": 1,
        "attempts": 1,
        "duration_s": 61.0,
        "reason": "",
        "started": None,
        "ended": None,
    }
    return given | changes


def test_trials_table():
    """Short columns; what has no rank shows its state; reasons and attempts where they matter."""
    study = make_study(Space((Parameter("lr", "float", low=0, high=1),)))
    rows = [
        row(),
        row(
            rank=None,
            trial=3,
            state="failed",
            value=None,
            params={},
            attempts=3,
            duration_s=None,
            reason="exit code 1: no",
        ),
    ]
    text = drawn(terminal.trials_table(rows, study, width=80))
    assert [line.rstrip() for line in text.splitlines()] == [
        "  rank  trial       acc   lr  time  attempts  reason",
        "─────────────────────────────────────────────────────────────",
        "     1     12  0.123457  0.1  1:01         1",
        "failed      3                              3  exit code 1: no",
    ]


def test_what_ranks_has_a_column():
    """The metric that ranks stands before the objective, empty where a trial has none."""
    study = make_study(Space((Parameter("lr", "float", low=0, high=1),)))
    rows = [row(metrics={"loss:min": 0.25, "loss": 2.0}), row(rank=None, trial=3, metrics={})]
    text = drawn(terminal.trials_table(rows, study, width=80, metrics=["loss:min"]))
    assert [line.split() for line in text.splitlines()][::2] == [
        ["rank", "trial", "loss:min", "acc", "lr", "time"],
        ["1", "12", "0.25", "0.123457", "0.1", "1:01"],
    ]


def test_reasons_that_do_not_fit_stand_below():
    """A long reason does not squeeze the table: it has the whole width below it."""
    study = make_study(Space((Parameter("lr", "float", low=0, high=1),)))
    rows = [row(rank=None, trial=3, state="failed", value=None, reason="exit code 1: " + "x" * 80)]
    text = drawn(terminal.trials_table(rows, study, width=80))
    assert [line.rstrip() for line in text.splitlines()] == [
        "  rank  trial  acc   lr  time",
        "─────────────────────────────",
        "failed      3       0.1  1:01",
        "",
        "trial 3: exit code 1:",
        "x" * 80,
    ]


def test_trials_table_fits():
    """Thirty parameters share one column, and no line is wider than the terminal."""
    names = [f"model.block{n}.width" for n in range(30)]
    study = make_study(Space(tuple(Parameter(name, "int", low=1, high=9) for name in names)))
    rows = [row(params=dict.fromkeys(names, 7))]
    text = drawn(terminal.trials_table(rows, study, width=80))
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[0].split() == ["rank", "trial", "acc", "parameters", "time"]
    assert all(f"{name}=7" in text for name in names)


def test_parameters_without_room_stand_below():
    """Not as a column of four letters: they have the whole width below the table."""
    names = [f"model.block{n}.width" for n in range(3)]
    study = make_study(Space(tuple(Parameter(name, "int", low=1, high=9) for name in names)))
    metrics = [f"a.long.metric.{n}" for n in range(3)]
    rows = [row(params=dict.fromkeys(names, 7), metrics=dict.fromkeys(metrics, 1.0))]
    lines = drawn(terminal.trials_table(rows, study, width=80, metrics=metrics)).splitlines()
    assert lines[0].split() == ["rank", "trial", *metrics, "acc", "time"]
    assert lines[-1] == "trial 12: " + ", ".join(f"{name}=7" for name in names)


def test_headings_fold_before_columns_collapse():
    """Where only long names do not fit, they take two lines."""
    names = ["optimizer_momentum", "batch_size", "weight_decay", "dropout_rate", "warmup_steps"]
    study = make_study(Space(tuple(Parameter(name, "int", low=1, high=9) for name in names)))
    rows = [row(params=dict.fromkeys(names, 7))]
    assert "optimizer_momentum" in drawn(terminal.trials_table(rows, study, width=120), 120)
    lines = drawn(terminal.trials_table(rows, study, width=80)).splitlines()
    assert lines[0].split() == ["optimizer_", "batch_", "weight_", "dropout_", "warmup_"]
    assert lines[1].split() == [
        "rank",
        "trial",
        "acc",
        "momentum",
        "size",
        "decay",
        "rate",
        "steps",
        "time",
    ]


def test_several_objectives_have_a_column_each():
    """The table shows each objective's value."""
    study = make_study(
        Space(), objectives=(Objective("acc", "maximize"), Objective("ms", "minimize"))
    )
    text = drawn(terminal.trials_table([row(values={"acc": 0.5, "ms": 2.0}, value=None)], study))
    assert text.splitlines()[0].split() == ["rank", "trial", "acc", "ms", "lr", "time"]
    assert text.splitlines()[2].split() == ["1", "12", "0.5", "2", "0.1", "1:01"]


def test_each_of_several_objectives_has_its_deviation():
    """A deviation stands behind the mean that it belongs to."""
    objectives = (Objective("acc", "maximize"), Objective("ms", "minimize"))
    study = make_study(Space(), objectives=objectives, replicates=Replicates(2, 2))
    sds = {"acc": 0.25, "ms": 0.75}
    means = row(values={"acc": 0.5, "ms": 2.0}, value=None, sd=0.25, sds=sds, replicates=2)
    lines = drawn(terminal.trials_table([means], study)).splitlines()
    assert " ".join(lines[0].split()) == "rank trial acc ± sd ms ± sd n lr time"
    assert lines[2].split() == ["1", "12", "0.5", "0.25", "2", "0.75", "2", "0.1", "1:01"]


def test_watch_prints_lines_where_there_is_no_terminal(monkeypatch):
    """A line when something changed, at once and at the end; an outage is said and outlived."""
    monkeypatch.setattr(live, "LINE_EVERY_S", 0.0)
    running = make_status()
    done = make_status(state="finished", counts=counts(complete=10), left_s=None)
    away = DatabaseUnavailable("The database does not answer.", "Wait.")
    answers = iter([running, running, away, running, done])

    def get_status() -> Status:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    out = io.StringIO()
    last = live.watch(get_status, 0.0, Console(file=out, width=40), sleep=lambda _: None)
    assert last is done
    assert out.getvalue().splitlines() == [
        terminal.line(running),
        "The database does not answer.",
        terminal.line(running),
        terminal.line(done),
    ]


def test_ctrl_c_ends_the_watch():
    """Its last status stays on the screen; the command line says what goes on."""
    running = make_status()

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with pytest.raises(KeyboardInterrupt):
        live.watch(lambda: running, 1.0, console, sleep=interrupt)
    assert "3 complete" in console.file.getvalue()  # type: ignore[attr-defined]


def test_lines_are_not_more_often_than_they_may_be():
    """Changes within five seconds make one line, and the last one is never lost."""
    out = io.StringIO()
    seconds = itertools.count()
    bar = live.Progress(Console(file=out, width=40), clock_s=lambda: float(next(seconds)))
    lines = []
    with bar:
        for complete in range(3):
            found = make_status(counts=counts(complete=complete, waiting=10 - complete))
            lines.append(terminal.line(found))
            bar.update(found)
        bar.say("trial 5 was dead")
    assert out.getvalue().splitlines() == [lines[0], "trial 5 was dead", lines[2]]


def test_slots_in_use():
    """Where tasks serve several trials at once, how many of their slots are in use is said."""
    one = make_status(tasks={"running": 2, "pending": 3}, counts=counts(running=7, waiting=3))
    assert "2 running, 3 pending; " in drawn(terminal.status_panel(one), width=120)
    several = drawn(terminal.status_panel(dataclasses.replace(one, slots=4)), width=120)
    assert "2 running (7 of their 8 slots in use), 3 pending; " in several


def test_progress_on_a_terminal():
    """The bar shows its name, its share, the counts, the best and the time left."""
    text = drawn(terminal.progress_lines(make_status()), width=60)
    assert text.splitlines() == [
        "digits ██████████████▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒··················· 4/10",
        "3 complete  1 pruned  2 running  4 waiting",
        "best acc 0.981235 (trial 7)  about 4 min left",
    ]


@pytest.mark.parametrize(
    ("given", "mean_s", "running_s", "parallel", "slots", "draining", "expected"),
    [
        (counts(waiting=4), None, (), 2, 0, False, None),  # nothing is known yet
        (counts(waiting=4), 10.0, (), 2, 0, False, 20.0),
        (counts(waiting=4), 10.0, (), 2, 1, False, 40.0),  # one slot of two runs
        (counts(waiting=4, running=2), 10.0, (5.0, 5.0), 2, 2, False, 25.0),
        (counts(waiting=0, running=2), 10.0, (2.0, 9.0), 2, 2, False, 8.0),  # the longer one
        (counts(waiting=0, running=1), 10.0, (99.0,), 2, 1, False, 0.0),  # overdue
        (counts(waiting=1, running=100), 10.0, (9.0,) * 100, 100, 0, False, 10.0),
        (counts(waiting=50, running=1), 10.0, (4.0,), 2, 1, True, 6.0),
    ],
)
def test_time_left(given, mean_s, running_s, parallel, slots, draining, expected):
    """What is left, at the mean of what was, over what runs at once."""
    times = Times(now=NOON, mean_s=mean_s, running_s=running_s)
    assert time_left_s(given, times, parallel, slots, draining=draining) == expected


def test_failures_that_differ_in_numbers_are_one_kind():
    """Exit codes stay apart; numbers within the message do not."""
    failures = [
        Failure("exit code 1: lr 0.3 at 0x7f3a", 1, 9, 1),
        Failure("exit code 2: lr 0.3 at 0x7f3a", 2, 8, 1),
        Failure("exit code 1: lr 1e-05 at 0x99", 3, 7, 1),
    ]
    assert merge(failures) == [
        Failure("exit code 1: lr 0.3 at 0x7f3a", 4, 9, 1),
        Failure("exit code 2: lr 0.3 at 0x7f3a", 2, 8, 1),
    ]


@pytest.mark.parametrize(
    ("state", "some", "expected"),
    [
        ("finished", {"complete": 10}, True),
        ("held", {"failed": 3, "waiting": 7}, True),
        ("held", {"failed": 3, "running": 1}, False),
        ("stopped", {"waiting": 10}, True),
        ("idle", {"waiting": 10}, False),
        ("running", {"waiting": 10}, False),
        ("draining", {"running": 1}, False),
    ],
)
def test_is_over(state, some, expected):
    """A view ends when nothing more happens by itself."""
    assert make_status(state=state, counts=counts(**some)).is_over is expected


def test_times_are_local(monkeypatch):
    """A moment of today is an hour; another has its day."""
    monkeypatch.setenv("TZ", "UTC-5")  # POSIX: five hours east
    time.tzset()
    try:
        shown = [clock(NOON + timedelta(hours=h), NOON) for h in (1, 8, 48)]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert shown == ["18:00", "Mon 02 Mar, 01:00", "Tue 03 Mar, 17:00"]


def test_status_is_read_only():
    """A status is a value: screens cannot change it."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_status().state = status.IDLE  # type: ignore[misc]
