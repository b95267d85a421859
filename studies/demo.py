"""``make demo``: the whole job on this machine, as a newcomer would type it.

Launches studies/digits.yaml (30 real trainings) on the embedded PostgreSQL server, ranks the
trials, runs the best one again, and fails unless the search found a good network and the re-run
gave the same result. Everything lies in demo-runs/, which each demo begins anew.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "demo-runs"
STUDY = "studies/digits.yaml"
GOOD_ENOUGH = 0.97
FEWEST = 30


def main() -> int:
    """Run the demo; return its exit code."""
    began = time.monotonic()
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SWEEP_")}
    # The same on every machine: no defaults of a site or a user beneath the study.
    environ |= {"SWEEP_RUNS": str(RUNS), "SWEEP_SITE_CONFIG": "", "SWEEP_USER_CONFIG": ""}
    if RUNS.exists():
        call(environ, "db", "stop", quiet=True)
        shutil.rmtree(RUNS)
    call(environ, "launch", STUDY, "--wait", "--executor", "local")
    call(environ, "collect", "--top", "5")
    call(environ, "rerun-best", "--wait")

    status = json.loads(call(environ, "status", "--json", quiet=True))
    verdict = json.loads(call(environ, "rerun-best", "--report", "--json", "--wait", quiet=True))
    call(environ, "db", "stop", quiet=True)
    counts, best = status["counts"], status["best"]["value"]
    trained = counts["complete"] + counts["pruned"]
    checks = {
        f"{trained} real trainings (at least {FEWEST})": trained >= FEWEST,
        f"best validation accuracy {best:.4f} (at least {GOOD_ENOUGH})": best >= GOOD_ENOUGH,
        f"re-run: {verdict['verdict']}, relative difference {verdict['relative_difference']:g}": (
            verdict["verdict"] == "reproduced"
        ),
    }
    print(f"\nThe demo took {time.monotonic() - began:.0f} s:")
    for text, holds in checks.items():
        print(f"  {'ok   ' if holds else 'WRONG'}  {text}")
    print(f"\nLook around: SWEEP_RUNS={RUNS.name} {sweep_name()} status")
    return 0 if all(checks.values()) else 1


def call(environ: dict[str, str], *arguments: str, quiet: bool = False) -> str:
    """Run a sweep command, shown as a user would type it; return what it printed."""
    if not quiet:
        print(f"\n$ sweep {' '.join(arguments)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "sweep", *arguments],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE if quiet else None,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"`sweep {' '.join(arguments)}` failed with exit code {done.returncode}.")
    return done.stdout or ""


def sweep_name() -> str:
    """Return how the sweep of this environment is called from here."""
    return os.path.relpath(Path(sys.executable).with_name("sweep"), ROOT)


if __name__ == "__main__":
    sys.exit(main())
