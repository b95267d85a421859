"""A process that runs trials of one study by Optuna's own loop, on our storage or on Optuna's.

``python -m tests.chaos.mixed_writer KIND URL STUDY TRIALS``
"""

from __future__ import annotations

import os
import sys
from typing import Any

import optuna

from sweep.storage import PostgresStorage
from sweep.storage.url import normalise


def objective(trial: optuna.Trial) -> float:
    """Report, be pruned now and then, and leave behind who ran it."""
    x = trial.suggest_float("x", -1.0, 1.0)
    trial.suggest_categorical("kind", ["a", None, 3])
    trial.set_user_attr("pid", os.getpid())
    for step in range(3):
        trial.report(x * step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return x


def main(kind: str, url: str, name: str, trials: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage: Any = (
        PostgresStorage(url) if kind == "ours" else optuna.storages.RDBStorage(normalise(url))
    )
    study = optuna.load_study(
        study_name=name, storage=storage, sampler=optuna.samplers.TPESampler(seed=os.getpid())
    )
    study.optimize(objective, n_trials=trials)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
