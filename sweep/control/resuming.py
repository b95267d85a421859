"""From which checkpoint a trial's next attempt goes on, and what a failed resume means.

A checkpoint may be damaged in a way that only its training notices: an attempt that resumed and
failed by its own error before its first report goes on from the next older one, at most two steps
back, then from nothing. Only then has the user's code failed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sweep.core import outcomes
from sweep.core.paths import StudyFolder
from sweep.core.trial import Attempt, since_nothing, since_retry
from sweep.storage.ledger import Ledger
from sweep.training.attempt_files import folder_of
from sweep.training.checkpoints import Found, newest_checkpoint

MOST_STEPS_BACK = 2


def may_step_back(attempts: Sequence[Attempt]) -> bool:
    """Tell whether a failure of the last attempt's own code is put down to its checkpoint.

    Not where the trial was begun anew before, after such failures: its resuming does not work.

    Args:
        attempts: All of the trial, oldest first, the last one just ended by an error of its own.
    """
    last = attempts[-1]
    if last.resumed_from is None or last.first_step is not None:
        return False
    attempts = since_retry(attempts)
    failed = [a.number for a in attempts if a.outcome == outcomes.RESUME_FAILED]
    return not any(a.resumed_from is None and a.number > failed[0] for a in attempts if failed)


def is_to_begin_anew(attempts: Sequence[Attempt]) -> bool:
    """Tell whether a trial's next attempt starts from nothing: all steps back were taken.

    Interruptions between them count neither as steps nor as their end; a report ends them.
    """
    count = 0
    for attempt in reversed(since_retry(attempts)):
        if attempt.first_step is not None:
            break
        count += attempt.outcome == outcomes.RESUME_FAILED
    return count > MOST_STEPS_BACK


@dataclass(frozen=True)
class Past:
    """What a trial's attempts before one have left, as the ledger has it.

    Attributes:
        attempts: Oldest first.
        known: Hashes recorded when they ended, by path.
        refused: Hashes of checkpoints from which one could not go on.
    """

    attempts: Sequence[Attempt]
    known: Mapping[str, str]
    refused: Collection[str]


def read_past(ledger: Ledger, trial_id: int, before: int) -> Past:
    """Return what the attempts before one of this number have left."""
    return Past(
        since_nothing([a for a in ledger.attempts(trial_id) if a.number < before]),
        ledger.checkpoint_hashes(trial_id),
        ledger.failed_resumes(trial_id),
    )


def choose_checkpoint(folder: StudyFolder, past: Past, pattern: str | None = None) -> Found | None:
    """Return the checkpoint from which a trial goes on; None where it starts from nothing.

    Args:
        pattern: The study's ``checkpoint_files``.
    """
    if is_to_begin_anew(past.attempts):
        return None
    earlier = [folder_of(folder, attempt) for attempt in reversed(past.attempts)]
    return newest_checkpoint(earlier, past.known, pattern, past.refused)
