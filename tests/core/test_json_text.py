"""Values as JSON text."""

from __future__ import annotations

import math

from sweep.core.json_text import finite, text_of


def test_what_json_cannot_hold_is_none() -> None:
    """At any depth; whole numbers, truth values and texts stay what they are."""
    inner = {"a": [1, True, "nan", math.nan], "b": (0.5, -math.inf)}
    assert finite(inner) == {"a": [1, True, "nan", None], "b": [0.5, None]}
    assert finite(math.inf) is None and finite(2.5) == 2.5


def test_strings_are_read_as_they_are() -> None:
    assert [text_of(value) for value in ('a "b"', None, True, [1, "é"])] == [
        'a "b"',
        "null",
        "true",
        '[1, "é"]',
    ]
