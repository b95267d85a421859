"""What the modules share that run an unchanged script and read what it gives to a logger."""

import json
import os
import signal
import subprocess
import sys
import time

EVERY_S = 1.0


def run(module, reporter, make_reader, environ, missing):
    """Run the script that the arguments name, report what is read, and end as it ends.

    Args:
        module: The caller's name, for its usage.
        make_reader: Called with the child's process id; returns an object whose ``read()`` yields
            (step, {name: number}) of what is new. None outside sweep.
        environ: Of the script.
        missing: Told where the script ended well and no number was found; its folder is put in.
    """
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m %s SCRIPT.py [ARGUMENT ...]" % module)
    child = subprocess.Popen([sys.executable, *command], env=environ)
    # Whoever ends the training signals its whole group: what the script has logged is read first.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    reader = make_reader(child.pid) if make_reader is not None else None
    found = 0
    while child.poll() is None:
        found += send(reporter, reader)
        if is_pruned():
            reporter.should_stop()  # which notes that it was seen
            child.terminate()
        try:
            child.wait(EVERY_S)
        except subprocess.TimeoutExpired:
            continue
    found += send(reporter, reader)
    if reader is not None and not found and child.returncode == 0:
        print("sweep: %s" % missing, file=sys.stderr)
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


def send(reporter, reader):
    """Report what is new; return how many steps had a number."""
    count = 0
    for step, metrics in reader.read() if reader is not None else ():
        reporter.log(step=step, metrics=metrics)
        count += 1
    return count


def fields(message):
    """Yield (field number, value) of a protobuf message: bytes, or a whole number.

    Groups end it.
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
