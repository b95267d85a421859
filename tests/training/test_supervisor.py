"""Watching one training: what it was told, and what it made of that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import DatabaseUnavailable
from sweep.core.outcomes import HALTED, TOO_LONG
from sweep.core.paths import AttemptFolder
from sweep.core.study import Objective
from sweep.core.system import processes
from sweep.core.trial import Reading, Report
from sweep.training import supervisor as supervising
from sweep.training.exit_reason import classify
from sweep.training.journal import MOST_REPORTS, Journal
from sweep.training.leave import Leave
from sweep.training.supervisor import STOPPED_NOW, Channel, Ended, Supervisor
from tests.study_rows import make_study
from tests.waiting import returns

ROOT = Path(__file__).parents[2]
# Processes are ended by it: another run of these tests on this machine has another one.
TOKEN = f"a-token-of-these-tests-{os.getpid()}"
PATTERN = Objective("loss", "minimize", pattern="value=([0-9.]+)")

BEGIN = """
import json, os, signal, sys, time
control = os.environ["SWEEP_CONTROL"]
print("value=0.5", flush=True)
def told():
    while not os.path.exists(control):
        time.sleep(0.01)
"""
REPORTER = BEGIN + "from sweep.report import Reporter; r = Reporter(); r.log(loss=1.0); told()\n"
SAVES_AND_LEAVES = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"


class Quiet(Channel):
    """The outside: it takes every report, and wants training to leave once that has begun."""

    def __init__(self, word: str, leave: Leave, began: Path, slow: float = 1.0) -> None:
        self.word = word
        self.slow = slow
        self.leave = leave
        self.began = began

    def record(self, reports: Sequence[Report], reading: Reading) -> None:
        pass

    def touch(self) -> str:
        self.leave.hurry = not self.began.exists()
        return self.word if self.word and self.began.exists() else ""

    def slowdown(self) -> float:
        return self.slow


def watch(
    tmp_path: Path,
    script: str,
    leave: Leave,
    *,
    stops: bool = False,
    word: str = "",
    ran_s: float = 0.0,
    slow: float = 1.0,
    **more: Any,
) -> Ended:
    """Run a training under a supervisor which hurries, so that it hears of a stop at once.

    Args:
        ran_s: It was started so long before.
        slow: So much longer it takes beside others on its GPU.
    """
    folder = AttemptFolder(tmp_path)
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SWEEP_METRICS": str(folder.metrics),
        "SWEEP_CONTROL": str(folder.control),
        "SWEEP_TOKEN": TOKEN,
    }
    study = make_study(**{"objectives": (Objective("loss"),), "grace_s": 30, **more})
    child = processes.spawn(
        [sys.executable, "-c", script], cwd=tmp_path, env=environ, stdout=folder.log
    )
    leave.folder = folder
    leave.hurry = True
    journal = Journal(folder, study.objectives)
    started = time.monotonic() - ran_s
    began = folder.answer if "Reporter" in script else folder.log
    quiet = Quiet(word or (HALTED if stops else ""), leave, began, slow)
    return Supervisor(child, TOKEN, folder, study, journal, quiet, leave, began=started).run()


STOPPED = [
    # It reports: whether it has seen the word is known.
    ("never saw it", REPORTER, {}, ""),
    ("saw it", REPORTER + "r.should_stop()\n", {}, HALTED),
    ("saw it, and had finished", REPORTER + "r.should_stop(); r.done()\n", {}, ""),
    ("failed", REPORTER + "sys.exit(3)\n", {}, HALTED),
    # It writes the file of its metrics by itself: who knows what else it reads?
    ("may have seen it", BEGIN + "told()\n", {}, HALTED),
    # It knows nothing of sweep, and gets SIGTERM at once: what follows is not its own end.
    (
        "knows nothing, and leaves when signalled",
        BEGIN + SAVES_AND_LEAVES + "time.sleep(60)\n",
        {"objectives": (PATTERN,)},
        HALTED,
    ),
    # Its metric is read from what it prints, and it asks the reporter: it has its grace.
    ("prints, and asks", REPORTER + "time.sleep(0.5)\n", {"objectives": (PATTERN,)}, ""),
    (
        "prints, and saw it",
        REPORTER + "r.should_stop(); time.sleep(0.5)\n",
        {"objectives": (PATTERN,)},
        HALTED,
    ),
    # Its grace is over.
    (
        "left when signalled",
        SAVES_AND_LEAVES.join((BEGIN, REPORTER + "time.sleep(60)\n")),
        {"grace_s": 1},
        HALTED,
    ),
    (
        "had finished all the same",
        SAVES_AND_LEAVES.join((BEGIN, REPORTER + "r.done(); time.sleep(60)\n")),
        {"grace_s": 1},
        "",
    ),
]


@pytest.mark.parametrize(
    ("script", "more", "told"), [row[1:] for row in STOPPED], ids=[row[0] for row in STOPPED]
)
def test_stopped(tmp_path: Path, script: str, more: dict[str, Any], told: str) -> None:
    """A training that never saw the word, and ended well by itself, has finished."""
    assert watch(tmp_path, script, Leave(4.0, 58.0), stops=True, **more).told == told


@pytest.mark.parametrize(
    ("number", "more", "told"),
    [
        (signal.SIGUSR1, "", ""),
        (signal.SIGUSR1, "r.should_stop()\n", "checkpoint"),
        # Whoever ends its task so may have ended training so as well.
        (signal.SIGTERM, "", "checkpoint"),
        (signal.SIGTERM, "r.done()\n", ""),
    ],
)
def test_asked_by_a_signal(tmp_path: Path, number: int, more: str, told: str) -> None:
    """The same by the signal before a time limit; SIGTERM may have reached training itself."""
    leave = Leave(60.0, 58.0)
    leave.on_signal(number, None)
    assert watch(tmp_path, REPORTER + more, leave).told == told


def test_one_that_reports_all_the_time_hears_of_a_stop(tmp_path: Path) -> None:
    """Also where each look finds new reports."""
    script = REPORTER.replace("told()\n", "\n") + (
        "while not r.should_stop():\n    r.log(loss=1.0)\n    time.sleep(0.001)\n"
    )
    assert watch(tmp_path, script, Leave(4.0, 58.0), stops=True).told == HALTED


def test_a_stop_is_not_told_twice_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the word has ``grace``, and no more: also where that is short."""
    monkeypatch.setattr(supervising, "PRUNE_GRACE_S", 3600.0)  # what a pruned one has
    script = REPORTER + "time.sleep(600)\n"
    began = time.monotonic()
    ended = returns(lambda: watch(tmp_path, script, Leave(4.0, 58.0), stops=True, grace_s=2))
    assert (ended.told, ended.signal) == (HALTED, signal.SIGTERM)
    assert time.monotonic() - began > 2.0


@pytest.mark.parametrize(
    ("numbers", "end_in_s", "is_for_limit"),
    [
        ((), 100.0, False),
        ((signal.SIGUSR1,), 60.0, True),
        ((signal.SIGUSR1,), 119.0, True),  # Slurm may send it a minute early
        ((signal.SIGUSR1,), 3600.0, False),  # preemption (send_user_signal)
        ((signal.SIGUSR1,), None, True),
        ((signal.SIGTERM,), None, False),
        ((signal.SIGTERM,), 1.0, True),
        ((signal.SIGTERM,), 3600.0, False),
        ((signal.SIGUSR1, signal.SIGTERM), 60.0, True),
    ],
)
def test_whether_the_limit_asks(
    numbers: Sequence[int], end_in_s: float | None, is_for_limit: bool
) -> None:
    """The time that is left tells the signal of a time limit from that of a preemption."""
    leave = Leave(4.0, 58.0, None if end_in_s is None else time.time() + end_in_s)
    for number in numbers:
        leave.on_signal(number, None)
    assert leave.is_for_limit is is_for_limit


@pytest.mark.parametrize(
    ("numbers", "end_in_s", "left_s"),
    [
        ((signal.SIGUSR1,), 118.0, 116.0),  # for the limit, a minute early: all of that
        ((signal.SIGUSR1,), 3600.0, None),  # a preemption: its GraceTime is Slurm's to know
        ((signal.SIGUSR1,), None, None),
        ((signal.SIGUSR1,), -5.0, None),  # the limit was raised
        ((signal.SIGUSR1, signal.SIGTERM), 3600.0, 4.0),  # and is over
        ((signal.SIGTERM,), 3600.0, 4.0),
    ],
)
def test_nothing_is_killed_before_slurm_does(
    numbers: Sequence[int], end_in_s: float | None, left_s: float | None
) -> None:
    """Where SIGTERM follows the first signal, that alone says when its time is over."""
    began = time.monotonic()
    end_s = None if end_in_s is None else time.time() + end_in_s
    leave = Leave(4.0, 58.0, end_s, term_follows=True)
    for number in numbers:
        leave.on_signal(number, None)
    took_s = time.monotonic() - began
    assert leave.wanted
    if left_s is None:
        assert leave.deadline is None
    else:
        assert leave.deadline is not None
        assert leave.deadline - began == pytest.approx(left_s, abs=0.1 + took_s)


def test_a_grace_time_reaches_training(tmp_path: Path) -> None:
    """It is told at once and may take all of it; SIGTERM at its end ends one that stays."""
    script = REPORTER + "time.sleep(600)\n"
    leave = Leave(4.0, 1.0, time.time() + 3600.0, term_follows=True)
    leave.on_signal(signal.SIGUSR1, None)
    timer = threading.Timer(6.0, leave.on_signal, (signal.SIGTERM, None))
    began = time.monotonic()
    timer.start()
    ended = watch(tmp_path, script, leave)
    timer.join()
    assert (ended.told, ended.signal) == ("checkpoint", signal.SIGTERM)
    assert time.monotonic() - began >= 7.0  # 6 s, and of the 4 s all but the 3 s for its own end


BARE = "os.execve(sys.executable, [sys.executable, '-c', {!r}], {{}})\n"
LOOPS = "import time\nwhile True: time.sleep(0.1)"


def test_a_training_that_wrote_over_its_environment_is_ended(tmp_path: Path) -> None:
    """As a long process title does: it carries no token, but it is our child."""
    script = BEGIN + "told()\n" + BARE.format(LOOPS)
    ended = watch(tmp_path, script, Leave(4.0, 58.0), stops=True, grace_s=3)
    assert (ended.told, ended.signal) == (HALTED, signal.SIGTERM)


def test_its_time_counts_from_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from when it was noted: the database may have been away. And whom we have ended ourselves
    has not left because of a signal of Slurm's, which would be waited for."""
    monkeypatch.setattr(supervising, "SIGNAL_LAG_S", 3600.0)
    script = BEGIN + "time.sleep(3600)\n"
    limits = {"objectives": (PATTERN,), "trial_time_s": 1000}
    ended = watch(tmp_path, script, Leave(4.0, 58.0), ran_s=1000, **limits)
    assert (ended.told, ended.signal) == (TOO_LONG, signal.SIGTERM)


def test_its_time_is_stretched_where_it_shares_its_gpu(tmp_path: Path) -> None:
    """By as much longer as it takes there than alone, and no more."""
    script, limits = BEGIN + "time.sleep(1)\n", {"objectives": (PATTERN,), "trial_time_s": 600}
    ended = watch(tmp_path, script, Leave(4.0, 58.0), ran_s=1000, slow=2.0, **limits)
    assert (ended.told, ended.exit_code) == ("", 0)
    script = BEGIN + "time.sleep(3600)\n"
    ended = watch(tmp_path, script, Leave(4.0, 58.0), ran_s=1300, slow=2.0, **limits)
    assert (ended.told, ended.signal) == (TOO_LONG, signal.SIGTERM)


def test_a_training_that_cannot_be_ended_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, but alive: that is said in its log, and tried again until it is gone."""
    end, tries = processes.end_child, []

    def fail_once(*args: Any, **more: Any) -> bool:
        tries.append(args)
        return len(tries) > 1 and end(*args, **more)

    monkeypatch.setattr(processes, "end_child", fail_once)
    monkeypatch.setattr(supervising, "END_AGAIN_S", 0.1)
    script = BEGIN + "time.sleep(600)\n"
    ended = watch(tmp_path, script, Leave(4.0, 58.0), stops=True, grace_s=1)
    assert ended.signal == signal.SIGTERM
    assert len(tries) >= 2
    assert "it cannot be ended: killed, and alive" in AttemptFolder(tmp_path).log.read_text()


# Stops itself for longer than a limit (its child wakes it), then goes on to its end.
LIMIT_S = 8
WAKE = "until grep -q 'State:.T' /proc/{0}/status; do sleep 0.05; done; sleep 11; kill -CONT {0}"
STOPS = f"""
import subprocess, os, signal, time
from sweep.report import Reporter
r = Reporter(); r.log(loss=1.0)
subprocess.Popen(["sh", "-c", {WAKE!r}.format(os.getpid())])
os.kill(os.getpid(), signal.SIGSTOP)
r.log(loss=0.5)
"""


@pytest.mark.parametrize("limit", ["stall_time_s", "trial_time_s"])
def test_the_time_in_which_training_was_stopped_does_not_count(tmp_path: Path, limit: str) -> None:
    """Neither for a stall nor for the trial's own time; what it lost is known."""
    ended = watch(tmp_path, STOPS, Leave(4.0, 58.0), **{limit: LIMIT_S})
    assert (ended.exit_code, ended.told) == (0, "")
    assert ended.suspended_s > LIMIT_S


def test_a_stop_within_a_look_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our clock jumps between the beginning of a look and the question how long it was quiet."""
    idle_s, jumps = Journal.idle_s, []

    def jump(journal: Journal) -> float:
        if not jumps and journal.folder.answer.exists():
            jumps.append(time.sleep(LIMIT_S + 1))
        return idle_s(journal)

    monkeypatch.setattr(Journal, "idle_s", jump)
    script = REPORTER.replace("told()\n", f"time.sleep({LIMIT_S + 3})\n")
    ended = watch(tmp_path, script, Leave(4.0, 58.0), stall_time_s=LIMIT_S)
    assert jumps
    assert (ended.exit_code, ended.told) == (0, "")


def test_the_time_in_which_sweep_was_stopped_does_not_count(tmp_path: Path) -> None:
    """Both were suspended together: our own clock has jumped."""
    leave = Leave(4.0, 58.0)
    leave.listen()
    script = f"""
import os, signal, subprocess, time
wake = {WAKE!r}.format(os.getpid()) + " {os.getpid()}"  # once both are stopped
subprocess.Popen(["sh", "-c", wake])
os.kill({os.getpid()}, signal.SIGSTOP); os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(1)
"""
    try:
        ended = watch(tmp_path, script, leave, stall_time_s=LIMIT_S, trial_time_s=LIMIT_S)
    finally:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)
    assert (ended.exit_code, ended.told) == (0, "")
    assert ended.suspended_s > LIMIT_S


MANY = 3 * MOST_REPORTS + 7


class Away(Channel):
    """A database that is away at first."""

    def __init__(self) -> None:
        self.is_away = True
        self.parts: list[list[int]] = []
        self.positions: list[str] = []

    def record(self, reports: Sequence[Report], reading: Reading) -> None:
        if self.is_away:
            raise DatabaseUnavailable("away")
        self.parts.append([report.step for report in reports])
        self.positions.append(reading.position)

    def touch(self) -> str:
        return ""


def test_a_cancelled_trial_has_its_grace_or_none(tmp_path: Path) -> None:
    """It is told to leave and may save; without grace it is ended, however it resists."""
    script = REPORTER + "r.should_stop(); time.sleep(600)\n"
    kept = tmp_path / "grace"
    kept.mkdir()
    ended = watch(kept, REPORTER + "r.should_stop()\n", Leave(4.0, 58.0), word="cancelled")
    assert (ended.told, ended.exit_code) == ("cancelled", 0)
    at_once = tmp_path / "now"
    at_once.mkdir()
    ended = watch(at_once, script, Leave(4.0, 58.0), word=STOPPED_NOW, grace_s=3000)
    assert (ended.told, ended.signal) == ("cancelled", 15)
    assert classify(None, 15, ended.told).outcome == "cancelled"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_what_it_holds_is_bounded(
    tmp_path: Path, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWAY_PAUSE_S", "FORWARD_EVERY_S"):
        monkeypatch.setattr(supervising, name, 0.0)
    folder = AttemptFolder(tmp_path)
    lines = (f'{{"step": {step}, "metrics": {{"loss": 1.0}}}}\n' for step in range(MANY))
    folder.metrics.write_text("".join(lines))
    channel, journal = Away(), Journal(folder)
    watch = Supervisor(child, "token", folder, make_study(), journal, channel, Leave(4.0, 30.0))
    for _ in range(5):
        watch.step()
        assert len(watch.unsent) == MOST_REPORTS
    channel.is_away = False
    for _ in range(5):
        watch.step()
    assert [len(part) for part in channel.parts] == [MOST_REPORTS] * 3 + [7]
    assert [step for part in channel.parts for step in part] == list(range(MANY))
    # Each part is stored with up to where it reaches: whoever goes on from there reads the rest.
    last_part = Journal(folder, position=channel.positions[2]).read()
    assert [report.step for report in last_part] == channel.parts[3]


class Counting(Journal):
    """A journal that counts how often its files were looked at."""

    looks = 0

    def read(self, most: int = MOST_REPORTS, *, final: bool = False) -> list[Report]:
        self.looks += not final
        return super().read(most, final=final)


def test_files_of_a_silent_training_are_looked_at_once_a_second(tmp_path: Path) -> None:
    """They lie on a file system that a thousand tasks share; one that reports is read at once."""
    folder = AttemptFolder(tmp_path)
    folder.checkpoints.mkdir(parents=True)
    script = (
        "import json, os, time\n"
        "time.sleep(6)\n"
        "for step in range(40):\n"
        "    line = json.dumps({'step': step, 'metrics': {'loss': 1.0}}) + chr(10)\n"
        "    open(os.environ['SWEEP_METRICS'], 'a').write(line)\n"
        "    time.sleep(0.1)\n"
    )
    seen: list[tuple[float, int]] = []

    class Taking(Channel):
        def record(self, reports: Sequence[Report], reading: Reading) -> None:
            seen.append((time.monotonic(), journal.looks))

        def touch(self) -> bool:
            return False

    journal = Counting(folder)
    began = time.monotonic()
    child = processes.spawn(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "SWEEP_METRICS": str(folder.metrics), "SWEEP_TOKEN": TOKEN},
        stdout=folder.log,
    )
    leave = Leave(4.0, 58.0)
    Supervisor(child, TOKEN, folder, make_study(), journal, Taking(), leave).run()
    first, silent = seen[0]
    assert silent <= 8 + (first - began), "doubling pauses up to a second, then one a second"
    assert journal.looks - silent >= 4, "often while lines come"
