"""Quantised ranges: the grid inside two bounds, without the noise of binary fractions."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def fit_grid(
    low: float, high: float, step: float, *, origin: float | None = None
) -> tuple[float, float, float]:
    """Return low, high and step of the values origin + k·step that lie between two bounds.

    Args:
        step: Above 0.
        origin: A value of the grid; ``low`` when None.

    Returns:
        Whole numbers as int where all three inputs were ints, else floats.

    Raises:
        ValueError: The step is not positive, or no value lies between the bounds.
    """
    start, end, width = (Decimal(str(value)) for value in (low, high, step))
    base = start if origin is None else Decimal(str(origin))
    if width <= 0:
        raise ValueError(f"the step must be above 0 (got {step})")
    first = base + ((start - base) / width).to_integral_value(ROUND_CEILING) * width
    last = base + ((end - base) / width).to_integral_value(ROUND_FLOOR) * width
    if last < first:
        raise ValueError(f"no multiple of {step} lies between {low} and {high}")
    kind = int if all(isinstance(value, int) for value in (low, high, step)) else float
    return kind(first), kind(last), kind(width)
