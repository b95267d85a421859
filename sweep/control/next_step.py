"""Where an attempt goes on: the step after the last report that its checkpoint has seen."""

from __future__ import annotations

import contextlib
import math
import os
import time
from pathlib import Path

from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.core.trial import Attempt
from sweep.storage.ledger import Ledger
from sweep.training.attempt_files import folder_of, last_change

# Files get their times from a clock that ticks every few milliseconds: of a report and a save that
# follow each other at once, the latter may look older.
TICK_S = 0.02
LOOK_S = 0.5  # a line of output gets its time when it is read, which is a look later


def find_next_step(
    ledger: Ledger, folder: StudyFolder, attempt: Attempt, resume: Path, own: AttemptFolder
) -> int:
    """Return the step after the last one that was reported before a checkpoint was saved.

    Args:
        attempt: Who goes on.
        resume: The checkpoint that it was given.
        own: Its folder: by a file there is told how far the clock of the file system is from ours.
    """
    prints = any(objective.pattern for objective in ledger.study.objectives)
    until_s = _saved_s(resume) - _skew_s(own) + (LOOK_S if prints else TICK_S)
    earlier = [a for a in ledger.attempts(attempt.trial_id) if a.number < attempt.number]
    saver = next((a for a in earlier if folder_of(folder, a).root in resume.parents), None)
    numbers = [saver.number] if saver else [a.number for a in earlier]
    step = ledger.last_step(attempt.trial_id, numbers, until_s)
    if step is None and saver is not None and saver.resumed_from:
        # It saved, and had reported nothing: it was itself where it had gone on.
        return find_next_step(ledger, folder, saver, Path(saver.resumed_from), own)
    return 0 if step is None else step + 1


def _saved_s(checkpoint: Path) -> float:
    """Return when a checkpoint was last written to, by its file system's clock; for ever where it
    is not there any more."""
    if checkpoint.is_dir():
        files = [checkpoint, *checkpoint.rglob("*")]
    elif checkpoint.exists():
        files = [checkpoint]
    else:  # TensorFlow's name of several files: ckpt-5.index, …
        files = [p for p in checkpoint.parent.glob("*") if p.name.startswith(checkpoint.name + ".")]
    saved_s = last_change(files)
    if not saved_s:
        return math.inf
    return saved_s + 1.0 if saved_s.is_integer() else saved_s  # some keep whole seconds only


def _skew_s(folder: AttemptFolder) -> float:
    """Return by how much the clock of an attempt's file system is ahead of this machine's."""
    with contextlib.suppress(OSError):
        before_s = time.time()
        os.utime(folder.mark)
        return folder.mark.stat().st_mtime - before_s
    return 0.0
