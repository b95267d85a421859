"""A stand-in for a training: it sleeps, reports, saves checkpoints, and keeps a ledger of its own.

    python training.py --ledger=FOLDER --epochs=30 --epoch-s=1 --every=3 --x=0.5 --kind=a

The ledger is what an auditor believes: one file a trial in a folder outside of sweep's, one line of
JSON for each thing that happens, in the file (fsync) before anything else is done. What it reports
follows from the parameters, the epoch and, by a little, the attempt: a value that was taken from a
wrong attempt is another value. Standard library and ``sweep.report`` only.

Words of the ledger's lines: begin (the process has started; ``epoch`` is the first that it
trains), begun and ended (an epoch; the values of ``ended`` are reported right after that), saved
(a checkpoint), foreign (a checkpoint of something else was given), left (it was told to), done.
"""

import json
import math
import os
import random
import socket
import sys
import time

from sweep.report import Reporter

OWN = ("ledger", "epochs", "epoch-s", "every", "seed")
LOOK_S = 0.1  # between two looks at what it is told
KEPT = 2  # checkpoints


def read_arguments(argv):
    """Return its own settings, and the trial's parameters as numbers where they are some."""
    settings, params = {}, {}
    for word in argv:
        name, _, text = word.removeprefix("--").partition("=")
        (settings if name in OWN else params)[name] = text
    return settings, {name: read_value(text) for name, text in params.items()}


def read_value(text):
    try:
        return float(text)
    except ValueError:
        return text


def quality(params):
    """Return how good parameters are, from 0 to 1."""
    distance = 0.0
    for value in params.values():
        at = value if isinstance(value, float) else sum(map(ord, value)) % 3 / 4
        distance += (math.log1p(abs(at)) - 0.3) ** 2
    return 1 / (1 + distance)


def measure(params, trial, attempt, epoch):
    """Return the metrics of one epoch."""
    draw = random.Random(f"{trial}/{attempt}/{epoch}")
    best = quality(params)
    score = best * (1 - 0.8 ** (epoch + 1)) + draw.uniform(-0.03, 0.03)
    first = next((value for value in params.values() if isinstance(value, float)), 0.0)
    return {
        "score": score,
        "loss": 1 - score,
        "cost": math.log1p(abs(first)) + 0.01 * epoch + draw.uniform(-0.01, 0.01),
        "latency": 100 * (1 - best) + draw.uniform(-3, 3),
    }


class Ledger:
    """The file of one trial; every line names the process that wrote it."""

    def __init__(self, folder, trial, attempt, params):
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, f"{trial:05d}.jsonl")
        self.who = {"trial": trial, "attempt": attempt, "pid": os.getpid(), "params": params}

    def write(self, word, epoch, **more):
        line = {**self.who, "word": word, "epoch": epoch, **more}
        line |= {"time": time.time(), "monotonic": time.monotonic()}
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, (json.dumps(line) + "\n").encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Checkpoints:
    """Checkpoints of this attempt: whole or not there."""

    def __init__(self, folder, trial, params):
        self.folder, self.trial, self.params = folder, trial, params
        self.saved = []

    def save(self, epochs):
        """Save that so many epochs are trained, and drop all but the newest."""
        path = os.path.join(self.folder, f"epochs-{epochs:06d}.json")
        state = {"trial": self.trial, "params": self.params, "epochs": epochs}
        with open(path + ".tmp", "w", encoding="utf-8") as stream:
            json.dump(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(path + ".tmp", path)
        if path not in self.saved:
            self.saved.append(path)
        while len(self.saved) > KEPT:
            os.remove(self.saved.pop(0))


def resume(path, trial, params, ledger):
    """Return how many epochs a checkpoint holds; 0 without one, or where it is not this trial's."""
    if not path:
        return 0
    with open(path, encoding="utf-8") as stream:
        state = json.load(stream)
    if state["trial"] != trial or state["params"] != params:
        ledger.write("foreign", state["epochs"], checkpoint=path, of=state["trial"])
        return 0
    return state["epochs"]


class Served:
    """The stand-in for MPS that serves this training, where there is one (tests/mps_stub.py)."""

    def __init__(self):
        self.link = socket.socket(socket.AF_UNIX)
        folder = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "")
        try:
            self.link.connect(folder + "/control")
        except OSError:
            self.link = None  # as CUDA does: without
            return
        self.link.sendall(b"client %d" % os.getpid())
        try:
            refused = not self.link.recv(100).strip().isdigit()
        except OSError:
            refused = True
        if refused:
            sys.exit("RuntimeError: CUDA error: MPS server is not ready to accept new MPS clients")
        self.link.setblocking(False)

    def look(self):
        """End this training where what serves it has ended, or a fault has reached it."""
        try:
            said = self.link.recv(100) if self.link else b"-"
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said != b"-":
            fault = b"fault" in said
            why = "unspecified launch failure" if fault else "cudaErrorMpsRpcFailure"
            sys.exit(f"RuntimeError: CUDA error: {why}")


def sleep_or_hear(seconds, reporter, served):
    """Train: sleep, and return at once with the word when it is told to leave."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if word := reporter.should_stop():
            return word
        served.look()
        time.sleep(min(left, LOOK_S))
    return reporter.should_stop()


def start_time(pid):
    """Return when a process began, in ticks: with its number that names it for good."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stream:
        return int(stream.read().rpartition(")")[2].split()[19])


def main(argv):
    settings, params = read_arguments(argv)
    trial, attempt = int(os.environ["SWEEP_TRIAL"]), int(os.environ["SWEEP_ATTEMPT"])
    epochs, every = int(settings["epochs"]), int(settings["every"])
    ledger = Ledger(settings["ledger"], trial, attempt, params)
    reporter, served = Reporter(), Served()
    first = resume(reporter.resume, trial, params, ledger)
    checkpoints = Checkpoints(reporter.checkpoint_dir, trial, params)
    start, host = start_time(os.getpid()), os.uname().nodename
    ledger.write("begin", first, start=start, host=host, seed=int(settings.get("seed", 0)))
    for epoch in range(first, epochs):
        ledger.write("begun", epoch)
        word = sleep_or_hear(float(settings["epoch-s"]), reporter, served)
        if word:
            if word == "checkpoint":
                checkpoints.save(epoch)
            ledger.write("left", epoch, told=word)
            return 0
        values = measure(params, trial, attempt, epoch)
        ledger.write("ended", epoch, values=values)
        reporter.log(step=epoch, metrics=values)
        if (epoch + 1) % every == 0 or epoch + 1 == epochs:
            checkpoints.save(epoch + 1)
            ledger.write("saved", epoch + 1)
    ledger.write("done", epochs)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
