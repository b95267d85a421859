"""A program that makes something for trainings: all that it says goes into a log."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any


def run_logged(
    argv: Sequence[str], cwd: str | Path | None, environ: Mapping[str, str], log: IO[Any]
) -> int:
    """Run a program without input to its end; return its exit code.

    Raises:
        OSError: It cannot be started.
    """
    return subprocess.run(
        argv,
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        check=False,
    ).returncode


def quoted(lines: Iterable[str]) -> str:
    """Return lines of a program's output as an error's message shows them."""
    return "\n".join(f"  | {line}" for line in lines)
