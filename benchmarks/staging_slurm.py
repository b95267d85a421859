"""What copies of data on the nodes spare, on a real Slurm of four nodes (as root).

    python -m benchmarks.staging_slurm [--trials 40] [--rate 400] [--size 1024]

Trials read all data once: from the shared path, or from their node's copy (``stage: node``). The
cluster is the tests': its nodes are one machine, each with a folder for its disk. The shared folder
is a file system of its own (``benchmarks.slow_folder``), as fast as told for all nodes together.
The makespan begins with ``sweep launch`` and ends when no job is left.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.orchestration import database, slurm_user
from tests.waiting import wait_for

NODES = ("n1", "n2", "n3", "n4")
READS = """
import os, sys
count = 0
for name in sorted(os.listdir(sys.argv[2])):
    with open(os.path.join(sys.argv[2], name), "rb", buffering=0) as stream:
        while chunk := stream.read(1 << 20):
            count += len(chunk)
print("read", sys.argv[2])
print(f"value={count}")
"""


@contextmanager
def slow(source: Path, rate: float, folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the folder as a slow one, and the file that counts the bytes read of it."""
    mount, count = folder / "shared", folder / "count"
    mount.mkdir()
    serve = [sys.executable, "-m", "benchmarks.slow_folder", str(source), str(mount)]
    server = subprocess.Popen([*serve, "--rate", str(rate), "--count", str(count)])
    try:
        wait_for(lambda: server.poll() is not None or mount.is_mount(), "the slow folder")
        if server.poll() is not None:
            raise SystemExit("the slow folder could not be mounted")
        yield mount, count
    finally:
        subprocess.run(["fusermount3", "-u", mount], check=False)
        server.wait()


def measure(user: Any, url: str, stage: str, given: argparse.Namespace, data: Path) -> str:
    """Run a study; return its row."""
    folder = Path(tempfile.mkdtemp(prefix=f"{stage}-", dir=user.folder))
    folder.chmod(0o755)
    disks = user.make(folder / "disks")
    for node in NODES:
        user.make(disks / node)
    python = os.path.realpath(user.bin / "python")
    with slow(data, given.rate, folder) as (shared, count):
        path = user.study(
            f"staging-{stage}",
            [python, str(user.write("reads.py", READS)), "{x}", "{data.d}"],
            objective={
                "metric": "value",
                "direction": "maximize",
                "from": {"stdout": r"value=(\d+)"},
            },
            trials=given.trials,
            max_parallel=given.at_once,
            data={"d": {"path": str(shared), "stage": stage}},
            staging={"place": f"{disks}/$SLURMD_NODENAME"},
            resources={"time": "01:00:00", "cpus": 2, "gpus": 0, "memory": "500M"},
        )
        began = time.monotonic()
        user.sweep("launch", path, env={"SWEEP_STORAGE": url}, timeout_s=3600)
        user.wait_empty(3600)
        took_s = time.monotonic() - began
        read = int(count.read_text() or 0)
    trials = user.trials(f"staging-{stage}")
    size = given.size * 1_000_000
    right = sum(trial["state"] == "complete" and trial["value"] == size for trial in trials)
    logs = (user.runs / f"staging-{stage}/logs").glob("*.log")
    copies = Counter(
        line.rpartition(f"{disks}/")[2].partition("/")[0]
        for log in logs
        for line in log.read_text().splitlines()
        if ": copying " in line
    )
    shutil.rmtree(disks)
    made = ", ".join(f"{node}: {number}" for node, number in sorted(copies.items())) or "–"
    return f"| `{stage}` | {took_s:.1f} | {read / 1e6:,.0f} | {made} | {right} of {given.trials} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both ways, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--rate", type=float, default=400.0, help="MB/s of the shared folder")
    parser.add_argument("--size", type=int, default=1024, help="MB of data, in files of 16 MB")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sweep-staging-") as name:
        root = Path(name)
        root.chmod(0o755)
        data = root / "data"
        data.mkdir()
        for number in range(0, given.size, 16):
            part = min(16, given.size - number)
            (data / f"{number:05d}").write_bytes(os.urandom(1_000_000) * part)
        with database(root / "db") as (url, _), slurm_user(root) as user:
            if user is None:
                return 1
            rows = [measure(user, url, stage, given, data) for stage in ("none", "node")]
    print(
        "| `stage` | makespan, s | read from the shared folder, MB | copies made | trials right |"
    )
    print("|---|---|---|---|---|")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
