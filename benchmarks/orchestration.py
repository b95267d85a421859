"""What orchestration costs: sweep against a bare pulling loop and against Optuna's own.

    python -m benchmarks.orchestration                       # all cases; local, and Slurm as root
    python -m benchmarks.orchestration --case short --runner sweep --runner bare

Training is a stand-in from the standard library that sleeps and prints. Measured in one run, so
that the ratios of peers hold whatever else the machine does:

- ratio: from the start of ``sweep launch`` (or of the loops' processes) to the last training's end,
  over the list-scheduling ideal of the same durations in the same order at K;
- CPU a trial: everything that was started, summed by the kernel through a subreaper (the command,
  the array's runner, the tasks, the finaliser), less the command itself and what the stand-in uses
  alone. The database's is separate: its whole process tree in /proc. On Slurm, whose daemons stand
  between, it is the tasks' own: /proc/PID/stat of a training's parent;
- gap: between the last moment of a training and the first of the slot's next;
- waits: trials whose parameters were prepared and whose task made them, those of all that waited
  longer than 0.3 s for them, and the longest wait (a task's first that it makes not counted).

Cases: ``skewed`` (``-tpe``, ``-auto``) 100 trials, one in 20 six times longer, mean 3 s, K = 16;
``short`` 200 trials of 1 s, K = 16; ``skewed-2`` and ``short-2`` as many trials a slot at K = 2: on
2 cores, what a machine with a core for each task would show; ``again`` 60 trials of 0.5 s, K = 2;
``first`` and ``first-tpe`` 20 trials of 2.5 s, each in a task of its own, K = 2. On 2 cores 16
slots of 1 s can be kept busy only where a trial costs less than 0.12 s of CPU, with the training's.

Printed: a table in Markdown; JSON goes to benchmarks/results/orchestration.json (``--output``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import accounting, peers

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "orchestration.json"
RUNNERS = ("sweep", "slurm", "bare", "optuna")
CALIBRATIONS = 20
SLURM_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Case:
    """Trials to run: their durations in seconds, how many at once, and how they are proposed."""

    durations: tuple[float, ...]
    slots: int
    sampler: str = "random"
    trials_per_task: int | None = None


def skewed(trials: int, mean_s: float, seed: int = 1) -> tuple[float, ...]:
    """Return durations of which one in 20 is six times longer, in a random order."""
    short_s = mean_s / (0.95 + 0.05 * 6)
    long = trials // 20
    durations = [6 * short_s] * long + [short_s] * (trials - long)
    random.Random(seed).shuffle(durations)
    return tuple(durations)


CASES = {
    "skewed": Case(skewed(100, 3.0), 16),
    "skewed-tpe": Case(skewed(100, 3.0), 16, "tpe"),
    "skewed-auto": Case(skewed(100, 3.0), 16, "auto"),
    "short": Case((1.0,) * 200, 16),
    "short-tpe": Case((1.0,) * 200, 16, "tpe"),
    "skewed-2": Case(skewed(20, 2.6), 2),
    "short-2": Case((1.0,) * 25, 2),
    "again": Case((0.5,) * 60, 2),
    "again-tpe": Case((0.5,) * 60, 2, "tpe"),
    "first": Case((2.5,) * 20, 2, trials_per_task=1),
    "first-tpe": Case((2.5,) * 20, 2, "tpe", trials_per_task=1),
}


@dataclass(frozen=True)
class Result:
    """One case by one runner. CPU in seconds; None where it cannot be told.

    Attributes:
        wall_s: From the command's start to the last training's end.
        ideal_s: List scheduling of the same durations.
        ramp_s: From the command's start until the first training began.
        cpu_s: A trial's orchestration, all of it, less the command.
        database_cpu_s: A trial's share of the database server's.
        cycle_cpu_s: A task's own, from one training's start to the next's.
        first_cpu_s: A task's own until its first training began; the median.
        command_cpu_s: The command's (``sweep launch``), once a study.
        prepared, made, late, longest_wait_s: Of sweep's proposals, as ``status --json`` says.
    """

    case: str
    runner: str
    trials: int
    slots: int
    wall_s: float
    ideal_s: float
    ratio: float
    ramp_s: float
    gap_median_s: float | None
    gap_90_s: float | None
    cpu_s: float | None
    database_cpu_s: float | None
    cycle_cpu_s: float | None
    first_cpu_s: float | None
    command_cpu_s: float | None
    load: float
    prepared: int | None = None
    made: int | None = None
    late: int | None = None
    longest_wait_s: float | None = None


class Bench:
    """A folder, a database and the stand-in, for any number of runs."""

    def __init__(self, folder: Path, url: str, postmaster: int) -> None:
        self.folder = folder
        self.url = url
        self.postmaster = postmaster
        self.stand_in = folder / "stand_in.py"
        shutil.copy(Path(__file__).parent / "stand_in.py", self.stand_in)
        self.runs = 0
        self.training_cpu_s = self._calibrate()

    def training(self, durations: Sequence[float], notes: Path) -> list[str]:
        """Return the stand-in's command for these durations."""
        listed = notes.with_suffix(".durations")
        listed.write_text("\n".join(map(str, durations)))
        listed.chmod(0o644)
        python = os.path.realpath(sys.executable)
        return [python, "-I", "-S", str(self.stand_in), str(listed), str(notes)]

    def _calibrate(self) -> float:
        """Return the CPU seconds that a stand-in uses by itself, process start included."""
        command = [*self.training([0.0], self.folder / "calibration.notes"), "0"]
        used = []
        for _ in range(CALIBRATIONS):
            before = os.times()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            after = os.times()
            used.append(
                after.children_user
                - before.children_user
                + after.children_system
                - before.children_system
            )
        return statistics.mean(used)

    def run(self, name: str, case: Case, runner: str, durations: Sequence[float]) -> Result:
        """Run one case on this machine and return what it cost."""
        self.runs += 1
        folder = self.folder / f"{self.runs}-{name}-{runner}"
        folder.mkdir()
        notes = folder / "notes"
        training = self.training(durations, notes)
        # As where sweep is installed: its modules are compiled once, not by each process.
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        if runner == "sweep":
            study = folder / "study.yaml"
            spec = study_of(f"b{self.runs}-{secret_free(name)}", case, training, "local")
            study.write_text(json.dumps(spec))
            command = [sys.executable, "-m", "sweep", "launch", str(study)]
            commands = [[*command, "--runs", str(folder / "runs")]]
            env["SWEEP_STORAGE"] = self.url
        else:
            kind = "optuna-tpe" if runner == "optuna" and case.sampler == "tpe" else runner
            peers.prepare(self.url, len(durations), with_optuna=runner == "optuna")
            peer = [sys.executable, "-m", "benchmarks.peers", kind, self.url, *training]
            commands = [peer] * case.slots
        before_s, load = accounting.tree_cpu_s(self.postmaster), os.getloadavg()[0]
        ran = accounting.run(commands, env, folder / "log")
        database_s = accounting.tree_cpu_s(self.postmaster) - before_s
        if any(ran.exit_codes):
            raise RuntimeError(f"{runner} failed:\n{(folder / 'log').read_text()[-2000:]}")
        found = accounting.read_notes(notes)
        command_s = ran.own_cpu_s if runner == "sweep" else 0.0
        waits = read_waits(self.url, spec["name"]) if runner == "sweep" else {}
        return summarise(
            name,
            runner,
            case,
            durations,
            found,
            ran.began,
            load,
            **waits,
            cpu_s=(ran.all_cpu_s - command_s) / len(found) - self.training_cpu_s,
            database_cpu_s=database_s / len(found),
            command_cpu_s=command_s or None,
        )


def read_waits(url: str, study: str) -> dict[str, Any]:
    """Return how a study's proposals came about."""
    from sweep.storage import proposals, studies
    from sweep.storage.connection import Database

    with contextlib.closing(Database(url)) as db:
        study_id = studies.find_study(db, study)
        assert study_id is not None
        found = proposals.read_waits(db, study_id)
    return {
        "prepared": found.prepared,
        "made": found.made,
        "late": found.late,
        "longest_wait_s": found.longest_s,
    }


def secret_free(name: str) -> str:
    """Return a name for a study that no other run of this machine has."""
    return f"{name}-{os.getpid()}"


def study_of(name: str, case: Case, training: Sequence[str], executor: str) -> dict[str, Any]:
    """Return the study file of a case."""
    given: dict[str, Any] = {
        "name": name,
        "command": list(training),
        "objective": {
            "metric": "value",
            "direction": "maximize",
            "from": {"stdout": "value=([0-9.e-]+)"},
        },
        "space": {
            "x": {"type": "float", "low": 0.0, "high": 1.0},
            "layers": {"type": "int", "low": 1, "high": 8},
            "optimizer": {"type": "categorical", "choices": ["sgd", "adamw"]},
        },
        "sampler": case.sampler,
        "trials": len(case.durations),
        "max_parallel": case.slots,
        "seed": 1,
        "executor": executor,
        "resources": {"time": "00:20:00", "cpus": 1, "gpus": 0},
    }
    if case.trials_per_task:
        given["trials_per_task"] = case.trials_per_task
    return given


def summarise(
    name: str,
    runner: str,
    case: Case,
    durations: Sequence[float],
    notes: Sequence[accounting.Note],
    began: float,
    load: float,
    **more: Any,
) -> Result:
    """Return the result of a run from what its trainings noted.

    Raises:
        RuntimeError: A trial ran never, or more than once.
    """
    if sorted(note.index for note in notes) != list(range(len(durations))):
        raise RuntimeError(f"{runner} ran {len(notes)} trainings for {len(durations)} trials")
    ideal_s = accounting.list_schedule_s(durations, case.slots)
    wall_s = max(note.ended for note in notes) - began
    gaps = accounting.gaps_s(notes)
    return Result(
        case=name,
        runner=runner,
        trials=len(notes),
        slots=case.slots,
        wall_s=wall_s,
        ideal_s=ideal_s,
        ratio=wall_s / ideal_s,
        ramp_s=min(note.began for note in notes) - began,
        gap_median_s=accounting.median(gaps),
        gap_90_s=statistics.quantiles(gaps, n=10)[-1] if len(gaps) > 1 else None,
        cycle_cpu_s=accounting.cycle_cpu_s(notes),
        first_cpu_s=accounting.median(
            [chain[0].parent_cpu_s for chain in accounting.chains(notes)]
        ),
        load=load,
        **{"cpu_s": None, "database_cpu_s": None, "command_cpu_s": None, **more},
    )


@contextlib.contextmanager
def database(folder: Path) -> Iterator[tuple[str, int]]:
    """A PostgreSQL server of the benchmark's own: its URL and the pid of its main process."""
    from sweep.storage import tables
    from sweep.storage.embedded import start_stop

    server = start_stop.start(folder / "postgres", idle_stop_s=None)
    try:
        tables.create(server.url())  # once a database, not once a study
        yield server.url(), server.pid
    finally:
        start_stop.stop(folder / "postgres")


def run_on_slurm(bench: Bench, user: Any, name: str, case: Case) -> Result:
    """Run one case on the test cluster, as its user who is not root."""
    bench.runs += 1
    notes = user.folder / f"{bench.runs}.notes"
    training = bench.training(case.durations, notes)
    training[0] = os.path.realpath(user.bin / "python")
    study = f"b{bench.runs}-{secret_free(name)}"
    path = user.write(f"{study}.yaml", json.dumps(study_of(study, case, training, "slurm")))
    storage = {"SWEEP_STORAGE": bench.url}
    before_s, load = accounting.tree_cpu_s(bench.postmaster), os.getloadavg()[0]
    began = time.time()
    user.sweep("launch", path, env=storage)
    give_up_at = time.monotonic() + sum(case.durations) + SLURM_PATIENCE_S
    while not notes.exists() or len(notes.read_text().splitlines()) < len(case.durations):
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"{study} does not end on Slurm:\n{user.explain()}")
        time.sleep(0.5)
    user.wait_empty(120)
    database_s = accounting.tree_cpu_s(bench.postmaster) - before_s
    return summarise(
        name,
        "slurm",
        case,
        case.durations,
        accounting.read_notes(notes),
        began,
        load,
        **read_waits(bench.url, study),
        database_cpu_s=database_s / len(case.durations),
    )


@contextlib.contextmanager
def slurm_user(folder: Path) -> Iterator[Any]:
    """The user of a real cluster that is brought up for this; None where it cannot be."""
    from tests.cluster.cluster import Cluster, Missing
    from tests.cluster.user import User

    if os.geteuid() != 0:
        print("no Slurm: only root can bring the test cluster up", file=sys.stderr)
        yield None
        return
    root = Path(tempfile.mkdtemp(prefix="sweep-bench-", dir="/tmp"))
    root.chmod(0o755)
    cluster = Cluster(root)
    try:
        try:
            cluster.up()
            user = User(cluster, cluster.home / "bench")
        except Missing as missing:
            print(f"no Slurm: {missing}", file=sys.stderr)
            yield None
            return
        with user.leaving_nothing():
            yield user
    finally:
        cluster.down()
        shutil.rmtree(root, ignore_errors=True)


COLUMNS = {
    "case": "case",
    "runner": "runner",
    "ratio": "ratio to ideal",
    "wall_s": "wall s",
    "ramp_s": "first start s",
    "gap_median_s": "gap s (median)",
    "gap_90_s": "gap s (90 %)",
    "cpu_s": "CPU s a trial",
    "database_cpu_s": "of the database",
    "cycle_cpu_s": "of the task",
    "first_cpu_s": "until its first",
    "command_cpu_s": "launch, once",
    "load": "load before",
    "prepared": "prepared",
    "made": "by tasks",
    "late": "waited > 0.3 s",
    "longest_wait_s": "longest wait s",
}


def table(results: Sequence[Result]) -> str:
    """Return results as a Markdown table."""
    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|---" * len(COLUMNS) + "|"]
    for result in results:
        cells = []
        for name in COLUMNS:
            value = getattr(result, name)
            if isinstance(value, float):
                value = f"{value:.1f}" if name in ("wall_s", "load") else f"{value:.3f}"
            cells.append("–" if value is None else str(value))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen cases by the chosen runners."""
    parser = argparse.ArgumentParser(description="What orchestration costs.")
    parser.add_argument("--case", action="append", choices=list(CASES), help="all by default")
    parser.add_argument("--runner", action="append", choices=RUNNERS, help="all by default")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each, one after the other")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    cases = given.case or list(CASES)
    runners = given.runner or list(RUNNERS)
    results: list[Result] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweep-bench-")))
        folder.chmod(0o755)
        bench = Bench(folder, *stack.enter_context(database(folder)))
        user = stack.enter_context(slurm_user(folder)) if "slurm" in runners else None
        for _ in range(given.repeat):
            for name in cases:
                for runner in runners:
                    case = CASES[name]
                    if runner == "slurm" and user is not None:
                        results.append(run_on_slurm(bench, user, name, case))
                    elif runner == "sweep" or (runner != "slurm" and case.trials_per_task is None):
                        results.append(bench.run(name, case, runner, case.durations))
                    else:
                        continue
                    print(table(results[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
        training_cpu_s = bench.training_cpu_s
    machine = describe_machine()
    report: Mapping[str, Any] = {
        "machine": machine,
        "training_cpu_s": training_cpu_s,
        "results": [asdict(result) for result in results],
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report, indent=1) + "\n")
    print(table(results))
    print(f"\n{machine}; the stand-in alone uses {training_cpu_s:.3f} s of CPU")
    return 0


def describe_machine() -> str:
    """Return cores, Python and kernel in a line."""
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, Python {platform.python_version()}, Linux {platform.release()}"


if __name__ == "__main__":
    sys.exit(main())
