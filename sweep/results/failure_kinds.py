"""Failed trials by their reasons: how many of each, the end of a log, and what that advises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.core.files import read_tail
from sweep.core.masking import mask
from sweep.core.outcomes import NEVER_REPORTED
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.storage.status_rows import Failure
from sweep.training.near_lines import reading_advice

SHOWN = 3
TAIL_LINES = 5


@dataclass(frozen=True)
class FailureKind:
    """Trials that failed for the same reason.

    Attributes:
        log: Path of one of their logs, or None where there is none.
        tail: Its last lines.
        advice: What its last lines say should be done; may be empty.
    """

    reason: str
    count: int
    trial: int
    log: str | None = None
    tail: tuple[str, ...] = ()
    advice: str = ""


def merge(failures: Sequence[Failure]) -> list[Failure]:
    """Return failures with those joined that differ in numbers only, most frequent first.

    "exit code 1: ValueError: lr 0.3" and the same with 0.7 are one kind; exit codes stay apart.
    """
    found: dict[str, Failure] = {}
    for failure in failures:
        head, colon, message = failure.reason.partition(":")
        key = head + colon + re.sub(r"0x[0-9a-fA-F]+|\d+(\.\d+)?([eE][+-]?\d+)?", "#", message)
        first = found.get(key)
        if first is None:
            found[key] = failure
        else:
            found[key] = Failure(
                first.reason, first.count + failure.count, first.trial, first.attempt
            )
    return sorted(found.values(), key=lambda failure: -failure.count)


def kinds_of(failures: Sequence[Failure], study: Study, folder: StudyFolder) -> list[FailureKind]:
    """Return the kinds of a study's failures that are shown, with what their logs say."""
    return [_with_log(failure, folder, study) for failure in merge(failures)[:SHOWN]]


def _with_log(failure: Failure, folder: StudyFolder, study: Study) -> FailureKind:
    path = folder.attempt(failure.trial, failure.attempt).log
    tail = tuple(read_tail(path, TAIL_LINES)) if failure.attempt else ()
    log = str(path) if failure.attempt and path.exists() else None
    advice = _printed_instead(failure.reason, study, tail)
    return FailureKind(failure.reason, failure.count, failure.trial, log, tail, advice)


def _printed_instead(reason: str, study: Study, tail: Sequence[str]) -> str:
    """Return what has a metric read that was printed and never reported; "" for none."""
    if not reason.startswith(NEVER_REPORTED):
        return ""
    for objective in study.objectives:
        is_missing = reason.startswith(f"{NEVER_REPORTED} {objective.metric}:")
        if is_missing and objective.pattern is None:
            return mask(reading_advice(objective.metric, tail))  # it quotes a line of output
    return ""
