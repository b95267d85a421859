"""What copies of data on the nodes spare a shared file system, and the trials that wait for it.

    python -m benchmarks.staging [--trials 40] [--nodes 4] [--rate 50] [--size 64]

Trials read all data once, from the shared path or from their node's copy (``stage: node``). Nodes
are folders, slots are processes. The shared folder is as fast as told, for all together: who reads
of it takes a turn at one clock in a locked file, and sleeps until the bytes would have come.
Reads of a node's own copy are as fast as this machine.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.provenance.data import capture_data, list_files
from sweep.provenance.differences import AXES
from sweep.studyfile import loads
from sweep.tasks.staging.stage import Stager

SLOTS = 5  # trials at once on each node
CHUNK = 1 << 20
STUDY = """
name: staging
command: "true"
objective: {{metric: loss, direction: minimize}}
space: {{x: {{type: float, low: 0, high: 1}}}}
trials: 1
data: {{d: {{path: {data}, stage: {stage}}}}}
staging: {{place: {place}}}
"""


class Limited:
    """A file of the shared folder: read at the rate that all its readers share.

    Args:
        clock: A file that holds when the next byte can come, and how many have come.
        rate: Bytes a second.
    """

    def __init__(self, clock: Path, rate: float, path: Path) -> None:
        self.clock, self.rate = clock, rate
        self.stream = path.open("rb", buffering=0)

    def __enter__(self) -> Limited:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def read(self, size: int) -> bytes:
        """Read, and wait until that would have come."""
        chunk = self.stream.read(min(size, CHUNK))
        with self.clock.open("r+") as shared:
            fcntl.flock(shared, fcntl.LOCK_EX)
            free_at, count = (float(word) for word in shared.read().split())
            free_at = max(free_at, time.monotonic()) + len(chunk) / self.rate
            shared.seek(0)
            shared.write(f"{free_at!r} {count + len(chunk):.0f} ".ljust(80))
        time.sleep(max(0.0, free_at - time.monotonic()))
        return chunk


def work(study: Study, folder: StudyFolder, opened: Any, trials: int) -> None:
    """Run some trials one after the other, as a slot does."""
    shared = study.data_paths["d"]
    for _ in range(trials):
        stager = Stager(study, folder, {}, lambda _: None, open_source=opened)
        staged = stager.stage({"d": shared})
        path = staged.data["d"]
        for file in list_files(path):
            with opened(file.path) if path == shared else file.path.open("rb") as stream:
                while stream.read(CHUNK):
                    pass
        staged.close()


def measure(
    root: Path, stage: str, nodes: int, trials: int, rate: float, data: Path
) -> tuple[float, int]:
    """Return how long all trials took, in seconds, and the bytes read of the shared folder."""
    clock = root / f"{stage}.clock"
    clock.write_text("0.0 0 ".ljust(80))
    opened = functools.partial(Limited, clock, rate)
    folder = StudyFolder(root / f"{stage}-study")
    folder.root.mkdir()
    # What a launch records, once: else each trial would list and hash the data by itself.
    record: dict[str, Any] = {axis: {} for axis in AXES} | {"data": {str(data): capture_data(data)}}
    folder.provenance.write_text(json.dumps({"run": "benchmark", **record}))
    processes = []
    for number in range(nodes * SLOTS):
        place = root / stage / f"n{number % nodes}"
        place.mkdir(parents=True, exist_ok=True)
        study = loads(STUDY.format(data=data, stage=stage, place=place), "staging.yaml")
        share = trials // (nodes * SLOTS) + (number < trials % (nodes * SLOTS))
        processes.append(multiprocessing.Process(target=work, args=(study, folder, opened, share)))
    began = time.monotonic()
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    took_s = time.monotonic() - began
    if any(process.exitcode for process in processes):
        raise SystemExit("a slot has failed")
    return took_s, int(float(clock.read_text().split()[1]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both ways, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rate", type=float, default=50.0, help="MB/s of the shared folder")
    parser.add_argument("--size", type=int, default=64, help="MB of data, in files of 1 MB")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sweep-staging-") as name:
        root = Path(name)
        data = root / "data"
        data.mkdir()
        for number in range(given.size):
            (data / f"{number:05d}").write_bytes(os.urandom(1_000_000))
        print("| data | makespan | read from the shared folder |\n|---|---|---|")
        for stage in ("none", "node"):
            took_s, count = measure(root, stage, given.nodes, given.trials, given.rate * 1e6, data)
            print(f"| `stage: {stage}` | {took_s:.1f} s | {count / 1e6:.0f} MB |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
