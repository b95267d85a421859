"""Whose checkpoints are kept once their trials have ended: of the best, and of what failed last.

A failed trial's are what shows why it failed, and what it may be tried again from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from sweep.core.attributes import END
from sweep.core.errors import SweepError
from sweep.core.files import remove_tree
from sweep.core.outcomes import PAUSED
from sweep.core.paths import StudyFolder
from sweep.storage import trial_rows
from sweep.storage.budgets import CUT
from sweep.storage.ledger import Ledger

FAILED_DAYS = 7  # after that a failed trial's go with the next trial that ends


def remove_checkpoints(ledger: Ledger, folder: StudyFolder, number: int) -> None:
    """Remove a final trial's checkpoints unless they are kept, and those that it displaced.

    The ``keep`` best trials keep theirs, and so do the ``keep`` that have failed last.
    """
    study = ledger.study
    if study.is_multi_objective:
        return  # which of a front is best is not ours to say
    # Several may have been displaced at once, by as many as run.
    many = study.keep + study.parallel
    best = ledger.best_numbers(many, infeasible=True)
    failed = ledger.failed_numbers(many)
    kept = _keep(best[: study.keep], failed[: study.keep])
    gone = {*best, *(trial for trial, _ in failed)} - kept
    if number not in kept and not may_go_on(ledger, number):
        gone.add(number)
    for trial in gone:
        for path in checkpoint_folders(folder, trial):
            with contextlib.suppress(SweepError):
                remove_tree(path)


def kept_numbers(ledger: Ledger) -> set[int]:
    """Return the trials that keep their checkpoints: the best, and what has failed last."""
    keep = ledger.study.keep
    return _keep(ledger.best_numbers(keep, infeasible=True), ledger.failed_numbers(keep))


def _keep(best: Sequence[int], failed: Sequence[tuple[int, float]]) -> set[int]:
    return {*best, *(trial for trial, days in failed if days <= FAILED_DAYS)}


def may_go_on(ledger: Ledger, number: int) -> bool:
    """Tell whether a final trial was cut by its study's end, or paused: it keeps what it has."""
    found = ledger.find_trial(number)
    end = trial_rows.read_attribute(ledger.db, "user", found[0], END) if found else None
    return isinstance(end, dict) and end.get("outcome") in (CUT, PAUSED)


def checkpoint_folders(folder: StudyFolder, number: int) -> list[Path]:
    """Return the folders with checkpoints that a trial's attempts have left."""
    attempts = folder.trial(number) / "attempts"
    names = ("checkpoints", "best", ".checkpoints", ".best", ".best-before")
    return [path for name in names for path in attempts.glob(f"*/{name}")]
