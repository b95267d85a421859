"""One storm, or some: ``python -m tests.chaos --seed 7 --number 1``. Exit code 1 on any fault.

The same seed, number and form give the same study and the same plan; ``--plan`` shows it only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos import ground as grounds
from tests.chaos import storm, studies
from tests.chaos.auditor import Report
from tests.chaos.gpus import MPS_KILLS
from tests.chaos.studies import Drawn
from tests.cluster.cluster import Cluster


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=1, help="which study of the seed")
    parser.add_argument("--count", type=int, default=1, help="so many, from --number on")
    parser.add_argument("--form", choices=sorted(studies.FORMS), default="long")
    parser.add_argument("--slurm", action="store_true", help="on a real Slurm (as root)")
    parser.add_argument("--cgroup", action="store_true", help="one whose memory limits are real")
    parser.add_argument("--trials", type=int, help="so many, instead of a drawn number")
    parser.add_argument("--replicates", type=int, default=1, help="trainings that make a trial")
    parser.add_argument("--share", help="auto, or how many trials share a GPU")
    parser.add_argument("--mps", action="store_true", help="a stand-in for MPS serves them")
    parser.add_argument("--kills-per-minute", type=float)
    parser.add_argument("--plan", action="store_true", help="show the study and its plan only")
    parser.add_argument("--keep", action="store_true", help="keep the folder, clean or not")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the reports there")
    options = parser.parse_args(argv)
    if options.mps and not options.share:
        parser.error("--mps serves trials that share a GPU: give --share as well")
    # Whoever ends it, what the storm has started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    form = studies.FORMS[options.form]
    numbers = range(options.number, options.number + options.count)
    drawn = [
        studies.draw_study(options.seed, n, form, options.trials, options.replicates)
        for n in numbers
    ]
    if options.plan:
        for one in drawn:
            print(one.describe())
            ground = grounds.SlurmGround if options.slurm else grounds.LocalGround
            kinds = (*ground.kills, *(MPS_KILLS if options.mps else ()), *form.more_kills)
            for event in storm.draw_plan(one, kinds, options.kills_per_minute, options.slurm):
                print(f"  {event}")
        return 0
    reports = []
    with cluster_of(options.slurm, "cgroup" if options.cgroup else "linuxproc") as cluster:
        for one in drawn:
            rate, share = options.kills_per_minute, options.share
            reports.append(run(one, cluster, rate, options.keep, share, options.mps))
            if options.json:
                texts = [report.to_dict() for report in reports]
                options.json.write_text(json.dumps(texts, indent=1) + "\n")
    faulty = [report.name for report in reports if not report.is_clean]
    print(f"{len(reports)} studies, {len(faulty)} with faults: {' '.join(faulty) or '-'}")
    return 1 if faulty else 0


def run(
    drawn: Drawn,
    cluster: Cluster | None,
    rate: float | None,
    keep: bool = False,
    share: str | None = None,
    mps: bool = False,
) -> Report:
    """Play one study where it belongs, print the audit, and keep its folder where it has faults."""
    ground: grounds.Ground
    number = int(share) if share and share.isdecimal() else share
    if cluster is None:
        folder = Path(tempfile.mkdtemp(prefix=f"{drawn.name}-"))
        ground = grounds.LocalGround(folder, drawn.name, number, mps)
    else:
        ground = grounds.SlurmGround(cluster, drawn.name, number, mps)
    keep_folder = True
    try:
        report = storm.play(drawn, ground, rate, cluster is not None, say)
        say(report.text())
        keep_folder = keep or not report.is_clean
        return report
    finally:
        ground.close(keep_folder)
        if keep_folder:
            say(f"kept: {keep_beyond(ground.folder, drawn.name) if cluster else ground.folder}")


def keep_beyond(folder: Path, name: str) -> Path:
    """Move a folder out of its cluster's, which goes with it."""
    return Path(shutil.move(folder, tempfile.mkdtemp(prefix=f"{name}-")))


@contextmanager
def cluster_of(wanted: bool, proctrack: str) -> Iterator[Cluster | None]:
    """Give a cluster of our own, for as long as it is needed; None where none is wanted."""
    if not wanted:
        yield None
        return
    root = Path(tempfile.mkdtemp(prefix="sweep-storm-", dir="/tmp"))
    root.chmod(0o755)  # the cluster's user works in it
    cluster = Cluster(root, proctrack=proctrack)
    try:
        yield cluster.up()
    finally:
        cluster.down()
        shutil.rmtree(root, ignore_errors=True)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
