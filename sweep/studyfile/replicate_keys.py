"""``replicates``: one number of trainings a trial, or from how many to how many."""

from __future__ import annotations

from typing import Any

from sweep.core.study import Replicates
from sweep.studyfile.rules import INVALID, Entry, Whole, either
from sweep.studyfile.sections import REQUIRED, Key, Section

MOST = 100
_COUNT = Whole(1, MOST)
RANGE = Section(
    "replicates",
    Replicates,
    {
        "min": Key(
            _COUNT,
            "Trainings that every trial gets: with fewer it is never the best.",
            example=2,
            default=REQUIRED,
        ),
        "max": Key(
            _COUNT,
            "Trainings that a trial gets as long as it may still be the best.",
            example=5,
            default=REQUIRED,
        ),
    },
)


class ReplicatesRule:
    """A whole number, or a mapping with ``min`` and ``max``. Read as ``Replicates``."""

    in_words = f"{_COUNT.in_words}, or keys"

    def read(self, at: Entry) -> Any:
        if at.node.kind != "map":
            count = _COUNT.read(at)
            return INVALID if count is INVALID else Replicates(count, count)
        found = RANGE.read(at)
        if found is not INVALID and found.min > found.max:
            return at.report("must have a min that is not above its max", "Exchange the two.")
        return found

    def schema(self) -> dict[str, Any]:
        return either([_COUNT.schema(), RANGE.schema()])
