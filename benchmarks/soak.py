"""Whether anything grows while a study runs on and on: handles, memory, connections, rows, files.

    python -m benchmarks.soak                    # 30 minutes
    python -m benchmarks.soak --minutes 3

Two studies run on one embedded database for the whole time: ``many`` pulls short trials through two
workers that never end, ``one`` has a single trial that reports four steps a second. Every ten
seconds the processes of sweep and of the database are looked at in /proc, and the database is asked
for its connections and rows; once a minute ``sweep status`` and ``sweep collect`` are called, as
people do.

A figure is flat if its median over the last quarter is at most a tenth (and one handle, one
connection, 2 MB) above that over the second quarter: the first one warms up. Rows and files are
counted for each finished trial, and for each step of the long one. The exit code is 1 where
something has grown.

Printed: a table in Markdown; all samples go to benchmarks/results/soak.json (``--output``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.orchestration import database, describe_machine

RESULTS = Path(__file__).parent / "results" / "soak.json"
EVERY_S = 10.0
LOOK_EVERY_S = 60.0

# A training that reports at a steady pace: argv is the number of steps and the seconds between two.
TRAIN = """
import json, os, sys, time

with open(os.environ["SWEEP_METRICS"], "a", buffering=1) as stream:
    for step in range(int(sys.argv[1])):
        time.sleep(float(sys.argv[2]))
        stream.write(json.dumps({"step": step, "metrics": {"loss": 1.0 / (step + 1)}}) + "\\n")
        print(f"step {step}", flush=True)
"""

COUNT_ROWS = """
SELECT (SELECT count(*) FROM trials WHERE state = 'COMPLETE'),
       (SELECT count(*) FROM sweep_attempt a JOIN trials t USING (trial_id)
         WHERE t.state = 'COMPLETE'),
       (SELECT count(*) FROM sweep_metric m JOIN trials t USING (trial_id)
         WHERE t.state = 'COMPLETE'),
       (SELECT count(*) FROM trial_intermediate_values v JOIN trials t USING (trial_id)
         WHERE t.state = 'COMPLETE')
       + (SELECT count(*) FROM trial_user_attributes v JOIN trials t USING (trial_id)
           WHERE t.state = 'COMPLETE')
       + (SELECT count(*) FROM trial_system_attributes v JOIN trials t USING (trial_id)
           WHERE t.state = 'COMPLETE'),
       (SELECT count(*) FROM study_user_attributes) + (SELECT count(*) FROM study_system_attributes)
"""


@dataclass(frozen=True)
class Figure:
    """What is looked at, and by how much it may rise however small it is."""

    name: str
    slack: float
    read: Callable[[Mapping[str, float]], float]


FIGURES = (
    Figure("processes of sweep", 0.5, lambda s: s["processes"]),
    Figure("their open handles", 1.0, lambda s: s["handles"]),
    Figure("their memory, MB (shared pages shared out)", 2.0, lambda s: s["memory_mb"]),
    Figure("processes of the database", 1.0, lambda s: s["server_processes"]),
    Figure("their open handles, a process", 1.0, lambda s: s["server_handles"]),
    Figure("connections", 1.0, lambda s: s["connections"]),
    Figure("attempts a finished trial", 0.0, lambda s: s["attempts"] / s["finished"]),
    Figure("metric rows a finished trial", 0.0, lambda s: s["metrics"] / s["finished"]),
    Figure("Optuna's rows a finished trial", 0.0, lambda s: s["values"] / s["finished"]),
    Figure("attributes of the studies", 1.0, lambda s: s["attributes"]),
    Figure("files a started trial", 0.1, lambda s: s["trial_files"] / s["trial_folders"]),
    Figure("other files of the studies", 1.0, lambda s: s["other_files"]),
    Figure("files in the temporary folder", 0.0, lambda s: s["temporary"]),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the studies, look, and say what has grown."""
    parser = argparse.ArgumentParser(description="Whether anything grows in a long run.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweep-soak-")))
        url, postmaster = stack.enter_context(database(folder))
        soak = Soak(folder, url, postmaster, 60 * given.minutes)
        stack.enter_context(soak.running())
        samples = soak.watch()
    found = judge(samples)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    report = {"machine": describe_machine(), "minutes": given.minutes, "samples": samples}
    given.output.write_text(json.dumps(report, indent=1) + "\n")
    print("| figure | second quarter | last quarter | |\n|---|---|---|---|")
    for name, before, after, is_flat in found:
        print(f"| {name} | {before:.2f} | {after:.2f} | {'flat' if is_flat else '**grown**'} |")
    last = samples[-1]
    print(
        f"\n{describe_machine()}; {given.minutes:g} minutes, {last['finished']:.0f} trials "
        f"finished, {last['long_steps']:.0f} steps of the long one stored; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    return 0 if all(row[3] for row in found) else 1


def judge(samples: Sequence[Mapping[str, float]]) -> list[tuple[str, float, float, bool]]:
    """Return each figure's median over the second and the last quarter, and whether it is flat."""
    quarter = len(samples) // 4
    found = []
    for figure in FIGURES:
        values = [figure.read(sample) for sample in samples]
        before = statistics.median(values[quarter : 2 * quarter])
        after = statistics.median(values[-quarter:])
        found.append(
            (figure.name, before, after, after <= max(1.1 * before, before + figure.slack))
        )
    return found


class Soak:
    """The two studies, and looks at what they hold."""

    def __init__(self, folder: Path, url: str, postmaster: int, lasts_s: float) -> None:
        self.folder = folder
        self.url = url
        self.postmaster = postmaster
        self.lasts_s = lasts_s
        self.runs = folder / "runs"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("SWEEP_")},
            "SWEEP_STORAGE": url,
            "SWEEP_RUNS": str(self.runs),
            "TMPDIR": str(self.temporary),
        }
        (folder / "train.py").write_text(TRAIN)

    def sweep(self, *words: str) -> str:
        """Run a command of sweep; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "sweep", *words],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"sweep {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Both studies, launched for the block."""
        self._launch("many", trials=20_000, slots=2, steps=20, pause_s=0.1)
        self._launch("one", trials=1, slots=1, steps=10**6, pause_s=0.25)
        try:
            yield
        finally:
            for name in ("many", "one"):
                self.sweep("stop", name)
            give_up_at = time.monotonic() + 120
            while self._processes() and time.monotonic() < give_up_at:
                time.sleep(0.5)

    def _launch(self, name: str, *, trials: int, slots: int, steps: int, pause_s: float) -> None:
        study = {
            "name": name,
            "command": [sys.executable, "-S", "train.py", str(steps), str(pause_s)],
            "objective": {"metric": "loss", "direction": "minimize"},
            "space": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
            "sampler": "random",
            "trials": trials,
            "max_parallel": slots,
            "seed": 1,
            "executor": "local",
            "resources": {"time": "10:00:00", "cpus": 1, "gpus": 0},
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(study))
        self.sweep("launch", str(path))

    def watch(self) -> list[dict[str, float]]:
        """Return the samples of the whole time, looking as people do meanwhile."""
        ends_at = time.monotonic() + self.lasts_s
        look_at, samples = time.monotonic() + LOOK_EVERY_S, []
        while time.monotonic() < ends_at:
            time.sleep(EVERY_S)
            if time.monotonic() >= look_at:
                look_at += LOOK_EVERY_S
                self.sweep("status", "many", "--json")
                self.sweep("collect", "many", "--top", "5")
                self.sweep("status", "one", "--json")
            sample = self._sample()
            if sample["finished"]:
                samples.append(sample)
            if len(samples) % 30 == 1:
                print({k: round(v, 1) for k, v in sample.items()}, file=sys.stderr, flush=True)
        if len(samples) < 8:
            raise RuntimeError("too few samples: let it run for longer")
        return samples

    def _sample(self) -> dict[str, float]:
        ours = self._processes()
        servers = _tree(self.postmaster)
        handles = [_handles(pid) for pid in servers]
        sample = {
            "processes": len(ours),
            "handles": sum(map(_handles, ours)),
            "memory_mb": sum(map(_memory_kb, ours)) / 1024,
            "server_processes": len(servers),
            "server_handles": statistics.median(handles) if handles else 0.0,
            "temporary": len(list(self.temporary.iterdir())),
            "load": os.getloadavg()[0],
        }
        folders = [*self.runs.glob("*/trials/*")]
        everything = sum(len(files) for _, _, files in os.walk(self.runs))
        in_trials = sum(len(files) for top in folders for _, _, files in os.walk(top))
        sample |= {
            "trial_folders": max(len(folders), 1),
            "trial_files": in_trials,
            "other_files": everything - in_trials,
        }
        return sample | self._ask()

    def _ask(self) -> dict[str, float]:
        import psycopg2

        from sweep.storage.url import dsn

        with contextlib.closing(psycopg2.connect(**dsn(self.url))) as connection:
            cursor = connection.cursor()
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND pid <> pg_backend_pid()"
            )
            connections = cursor.fetchone()[0]
            cursor.execute(COUNT_ROWS)
            finished, attempts, metrics, values, attributes = cursor.fetchone()
            cursor.execute(
                "SELECT count(*) FROM sweep_metric m JOIN trials t USING (trial_id) "
                "JOIN studies s USING (study_id) WHERE s.study_name = 'one'"
            )
            steps = cursor.fetchone()[0]
        return {
            "connections": connections,
            "finished": finished,
            "attempts": attempts,
            "metrics": metrics,
            "values": values,
            "attributes": attributes,
            "long_steps": steps,
        }

    def _processes(self) -> list[int]:
        """Return the processes of sweep that serve the studies: not trainings, not commands."""
        mark = b"SWEEP_RUNS=" + os.fsencode(self.runs) + b"\0"
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                environ = Path(f"/proc/{entry}/environ").read_bytes()
                argv = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if mark in environ and argv and b"train.py" not in argv:
                found.append(int(entry))
        return found


def _tree(top: int) -> list[int]:
    """Return a process and its children."""
    try:
        children = Path(f"/proc/{top}/task/{top}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [top, *map(int, children)]


def _handles(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _memory_kb(pid: int) -> float:
    """Return a process's share of memory: pages that several map are shared out among them."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0.0
    found: dict[str, Any] = dict(line.split()[:2] for line in text.splitlines()[1:])
    return float(found.get("Pss:", 0))


if __name__ == "__main__":
    sys.exit(main())
