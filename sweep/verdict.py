"""What a re-run's result says of the original's, as data."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sweep.errors import InputError

DEFAULT_TOLERANCE = 0.01
REPRODUCED = "reproduced"
DIFFERS = "differs"
EXPLAINED = "explained"
FAILED = "failed"


@dataclass(frozen=True)
class Noise:
    """How far re-runs of one trial with one seed lie apart.

    Attributes:
        runs: How many there are.
        relative: (high - low) / |original|; high - low where the original is 0.
    """

    runs: int
    low: float
    high: float
    relative: float


@dataclass(frozen=True)
class Verdict:
    """Whether a re-run gave the original's result.

    Attributes:
        original, rerun: Objective values; the re-run's is None when it failed.
        relative_difference: |rerun - original| / |original|, or the absolute difference where the
            original is 0.
        verdict: reproduced (within the tolerance, as many steps), explained (not, and something
            that makes a run has changed), differs (not, and nothing known has) or failed.
        differences: What differs between the two runs, in sentences.
        other_seeds: Values of re-runs with further seeds.
        axes: Which of code, environment, data and execution differ.
        noise: What repeats with the same seed differ by; None where there are not two.
        causes: What makes trainings of this kind differ; where nothing else explains it.
        apart_from: First step at which the learning curves differ, or None.
        picture: Both learning curves, drawn.
    """

    study: str
    trial: int
    k: int
    metric: str
    original: float
    rerun: float | None
    relative_difference: float | None
    tolerance: float
    verdict: str
    differences: Sequence[str]
    steps: tuple[int, int]
    folder: str
    other_seeds: Sequence[float | None] = ()
    axes: Sequence[str] = ()
    noise: Noise | None = None
    causes: Sequence[str] = ()
    apart_from: int | None = None
    picture: str | None = None


def relative_difference(original: float, again: float) -> float:
    """Return |again - original| / |original|; the absolute difference where the original is 0."""
    difference = abs(again - original)
    return difference / abs(original) if original else difference


def parse_tolerance(text: str) -> float:
    """Return "1%" or "0.01" as a fraction. Raises: InputError."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(
            f"--tolerance must be a percentage or a fraction (got {text!r}).",
            "For example 1% or 0.01.",
        )
    return value


def to_json(verdicts: Sequence[Verdict], *, as_list: bool = False) -> str:
    """Return the verdict as the contract's JSON; a list of them where there may be several."""
    found = [asdict(verdict) for verdict in verdicts]
    return json.dumps(found if as_list else found[0], indent=1)
