"""Numbers are read whole, however much of them a pattern takes."""

from __future__ import annotations

import math
import re

import pytest

from sweep.training.printed_numbers import is_more_exact, is_same, read_number


@pytest.mark.parametrize(
    ("text", "pattern", "value", "is_cut"),
    [
        ("a=0.58", "a=([0-9.]+)", 0.58, False),
        ("a=0.58.", "a=([0-9.]+)", 0.58, False),
        ("a=1,000.6", "a=([0-9.]+)", 1000.6, True),
        ("a=1,000.6", "a=([0-9.,]+)", 1000.6, False),
        ("a=12,345,678", r"a=(\d+)", 12345678.0, True),
        ("a=1 000,6", "a=([0-9.]+)", 1.0, False),  # two words
        ("a=1\u202f000.6", "a=([0-9.]+)", 1000.6, True),
        ("a=1'000.6", "a=([0-9.]+)", 1000.6, True),
        ("a=1_000", "a=([0-9.]+)", 1000.0, True),
        ("a=1.000,6", "a=([0-9.]+)", 1000.6, True),
        ("a=0,58", "a=([0-9.]+)", 0.58, True),
        ("a=0,58.", "a=([0-9.]+)", 0.58, True),
        ("a=3e-4", "a=([0-9.]+)", 3e-4, True),
        ("a=3E\u22124", "a=([0-9.]+)", 3e-4, True),
        ("a=3e-4", "a=([0-9.e]+)", 3e-4, True),
        ("a=0.98", "a.*([0-9.]+)", 0.98, True),
        ("a=-0.98", "a=[^0-9]*([0-9.]+)", -0.98, True),
        ("a=-0.98", "a=-([0-9.]+)", 0.98, False),
        ("a=-0.98", "a=-?([0-9.]+)", 0.98, False),
        ("a=\u22120.98", "a=(.*)", -0.98, False),
        ("a=+.5", "a=(.*)", 0.5, False),
        ("3,250,0.58", r"^\d+,\d+,([0-9.]+)", 0.58, False),
        ("3,250,0.58", r"^\d+,(\d+)", 250.0, False),
        ("[0.5,0.6]", r"\[([0-9.]+)", 0.5, False),
        ("a=58.00%", "a=([0-9.]+)", 58.0, False),
        ("a=tensor(0.58, device='cuda:0')", "a=(.*)", 0.58, False),
        ("a=np.float64(0.58)", "a=(.*)", 0.58, False),
        ("a='0.58'", "a=(.*)", 0.58, False),
        ("a=0.58 (0.61)", "a=(.*)", 0.58, False),
        ("a=-inf", "a=(.*)", -math.inf, False),
        ("a=∞", "a=(.*)", math.inf, False),
        ("a=none 0.5", "a=(.*)", None, False),
        ("a=", "a=(.*)", None, False),
        ("a=,.", "a=([0-9.,]+)", None, False),
        ("a=" + "9" * 500, "a=([0-9]+)", None, True),
    ],
)
def test_numbers(text: str, pattern: str, value: float | None, is_cut: bool) -> None:
    found = re.search(pattern, text)
    assert found
    printed = read_number(text, *found.span(1), pattern[: pattern.index("(")])
    if len(text) > 400:
        assert printed is None or printed.value > 1e90
        return
    assert (printed and printed.value) == value
    assert printed is None or printed.is_cut == is_cut


@pytest.mark.parametrize(
    ("one", "other", "same", "exact"),
    [
        ("0.58", "0.5812", True, False),
        ("0.5812", "0.58", True, True),
        ("0.5800", "0.58", True, True),
        ("0.58", "0.59", False, False),
        ("0.581", "0.5819", False, False),
        ("1", "1.2", False, False),
        ("nan", "nan", True, False),
        ("nan", "0.5", False, False),
        ("inf", "inf", True, False),
        ("-inf", "inf", False, False),
        ("1e-5", "1.02e-5", False, False),
    ],
)
def test_one_number_with_fewer_digits(one: str, other: str, same: bool, exact: bool) -> None:
    """A bar shows three digits of what a line says in full."""
    assert is_same(one, other) == is_same(other, one) == same
    assert is_more_exact(one, other) == exact
