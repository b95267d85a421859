"""What ``profile: true`` costs a training: the same one with and without it, in pairs.

    python -m benchmarks.profiling [--pairs 5] [--seconds 40]

A training on one CPU does a fixed number of steps, of a small network fed by a DataLoader of its
own process, for about so many seconds; wall and CPU time are the training's own, from its first
step to its last. From pair to pair the order changes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

TRAINING = """\
import resource, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from sweep.report import Reporter

torch.set_num_threads(1)
torch.manual_seed(0)
reporter = Reporter()
data = DataLoader(TensorDataset(torch.randn(4096, 256)), batch_size=64)
network = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)

def epoch():
    for (batch,) in data:
        loss = (network(batch) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

for _ in range(3):
    epoch()
wanted, epochs = float(sys.argv[1]), int(sys.argv[2])
began, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
done = 0
while done < epochs or (not epochs and time.perf_counter() - began < wanted):
    epoch()
    done += 1
    reporter.log(step=done, score=1.0)
now = resource.getrusage(resource.RUSAGE_SELF)
print("epochs", done, "wall", time.perf_counter() - began,
      "cpu", now.ru_utime - cpu.ru_utime + now.ru_stime - cpu.ru_stime, flush=True)
"""


def train(folder: Path, name: str, profiled: bool, seconds: float, epochs: int) -> dict[str, float]:
    """Run a study of one trial; return what its training printed: epochs, and seconds of wall and
    CPU time."""
    command = [sys.executable, "train.py", str(seconds), str(epochs), "{x}"]
    study = {
        "name": name,
        "command": command,
        "objective": {"metric": "score", "direction": "maximize"},
        "space": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
        "trials": 1,
        "executor": "local",
        "resources": {"cpus": 1},
        "profile": profiled,
    }
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(study))  # JSON is YAML
    (folder / "train.py").write_text(TRAINING)
    argv = [sys.executable, "-m", "sweep", "launch", file.name, "--wait"]
    subprocess.run(argv, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    log = folder / f"runs/{name}/trials/00000/attempts/1/log.txt"
    words = log.read_text().split()
    return {key: float(words[words.index(key) + 1]) for key in ("epochs", "wall", "cpu")}


def main(argv: list[str] | None = None) -> int:
    """Measure, and print a row for each pair and the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args(argv)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs", flush=True)
    with tempfile.TemporaryDirectory(prefix="sweep-bench-") as name:
        folder = Path(name)
        epochs = int(train(folder, "first", False, options.seconds, 0)["epochs"])
        pairs: list[tuple[dict[str, float], dict[str, float]]] = []
        for number in range(options.pairs):
            found = {
                profiled: train(folder, f"p{number}-{profiled}".lower(), profiled, 0.0, epochs)
                for profiled in ((False, True) if number % 2 else (True, False))
            }
            pairs.append((found[False], found[True]))
            print(
                f"pair {number + 1}: wall {found[False]['wall']:.2f} s, with profile "
                f"{found[True]['wall']:.2f} s; CPU {found[False]['cpu']:.2f} s, "
                f"{found[True]['cpu']:.2f} s",
                flush=True,
            )
        subprocess.run([sys.executable, "-m", "sweep", "db", "stop"], cwd=folder, check=False)
    for what in ("wall", "cpu"):
        more = [with_it[what] / without[what] - 1 for without, with_it in pairs]
        least, most = min(more), max(more)
        print(f"{what}: {median(more):+.1%} in the median ({least:+.1%} to {most:+.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
