"""The crash file: what a fault of ours leaves for a report, without secrets."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from sweep.core.files import make_private, write_atomic
from sweep.core.masking import hide_arguments, mask
from sweep.core.paths import Runs


def write_crash(root: Path, error: BaseException, arguments: Sequence[str]) -> Path:
    """Write what happened into ``root/.crashes`` and return the file's path.

    Args:
        root: The runs folder; where it cannot be written, the temporary folder is used, and where
            that is full too, standard error.
    """
    text = "\n".join(
        [
            f"time: {time.strftime('%Y-%m-%dT%H:%M:%S%z')}",
            f"command: {hide_arguments(arguments)}",
            f"python: {sys.version}",
            f"system: {platform.platform()}",
            "",
            "".join(traceback.format_exception(error)),
        ]
    )
    text = mask(text)
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**6}.txt"
    try:
        path = make_private(Runs(root).crashes) / name
        write_atomic(path, text)
    except Exception:
        try:
            path = Path(tempfile.gettempdir()) / f"sweep-{name}"
            write_atomic(path, text)
        except OSError:  # also where no temporary folder can be written to
            print(text, file=sys.stderr, flush=True)
            return Path("/dev/stderr")
    return path
