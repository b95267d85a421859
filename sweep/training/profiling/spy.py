"""Asks py-spy now and then what the ranks of a training do, beside whoever watches it."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO

from sweep.training.profiling import stacks
from sweep.training.profiling.stacks import COMMUNICATION, DATA, WORK, Stack

PATIENCE_S = 20.0  # for an answer
MOST_FAILURES = 5  # in a row, after which it is not asked again


class Spy:
    """One question after the other; none waits for its answer.

    Args:
        program: Path of py-spy.
        ranks: Processes of the training, on all nodes.
        pause_s: Between two questions, at least.

    Attributes:
        counts: How often a rank was seen at each kind of work.
        looks: How many questions were answered.
        trouble: Why it is asked no more, in words; "" while it is.
    """

    def __init__(self, program: str, ranks: int, pause_s: float = 1.0) -> None:
        self._program = program
        self._ranks = ranks
        self._pause_s = pause_s
        self._next = time.monotonic()
        self._child: subprocess.Popen[bytes] | None = None
        self._files: tuple[IO[bytes], IO[bytes]] | None = None
        self._since = 0.0
        self._waiting: list[int] = []  # ranks that are to be asked of in this round
        self._found: list[Stack] = []
        self._failures = 0
        self.counts = {DATA: 0, COMMUNICATION: 0, WORK: 0}
        self.looks = 0
        self.trouble = ""

    def step(self, ranks: Sequence[int]) -> None:
        """Take an answer that has come, and ask what is due.

        Args:
            ranks: Their process numbers on this machine.
        """
        if self._child is not None:
            self._take()
        if self._child is not None or self.trouble:
            return
        now = time.monotonic()
        if not self._waiting:
            if now < self._next or not ranks:
                return
            self._next = now + self._pause_s
            self._waiting, self._found = list(ranks), []
        self._ask(self._waiting.pop(0))

    def forget(self) -> None:
        """Begin to count anew: what was seen so far was the training's start."""
        self.counts = dict.fromkeys(self.counts, 0)
        self.looks = 0

    def slow_down(self, pause_s: float) -> None:
        """Ask less often."""
        self._pause_s = max(self._pause_s, pause_s)

    def close(self) -> None:
        """End a question that is open."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._drop()

    def share(self, kind: str) -> float | None:
        """Return in which share of what was seen ranks were at this kind of work."""
        total = sum(self.counts.values())
        return self.counts[kind] / total if total else None

    def _ask(self, pid: int) -> None:
        files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (see _drop)
        argv = [self._program, "dump", "--pid", str(pid), "--json", "--nonblocking"]
        try:
            self._child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=files[0], stderr=files[1]
            )
        except OSError as error:
            self.trouble = f"{self._program} cannot be started: {error.strerror}"
            for file in files:
                file.close()
            return
        self._files, self._since = files, time.monotonic()

    def _take(self) -> None:
        assert self._child is not None and self._files is not None
        if self._child.poll() is None:
            if time.monotonic() - self._since < PATIENCE_S:
                return
            self._child.kill()
            self._child.wait()
        said, wrong = (self._text(file) for file in self._files)
        self._drop()
        try:
            found = stacks.read(said)
        except (ValueError, KeyError, TypeError, AttributeError):
            found = []
        if not found:
            self._failures += 1
            if self._failures >= MOST_FAILURES:
                why = wrong.strip().partition("\n")[0].replace("\0", "") or "no answer"
                self.trouble = f"py-spy could not look into it: {why}"
            self._waiting = []
            return
        self._found += found
        self._failures = 0
        if not self._waiting:
            self.looks += 1
            for stack in self._found:
                if stack.frames and not stack.is_loader:
                    self.counts[stack.kind(self._ranks)] += 1

    @staticmethod
    def _text(file: IO[bytes]) -> str:
        file.seek(0)
        return file.read().decode(errors="replace")

    def _drop(self) -> None:
        self._child = None
        for file in self._files or ():
            with contextlib.suppress(OSError):
                file.close()
        self._files = None
