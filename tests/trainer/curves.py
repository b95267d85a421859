"""What a training of the reference trainer reported, for comparing one run with another."""

from __future__ import annotations

from pathlib import Path

from sweep.report import decode


def read_curve(path: Path) -> dict[int, dict[str, float]]:
    """Return each epoch's metrics from an attempt's ``metrics.jsonl``, without how long it took."""
    found = {}
    for line in path.read_text().splitlines():
        step, _, metrics = decode(line)
        metrics.pop("epoch_s")
        found[step] = metrics
    return found
