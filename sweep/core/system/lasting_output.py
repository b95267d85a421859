"""Standard output that outlives who reads it."""

from __future__ import annotations

import io
import os
import sys


class _Lasting(io.TextIOWrapper):
    """Drops what is written once its reader has ended."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._drop()
            super().flush()

    def _drop(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def outlive_readers() -> None:
    """Have this process go on where the reader of its output ends.

    A step's worker writes to a pipe of Slurm's: what reads there may be killed while it trains.
    """
    plain = sys.stdout
    if isinstance(plain, io.TextIOWrapper):
        encoding, errors = plain.encoding, plain.errors
        sys.stdout = _Lasting(plain.detach(), encoding, errors, line_buffering=True)
