"""A script that gives its metrics to TensorBoard alone: they are read from its event files.

    python -m sweep.integrations.tensorboard train.py --lr 0.1

The script runs unchanged, as a child with the arguments that follow (``-m package`` as well). Each
number of ``SummaryWriter.add_scalar`` or ``tf.summary.scalar`` is reported under its tag, with its
step. Where a script writes into several folders, the tags of the first are as they are, others have
their folder before them: ``validation/epoch_loss``.

The files are those which the script's processes have open, and at its end also those with such a
process's number in their names below the attempt's folder and the working folder. A writer keeps
events for up to two minutes (``flush_secs``): a pruner sees metrics late, the result is whole.

An event file is a series of records (size, checksum, data, checksum), each an Event of protobuf.
"""

import glob
import math
import os
import re
import socket
import struct
import time

from sweep.integrations.child import fields, run
from sweep.report import Reporter

# Field numbers of TensorFlow's messages (event.proto, summary.proto, tensor.proto).
STEP, SUMMARY, VALUE = 2, 5, 1
TAG, SIMPLE, TENSOR = 1, 2, 8
KIND, CONTENT, FLOATS, DOUBLES = 1, 4, 5, 6
FORMATS = {1: "<f", 2: "<d"}  # of tensors: float, double
HEADER, FOOTER = 12, 4
MOST_ENTRIES = 50_000  # looked at for files that nobody has open any more
_PROCESS = re.compile(r"events\.out\.tfevents\.\d+\.(.+)\.(\d+)\.\d+")


def main():
    """Run the script that the arguments name, and report; end as it ends."""
    folder = os.environ.get("SWEEP_TRIAL_DIR")
    run(
        "sweep.integrations.tensorboard",
        Reporter(),
        (lambda pid: EventFiles(pid, [folder, os.getcwd()])) if folder else None,
        dict(os.environ),
        "no number was found that the script gave to TensorBoard: does it call add_scalar, with a "
        "log_dir below the working folder or the trial's?",
    )


class EventFiles:
    """The event files of a process and of those that it started, read as far as they are written.

    Args:
        pid: Of the process.
        folders: Where files are looked for that are closed already.
    """

    def __init__(self, pid, folders):
        self.pid = pid
        self.folders = folders
        self._pids = {pid}
        self._files = {}
        self._root = None
        self._host = socket.gethostname()
        self._started = time.time()

    def read(self):
        """Yield (step, {name: number}) for each new number."""
        if os.path.isdir("/proc/%d/fd" % self.pid):
            paths = self._open_files()
        else:
            paths = self._closed_files()
        for path in sorted(paths, key=lambda path: (path.count(os.sep), path)):
            if path not in self._files:
                self._root = self._root or os.path.dirname(path)
                self._files[path] = EventFile(path, self._prefix(path))
        for file in list(self._files.values()):
            yield from file.read()

    def _prefix(self, path):
        """Return what stands before the tags of a file: nothing in the first file's folder."""
        place = os.path.relpath(os.path.dirname(path), self._root).replace(os.sep, "/")
        parts = [part for part in place.split("/") if part not in (".", "..")]
        return "".join(part + "/" for part in parts)

    def _open_files(self):
        self._pids |= set(_descendants(self.pid))
        found = set()
        for pid in list(self._pids):
            for link in glob.glob("/proc/%d/fd/*" % pid):
                try:
                    path = os.readlink(link)
                except OSError:
                    continue
                if ".tfevents." in os.path.basename(path) and os.path.isfile(path):
                    found.add(path)
        return found

    def _closed_files(self):
        found = set()
        looked = 0
        for top in self.folders:
            for folder, names, files in os.walk(top):
                names[:] = [name for name in names if not name.startswith(".")]
                looked += len(files) + len(names)
                if looked > MOST_ENTRIES:
                    break
                for name in files:
                    made = _PROCESS.match(name)
                    if made and made[1] == self._host and int(made[2]) in self._pids:
                        path = os.path.realpath(os.path.join(folder, name))
                        # Numbers of processes come again: the frozen code may hold older files.
                        if os.path.getmtime(path) >= self._started - 1:
                            found.add(path)
        return found


def _descendants(pid):
    """Yield the numbers of the processes that a process has started, and theirs."""
    for path in glob.glob("/proc/%d/task/*/children" % pid):
        try:
            with open(path, encoding="ascii") as stream:
                children = [int(word) for word in stream.read().split()]
        except OSError:
            continue
        for child in children:
            yield child
            yield from _descendants(child)


class EventFile:
    """One event file, from where it was read last.

    Args:
        prefix: Put before each tag.
    """

    def __init__(self, path, prefix=""):
        self.path = path
        self.prefix = prefix
        self._place = 0

    def read(self):
        """Yield (step, {name: number}) of the records that are whole by now."""
        try:
            with open(self.path, "rb") as stream:
                stream.seek(self._place)
                data = stream.read()
        except OSError:
            return
        at = 0
        while at + HEADER <= len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            end = at + HEADER + size + FOOTER
            if end > len(data):
                break
            step, metrics = read_event(data[at + HEADER : end - FOOTER])
            at = end
            if metrics:
                yield step, {self.prefix + tag: number for tag, number in metrics.items()}
        self._place += at


def read_event(event):
    """Return the step of an event and its numbers by their tags."""
    step, metrics = 0, {}
    for field, value in fields(event):
        if field == STEP and isinstance(value, int):
            step = value - (1 << 64) if value >> 63 else value
        elif field == SUMMARY and isinstance(value, bytes):
            for inner, part in fields(value):
                if inner == VALUE and isinstance(part, bytes):
                    tag, number = read_value(part)
                    if tag and number is not None:
                        metrics[tag] = number
    return step, metrics


def read_value(value):
    """Return the tag of a summary's value, and its number or None."""
    tag, number = "", None
    for field, part in fields(value):
        if field == TAG and isinstance(part, bytes):
            tag = part.decode("utf-8", "replace")
        elif field == SIMPLE and isinstance(part, bytes) and len(part) == 4:
            number = _short(struct.unpack("<f", part)[0])
        elif field == TENSOR and isinstance(part, bytes):
            number = read_tensor(part)
    return tag, number


def read_tensor(tensor):
    """Return the number of a tensor that holds one float or double; None for any other."""
    found = dict(fields(tensor))
    form = FORMATS.get(found.get(KIND))
    if form is None:
        return None
    size = struct.calcsize(form)
    for field in (CONTENT, FLOATS if size == 4 else DOUBLES):
        part = found.get(field)
        if isinstance(part, bytes) and len(part) == size:
            number = struct.unpack(form, part)[0]
            return _short(number) if size == 4 else number
    return None


def _short(number):
    """Return a float of 32 bits as it is written: 0.1, not 0.10000000149011612."""
    return float("%.7g" % number) if math.isfinite(number) else number


if __name__ == "__main__":
    main()
