"""Checkpoints written beside the training: copied at once, saved by a thread."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from . import checkpoint, sharded

if TYPE_CHECKING:
    from .run import Run


class Writer:
    """Saves one checkpoint at a time in a thread; errors come with the next call.

    Args:
        folder: One run's own folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, state: dict[str, Any], epoch: int, batch: int = 0) -> None:
        """Copy a state now and write it soon; waits for the one before, if that is not written yet.

        Raises:
            OSError: The one before could not be written.
        """
        self.finish()
        copied = copy_to_cpu(state)
        # Not a daemon: a process that ends waits for its last checkpoint.
        self._thread = threading.Thread(
            target=self._write, args=(copied, epoch, batch), name="checkpoint"
        )
        self._thread.start()

    def save_sharded(self, state: dict[str, Any], run: Run) -> None:
        """Write a checkpoint of a run that is divided among the ranks, now: all come here together.

        Raises:
            OSError: It could not be written; the earlier ones are untouched.
        """
        place = checkpoint.name_place(state["epoch"], state["batch"])
        sharded.save(self._folder, place, state, run.network, run.optimizer, run.ranks)
        if run.ranks.rank == 0:
            checkpoint.remove_old(self._folder)

    def finish(self) -> None:
        """Wait until the last checkpoint is on disk.

        Raises:
            OSError: It could not be written; the earlier ones are untouched.
        """
        if self._thread:
            self._thread.join()
            self._thread = None
        if self._error:
            error, self._error = self._error, None
            raise error

    def _write(self, state: dict[str, Any], epoch: int, batch: int) -> None:
        try:
            checkpoint.save(self._folder, state, epoch, batch)
        except BaseException as error:
            self._error = error


def copy_to_cpu(value: Any) -> Any:
    """Return nested plain data with all tensors copied to the CPU: training changes its own."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: copy_to_cpu(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copy_to_cpu(each) for each in value)
    return value
