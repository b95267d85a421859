"""The packages that a study's sampler, terminator and trackers need where its tasks run.

Tasks are started with the Python that launches them, so what is missing here is missing there, and
is said before the first trial; what is there and cannot be imported is asked on a node.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sweep.control.check.lines import FAILED, OK, Line
from sweep.core.study import Study
from sweep.search import own, samplers, terminator

IMPORT_S = 120.0  # torch, cold, on a slow file system


def check(study: Study, hubs: Mapping[str, Path] | None = None) -> str:
    """Refuse a study that needs what is not installed.

    Args:
        hubs: Where packages of OptunaHub's registry may lie, by what those folders are.

    Returns:
        What is to be known of a sampler of the user's own; "" where there is nothing.

    Raises:
        InputError: The sampler cannot search this space.
        SweepError: A package is missing, what to install; a sampler or pruner of the user's own
            fails on a study without trials.
    """
    samplers.check(study, version("optuna"))
    said = own.check(study, Path(study.workdir), hubs)
    terminator.check(study)
    for name in study.track:
        samplers.require(name, f"tracker {name}", f"pip install {name}, or leave it out of track")
    return said


def needed(study: Study) -> list[str]:
    """Return the modules beyond sweep's own that the study's tasks import."""
    found = ["optuna"]
    sampler = samplers.choose(study)[0]
    found += {"gp": ["torch", "scipy"], "cmaes": ["cmaes"], "qmc": ["scipy"]}.get(sampler, [])
    found += ["torch", "scipy"] if study.terminator.type != "none" else []
    return list(dict.fromkeys([*found, *study.track]))


def ask(study: Study, python: str = sys.executable) -> dict[str, Any]:
    """Import each of them as a task would, and say what went wrong: {"failed": {module: why}}."""
    failed, names = {}, needed(study)
    for name in names:
        try:
            done = subprocess.run(
                [python, "-c", f"import {name}"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=IMPORT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            failed[name] = f"its import takes longer than {IMPORT_S:.0f} s"
            continue
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            failed[name] = lines[-1][:300] if lines else f"exit code {done.returncode}"
    return {"failed": failed, "asked": names}


def judge(fact: Mapping[str, Any]) -> Line:
    """Return the line on what was asked on a node."""
    failed = fact["failed"]
    if not failed:
        return Line("packages", OK, ", ".join(fact["asked"]))
    text = "; ".join(f"{name}: {why}" for name, why in failed.items())
    names = " ".join(failed)
    return Line(
        "packages",
        FAILED,
        f"what the study's sampler, terminator or trackers need cannot be imported: {text}",
        f"Install it into the environment that sweep runs from: pip install {names}.",
    )
