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
import struct

from sweep.integrations.child import fields, run
from sweep.report import Reporter

BLOCK = 32768
HEADER = 7  # of the file: ":W&B", two bytes, its version; and of each piece: checksum, size, kind
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
# Field numbers of W&B's messages (wandb_internal.proto): Record, HistoryRecord, HistoryItem.
HISTORY, ITEM, STEP, STEP_NUMBER = 2, 1, 2, 1
KEY, NESTED_KEY, VALUE_JSON = 1, 2, 16


def main():
    """Run the script that the arguments name, and report; end as it ends."""
    reporter = Reporter()
    environ = dict(os.environ)
    folder = environ.get("SWEEP_TRIAL_DIR")
    if folder:
        environ["WANDB_DIR"] = folder
        if not environ.get("WANDB_API_KEY"):
            environ.setdefault("WANDB_MODE", "offline")
    run(
        "sweep.integrations.wandb",
        reporter,
        (lambda _: RunFiles(folder)) if folder else None,
        environ,
        "no number of wandb.log was found under %s: does the script call wandb.init(), with no "
        "dir= of its own and WANDB_MODE not disabled?" % os.path.join(folder or "", "wandb"),
    )


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


if __name__ == "__main__":
    main()
