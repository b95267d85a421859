"""What was seen of a study's first point that was tried: from the task to the command."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core.outcomes import FINISHED, INTERRUPTED


@dataclass(frozen=True)
class TriedMetric:
    """What came of one metric.

    Attributes:
        points: (step, value), ascending in step.
        lines: The first lines of output that gave it; empty where training reported it.
    """

    points: Sequence[tuple[int, float]]
    lines: Sequence[str]


@dataclass(frozen=True)
class Saved:
    """The checkpoint that a resumed attempt would be given.

    Attributes:
        path: Relative to the trial's folder.
        bytes: All that it consists of.
        command: The resumed attempt's.
    """

    path: str
    bytes: int
    command: Sequence[str]


@dataclass(frozen=True)
class Tried:
    """One training of a study's first point.

    Attributes:
        command: The study's, with the values in it.
        argv: What was started: the command within its launcher and environment.
        program: Path of the command's first word; "" where it is in an environment of its own.
        limit_s, took_s: Seconds.
        is_limited: It was ended by the limit, or left when it was near.
        outcome, reason: As an attempt's.
        series: By metric.
        notes: What was odd about the reports and the output, in sentences.
        saved: None where no checkpoint was found.
        elsewhere: A checkpoint in the trial's folder, beside the folder for them; or "".
        beside_code: Files that it wrote into the folder of its code, which trials share.
        tail: The end of its output.
    """

    study: str
    host: str
    command: Sequence[str]
    argv: Sequence[str]
    program: str
    params: Mapping[str, Any]
    seed: int
    limit_s: int
    took_s: float
    is_limited: bool
    outcome: str
    reason: str
    series: Mapping[str, TriedMetric]
    notes: Sequence[str]
    saved: Saved | None
    elsewhere: str
    beside_code: Sequence[str]
    tail: Sequence[str]

    @property
    def has_failed(self) -> bool:
        """Whether training ended by an error of its own, or did not start."""
        return not self.is_limited and self.outcome not in (FINISHED, INTERRUPTED)

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON can hold it; numbers that are not finite as text."""
        data = dataclasses.asdict(self)
        for series in data["series"].values():
            series["points"] = [[s, v if math.isfinite(v) else str(v)] for s, v in series["points"]]
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Tried:
        """Return what ``to_data`` gave."""
        series = {
            name: TriedMetric([(int(s), float(v)) for s, v in one["points"]], one["lines"])
            for name, one in data["series"].items()
        }
        saved = Saved(**data["saved"]) if data["saved"] else None
        return cls(**{**data, "series": series, "saved": saved})
