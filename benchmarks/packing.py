"""Trials an hour on one GPU: alone, packed by measurement, and packed by hand.

    python -m benchmarks.packing --data data --output by-hand.json      # MNIST's CNN, 4 epochs
    python -m benchmarks.packing --data data --legs auto:200 --limit 560 --after by-hand.json
    python -m benchmarks.packing --case resnet --legs 1:3,auto:6
    python -m benchmarks.packing --case memory --legs auto:12,4:12
    python -m benchmarks.packing --executor slurm --legs auto:48        # on a machine with Slurm

Each leg is a study of its own through ``sweep launch --wait`` with the local executor and its
embedded database (``--executor slurm``: as one task of an array): ``auto:96`` is ``share: auto``
with 96 trials, ``8:32`` is ``share: 8`` with 32, ``1:16`` a GPU of its own for each of 16. Trials
an hour are the complete trials over the time from the launch's start to its last trial's end:
start-up and ramp count. Beside it the GPU is looked at once a second: its memory at the most, its
mean busy share, its joules a trial (all of the GPU's, idle power included). What is slower than
``--limit`` is stopped, and its row counts what had ended.

``mnist``: the reference trainer with sweep's defaults; without ``--data`` on synthetic images of
the same size and number. ``resnet``: a ResNet-18 in bf16 with CUDA graphs, which fills a card.
``memory``: ResNets whose width and batch change their memory by eight times. "Again" counts the
attempts beyond the first of each trial: those that ran out of memory beside others, say.
``--device cpu`` is for tests: tiny trainings on what the machine has.

Printed: a table in Markdown, with the rows of ``--after`` before its own, then JSON on one line
(``--output`` writes it to a file as well).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sweep.core.system.gpus import find_gpus
from sweep.core.system.nvml import Cards, Sample

ROOT = Path(__file__).parents[1]
LEGS = "1:8,4:16,8:40,16:48"
MOST = 16  # of ``share: auto``
EVERY_S = 1.0
SERVICE_CPUS = 2
END_S = 60.0  # for a launch that was told to stop
STUDY = """\
name: {name}
command: {command}
objective: {{metric: val_accuracy, direction: maximize}}
space: {space}
fixed: {fixed}
trials: {trials}
seed: 1
sampler: random
max_parallel: {parallel}
executor: {executor}
resources: {resources}
"""
LR = {"lr": {"type": "float", "low": 0.01, "high": 0.1, "log": True}}
SPACES: dict[str, dict[str, Any]] = {
    "memory": {
        **LR,
        "width": {"type": "categorical", "choices": [64, 128, 256]},
        "batch_size": {"type": "categorical", "choices": [4096, 8192]},
    }
}
CASES: dict[str, dict[str, Any]] = {
    "mnist": {"model": "cnn", "layers": 2, "width": 16, "epochs": 4, "augment": "none"},
    "resnet": {
        "data": "synthetic",
        "synthetic_size": 100_000,
        "synthetic_pixels": 32,
        "synthetic_channels": 3,
        "model": "resnet",
        "layers": 2,
        "width": 64,
        "batch_size": 512,
        "epochs": 16,
        "precision": "bf16",
        "cuda_graphs": True,
        "deterministic": False,
    },
    "memory": {
        "data": "synthetic",
        "synthetic_size": 40_000,
        "synthetic_pixels": 32,
        "synthetic_channels": 3,
        "model": "resnet",
        "layers": 2,
        "epochs": 4,
        "precision": "bf16",
        "deterministic": False,
    },
}
SYNTHETIC = {
    "data": "synthetic",
    "synthetic_size": 60_000,
    "synthetic_pixels": 28,
    "synthetic_channels": 1,
}
TINY = {"data": "digits", "model": "mlp", "layers": 1, "width": 8, "epochs": 2}


@dataclass(frozen=True)
class Leg:
    """A study to be run: ``share``'s value, "1" for a GPU of its own, and its number of trials."""

    share: str
    trials: int

    @property
    def most(self) -> int:
        """Trials at once at most."""
        return MOST if self.share == "auto" else int(self.share)


@dataclass(frozen=True)
class Row:
    """What a leg came to.

    Attributes:
        wall_s: From the launch's start to its last trial's end.
        per_hour: Complete trials an hour.
        trial_s: A trial's length, the median.
        at_once: How many trained at once at the most.
        reached_s: When so many did for the first time.
        memory_gb, busy, joules: Of the GPU: at the most, the mean, a complete trial; None where the
            driver does not say.
        stopped: Whether it was stopped by the limit.
        again: Attempts beyond the first of each trial.
    """

    share: str
    trials: int
    complete: int
    other: dict[str, int]
    wall_s: float
    per_hour: float
    trial_s: float | None
    at_once: int
    reached_s: float | None
    memory_gb: float | None
    busy: float | None
    joules: float | None
    best: float | None
    status: str
    stopped: bool
    again: int = 0


class Watch:
    """Looks at the first GPU once a second, in a thread, until it is closed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        names = find_gpus(environ)[:1]
        self._cards = Cards.open(names, environ) if names else None
        self._end = threading.Event()
        self.samples: list[Sample] = []
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while self._cards is not None:
            self.samples.append(self._cards.sample(0))
            if self._end.wait(EVERY_S):
                self.samples.append(self._cards.sample(0))
                return

    def close(self) -> None:
        """End it, with a last look."""
        self._end.set()
        self._thread.join()

    def joules(self) -> float | None:
        """Return what the GPU has used between the first and the last look."""
        told = [sample.energy_mj for sample in self.samples if sample.energy_mj is not None]
        return (told[-1] - told[0]) / 1000.0 if len(told) > 1 else None


def write_study(
    folder: Path,
    name: str,
    leg: Leg,
    fixed: Mapping[str, Any],
    gpus: int,
    space: Mapping[str, Any] = LR,
    executor: str = "local",
    mps: str = "auto",
) -> Path:
    """Write a leg's study file and return it.

    Args:
        mps: Whether CUDA's MPS serves trials that share: auto, on or off.
    """
    resources: dict[str, Any] = {"gpus": gpus, "cpus": os.cpu_count()}
    if executor == "slurm":  # the database is a job beside it
        resources |= {"time": "1h", "cpus": max(1, (os.cpu_count() or 1) - SERVICE_CPUS)}
    if leg.share == "auto":
        resources["share"] = {"max": MOST, "mps": mps}
    elif leg.most > 1:
        resources["share"] = {"fixed": leg.most, "mps": mps}
    if not gpus:
        resources.pop("share", None)
        resources["cpus"] = 1
    command = [sys.executable, "-m", "trainer.train", "--config", "{config}"]
    path = folder / f"{name}.yaml"
    path.write_text(
        STUDY.format(
            name=name,
            command=json.dumps(command),
            space=json.dumps(dict(space)),
            fixed=json.dumps(dict(fixed)),
            executor=executor,
            trials=leg.trials,
            parallel=leg.most,
            resources=json.dumps(resources),
        ),
        encoding="utf-8",
    )
    return path


def run_leg(study: Path, leg: Leg, folder: Path, limit_s: float) -> Row:
    """Run a leg and return its row; what is not done by the limit is stopped.

    Args:
        study: Its study file, called as the study.
        folder: For its runs.

    Raises:
        SystemExit: The launch failed; its output has been shown.
    """
    name = study.stem
    environ = {**os.environ, "PYTHONPATH": with_root(os.environ.get("PYTHONPATH", ""))}
    sweep = [sys.executable, "-m", "sweep"]
    where = ["--runs", str(folder / "runs")]
    watch = Watch(environ)
    began = time.time()
    launch = subprocess.Popen(
        [*sweep, "launch", str(study), "--wait", *where],
        env=environ,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    stopped = False
    try:
        said, _ = launch.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        stopped = True
        subprocess.run([*sweep, "stop", name, *where], env=environ, cwd=folder, check=False)
        try:
            said, _ = launch.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            launch.send_signal(signal.SIGINT)
            said, _ = launch.communicate()
    watch.close()
    if launch.returncode and not stopped:
        sys.exit(f"{name} failed:\n{said[-4000:]}")

    def ask(*words: str) -> str:
        done = subprocess.run(
            [*sweep, *words, *where], env=environ, cwd=folder, capture_output=True, text=True
        )
        return done.stdout if not done.returncode else ""

    rows = json.loads(ask("collect", name, "--format", "json") or "[]")
    return summarise(leg, rows, began, watch, ask("status", name), stopped)


def stop_database(folder: Path) -> None:
    """Stop the database of a folder's runs."""
    subprocess.run(
        [sys.executable, "-m", "sweep", "db", "stop", "--runs", str(folder / "runs")],
        env={**os.environ, "PYTHONPATH": with_root(os.environ.get("PYTHONPATH", ""))},
        cwd=folder,
        check=False,
    )


def summarise(
    leg: Leg,
    rows: Sequence[Mapping[str, Any]],
    began: float,
    watch: Watch,
    status: str,
    stopped: bool,
) -> Row:
    """Return a leg's row.

    Args:
        rows: As ``collect --format json`` gives them.
        began: When the launch was started, seconds since 1970.
    """
    lives = []
    states: dict[str, int] = {}
    for row in rows:
        states[row["state"]] = states.get(row["state"], 0) + 1
        if row["state"] == "complete":
            lives.append(tuple(datetime.fromisoformat(row[at]).timestamp() - began for at in WHEN))
    complete = states.pop("complete", 0)
    wall_s = max((end for _, end in lives), default=time.time() - began)
    at_once, reached_s = most_at_once(lives)
    joules = watch.joules()
    used = [sample.used_bytes for sample in watch.samples if sample.used_bytes is not None]
    busy = [sample.busy for sample in watch.samples if sample.busy is not None]
    values = [row["value"] for row in rows if row.get("value") is not None]
    return Row(
        share=leg.share,
        trials=leg.trials,
        complete=complete,
        other=states,
        wall_s=round(wall_s, 2),
        per_hour=round(complete / wall_s * 3600, 1),
        trial_s=round(statistics.median(end - start for start, end in lives), 2) if lives else None,
        at_once=at_once,
        reached_s=None if reached_s is None else round(reached_s, 1),
        memory_gb=round(max(used) / 1e9, 2) if used else None,
        busy=round(statistics.fmean(busy), 3) if busy else None,
        joules=round(joules / complete, 1) if joules is not None and complete else None,
        best=max(values, default=None),
        status=status,
        stopped=stopped,
        again=sum(max(0, int(row.get("attempts") or 0) - 1) for row in rows),
    )


WHEN = ("started", "ended")


def most_at_once(lives: Sequence[tuple[float, ...]]) -> tuple[int, float | None]:
    """Return how many lives overlapped at the most, and when first.

    Args:
        lives: (start, end) of each, in seconds.
    """
    changes = sorted([(start, 1) for start, _ in lives] + [(end, -1) for _, end in lives])
    now, most, first = 0, 0, None
    for at_s, change in changes:
        now += change
        if now > most:
            most, first = now, at_s
    return most, first


def with_root(path: str) -> str:
    """Return PYTHONPATH with the repository before the rest: the trainer lies there."""
    return os.pathsep.join([str(ROOT), path] if path else [str(ROOT)])


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    alone = next((row.per_hour for row in rows if row.share == "1"), None)
    by_hand = max((row.per_hour for row in rows if row.share != "auto"), default=None)
    lines = [
        "| share | trials | complete | s | trials an hour | against alone | against best by hand "
        "| a trial, s | at once | reached at s | memory, GB | busy | J a trial "
        "| again |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            row.share,
            row.trials,
            f"{row.complete}{' (stopped)' if row.stopped else ''}",
            row.wall_s,
            f"{row.per_hour:,.0f}",
            f"{row.per_hour / alone:.2f}" if alone else "",
            f"{row.per_hour / by_hand:.2f}" if by_hand else "",
            row.trial_s,
            row.at_once,
            row.reached_s,
            row.memory_gb,
            row.busy,
            row.joules,
            row.again,
        ]
        lines.append("| " + " | ".join("" if c is None else str(c) for c in cells) + " |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    asked = (
        subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
        )
        if find_gpus(os.environ) and shutil.which("nvidia-smi")
        else None
    )
    return {
        "card": asked.stdout.strip() if asked is not None and not asked.returncode else None,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def read_legs(text: str) -> list[Leg]:
    """Return the legs of their text: ``1:8,auto:96``.

    Raises:
        argparse.ArgumentTypeError: It is something else.
    """
    found = []
    for part in text.split(","):
        share, _, trials = part.partition(":")
        if not (share == "auto" or share.isdigit()) or not trials.isdigit():
            raise argparse.ArgumentTypeError(f"{part}: share:trials, for example auto:96 or 8:32")
        found.append(Leg(share, int(trials)))
    return found


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return its exit code: 1 where trials are missing."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.packing",
        description="Trials an hour on one GPU: alone, packed by measurement, and by hand.",
    )
    parser.add_argument("--case", choices=tuple(CASES), default="mnist")
    parser.add_argument("--legs", type=read_legs, default=read_legs(LEGS), metavar="SHARE:TRIALS,…")
    parser.add_argument("--data", type=Path, help="folder with mnist/ in it; absent: synthetic")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of a leg")
    parser.add_argument("--after", type=Path, help="the --output of an earlier run, to go on from")
    parser.add_argument("--executor", choices=("local", "slurm"), default="local")
    parser.add_argument("--mps", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--folder", type=Path, help="for studies; absent: one that is removed")
    parser.add_argument("--output", type=Path, help="write the JSON there as well")
    given = parser.parse_args(argv)
    fixed = dict(CASES[given.case])
    if given.case == "mnist":
        data = {"data": "mnist", "data_dir": str(given.data.resolve())} if given.data else SYNTHETIC
        fixed |= data
    if given.device == "cpu":
        fixed = dict(TINY)
    gpus = 0 if given.device == "cpu" else 1
    before = json.loads(given.after.read_text(encoding="utf-8"))["rows"] if given.after else []
    rows = [Row(**row) for row in before]
    found: dict[str, Any] = {"case": given.case, "machine": machine(), "fixed": fixed}
    with tempfile.TemporaryDirectory(prefix="packing-") as made:
        folder = (given.folder or Path(made)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for number, leg in enumerate(given.legs, len(rows)):
            name = f"leg{number}-{leg.share}"
            space = SPACES.get(given.case, LR)
            study = write_study(folder, name, leg, fixed, gpus, space, given.executor, given.mps)
            rows.append(run_leg(study, leg, folder, given.limit))
            print(table(rows), flush=True)
            print(rows[-1].status, flush=True)
            found["rows"] = [asdict(row) for row in rows]
            if given.output:  # what is there stays, should a later leg hang
                given.output.write_text(json.dumps(found) + "\n", encoding="utf-8")
        stop_database(folder)
    print(json.dumps(found))
    return 0 if all(row.complete == row.trials for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
