"""What single processes cost at a size: launch, collect, a task's first pull, and Optuna's own.

Each is a fresh Python. Wall time includes its start; CPU is the process's own and its children's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import accounting
from benchmarks.storage_rows import SPACE, finish
from sweep.storage.connection import Database

# Launches as the command does, but for the scheduler: it takes the array and runs nothing.
LAUNCH = """
import os, sys
from pathlib import Path
from sweep.control.launch import launch
from sweep.schedulers.local.scheduler import LocalScheduler
from sweep.core.paths import Runs
from sweep.studyfile import load

class Unstarted(LocalScheduler):
    def submit(self, job):
        return job.token
    def find(self, token):
        return [token]

launch(load(Path(sys.argv[1])), Runs(Path(sys.argv[2])), lambda f: Unstarted(f.local), os.environ)
"""
OPTUNA = """
import sys, optuna, warnings
warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.load_study(study_name=sys.argv[2], storage=optuna.storages.RDBStorage(sys.argv[1]),
    sampler=optuna.samplers.TPESampler(constant_liar=True))
trial = study.ask()
trial.suggest_float("lr", 1e-5, 1e-1, log=True)
trial.suggest_int("layers", 1, 8)
trial.suggest_categorical("optimizer", ["sgd", "adamw", "lion"])
"""


@contextlib.contextmanager
def grpc_server(url: str, folder: Path) -> Iterator[str]:
    """Optuna's gRPC proxy over RDBStorage: its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = (
        "import optuna, sys; optuna.storages.run_grpc_proxy_server("
        "optuna.storages.RDBStorage(sys.argv[1]), host='127.0.0.1', port=int(sys.argv[2]))"
    )
    with (folder / "grpc.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code, url, str(port)], stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 60.0
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError((folder / "grpc.log").read_text()[-2000:])
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def journal_of(url: str, name: str, folder: Path) -> str:
    """Write a study of the database into a journal; return its path."""
    import optuna
    from optuna.storages import journal

    from sweep.storage import PostgresStorage

    path = folder / f"{name}.journal"
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    source = optuna.load_study(study_name=name, storage=PostgresStorage(url))
    backend = journal.JournalFileBackend(str(path))
    target = optuna.create_study(study_name=name, storage=optuna.storages.JournalStorage(backend))
    target.add_trials(t for t in source.get_trials(deepcopy=False) if t.state.is_finished())
    return str(path)


def run(command: Sequence[str], env: dict[str, str], log: Path) -> dict[str, float]:
    """Run a command; return its wall and CPU seconds.

    Raises:
        RuntimeError: It failed.
    """
    began = time.monotonic()
    ran = accounting.run([command], env, log)
    if any(ran.exit_codes):
        raise RuntimeError(f"{' '.join(command)[:200]}:\n{log.read_text()[-2000:]}")
    return {"wall_s": time.monotonic() - began, "cpu_s": ran.all_cpu_s}


def measure(running: Any, folder: Path, amounts: Sequence[int]) -> list[dict[str, Any]]:
    """Measure every command at every amount of trials; the fresh tasks at all but the greatest."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["SWEEP_STORAGE"] = running.url()
    found = []
    for amount in amounts:
        for sampler in ("random", "tpe"):
            if sampler == "tpe" and amount == amounts[-1] and len(amounts) > 2:
                continue
            found.extend(_at(running, folder, env, amount, sampler))
            for result in found[-6:]:
                print(result, file=sys.stderr, flush=True)
    return found


def _at(
    running: Any, folder: Path, env: dict[str, str], amount: int, sampler: str
) -> list[dict[str, Any]]:
    name = f"c{amount}-{sampler}"
    home = folder / name
    home.mkdir()
    notes, durations = home / "notes", home / "durations"
    durations.write_text("0\n" * (amount + 1))
    stand_in = home / "stand_in.py"
    shutil.copy(Path(__file__).parent / "stand_in.py", stand_in)
    python = os.path.realpath(sys.executable)
    spec = {
        "name": name,
        "command": [python, "-I", "-S", str(stand_in), str(durations), str(notes)],
        "workdir": str(home),
        "objective": {
            "metric": "loss",
            "direction": "minimize",
            "from": {"stdout": "value=([0-9.e-]+)"},
        },
        "space": {
            p.name: {"type": p.type, "choices": list(p.choices)}
            if p.choices
            else {"type": p.type, "low": p.low, "high": p.high, "log": p.log}
            for p in SPACE
        },
        "sampler": sampler,
        "pruner": {"type": "none"},
        "trials": amount + 1,
        "trials_per_task": 1,
        "max_parallel": 2,
        "executor": "local",
        "resources": {"cpus": 1, "gpus": 0},
    }
    (home / "study.yaml").write_text(json.dumps(spec))
    results: list[dict[str, Any]] = []

    def note(what: str, **values: float) -> None:
        load = os.getloadavg()[0]
        results.append({"what": what, "trials": amount, "sampler": sampler, "load": load, **values})

    log, runs = home / "log", home / "runs"
    note(
        "launch",
        **run([sys.executable, "-c", LAUNCH, str(home / "study.yaml"), str(runs)], env, log),
    )
    with contextlib.closing(Database(running.url(), timeout_s=600.0)) as db:
        study_id = db.execute("SELECT study_id FROM studies WHERE study_name = %s", (name,))[0][0]
        with db.transaction():
            finish(db, study_id, amount)
        db.execute("VACUUM ANALYZE")
    if sampler == "tpe":
        note(
            "Optuna's first ask",
            **run([sys.executable, "-c", OPTUNA, running.url(), name], env, log),
        )
        with contextlib.closing(Database(running.url())) as db:  # it took ours
            db.execute(
                "UPDATE trials SET state = 'WAITING' WHERE study_id = %s AND state = 'RUNNING'",
                (study_id,),
            )
            db.execute(
                "DELETE FROM trial_params WHERE trial_id IN (SELECT trial_id FROM trials "
                "WHERE study_id = %s AND state = 'WAITING')",
                (study_id,),
            )
    task = [sys.executable, "-m", "sweep.task", str(runs / name)]
    run(task, env, log)
    first = accounting.read_notes(notes)[0]
    note("first pull", wall_s=0.0, cpu_s=first.parent_cpu_s)
    note("nothing to pull", **run(task, env, log))
    if sampler == "random":
        collect = [
            sys.executable,
            "-m",
            "sweep",
            "collect",
            name,
            "--runs",
            str(runs),
            "--format",
            "csv",
            "-o",
            str(home / "all.csv"),
        ]
        note("collect", **run(collect, env, log))
    return results


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return the results as a Markdown table."""
    lines = ["| what | finished trials | sampler | wall s | CPU s | load |", "|---" * 6 + "|"]
    for r in sorted(results, key=lambda r: (r["what"], r["sampler"], r["trials"])):
        wall = f"{r['wall_s']:.2f}" if r["wall_s"] else "–"
        lines.append(
            f"| {r['what']} | {r['trials']} | {r['sampler']} | {wall} | {r['cpu_s']:.2f} "
            f"| {r['load']:.0f} |"
        )
    return "\n".join(lines)
