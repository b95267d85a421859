"""MLflow's database, made by launch: a task would wait for its tables longer than it may."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from sweep.core.masking import mask
from sweep.storage import tracker_database
from sweep.storage.connection import Database
from sweep.training.command.environment import MLFLOW_URI

MADE_S = 120.0
# MLflow makes its tables at the first question. A process of its own: the import takes seconds.
SCRIPT = f"""
import os
from mlflow.tracking import MlflowClient
MlflowClient(os.environ["{MLFLOW_URI}"]).search_experiments(max_results=1)
"""


def make(db: Database, say: Callable[[str], None]) -> None:
    """Make MLflow's database beside the study's, with its tables, unless it is there.

    Tables that could not be made are made by the first task.

    Raises:
        SweepError: The role may not make the database.
        DatabaseUnavailable: The server does not answer.
    """
    if not tracker_database.make(db):
        return
    say("making MLflow's database")
    url = tracker_database.url_beside(db)
    with tracker_database.alone(url):
        try:
            done = subprocess.run(
                [sys.executable, "-c", SCRIPT],
                env={**os.environ, MLFLOW_URI: url},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=MADE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            say(f"MLflow has not made its tables within {MADE_S:.0f} s; the first task goes on")
            return
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        why = said[-1] if said else f"exit code {done.returncode}"
        say(mask(f"MLflow could not make its tables ({why}); the first task tries again"))
