"""What a task imports leanly is the real thing, and leaves its process as it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import gc, os, sys
from sweep import lean
before = dict(os.environ)
lean.load_psycopg2()
lean.load_optuna()
import optuna
study = optuna.create_study()
study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
import ssl, tqdm.auto  # whole, for whoever needs them
print(len(os.listdir("/proc/self/task")), os.environ == before, gc.isenabled(),
      len(study.trials), tqdm.auto.tqdm is not None, hasattr(ssl, "SSLContext"))
"""


@pytest.mark.parametrize("given", [None, "3"])
def test_a_task_starts_no_threads(given: str | None) -> None:
    """NumPy's BLAS would start one for each core, in each of a node's tasks."""
    environ = {n: v for n, v in os.environ.items() if n != "OPENBLAS_NUM_THREADS"}
    environ |= {"OPENBLAS_NUM_THREADS": given} if given else {}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "True", "True", "3", "True", "True"]
