"""``sweep logs`` of a study that has ended."""

from __future__ import annotations

from tests.cli.commands import collected
from tests.conftest import Sweep


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
