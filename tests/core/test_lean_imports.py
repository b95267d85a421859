"""Libraries as tasks import them: less of them, and what is left out is there for who wants it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LOOK = """
import sys
from sweep.core.system import lean_imports as lean
lean.load_psycopg2()
lean.load_optuna()
print(sorted({"ssl", "asyncio", "tqdm", "tqdm.auto"} & set(sys.modules)))
import optuna, psycopg2
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study()
study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
print(len(study.trials), psycopg2.extensions.parse_dsn("dbname=a"))
from tqdm.auto import tqdm
import ssl
print(tqdm.__module__, ssl.OPENSSL_VERSION[:7])
"""
WHOLE = """
import sys, tqdm.auto
from sweep.core.system import lean_imports as lean
lean.load_optuna()
import optuna.progress_bar
print(optuna.progress_bar.tqdm is tqdm.auto.tqdm)
"""
ALONE = """
import gc, os
from sweep.core.system import lean_imports as lean
before = dict(os.environ)
lean.load_psycopg2()
lean.load_optuna()
print(len(os.listdir("/proc/self/task")), os.environ == before, gc.isenabled())
"""


def run(code: str, environ: dict[str, str] | None = None) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_tasks_import_no_more_than_they_use() -> None:
    imported, works, real = run(LOOK)
    assert imported == "[]"
    assert works == "3 {'dbname': 'a'}"
    assert real.startswith("tqdm.") and real.endswith("OpenSSL")


def test_what_is_there_already_stays() -> None:
    assert run(WHOLE) == ["True"]


@pytest.mark.parametrize("given", [None, "3"])
def test_a_task_starts_no_threads(given: str | None) -> None:
    """NumPy's BLAS would start one for each core, in each of a node's tasks; training may."""
    environ = {name: text for name, text in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environ |= {"OPENBLAS_NUM_THREADS": given} if given else {}
    assert run(ALONE, environ) == ["1 True True"]
