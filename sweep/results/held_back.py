"""What holds a study's trainings back, as ``profile: true`` and ``sweep profile`` have seen it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.core.files import read_record
from sweep.core.paths import StudyFolder
from sweep.storage import profiles
from sweep.storage.ledger import Ledger
from sweep.training.profiling.judgement import HoldsBack

MOST_RUNS = 100  # of `sweep profile` that are read


@dataclass(frozen=True)
class LookedAt:
    """One training that was looked at.

    Attributes:
        trial: Whose values it had.
        attempt: None where `sweep profile` trained them once more.
        over_time: Columns of its course; empty where that is not kept here.
    """

    trial: int
    attempt: int | None
    judgement: HoldsBack
    host: str = ""
    notes: Sequence[str] = ()
    over_time: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        if self.attempt is None:
            return f"sweep profile of trial {self.trial}"
        return f"trial {self.trial}" + (f", attempt {self.attempt}" if self.attempt > 1 else "")


@dataclass(frozen=True)
class HeldBack:
    """One cause in a study: how many trainings show it, and the one that says most of it."""

    cause: str
    count: int
    total: int
    example: LookedAt

    @property
    def evidence(self) -> str:
        """What says so, of the example, and what could not be seen of it."""
        said = [*self.example.judgement.evidence, *(f"not seen: {n}" for n in self.example.notes)]
        return f"{self.example.label}: {'; '.join(said)}"

    @property
    def line(self) -> str:
        """Return it in a line, as ``sweep status`` has it."""
        return f"{self.cause} ({self.count} of {self.total} trainings, as {self.example.label})"


def read(ledger: Ledger, folder: StudyFolder, best: int | None = None) -> list[LookedAt]:
    """Return what was seen of a study: runs of `sweep profile` first, then attempts by trial.

    Args:
        best: A trial whose course is read too.

    Raises:
        DatabaseUnavailable: The database does not answer at present.
    """
    stored = ledger.db.retry(lambda db: profiles.read(db, ledger.study_id))
    found = []
    kept = sorted(folder.profiles.glob("*/profile.json"))
    for path in kept[:MOST_RUNS]:
        data, _ = read_record(path)
        if data and path.parent.name.isdecimal():
            found += _seen(int(path.parent.name), None, data)
    for trial, attempts in stored.items():
        for number, summary in sorted(attempts.items()):
            course: Any = {}
            if trial == best:
                data, _ = read_record(folder.attempt(trial, number).profile)
                course = (data or {}).get("over_time", {})
            found += _seen(trial, number, {**summary, "judgement": summary, "over_time": course})
    return found


def _seen(trial: int, attempt: int | None, data: Mapping[str, Any]) -> list[LookedAt]:
    """Return what a record holds; nothing where it is damaged."""
    try:
        said = data["judgement"]
        judgement = HoldsBack(
            str(said["cause"]), [str(one) for one in said["evidence"]], str(said["remedy"])
        )
        course = data.get("over_time") or {}
        notes = [str(one) for one in data.get("notes", ())]
        return [LookedAt(trial, attempt, judgement, str(data.get("host", "")), notes, course)]
    except (KeyError, TypeError):
        return []


def note(seen: Sequence[LookedAt], name: str) -> str:
    """Return what holds a study's trainings back in a sentence; "" where none was looked at."""
    found = ", ".join(one.line for one in causes(seen))
    return (
        f"what holds trainings back: {found}; sweep report {name} has the evidence" if found else ""
    )


def causes(seen: Sequence[LookedAt]) -> list[HeldBack]:
    """Return what holds trainings back, the most frequent first; of each the first example."""
    counts = Counter(one.judgement.cause for one in seen)
    first = {one.judgement.cause: one for one in reversed(seen)}
    return [HeldBack(c, count, len(seen), first[c]) for c, count in counts.most_common()]


def sentences(profile: Mapping[str, Any]) -> list[str]:
    """Return a profile in lines: the cause, its evidence, what would help, what was not seen."""
    said = profile["judgement"]
    lines = [str(said["cause"]), *(str(one) for one in said["evidence"])]
    lines += [f"→ {said['remedy']}"] if said["remedy"] else []
    return [*lines, *(f"not seen: {note}" for note in profile.get("notes", ()))]
