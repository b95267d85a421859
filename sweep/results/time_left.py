"""How long a study goes on, as far as its trials tell."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.core import outcomes
from sweep.storage.status_rows import Times


def time_left_s(
    counts: Mapping[str, int],
    times: Times,
    parallel: int,
    running_slots: int = 0,
    *,
    draining: bool = False,
) -> float | None:
    """Estimate the seconds until the last trial ends; None before a first one has.

    The work that is left, each trial as long as the mean of those that are complete or pruned,
    spread over the trials that run at once, and never less than what one trial still needs.

    Args:
        parallel: K.
        running_slots: Trials that the running tasks can run at once; 0 where that is not known.
        draining: No further trial starts.
    """
    if times.mean_s is None:
        return None
    rest_s = [max(times.mean_s - used_s, 0.0) for used_s in times.running_s]
    waiting = 0 if draining else counts[outcomes.WAITING]
    width = min(parallel, max(len(rest_s), running_slots) or parallel)
    spread_s = (sum(rest_s) + waiting * times.mean_s) / max(1, width)
    return max(spread_s, *rest_s, times.mean_s if waiting else 0.0)
