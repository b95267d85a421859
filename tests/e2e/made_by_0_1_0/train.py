"""A training that takes no time: the score approaches 1 - (x - 0.25)^2, step by step."""

import argparse
import os
import pathlib
import time

from sweep.report import Reporter

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--kind", default="a")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--value", default="")
parser.add_argument("--gate", default="")
flags = parser.parse_args()
reporter = Reporter()
first = 0
if reporter.resume:
    first = int(pathlib.Path(reporter.resume).read_text()) + 1
print(f"starts at step {first} with x={flags.x}", flush=True)
for step in range(first, flags.steps):
    time.sleep(flags.pause)
    score = 1 - (flags.x - 0.25) ** 2 - 1 / (step + 2)
    reporter.log(step=step, score=float(flags.value) if flags.value else score, loss=-score)
    if reporter.checkpoint_dir:
        path = pathlib.Path(reporter.checkpoint_dir) / "last"
        path.with_suffix(".new").write_text(str(step))
        path.with_suffix(".new").replace(path)
    # The test decides how long this trial takes: from its second step on it waits for the gate.
    while flags.gate and step > 0 and not os.path.exists(flags.gate) and not reporter.should_stop():
        time.sleep(0.02)
    if reporter.should_stop():
        break
print("done", flush=True)
