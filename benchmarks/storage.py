"""What the storage does in a second: sweep's against Optuna's own, on one PostgreSQL server.

    python -m benchmarks.storage                 # everything; an hour
    python -m benchmarks.storage --quick         # little of each, in minutes
    python -m benchmarks.storage --part rates --kind sweep --kind rdb --workers 32 --finished 10000

Parts: ``rates`` whole light trials a second by so many workers, beside so many finished trials (see
``storage_workers`` for the kinds and for what a light trial is); ``claims`` one claim's time with
10,000 waiting, by workers that do nothing else and by ones that claim once a second; ``full`` 128
workers on a server of 100 connections; ``commands`` the time of ``sweep launch`` (all but the
submission) and ``sweep collect``, and what a fresh task uses of the CPU (``storage_commands``).

Rates of one run are to be compared with each other only. Data lie in ``--folder``; in memory
(/dev/shm) a commit costs nothing, which favours who commits more often. Printed: tables in
Markdown; JSON goes to benchmarks/results/storage.json, a picture of the rates beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import accounting, storage_commands
from benchmarks.orchestration import describe_machine
from benchmarks.storage_rows import make_study, server, study_of
from benchmarks.storage_workers import OPERATIONS
from sweep.storage.connection import Database

RESULTS = Path(__file__).parent / "results" / "storage.json"
PARTS = ("rates", "claims", "full", "commands")
KINDS = ("sweep", "each", "ours", "rdb", "grpc", "journal")
WAITING = 30_000  # for sweep's own way: its trials exist before they are claimed
ROOMY = 400  # connections: RDBStorage takes two a worker
NOWHERE = 0.1  # trials a second; 128 processes that each read the whole history fill the memory


class Bench:
    """One server, with one study at a time."""

    def __init__(self, running: Any, folder: Path) -> None:
        self.url = running.url()
        self.pid = running.pid
        self.folder = folder
        self._made = 0

    def study(self, finished: int, waiting: int) -> str:
        """Return the name of a new study with so many trials, in place of the one before."""
        self._made += 1
        name = f"study-{self._made}"
        with contextlib.closing(Database(self.url, timeout_s=600.0)) as db:
            db.execute("TRUNCATE studies CASCADE")
            make_study(db, study_of(name, finished + waiting), finished, waiting)
        return name

    def measure(self, kind: str, workers: int, finished: int, seconds: float) -> dict[str, Any]:
        """Run workers of a kind and return what they did."""
        claims = kind in ("claims", "paced")
        own = kind in ("sweep", "each") or claims
        name = self.study(finished, 10_000 if claims else WAITING if own else 0)
        with self._address(kind, name) as address:
            before = accounting.tree_cpu_s(self.pid)
            load = os.getloadavg()[0]
            warm_s = 3.0 if own or kind == "ours" else min(4.0 + workers / 8, 20.0)
            command = [
                sys.executable,
                "-m",
                "benchmarks.storage_workers",
                kind,
                address,
                name,
                str(workers),
                str(seconds),
                str(warm_s),
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{kind}: {done.stderr[-2000:]}")
            database_s = accounting.tree_cpu_s(self.pid) - before
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        each = 1 if claims else OPERATIONS
        rate = found["operations"] / each / found["seconds"]
        result = {
            "kind": kind,
            "workers": workers,
            "finished": finished,
            "rate": rate,
            "database_cpu_s": database_s,
            "load": load,
            **found,
        }
        print(rates_table([result]).splitlines()[-1], file=sys.stderr, flush=True)
        return result

    @contextlib.contextmanager
    def _address(self, kind: str, name: str) -> Iterator[str]:
        if kind == "grpc":
            with storage_commands.grpc_server(self.url, self.folder) as address:
                yield address
        elif kind == "journal":
            yield storage_commands.journal_of(self.url, name, self.folder)
        else:
            yield self.url


def measure_rates(
    bench: Bench, kinds: Sequence[str], workers: Sequence[int], sizes: Sequence[int], seconds: float
) -> list[dict[str, Any]]:
    """Measure every case, but for more workers of a kind that got nowhere with fewer."""
    found: list[dict[str, Any]] = []
    for size in sizes:
        stuck: set[str] = set()
        for count in sorted(workers):
            for kind in kinds:
                if kind not in stuck:
                    found.append(bench.measure(kind, count, size, seconds))
                    if found[-1]["rate"] < NOWHERE:
                        stuck.add(kind)
    return found


def rates_table(results: Sequence[dict[str, Any]]) -> str:
    """Return rates as a Markdown table, each beside RDBStorage's of the same run."""
    base = {(r["workers"], r["finished"]): r["rate"] for r in results if r["kind"] == "rdb"}
    lines = [
        "| storage | finished | workers | trials/s | times RDBStorage | a trial, median s "
        "| errors | load |",
        "|---" * 8 + "|",
    ]
    for r in sorted(results, key=lambda r: (r["finished"], r["workers"])):
        rdb = base.get((r["workers"], r["finished"]))
        ratio = f"{r['rate'] / rdb:.1f}" if rdb else "–"
        p50 = "–" if r["p50_s"] is None else f"{r['p50_s']:.3f}"
        lines.append(
            f"| {r['kind']} | {r['finished']} | {r['workers']} | {r['rate']:.2f} | {ratio} | {p50} "
            f"| {r['errors']} | {r['load']:.0f} |"
        )
    return "\n".join(lines)


def draw(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the rates over the workers, one field a number of finished trials."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = sorted({r["finished"] for r in results})
    counts = sorted({r["workers"] for r in results})
    figure, fields = pyplot.subplots(
        1,
        len(sizes),
        figsize=(4 * len(sizes), 3.6),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    lines = {}
    for field, size in zip(fields[0], sizes, strict=True):
        for place, kind in enumerate(KINDS):
            found = sorted(
                (r["workers"], r["rate"])
                for r in results
                if r["kind"] == kind and r["finished"] == size and r["rate"] > 0
            )
            if found:
                drawn = field.plot(*zip(*found, strict=True), marker="o", color=f"C{place}")
                lines[kind] = drawn[0]
        field.set(xscale="log", yscale="log", xlabel="workers", title=f"{size:,} finished trials")
        field.set_xticks(counts, [str(count) for count in counts], minor=False)
        field.set_xticks([], minor=True)
        field.grid(alpha=0.3)
    fields[0][0].set_ylabel("light trials a second")
    figure.legend(lines.values(), lines, loc="outside right center")
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(description="What the storage does in a second.")
    parser.add_argument("--part", action="append", choices=PARTS, help="all by default")
    parser.add_argument("--kind", action="append", choices=KINDS, help="all by default")
    parser.add_argument("--workers", action="append", type=int, help="1, 8, 32, 128 by default")
    parser.add_argument("--finished", action="append", type=int, help="0, 1000, 10000 by default")
    parser.add_argument("--seconds", type=float, default=20.0, help="counted, of each case")
    parser.add_argument("--quick", action="store_true", help="2 and 8 workers, 200 trials, 3 s")
    parser.add_argument("--folder", type=Path, help="where the data lie for the time being")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    parts, kinds = given.part or PARTS, list(given.kind or KINDS)
    if "grpc" in kinds and importlib.util.find_spec("grpc") is None:
        print("no gRPC proxy: pip install grpcio protobuf", file=sys.stderr)
        kinds.remove("grpc")
    workers = given.workers or ([2, 8] if given.quick else [1, 8, 32, 128])
    sizes = given.finished or ([0, 200] if given.quick else [0, 1000, 10_000])
    seconds = 3.0 if given.quick else given.seconds
    report: dict[str, Any] = {"machine": describe_machine(), "data": str(given.folder or "disk")}
    with tempfile.TemporaryDirectory(prefix="sweep-bench-", dir=given.folder) as name:
        folder = Path(name)
        folder.chmod(0o755)
        if "rates" in parts or "claims" in parts:
            with server(folder, ROOMY) as running:
                bench = Bench(running, folder)
                if "rates" in parts:
                    report["rates"] = measure_rates(bench, kinds, workers, sizes, seconds)
                if "claims" in parts:
                    crowd = 4 if given.quick else 32
                    report["claims"] = [
                        bench.measure(kind, crowd, 0, min(seconds, 8.0))
                        for kind in ("paced", "claims")
                    ]
        if "full" in parts:
            with server(folder, 20 if given.quick else 100) as running:
                bench = Bench(running, folder)
                crowd, size = (30, 200) if given.quick else (128, 10_000)
                report["full"] = [
                    bench.measure(kind, crowd, size, seconds)
                    for kind in kinds
                    if kind in ("sweep", "each", "ours", "rdb")
                ]
        if "commands" in parts:
            with server(folder, 100) as running:
                amounts = [100, 200] if given.quick else [1000, 10_000, 99_999]  # one more waits
                report["commands"] = storage_commands.measure(running, folder, amounts)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report, indent=1) + "\n")
    show(report)
    if "rates" in report:
        draw(report["rates"], given.output.with_suffix(".png"))
    return 0


def show(report: dict[str, Any]) -> None:
    """Print a report's tables."""
    print(report["machine"])
    for part in ("rates", "full"):
        if part in report:
            print(f"\n{part}\n\n{rates_table(report[part])}")
    if "claims" in report:
        for found in report["claims"]:
            print(
                f"\n{found['kind']}: {found['workers']} workers, 10,000 waiting: "
                f"{found['rate']:.0f} claims/s, median {1000 * found['p50_s']:.1f} ms, "
                f"p95 {1000 * found['p95_s']:.1f} ms, load {found['load']:.0f}"
            )
    if "commands" in report:
        print("\n" + storage_commands.table(report["commands"]))


if __name__ == "__main__":
    sys.exit(main())
