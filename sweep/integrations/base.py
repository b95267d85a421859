"""What the integrations share: the word to stop on all ranks, whole saves, loops that resume."""

import contextlib
import os
import re
import shutil
import sys
import time

from sweep.report import Reporter, _alive, _launched

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
        if found:
            self.reporter.log(step=step, metrics=found)

    def word(self):
        """Return None, "pruned" or "checkpoint"; several ranks must call it equally often.

        A single process asks each time, as it costs a look at a file. Several agree on rank 0's
        answer about once a second, always at the same call, so that all leave at the same batch.
        """
        self._calls += 1
        return None if self._calls < self._wait else self.word_now()

    def word_now(self):
        """Like ``word``, but asked whatever was asked lately: where much time passes between."""
        if not self.reporter.active:
            return None
        distributed = _distributed()
        if distributed is None:
            return self.reporter.should_stop(all_ranks=True)
        each = (time.monotonic() - self._asked) / max(1, self._calls)
        wait = min(MOST_CALLS, max(1, int(ASK_S / max(each, 1e-6))))
        is_first = distributed.get_rank() == 0
        told = [(self.reporter.should_stop(), wait) if is_first else None]
        distributed.broadcast_object_list(told, src=0)
        word, self._wait = told[0]
        self._calls, self._asked = 0, time.monotonic()
        return word


class Loop:
    """The epochs (or steps) of a hand-written loop: resumed, saved after each, ended when told.

    A subclass knows how its framework saves and loads. Iterating yields the numbers that are left;
    between two of them the state is saved and sweep is asked whether to stop.

    Args:
        total: Number of epochs of the whole training.
        save_every: Epochs between two saves.
    """

    def __init__(self, total, save_every=1):
        self.total = total
        self.save_every = save_every
        self._link = Link()
        self._epoch = 0

    def __iter__(self):
        start = 0
        path = self._link.reporter.resume
        if path:
            self._load(path)
            start = number_in(path) + 1
        for epoch in range(start, self.total):
            self._epoch = epoch
            yield self._item(epoch)
            if self._has_to_stop(epoch):
                return

    def log(self, **metrics):
        """Report metrics of this epoch, on whichever ranks."""
        self._link.log(self._epoch, metrics)

    def _item(self, epoch):
        return epoch

    def _has_to_stop(self, epoch):
        is_last = epoch + 1 == self.total
        has_saved = is_last or (epoch + 1) % self.save_every == 0
        if has_saved:
            self._keep(epoch)
        if is_last:
            return False
        # Each rank saves, and so asks, at the same epochs.
        word = self._link.word_now() if has_saved else self._link.word()
        if word == "checkpoint" and not has_saved:
            self._keep(epoch)
        return word is not None

    def _keep(self, epoch):
        folder = self._link.reporter.checkpoint_dir
        if folder:
            with whole(folder, "epoch-%06d" % epoch, wait=self._wait) as path:
                self._save(path)

    def _wait(self):
        wait_for_all()

    def _save(self, path):
        raise NotImplementedError

    def _load(self, path):
        raise NotImplementedError


def number_in(path):
    """Return the number that the name of a checkpoint bears.

    Raises:
        ValueError: It bears none, so that an integration has not saved it.
    """
    found = re.search(r"-(\d+)(\.\D[^/]*)?$", os.path.normpath(path))
    if not found:
        raise ValueError("%s is none of the checkpoints that are saved here: epoch-000003" % path)
    return int(found.group(1))


def _distributed():
    # Only what the training has imported itself: whoever has no torch needs none here.
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def wait_for_all():
    """Return once every rank has called this."""
    distributed = _distributed()
    if distributed is not None:
        distributed.barrier()


def is_first():
    """Tell whether this process is rank 0, of those that a library or a launcher connects."""
    return Reporter().rank() == 0


def processes():
    """Return how many processes train together, as far as a library or a launcher tells."""
    found = _alive()
    return found[1] if found else _launched(os.environ)[1]


def on_first(folder, name):
    """Yield a path to save to, as ``whole`` does, where rank 0 alone saves what all ranks hold."""
    return whole(folder, name, wait=_not_at_all)


def _not_at_all():
    pass


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
def whole(folder, name, wait=wait_for_all):
    """Yield a path to save to; it gets its name once all ranks have saved. Then old ones go.

    Killed at any moment, the folder holds only whole checkpoints and one that is marked as
    unfinished.

    Args:
        folder: Where the attempt's checkpoints lie.
        name: Of the new one; names sort by age.
        wait: Returns once every rank that saves has called it.
    """
    # A leading dot marks what is unfinished, and leaves the ending, by which some choose a format.
    path, part = os.path.join(folder, name), os.path.join(folder, "." + name)
    if is_first():
        os.makedirs(folder, exist_ok=True)
        remove(part)
    wait()
    yield part
    wait()
    if is_first():
        synchronise(part)
        remove(path)  # a folder is not replaced by another
        os.replace(part, path)
        for old in saved(folder, name.rpartition("-")[0])[:-KEPT]:
            remove(os.path.join(folder, old))
    wait()


def saved(folder, kind):
    """Return the names of finished checkpoints in a folder, oldest first."""
    return sorted(name for name in os.listdir(folder) if re.match(kind + r"-\d+(\.\D|$)", name))


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
