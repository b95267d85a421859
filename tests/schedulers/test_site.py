"""What time limit a job of ours asks for: never one that would let it wait for ever."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.core.errors import SchedulerError
from sweep.core.scheduler import Limits
from sweep.schedulers.slurm.site import Site
from sweep.schedulers.slurm.text.limits import Partition
from tests.study_rows import make_study

HOUR, DAY = 3600, 86400


def site_of(most_s: int | None, *partitions: Partition) -> Site:
    """A cluster that has said these limits already, so that nothing is asked."""
    asker: Any = None
    site = Site(asker, make_study())
    site.limits = Limits(time_s=most_s)
    site.partitions = list(partitions)
    return site


@pytest.mark.parametrize(
    ("most_s", "wanted_s", "partitions", "asked_s"),
    [
        (None, 30 * DAY, [], 30 * DAY),
        (None, None, [], None),
        (HOUR, 30 * DAY, [], HOUR),
        (HOUR, 60, [], 60),
        # The partition's own default, or where it has none its limit, is what nothing asks for.
        (HOUR, None, [Partition("a", default_time_s=1800, max_time_s=DAY)], None),
        (HOUR, None, [Partition("a", default_time_s=HOUR)], None),
        (HOUR, None, [Partition("a", default_time_s=DAY)], HOUR),
        (HOUR, None, [Partition("a", max_time_s=1800)], None),
        (HOUR, None, [Partition("a", max_time_s=DAY)], HOUR),
        (HOUR, None, [Partition("a")], HOUR),  # no limit at all
        (HOUR, None, [Partition("a", max_time_s=60), Partition("b")], HOUR),
        (HOUR, None, [], HOUR),
    ],
)
def test_the_time_that_is_asked_for(
    most_s: int | None, wanted_s: int | None, partitions: list[Partition], asked_s: int | None
) -> None:
    assert site_of(most_s, *partitions).fit_s(wanted_s) == asked_s


def test_less_than_a_minute_is_no_limit_of_slurms() -> None:
    with pytest.raises(SchedulerError, match="no job of a minute in the partition a,b"):
        site_of(59, Partition("a"), Partition("b")).fit_s(None)
    assert site_of(60, Partition("a")).fit_s(None) == 60
