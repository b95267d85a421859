"""The client that runs inside training: report metrics, learn whether to stop, find the checkpoint.

Standard library only, one file, Python 3.8 or newer: it works in any image without being installed.
Outside sweep it does nothing, so a script that uses it runs alone unchanged.

    from sweep.report import Reporter

    r = Reporter()
    start = load(r.resume) if r.resume else 0
    for epoch in range(start, epochs):
        ...
        r.log(step=epoch, val_accuracy=0.91, train_loss=0.2)
        save(r.checkpoint_dir)
        if r.should_stop():        # None, "pruned" or "checkpoint"
            break
    else:
        r.done()                   # all is done, whatever it was told meanwhile

Each ``log`` appends one JSON line to ``$SWEEP_METRICS``: {"step": 3, "time": 1.7e9, "metrics":
{"val_accuracy": 0.91}}. A number that JSON lacks is written as "nan", "inf" or "-inf".
``should_stop`` reads ``$SWEEP_CONTROL``: {"stop": "pruned"}, absent while training may go on.
``answer.jsonl`` beside that file says what training made of it: there is none where nobody says so,
{"saw": "checkpoint"} once ``should_stop`` has returned a word, {"done": true} after ``done``.
Any language can do the same. With several processes (DDP) only rank 0 reports.
"""

import contextlib
import json
import math
import os
import re
import time

# Written in JSON as strings, because JSON has no such numbers.
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _rank():
    for name in ("RANK", "SLURM_PROCID"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def _number(name, value):
    if hasattr(value, "item"):  # a tensor or numpy scalar of one element
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("metric %s must be a number, got %r" % (name, value))
    value = float(value)
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def _append(path, line):
    # One write of one line to a file opened for appending: never interleaved, never half seen
    # as a whole line, and in the file before this call returns.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        data = line.encode("utf-8")
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)


def encode(step, metrics, when):
    """Return the journal line (with its newline) of one report."""
    record = {"step": int(step), "time": when, "metrics": metrics}
    return json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n"


def decode(line):
    """Return (step, time, {name: float}) of a journal line; ValueError where it is not one."""
    record = json.loads(line)
    if not isinstance(record, dict) or "metrics" not in record or "step" not in record:
        raise ValueError("not a metrics line: %r" % line[:200])
    metrics = {}
    for name, value in record["metrics"].items():
        value = _NONFINITE.get(value, value) if isinstance(value, str) else value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError("metric %s is not a number: %r" % (name, value))
        metrics[str(name)] = float(value)
    return int(record["step"]), float(record.get("time", 0.0)), metrics


class Reporter:
    """Talks to sweep through two files of the attempt's folder.

    Attributes:
        active: Whether sweep started this process.
        resume: Path of the checkpoint to go on from, or None at the first attempt.
        checkpoint_dir: Folder for this attempt's checkpoints, or None outside sweep.
        seed: The trial's seed, or None outside sweep.
    """

    def __init__(self, environ=None):
        environ = os.environ if environ is None else environ
        self._metrics = environ.get("SWEEP_METRICS") or None
        self._control = environ.get("SWEEP_CONTROL") or None
        self.active = self._metrics is not None
        self.resume = environ.get("SWEEP_RESUME") or None
        self.checkpoint_dir = environ.get("SWEEP_CHECKPOINT_DIR") or None
        self.seed = int(environ["SWEEP_SEED"]) if environ.get("SWEEP_SEED") else None
        self._writes = _rank() == 0
        self._next_step = 0
        self._answer = None
        self._saw = None
        if self.active and self._control and self._writes:
            self._answer = os.path.join(os.path.dirname(self._control), "answer.jsonl")
            self._note("")  # from now on, silence says that no word was seen

    def log(self, step=None, metrics=None, **more):
        """Report metrics of one step; the step counts up by itself when it is not given.

        Args:
            step: A whole number, 0 or more: the epoch or batch that the values belong to.
            metrics: A mapping, for names that are no Python identifiers ("val/acc").
            more: Metrics by keyword. Numbers, or tensors of one element.

        Raises:
            TypeError: A value is not a number.
            OSError: The journal cannot be written (a full disk).
        """
        step = self._next_step if step is None else int(step)
        self._next_step = step + 1
        if not self.active or not self._writes:
            return
        values = dict(metrics or {}, **more)
        line = encode(step, {n: _number(n, v) for n, v in values.items()}, time.time())
        _append(self._metrics, line)

    def should_stop(self):
        """Return None (go on), "pruned" (end now) or "checkpoint" (save, then end).

        In DDP ask on rank 0 and broadcast the answer, so that all ranks leave at the same step.
        """
        if not self._control:
            return None
        try:
            with open(self._control, encoding="utf-8") as stream:
                word = json.load(stream).get("stop")
        except (FileNotFoundError, ValueError):
            return None
        if word and word != self._saw:
            self._saw = word
            self._note(json.dumps({"saw": word}) + "\n")
        return word

    def done(self):
        """Say that training has finished, also where it was told to stop before its end.

        A training that ``should_stop`` has told so is taken for one that left, and goes on later.
        """
        self._note(json.dumps({"done": True}) + "\n")

    def _note(self, line):
        if not self._answer:
            return
        try:
            _append(self._answer, line)
        except OSError:  # a full disk: then silence is not to say anything either
            with contextlib.suppress(OSError):
                os.unlink(self._answer)
            self._answer = None


def capture(pattern, text):
    """Return the metric named by a pattern in a line of output, or None.

    The first group that took part in the match is the value.
    """
    found = re.search(pattern, text)
    if not found:
        return None
    groups = [g for g in found.groups() if g is not None] or [found.group(0)]
    try:
        return float(groups[0])
    except ValueError:
        return None
