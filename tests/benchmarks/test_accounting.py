"""What the benchmark of orchestration adds up: schedules, gaps, and the CPU of all descendants."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks import accounting
from benchmarks.accounting import Note
from benchmarks.orchestration import CASES, skewed

SPIN = "import time\nwhile time.process_time() < {}: pass"


@pytest.mark.parametrize(
    ("durations", "slots", "expected"),
    [((1.0,) * 200, 16, 13.0), ((3, 1, 1, 1), 2, 3.0), ((1, 1, 1, 3), 2, 4.0), ((2,), 16, 2.0)],
)
def test_list_schedule(durations: tuple[float, ...], slots: int, expected: float) -> None:
    assert accounting.list_schedule_s(durations, slots) == expected


def test_skewed_durations() -> None:
    """One in 20 is six times longer, and the mean is as said; the same at each run."""
    durations = skewed(100, 3.0)
    assert sum(durations) / 100 == pytest.approx(3.0)
    assert sorted(set(durations)) == pytest.approx([2.4, 14.4])
    assert durations.count(max(durations)) == 5
    assert durations == CASES["skewed"].durations


def test_gaps_and_cycles() -> None:
    """Gaps lie between trials of one slot; a cycle is counted from a slot's second trial on."""
    notes = [
        Note(0, 7, 0.20, 10.0, 11.0),
        Note(1, 8, 0.30, 10.5, 11.5),
        Note(2, 7, 0.40, 11.1, 12.1),
        Note(3, 7, 0.42, 12.3, 13.3),
        Note(4, 7, 0.46, 13.4, 14.4),
    ]
    assert accounting.gaps_s(notes) == pytest.approx([0.1, 0.2, 0.1])
    assert accounting.cycle_cpu_s(notes) == pytest.approx(0.03)
    assert accounting.cycle_cpu_s(notes[:3]) is None


def test_cpu_of_what_went_into_the_background(tmp_path: Path) -> None:
    """A grandchild whose parent has ended counts, and the run lasts until it has ended."""
    script = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", {SPIN.format(0.4)!r}], start_new_session=True)
os._exit(3)
"""
    ran = accounting.run([[sys.executable, "-c", script]], dict(os.environ), tmp_path / "log")
    assert ran.exit_codes == (3,)
    assert ran.all_cpu_s - ran.own_cpu_s >= 0.4
    assert ran.own_cpu_s < ran.all_cpu_s


def test_cpu_of_a_tree_that_lives() -> None:
    """From /proc: this process and what it has waited for, no less than it knows of itself."""
    times = os.times()
    known = times.user + times.system + times.children_user + times.children_system
    assert accounting.tree_cpu_s(os.getpid()) >= known - 0.1
