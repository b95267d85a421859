"""Kills of trainings that share a GPU: the others' curves are those of runs alone.

    python -m benchmarks.packed_kills --kills 50 --trials 64 --share 12
    python -m benchmarks.packed_kills --executor slurm --share auto     # on a machine with Slurm

Four configurations of the reference trainer's CNN train alone, one after the other. Then each of
them trains ``--trials`` / 4 times with the same seed on one GPU that ``--share`` of them share, and
again and again one training's process group is ended by SIGKILL in mid-step. Every report of
every attempt is compared with that of its configuration alone at the same epoch, number by number:
of the trials that were never killed, and of those that went on from a checkpoint.

Printed: a line of what came of it, then JSON (``--output`` writes it to a file as well). The exit
code is 1 where a trial is lost or a curve differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.packing import CASES, END_S, SERVICE_CPUS, SYNTHETIC, TINY, machine, with_root
from sweep.control.place import SLOT_VARIABLE
from sweep.core.system.mps import FOLDER, PIPE, PROGRAM, Control
from sweep.core.system.own_folder import own_folder
from sweep.core.system.processes import live_processes
from sweep.core.system.seats import TRAINING, SeatState, read_seat

RATES = (0.01, 0.02, 0.05, 0.1)
SECONDS = ("epoch_s",)  # reported, and of no result
STUDY = """\
name: {name}
command: {command}
objective: {{metric: val_accuracy, direction: maximize}}
space:
  lr: {{type: categorical, choices: {rates}}}
  copy: {{type: int, low: 1, high: {copies}}}
trials: {trials}
seed: 1
sampler: grid
max_parallel: {parallel}
retry: {{max_attempts: 100}}
executor: {executor}
resources: {resources}
"""
Curve = dict[int, dict[str, float]]  # by epoch, what was reported there


def write_study(
    folder: Path, name: str, copies: int, share: str, fixed: Mapping[str, Any], executor: str
) -> Path:
    """Write a study of each rate so many times, and return its file.

    Args:
        share: ``auto``, or how many train at once; "1": each has the GPU for itself.
    """
    resources: dict[str, Any] = {"gpus": 1, "cpus": os.cpu_count() or 1}
    if executor == "slurm":
        resources |= {"time": "1h", "cpus": max(1, resources["cpus"] - SERVICE_CPUS)}
    if share != "1":
        resources["share"] = share if share == "auto" else int(share)
    flags = [f"--{key.replace('_', '-')}={str(value).lower()}" for key, value in fixed.items()]
    train = [sys.executable, "-m", "trainer.train", "--lr={lr}", "--seed=7", *flags]
    path = folder / f"{name}.yaml"
    text = STUDY.format(
        name=name,
        command=json.dumps(train),
        rates=list(RATES),
        copies=copies,
        trials=len(RATES) * copies,
        parallel=16 if share == "auto" else int(share),
        executor=executor,
        resources=json.dumps(resources),
    )
    path.write_text(text, encoding="utf-8")
    return path


def training_now(cards: Path) -> list[SeatState]:
    """Return the seats on which a training has reported something."""
    seats = [read_seat(path) for path in sorted(cards.glob("*/seat-*.json"))]
    return [seat for seat in seats if seat and seat.state == TRAINING and seat.reports]


def kill_server() -> bool:
    """End an MPS server of this user's sweep by SIGKILL; tell whether there was one."""
    pipes = {process.environment().get(PIPE, "") for process in live_processes()}
    program = shutil.which(PROGRAM)
    for pipe in sorted(pipes) if program else ():
        if pipe.startswith(str(own_folder(FOLDER))):
            for pid in Control(str(program), {PIPE: pipe}).servers() or ():
                os.kill(pid, signal.SIGKILL)
                return True
    return False


def kill_task(study: Path) -> bool:
    """End a task of a study on Slurm by SIGKILL, with nothing said to its workers; tell whether
    there was one.

    Args:
        study: The folder of its runs.
    """
    for process in live_processes():
        with suppress(OSError):
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\0")
            is_task = "sweep.task" in words and str(study) in words and words[0] != "srun"
            if is_task and SLOT_VARIABLE not in process.environment():
                process.signal(signal.SIGKILL)
                return True
    return False


@dataclass
class Harm:
    """What is ended by SIGKILL beside trainings, and how often it was.

    Attributes:
        kills: Trainings that are to be ended; between them, evenly, the others are.
        servers, tasks: MPS servers, and tasks of Slurm's, to end.
    """

    kills: int = 0
    servers: int = 0
    tasks: int = 0
    servers_ended: int = 0
    tasks_ended: int = 0

    def is_due(self, killed: int, study: Path) -> bool:
        """End what is due after so many trainings; tell whether anything was."""
        if self._is_reached(killed, self.servers_ended, self.servers) and kill_server():
            self.servers_ended += 1
            return True
        if self._is_reached(killed, self.tasks_ended, self.tasks) and kill_task(study):
            self.tasks_ended += 1
            return True
        return False

    def _is_reached(self, killed: int, ended: int, wanted: int) -> bool:
        return ended < wanted and killed >= self.kills * (ended + 1) / (wanted + 1)


def kill_often(
    launch: subprocess.Popen[str],
    study: Path,
    kills: int,
    every_s: float,
    limit_s: float,
    harm: Harm,
) -> list[int]:
    """End trainings in mid-step until so many are, or the launch has ended.

    Args:
        study: The folder of its runs.

    Returns:
        The trial of each.
    """
    chance = random.Random(1)
    killed: list[int] = []
    seen: set[str] = set()
    end = time.monotonic() + limit_s
    while launch.poll() is None and time.monotonic() < end:
        time.sleep(every_s)
        live = [seat for seat in training_now(study / "cards") if seat.token not in seen]
        if live and harm.is_due(len(killed), study):
            continue
        if len(killed) >= kills or not live:
            continue
        seat = chance.choice(live)
        assert seat.group is not None, "a training that reports has a process group"
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(seat.group, signal.SIGKILL)
            killed.append(seat.trial)
        seen.add(seat.token)
    return killed


def read_curve(path: Path) -> Curve:
    """Return what an attempt has reported; a line that was cut by a kill does not count."""
    curve: Curve = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return curve
    for line in lines:
        try:
            said = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(said, dict) and "step" in said:
            metrics = said.get("metrics") or {}
            curve[said["step"]] = {
                name: value
                for name, value in metrics.items()
                if isinstance(value, int | float) and name not in SECONDS
            }
    return curve


def curves_of(root: Path) -> dict[int, list[Curve]]:
    """Return the curves of each trial's attempts that have reported anything."""
    found: dict[int, list[Curve]] = {}
    for path in sorted(root.glob("trials/*/attempts/*")):
        curve = read_curve(path / "metrics.jsonl")
        if curve:
            found.setdefault(int(path.parent.parent.name), []).append(curve)
    return found


def differences(curves: Iterable[Curve], alone: Curve) -> list[float]:
    """Return by how much each number that was reported differs from the same one alone."""
    found = []
    for curve in curves:
        for step, metrics in curve.items():
            told = alone.get(step, {})
            found += [abs(value - told.get(name, float("inf"))) for name, value in metrics.items()]
    return found


def run_study(
    study: Path, folder: Path, kills: int, every_s: float, limit_s: float, harm: Harm
) -> tuple[list[dict[str, Any]], list[int], float]:
    """Run a study.

    Returns:
        Its rows, as ``collect`` gives them; the trials of which a training was killed; its seconds.

    Raises:
        SystemExit: It failed; its output has been shown.
    """
    environ = {**os.environ, "PYTHONPATH": with_root(os.environ.get("PYTHONPATH", ""))}
    sweep, where = [sys.executable, "-m", "sweep"], ["--runs", str(folder / "runs")]
    began = time.monotonic()
    with open(folder / f"{study.stem}.log", "w+", encoding="utf-8") as log:
        launch = subprocess.Popen(
            [*sweep, "launch", str(study), "--wait", *where],
            env=environ,
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
        killed = kill_often(launch, folder / "runs" / study.stem, kills, every_s, limit_s, harm)
        if launch.poll() is None:
            print(f"{study.stem} is stopped: {limit_s:.0f} s are over", flush=True)
            subprocess.run([*sweep, "stop", study.stem, *where], env=environ, cwd=folder)
            with suppress(subprocess.TimeoutExpired):
                launch.wait(END_S)
        log.seek(0)
        if launch.returncode:
            print(log.read()[-4000:], flush=True)
    took_s = time.monotonic() - began
    collect = [*sweep, "collect", study.stem, "--format", "json", *where]
    done = subprocess.run(collect, env=environ, cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{study.stem} cannot be collected")
    return json.loads(done.stdout), killed, took_s


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.packed_kills", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--share", default="12", help="auto, or how many at once")
    parser.add_argument("--servers", type=int, default=0, help="kills of the MPS server")
    parser.add_argument("--tasks", type=int, default=0, help="kills of a task; on Slurm")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two kills")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of the shared study")
    parser.add_argument("--executor", choices=("local", "slurm"), default="local")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--folder", type=Path, help="for studies; absent: one that is removed")
    parser.add_argument("--output", type=Path, help="write the JSON there as well")
    given = parser.parse_args(argv)
    small = {**CASES["mnist"], **SYNTHETIC, "synthetic_size": 30_000, "epochs": 6}
    fixed = dict(TINY, epochs=40) if given.device == "cpu" else small
    copies = given.trials // len(RATES)
    with tempfile.TemporaryDirectory(prefix="kills-") as made:
        folder = (given.folder or Path(made)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        study = write_study(folder, "alone", 1, "1", fixed, given.executor)
        rows, _, alone_s = run_study(study, folder, 0, 1.0, given.limit, Harm())
        by_trial = curves_of(folder / "runs" / "alone")
        alone = {row["params"]["lr"]: by_trial[row["trial"]][0] for row in rows}
        study = write_study(folder, "shared", copies, given.share, fixed, given.executor)
        harm = Harm(given.kills, given.servers, given.tasks)
        rows, killed, took_s = run_study(study, folder, given.kills, given.every, given.limit, harm)
        by_trial = curves_of(folder / "runs" / "shared")
        subprocess.run(
            [sys.executable, "-m", "sweep", "db", "stop", "--runs", str(folder / "runs")],
            env={**os.environ, "PYTHONPATH": with_root(os.environ.get("PYTHONPATH", ""))},
            cwd=folder,
        )
    found: dict[str, Any] = {
        "machine": machine(),
        "executor": given.executor,
        "share": given.share,
        "alone_s": round(alone_s, 1),
        "shared_s": round(took_s, 1),
        "trials": len(rows),
        "complete": sum(row["state"] == "complete" for row in rows),
        "kills": len(killed),
        "servers_killed": harm.servers_ended,
        "tasks_killed": harm.tasks_ended,
        "trials_killed": len(set(killed)),
        "attempts": sum(row["attempts"] for row in rows),
    }
    for name, of_kind in (("survivors", False), ("resumed", True)):
        told = {
            row["trial"]: differences(by_trial.get(row["trial"], []), alone[row["params"]["lr"]])
            for row in rows
            if (row["trial"] in killed) is of_kind
        }
        found[name] = {
            "trials": len(told),
            "numbers": sum(map(len, told.values())),
            "equal": sum(bool(each) and max(each) == 0.0 for each in told.values()),
            "largest_difference": max(
                (max(each, default=0.0) for each in told.values()), default=0.0
            ),
        }
    print(json.dumps(found), flush=True)
    if given.output:
        given.output.write_text(json.dumps(found) + "\n", encoding="utf-8")
    sound = found["complete"] == len(RATES) * copies
    equal = all(found[kind]["equal"] == found[kind]["trials"] for kind in ("survivors", "resumed"))
    return 0 if sound and equal else 1


if __name__ == "__main__":
    sys.exit(main())
