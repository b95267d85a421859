"""Reports as a training writes them, for tests that start none."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sweep.core.paths import AttemptFolder
from sweep.report import encode


def append(folder: AttemptFolder, step: int, metrics: Mapping[str, float]) -> None:
    """Append a report as the training would."""
    with folder.metrics.open("a", encoding="utf-8") as stream:
        stream.write(encode(step, dict(metrics), time.time()))
