"""How long free slots wait for a sampler's proposals, while what prepares them is killed.

    python -m benchmarks.proposal_waits            # gp by name, 60 trials, K = 4, no kills
    python -m benchmarks.proposal_waits --kills    # its processes and their tasks, in turn
    python -m benchmarks.proposal_waits --kills --repeat 3 --slots 16 --trials 100 --mean 3

A local study of the stand-in (one trial in 20 takes six times as long). With ``--kills`` a process
that prepares proposals, or the task that started it, is ended by SIGKILL whenever ``--every`` more
trainings have ended; killed trials go on as a next attempt. To compare two versions, run it in a
checkout of each, in alternation: the seconds hang on what else the machine does.

Waits are those of all trials, from the claim to the parameters, a task's first that it makes
itself too (``sweep status`` leaves that out); of the trials that launch lays out there are none.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.orchestration import Bench, Case, database, describe_machine, skewed, study_of

LOOK_S = 0.2
END_S = 60.0
PROPOSER = "sweep.tasks.proposer"
COLUMNS = ("kills", "load", "prepared", "by tasks", "longest s", "all waits s", "over 0.3 s")


def processes_of(folder: Path) -> dict[int, list[str]]:
    """Return the words of all processes that were told of a folder, by pid."""
    found = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{name}/cmdline").read_bytes().decode("utf-8", "replace")
            if str(folder) in line:
                found[int(name)] = line.split("\0")
    return found


def proposers_of(folder: Path) -> list[int]:
    """Return the pids of the processes that prepare proposals for a study of this folder."""
    return sorted(pid for pid, words in processes_of(folder).items() if PROPOSER in words)


def wait_for_the_end(folder: Path) -> None:
    """Wait until the study's last process has ended: its report is made after its last trial.

    Raises:
        RuntimeError: One is still there after a minute.
    """
    give_up_at = time.monotonic() + END_S
    while found := processes_of(folder):
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"still there: {found}")
        time.sleep(LOOK_S)


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_while(launch: subprocess.Popen[bytes], folder: Path, notes: Path, every: int) -> int:
    """Kill a proposer or its task, in turn, each time that ``every`` trainings more have ended.

    Returns:
        How many were killed when the study was over.
    """
    killed, chance = 0, random.Random(5)
    while launch.poll() is None:
        time.sleep(LOOK_S)
        ended = len(notes.read_text().splitlines()) if notes.exists() else 0
        found = proposers_of(folder)
        if ended < (killed + 1) * every or not found:
            continue
        with contextlib.suppress(OSError):  # it has ended by itself
            pid = chance.choice(found)
            os.kill(parent_of(pid) if killed % 2 else pid, signal.SIGKILL)
            killed += 1
    return killed


def waits_of(url: str, name: str) -> tuple[int, list[float]]:
    """Return how many of a study's proposals were prepared, and how long each trial waited."""
    from sweep.storage import proposals, studies
    from sweep.storage.connection import Database

    with contextlib.closing(Database(url)) as db:
        study_id = studies.find_study(db, name)
        assert study_id is not None
        noted = proposals.read_noted(db, study_id).values()
    return sum(bool(one["prepared"]) for one in noted), [one["wait_s"] for one in noted]


def run(bench: Bench, number: int, case: Case, every: int | None) -> str:
    """Run one study; return its row.

    Args:
        every: Trainings between two kills; None for no kills.

    Raises:
        RuntimeError: It did not end well.
    """
    folder = bench.folder / f"{number}"
    folder.mkdir()
    notes, name, load = folder / "notes", f"waits-{number}-{os.getpid()}", os.getloadavg()[0]
    spec = study_of(name, case, bench.training(case.durations, notes), "local")
    (folder / "study.yaml").write_text(json.dumps({**spec, "retry": {"max_attempts": 30}}))
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    words = [sys.executable, "-m", "sweep", "launch", "study.yaml", "--runs", "runs", "--wait"]
    with (folder / "log").open("wb") as log:
        launch = subprocess.Popen(
            words, cwd=folder, env={**env, "SWEEP_STORAGE": bench.url}, stdout=log, stderr=log
        )
        kills = kill_while(launch, folder, notes, every or sys.maxsize)
    if launch.returncode:
        raise RuntimeError((folder / "log").read_text()[-2000:])
    wait_for_the_end(folder)
    prepared, waits = waits_of(bench.url, name)
    late = sum(one > 0.3 for one in waits)
    cells = (kills, f"{load:.1f}", prepared, len(waits) - prepared)
    figures = (f"{max(waits):.2f}", f"{sum(waits):.1f}", late)
    return "| " + " | ".join(map(str, (*cells, *figures))) + " |"


def rows(given: argparse.Namespace) -> Iterator[str]:
    """Run all that is asked for, row by row."""
    case = Case(skewed(given.trials, given.mean), given.slots, given.sampler)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweep-bench-")))
        bench = Bench(folder, *stack.enter_context(database(folder)))
        for number in range(given.repeat):
            yield run(bench, number, case, given.every if given.kills else None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.proposal_waits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sampler", default="gp")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--slots", type=int, default=4, help="trials at once")
    parser.add_argument("--mean", type=float, default=2.5, help="seconds of a training")
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--every", type=int, default=8, help="trainings between two kills")
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args(arguments)
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for row in rows(given):
        print(row, flush=True)
    print(f"\n{describe_machine()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
