"""What a study's folder knows without its database: names of studies, trials, metrics."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path

from sweep.core.errors import SweepError
from sweep.core.files import read_text
from sweep.core.paths import Runs, StudyFolder
from sweep.core.study import Study
from sweep.training.journal import Journal

_STUDY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")  # what a study may be called
_NUMBER = re.compile(r"[0-9]{1,9}")
_TRIALS_READ = 3  # trainings of one study report the same
_REPORTS_READ = 20


def study_names(runs: Runs) -> list[str]:
    """Return the studies that have a folder here."""
    return [name for name in runs.studies() if _STUDY.fullmatch(name)]


def last_study(runs: Runs) -> str:
    """Return the study last launched from here; "" where none is noted."""
    try:
        return read_text(runs.last).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def read_study(folder: StudyFolder) -> Study | None:
    """Return a study as it was launched; None where its file is gone or damaged."""
    try:
        return Study.read(folder.study)
    except SweepError:
        return None


def trial_numbers(folder: StudyFolder) -> list[str]:
    """Return the numbers of the trials that have started, ascending."""
    return [str(number) for number in _numbers_in(folder.root / "trials")]


def metric_names(folder: StudyFolder) -> list[str]:
    """Return the objectives' metrics, and what the first trials have reported beside them."""
    study = read_study(folder)
    found = dict.fromkeys(objective.metric for objective in study.objectives) if study else {}
    for number in _numbers_in(folder.root / "trials")[:_TRIALS_READ]:
        for attempt in _numbers_in(folder.trial(number) / "attempts"):
            with closing(Journal(folder.attempt(number, attempt))) as journal:
                for report in journal.read(_REPORTS_READ):
                    found |= dict.fromkeys(report.metrics)
    return list(found)


def _numbers_in(folder: Path) -> list[int]:
    """Return the numbers that are names in a folder, ascending; none where it is not there."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))
