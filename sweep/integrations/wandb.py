"""A script that gives its metrics to Weights & Biases alone: they are read from W&B's own run file.

    python -m sweep.integrations.wandb train.py --lr 0.1

The script runs unchanged, as a child with the arguments that follow (``-m package`` as well). Each
number that ``wandb.log`` was given is reported under its name, with W&B's step. W&B keeps its file
in this attempt's folder, and works offline unless ``WANDB_MODE`` or ``WANDB_API_KEY`` is set.

W&B writes its file 32 KiB at a time and the rest at the end: a pruner sees metrics late, the
result is whole. The file is a log of records as LevelDB has it (blocks, each record in one or more
pieces), and each record a protobuf message.
"""

import glob
import json
import os
import signal
import struct
import subprocess
import sys
import time

from sweep.report import Reporter

BLOCK = 32768
HEADER = 7  # of the file: ":W&B", two bytes, its version; and of each piece: checksum, size, kind
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
EVERY_S = 1.0
# Field numbers of W&B's messages (wandb_internal.proto): Record, HistoryRecord, HistoryItem.
HISTORY, ITEM, STEP, STEP_NUMBER = 2, 1, 2, 1
KEY, NESTED_KEY, VALUE_JSON = 1, 2, 16


def main():
    """Run the script that the arguments name, and report; end as it ends."""
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m sweep.integrations.wandb SCRIPT.py [ARGUMENT ...]")
    reporter = Reporter()
    environ = dict(os.environ)
    folder = environ.get("SWEEP_TRIAL_DIR")
    if folder:
        environ["WANDB_DIR"] = folder
        if not environ.get("WANDB_API_KEY"):
            environ.setdefault("WANDB_MODE", "offline")
    child = subprocess.Popen([sys.executable, *command], env=environ)
    # Whoever ends the training signals its whole group: what the script has logged is read first.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    found = 0
    runs = RunFiles(folder) if folder else None
    while child.poll() is None:
        found += send(reporter, runs)
        if is_pruned():
            reporter.should_stop()  # which notes that it was seen
            child.terminate()
        try:
            child.wait(EVERY_S)
        except subprocess.TimeoutExpired:
            continue
    found += send(reporter, runs)
    if folder and not found and child.returncode == 0:
        print(
            "sweep: no number of wandb.log was found under %s: does the script call wandb.init(), "
            "with no dir= of its own and WANDB_MODE not disabled?" % os.path.join(folder, "wandb"),
            file=sys.stderr,
        )
    leave(child.returncode)


def is_pruned():
    """Tell whether sweep wants no more of this training.

    The other word, to save and to leave, is none that a script hears which knows nothing of sweep.
    """
    try:
        with open(os.environ.get("SWEEP_CONTROL", ""), encoding="utf-8") as stream:
            return json.load(stream).get("stop") == "pruned"
    except (OSError, ValueError, AttributeError):
        return False


def leave(code):
    """End as the child did: by its exit code, or by its signal."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        time.sleep(10)  # the signal comes first
    sys.exit(code)


def send(reporter, runs):
    """Report what is new in the run files; return how many steps had a number."""
    count = 0
    for step, metrics in runs.read() if runs is not None else ():
        reporter.log(step=step, metrics=metrics)
        count += 1
    return count


class RunFiles:
    """The run files below a folder, read as far as they are written.

    Args:
        folder: W&B's own lies in it: ``wandb/run-DATE-ID/run-ID.wandb``, or ``offline-run-…``.
    """

    def __init__(self, folder):
        self.pattern = os.path.join(glob.escape(folder), "wandb", "*run-*", "run-*.wandb")
        self._files = {}

    def read(self):
        """Yield (step, {name: number}) for each new step that has a number."""
        for path in sorted(glob.glob(self.pattern)):
            if os.path.islink(os.path.dirname(path)):  # latest-run
                continue
            yield from self._files.setdefault(path, RunFile(path)).read()


class RunFile:
    """One run's file, from where it was read last."""

    def __init__(self, path):
        self.path = path
        self._place = HEADER
        self._pieces = b""

    def read(self):
        """Yield (step, {name: number}) of the history records that are whole by now."""
        with open(self.path, "rb") as stream:
            stream.seek(self._place)
            data = stream.read()
        at = 0
        while True:
            left = BLOCK - (self._place + at) % BLOCK
            if left < HEADER:  # a block's end that holds no piece is filled with zeros
                at += left
                continue
            if at + HEADER > len(data):
                break
            size, kind = struct.unpack_from("<HB", data, at + 4)
            end = at + HEADER + size
            if kind not in (WHOLE, FIRST, MIDDLE, LAST) or end > len(data):
                break  # not written yet
            piece = data[at + HEADER : end]
            at = end
            self._pieces = piece if kind in (WHOLE, FIRST) else self._pieces + piece
            if kind in (WHOLE, LAST):
                found = read_history(self._pieces)
                if found is not None:
                    yield found
        self._place += at


def read_history(record):
    """Return the step and the numbers of a record, or None for one of another kind."""
    for field, value in fields(record):
        if field == HISTORY and isinstance(value, bytes):
            step, metrics = 0, {}
            for inner, part in fields(value):
                if inner == STEP and isinstance(part, bytes):
                    step = dict(fields(part)).get(STEP_NUMBER, 0)
                elif inner == ITEM and isinstance(part, bytes):
                    name, number = read_item(part)
                    if name == "_step" and number is not None:
                        step = int(number)
                    elif number is not None and not name.startswith("_"):
                        metrics[name] = number
            return (step, metrics) if metrics else None
    return None


def read_item(item):
    """Return an item's name, nested ones joined by dots, and its number or None."""
    name, nested, number = "", [], None
    for field, value in fields(item):
        if field == KEY:
            name = value.decode("utf-8", "replace")
        elif field == NESTED_KEY:
            nested.append(value.decode("utf-8", "replace"))
        elif field == VALUE_JSON:
            try:
                read = json.loads(value)
            except ValueError:
                continue
            if isinstance(read, str) and read.lower().lstrip("+-") in ("nan", "inf", "infinity"):
                read = float(read)
            if isinstance(read, (int, float)) and not isinstance(read, bool):
                number = read
    return name or ".".join(nested), number


def fields(message):
    """Yield (field number, value) of a protobuf message: bytes, or a whole number.

    Groups, which W&B has none of, end it.
    """
    at = 0
    while at < len(message):
        tag, at = whole(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = whole(message, at)
        elif kind == 2:
            size, at = whole(message, at)
            value, at = message[at : at + size], at + size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = message[at : at + size], at + size
        else:
            return
        yield tag >> 3, value


def whole(message, at):
    """Return a number of seven bits a byte, and the place behind it."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
    return value, at


if __name__ == "__main__":
    main()
