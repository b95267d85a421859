"""Whose checkpoints stay: those of the best trials, and of those that have failed last."""

from __future__ import annotations

from pathlib import Path

from sweep.control.kept_checkpoints import FAILED_DAYS, remove_checkpoints
from sweep.core.paths import StudyFolder
from tests.study_rows import Row, fill, make_study

FAILED = {"state": "failed", "outcome": "error"}
CANCELLED = {"state": "cancelled", "outcome": "cancelled"}


def test_whose_are_kept(fresh_url: str, tmp_path: Path) -> None:
    """Of two best and the two latest failures; an old failure's and a cancelled trial's go."""
    rows = [
        *(Row(values=(value,)) for value in (0.1, 0.9, 0.5)),
        *(Row("FAIL", end=FAILED) for _ in range(4)),
        Row("FAIL", end=CANCELLED),
    ]
    ledger = fill(fresh_url, make_study(trials=8, keep=2), rows)
    for number, days in ((3, 3), (4, 2), (5, FAILED_DAYS + 1), (6, 1)):
        ledger.db.execute(
            "UPDATE trials SET datetime_complete = clock_timestamp() AT TIME ZONE 'UTC' "
            "- %s * interval '1 day' WHERE number = %s",
            (days, number),
        )
    folder = StudyFolder(tmp_path)

    def left() -> list[int]:
        return [n for n in range(8) if (folder.attempt(n, 1).checkpoints).exists()]

    for number in range(8):
        folder.attempt(number, 1).checkpoints.mkdir(parents=True)
    remove_checkpoints(ledger, folder, 7)
    assert left() == [1, 2, 4, 6]
    ledger.db.execute("UPDATE trials SET datetime_complete = now() - interval '30 days'")
    remove_checkpoints(ledger, folder, 1)
    assert left() == [1, 2]
    ledger.db.close()
