"""Lengths of time and moments in words."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from sweep.core import times


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (600, "10 min"),
        (659, "10 min"),
        (3599.9, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (86400, "1 d 0 h"),
        (200000, "2 d 8 h"),
    ],
)
def test_span(seconds: float, expected: str) -> None:
    """A length of time has at most two units."""
    assert times.span(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "5 s"),
        (6.4, "5 s"),
        (66, "65 s"),
        (114, "115 s"),
        (119, "2 min"),
        (121, "2 min"),
        (540.0, "9 min"),
        (3569, "59 min"),
        (3600, "1 h 00 min"),
    ],
)
def test_rough_span(seconds: float, expected: str) -> None:
    """An estimate is no more exact than it can be."""
    assert times.span(seconds, rough=True) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.64, "0.6 s"), (9.96, "0:10"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")],
)
def test_stopwatch(seconds: float, expected: str) -> None:
    """A column of times is short and aligned."""
    assert times.stopwatch(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(90, "1 min 30 s"), (3600, "1 h"), (5400, "1 h 30 min"), (93601, "26 h 1 s"), (7, "7 s")],
)
def test_exact_span(seconds: int, expected: str) -> None:
    """A limit is said as it was given, to the second."""
    assert times.exact_span(seconds) == expected


def test_iso_utc() -> None:
    """Whatever the zone, and none where there is no moment."""
    moment = datetime(2026, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert times.iso_utc(moment) == "2026-02-28T23:30:00+00:00"
    assert times.iso_utc(None) is None
