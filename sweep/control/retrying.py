"""``sweep launch --retry``: which trials are meant, which may be, and giving them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweep.core import outcomes
from sweep.core.errors import InputError
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Wave
from sweep.core.study import Resources
from sweep.core.trial import TrialRecord, since_nothing, since_retry
from sweep.core.trial_choice import TrialChoice
from sweep.provenance import manifest
from sweep.storage import records, reruns, retries
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.training.attempt_files import folder_of
from sweep.training.checkpoints import saves

OOM = "oom"
# What may be said instead of numbers, with the outcome of the last attempt that it means.
WORDS = {
    "failed": "",
    "cancelled": "",
    OOM: outcomes.OUT_OF_MEMORY,
    "error": outcomes.ERROR,
    "timeout": outcomes.TIMEOUT,
    "diverged": outcomes.DIVERGED,
    "no-metric": outcomes.NO_METRIC,
    "stalled": outcomes.STALLED,
    "killed": outcomes.KILLED,
}
_SHOWN = 10  # numbers in a sentence


@dataclass(frozen=True)
class Wish:
    """What ``--retry`` asks for.

    Attributes:
        resume: Go on from the newest checkpoint; else from nothing.
        force: Also trials with a result, and those that ran out of memory at the same size.
    """

    choice: TrialChoice
    resume: bool = False
    force: bool = False


@dataclass(frozen=True)
class Retried:
    """What became of it: numbers of the trials that were given back, and notes in sentences."""

    numbers: Sequence[int] = ()
    notes: Sequence[str] = ()


def name_trials(numbers: Sequence[int]) -> str:
    """Return "trial 3" or "trials 3, 7"; of many the first, and how many there are."""
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    if len(numbers) > _SHOWN:
        shown += f" and {len(numbers) - _SHOWN} more"
    return f"trial{'s' if len(numbers) != 1 else ''} {shown}"


def choose(ledger: Ledger, folder: StudyFolder, wish: Wish, wave: Wave | None) -> Retried:
    """Return the trials that would be given back now, and what is to be said of the others.

    Args:
        wave: The array that lives, whose tasks would take them.

    Raises:
        InputError: A trial is named that must not be retried so; nothing was changed.
    """
    found, notes = _choose(ledger, folder, wish, wave)
    return Retried([record.number for record in found], notes)


def apply(ledger: Ledger, folder: StudyFolder, wish: Wish, wave: Wave | None) -> Retried:
    """Give the trials back that are meant; arguments and errors as for ``choose``."""
    found, notes = _choose(ledger, folder, wish, wave)
    if not found:
        return Retried((), notes)
    resuming_ones: list[int] = []
    if wish.resume:
        pattern = ledger.study.checkpoint_files
        resuming_ones = [r.number for r in found if _has_checkpoint(folder, r, pattern)]
        if bare := [r.number for r in found if r.number not in resuming_ones]:
            has, begins = ("has", "begins") if len(bare) == 1 else ("have", "begin")
            what = f"{has} no checkpoint (any more) and {begins} from nothing"
            notes = [*notes, f"{name_trials(bare)} {what}"]
    numbers = ledger.db.retry(lambda _: retries.give_back(ledger, found, resuming_ones))
    return Retried(numbers, notes)


def _choose(
    ledger: Ledger, folder: StudyFolder, wish: Wish, wave: Wave | None
) -> tuple[list[TrialRecord], list[str]]:
    db, study = ledger.db, ledger.study
    everything = db.retry(lambda _: records.read_trials(db, ledger.study_id, study))
    by_number = {record.number: record for record in everything}
    named = wish.choice.numbers(by_number)
    notes: list[str] = []
    chosen: dict[int, TrialRecord] = {}
    for word in wish.choice.words:
        meant = [record for record in everything if _is(record, word)]
        chosen |= {record.number: record for record in meant}
        if not meant:
            notes.append(f"--retry {word}: there is no such trial")
    for number in named:
        record = by_number[number]
        if why := _not_now(record):
            notes.append(f"trial {number} {why}")
        else:
            chosen[number] = record
    found = [chosen[number] for number in sorted(chosen)]
    db.retry(lambda db: _refuse_rerun_ones(db, ledger.study_id, found))
    if not wish.force:
        _refuse_results([record for record in found if _has_result(record)])
        _refuse_same_size(study.resources, folder, found, wave)
    notes += _lost_results(ledger, found)
    return found, notes


def _is(record: TrialRecord, word: str) -> bool:
    if word == "cancelled":
        return record.state == outcomes.CANCELLED
    if record.state != outcomes.FAILED:
        return False
    return word == "failed" or (
        ran_out_of_memory(record) if word == OOM else _last_outcome(record) == WORDS[word]
    )


def _last_outcome(record: TrialRecord) -> str | None:
    return record.attempts[-1].outcome if record.attempts else None


def ran_out_of_memory(record: TrialRecord) -> bool:
    """Tell whether a trial failed because memory ran out."""
    last = _last_outcome(record)
    if last == outcomes.EXHAUSTED:  # what exhausted it is in the attempts before
        return any(a.outcome == outcomes.OUT_OF_MEMORY for a in since_retry(record.attempts))
    return last == outcomes.OUT_OF_MEMORY


def _not_now(record: TrialRecord) -> str:
    """Return why a trial that is named is not given back; "" where it may be."""
    if record.state == outcomes.WAITING:
        return "waits already; it is not final"
    if record.state == outcomes.RUNNING:
        if not record.attempts:
            return "runs outside of sweep, which cannot retry it"
        return (
            f"runs (attempt {record.attempts[-1].number}) and is not retried; to begin it anew, "
            f"cancel it first: sweep stop --trial {record.number}"
        )
    return ""


def _has_result(record: TrialRecord) -> bool:
    return record.state in (outcomes.COMPLETE, outcomes.PRUNED)


def _refuse_results(found: Sequence[TrialRecord]) -> None:
    if found:
        numbers = [record.number for record in found]
        states = " or ".join(dict.fromkeys(record.state for record in found))
        raise InputError(
            f"--retry: {name_trials(numbers)} {'is' if len(numbers) == 1 else 'are'} {states}; "
            "a retry takes the result back.",
            "Leave it out, or give --force. To train it again beside its result: "
            f"sweep rerun-best --trial {numbers[0]}.",
        )


def _refuse_rerun_ones(db: Database, study_id: int, found: Sequence[TrialRecord]) -> None:
    """Refuse a trial that a re-run is at work on: it is compared with the result."""
    numbers = {record.number for record in found}
    live = [r for r in reruns.read_all(db, study_id) if r.outcome is None and r.trial in numbers]
    if live:
        raise InputError(
            f"--retry: trial {live[0].trial} is being trained again by re-run {live[0].k}, which "
            "compares itself with its result.",
            f"Wait for it (sweep rerun-best --trial {live[0].trial} --wait), or leave the trial "
            "out.",
        )


def _refuse_same_size(
    resources: Resources, folder: StudyFolder, found: Sequence[TrialRecord], wave: Wave | None
) -> None:
    """Refuse what ran out of memory where it would have no more of it than before."""
    short = [record for record in found if ran_out_of_memory(record)]
    if not short:
        return
    numbers = name_trials([record.number for record in short])
    same = [record for record in short if _had(folder, record) in (None, resources.of_memory)]
    if same:
        unknown = all(_had(folder, record) is None for record in same)
        why = "what it had is not known any more" if unknown else "its resources are as they were"
        raise InputError(
            f"--retry: {name_trials([r.number for r in same])} ran out of memory, and {why}.",
            "Raise resources (memory, or what gives a larger GPU), in the study file or by "
            "--set resources.memory=…; or give --force, where the code needs less now.",
        )
    if wave is not None and wave.resources != resources.of_memory:
        raise InputError(
            f"--retry: {numbers} ran out of memory, and the tasks of job {wave.job}, which would "
            "take it, were submitted with other resources.",
            "Wait until they have ended, or end them (sweep stop), and launch with --retry then; "
            "or give --force.",
        )


def _had(folder: StudyFolder, record: TrialRecord) -> str | None:
    """Return what the last attempt that ran out of memory had; None where no record says so."""
    whole = manifest.read(folder)
    for attempt in reversed(record.attempts):
        if attempt.outcome not in (outcomes.OUT_OF_MEMORY, outcomes.EXHAUSTED):
            continue
        place = folder_of(folder, attempt)
        if not place.provenance.is_file():
            continue
        had = manifest.of_attempt(whole, place)["execution"].get("resources")
        return Resources(**had).of_memory if isinstance(had, Mapping) else None
    return None


def _has_checkpoint(folder: StudyFolder, record: TrialRecord, pattern: str | None) -> bool:
    return any(
        saves(folder_of(folder, attempt), pattern) for attempt in since_nothing(record.attempts)
    )


def _lost_results(ledger: Ledger, found: Sequence[TrialRecord]) -> list[str]:
    """Say what else rests on results that are taken back."""
    notes = []
    with_result = [record for record in found if _has_result(record)]
    if not with_result:
        return []
    numbers = {record.number for record in with_result}
    known = ledger.db.retry(lambda db: reruns.read_all(db, ledger.study_id))
    for number in sorted({rerun.trial for rerun in known if rerun.trial in numbers}):
        notes.append(
            f"trial {number} had re-runs: they were of the result that is taken back, and are "
            "compared with the new one from now on"
        )
    return notes
