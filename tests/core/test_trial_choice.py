"""Which trials a user names."""

from __future__ import annotations

import pytest

from sweep.core.errors import InputError
from sweep.core.trial_choice import TrialChoice, parse

WORDS = {"failed": "", "oom": "out of memory"}


@pytest.mark.parametrize(
    ("texts", "words", "numbers"),
    [
        (["3"], (), [3]),
        (["3,7"], (), [3, 7]),
        (["7", "3"], (), [3, 7]),
        (["3-5", "4"], (), [3, 4, 5]),
        (["failed, 2"], ("failed",), [2]),
        (["oom,oom,failed"], ("oom", "failed"), []),
        (["0-9"], (), list(range(10))),
    ],
)
def test_what_is_named(texts: list[str], words: tuple[str, ...], numbers: list[int]) -> None:
    """Numbers, ranges and words, mixed and repeated."""
    found = parse(texts, "--retry", WORDS)
    assert (found.words, found.numbers(range(10))) == (words, numbers)


@pytest.mark.parametrize(
    "text",
    ["", "x", "3,", "-3", "3-", "3--5", "²", "٣", "3.0", "1e3", "9" * 10, "5-3", "Failed", "3 4"],
)
def test_what_is_no_trial(text: str) -> None:
    """An answer at once, whatever is written; digits of other scripts are none."""
    with pytest.raises(InputError):
        parse([text], "--retry", WORDS)


def test_a_huge_range_costs_nothing() -> None:
    """It is compared with the trials that there are, and never written out."""
    choice = parse(["0-999999999"], "--retry", WORDS)
    with pytest.raises(InputError, match="no trial 999999999"):
        choice.numbers(range(10))
    assert TrialChoice().numbers([]) == []


def test_words_are_suggested() -> None:
    """A near one, and where only numbers count, none."""
    with pytest.raises(InputError, match="Did you mean failed") as raised:
        parse(["faild"], "--retry", WORDS)
    assert raised.value.hint == "Give numbers (3,7 or 3-7); or: failed, oom."
    with pytest.raises(InputError) as raised:
        parse(["failed"], "--trial")
    assert raised.value.hint == "Give numbers (3,7 or 3-7)."
