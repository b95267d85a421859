"""Values as JSON text."""

from __future__ import annotations

import json
import math

from sweep.core.json_text import finite, text_of


def test_what_json_cannot_hold_is_none() -> None:
    """At any depth; whole numbers, truth values and texts stay what they are."""
    inner = {"a": [1, True, "nan", math.nan], "b": (0.5, -math.inf)}
    assert finite(inner) == {"a": [1, True, "nan", None], "b": [0.5, None]}
    assert finite(math.inf) is None and finite(2.5) == 2.5


def test_strings_are_read_as_they_are() -> None:
    assert [text_of(value) for value in ('a "b"', None, True, [1, "é"], 1, 1.0)] == [
        'a "b"',
        "null",
        "true",
        '[1, "é"]',
        "1",
        "1.0",
    ]


def test_strings_that_look_like_another_value_are_told_apart() -> None:
    """Choices [1, "1", true, null]: no two of them are read alike."""
    choices = [1, "1", True, "true", "True", None, "null", 0.5, ".5", "0.5", "nan", "", " a", "a"]
    assert len({text_of(choice) for choice in choices}) == len(choices)
    for text in ("1", "true", "null", "~", "1e-3", "inf", "[1]", '"a"', "", " a"):
        assert text_of(text) == json.dumps(text)
    assert [text_of(text) for text in ("adam", "1x", "v1.0", "nullable")] == [
        "adam",
        "1x",
        "v1.0",
        "nullable",
    ]
