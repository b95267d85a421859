"""What the integrations share: the reporter, the word to stop on all ranks, and whole saves."""

import contextlib
import os
import shutil
import sys
import time

from sweep.report import Reporter

ASK_S = 1.0  # ranks agree about so often on whether to stop: agreeing costs a collective
MOST_CALLS = 1000  # between two such questions
KEPT = 2  # checkpoints of an attempt: where the newest turns out unreadable, the one before serves


class Link:
    """One process's connection to sweep, made when training starts.

    Attributes:
        reporter: Of this process; it writes on rank 0 alone.
    """

    def __init__(self):
        self.reporter = Reporter()
        self._calls = 0
        self._wait = 1
        self._asked = time.monotonic()

    def log(self, step, values):
        """Report those of some values that are numbers; the first rank's count."""
        found = numbers(values)
        if found and rank() == 0:
            self.reporter.log(step=step, metrics=found)

    def word(self):
        """Return None, "pruned" or "checkpoint"; several ranks must call it equally often.

        A single process asks each time, as it costs a look at a file. Several agree on rank 0's
        answer about once a second, always at the same call, so that all leave at the same batch.
        """
        if not self.reporter.active:
            return None
        if world() == 1:
            return self.reporter.should_stop()
        self._calls += 1
        if self._calls < self._wait:
            return None
        return self._agree()

    def word_now(self):
        """Like ``word``, but asked whatever was asked lately: where much time passes between."""
        if not self.reporter.active:
            return None
        return self.reporter.should_stop() if world() == 1 else self._agree()

    def _agree(self):
        now = time.monotonic()
        each = (now - self._asked) / max(1, self._calls)
        wait = min(MOST_CALLS, max(1, int(ASK_S / max(each, 1e-6))))
        answer = (self.reporter.should_stop(), wait) if rank() == 0 else None
        word, self._wait = broadcast(answer)
        self._calls, self._asked = 0, time.monotonic()
        return word


def _distributed():
    # Only what the training has imported itself: whoever has no torch needs none here.
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def rank():
    """Return this process's rank."""
    distributed = _distributed()
    return distributed.get_rank() if distributed else 0


def world():
    """Return how many ranks there are."""
    distributed = _distributed()
    return distributed.get_world_size() if distributed else 1


def broadcast(value):
    """Return rank 0's value on all ranks."""
    distributed = _distributed()
    if distributed is None:
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def wait_for_all():
    """Return once every rank has called this."""
    distributed = _distributed()
    if distributed is not None:
        distributed.barrier()


def numbers(values):
    """Return those of some named values that are numbers, or hold just one, as floats."""
    found = {}
    for name, value in values.items():
        if getattr(value, "shape", None) is not None and hasattr(value, "item"):
            size = 1
            for length in value.shape:
                size *= int(length)
            if size != 1:
                continue
            value = value.item()
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[str(name)] = float(value)
    return found


@contextlib.contextmanager
def whole(folder, name):
    """Yield a path to save to; it gets its name once all ranks have saved. Then old ones go.

    Killed at any moment, the folder holds only whole checkpoints and one that is marked as
    unfinished.

    Args:
        folder: Where the attempt's checkpoints lie.
        name: Of the new one; names sort by age.
    """
    path = os.path.join(folder, name)
    part = path + ".tmp"
    if rank() == 0:
        remove(part)
    wait_for_all()
    yield part
    wait_for_all()
    if rank() == 0:
        synchronise(part)
        remove(path)  # a folder is not replaced by another
        os.replace(part, path)
        prefix = name[: len(name) - len(name.lstrip("abcdefghijklmnopqrstuvwxyz-"))]
        for old in saved(folder, prefix)[:-KEPT]:
            remove(os.path.join(folder, old))
    wait_for_all()


def saved(folder, prefix):
    """Return the names of finished checkpoints in a folder, oldest first."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(
            entry
            for entry in os.listdir(folder)
            if entry.startswith(prefix) and not entry.endswith(".tmp")
        )
    return []


def synchronise(path):
    """Have what was written reach the disk: a rename that survives a crash its content must not."""
    files = [path]
    if os.path.isdir(path):
        files = [os.path.join(top, name) for top, _, names in os.walk(path) for name in names]
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path):
    """Remove a file or folder, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
