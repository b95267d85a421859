"""What sweep is compared with: loops that pull trials of the same table and run the same training.

    python -m benchmarks.peers bare URL TRAINING...
    python -m benchmarks.peers optuna URL TRAINING...

One process is one slot. ``bare`` does what cannot be left out: one statement that takes the next
index with SKIP LOCKED, one process, one statement with the result. ``optuna`` does between them
what Optuna's documentation shows for parallel processes: ``study.ask()`` and ``study.tell()`` on an
``RDBStorage``. Neither survives a kill: the trial is lost.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence

TABLE = "bench_trial"
STUDY = "bench"


def prepare(url: str, trials: int, *, with_optuna: bool) -> None:
    """Make the table (and Optuna's study) anew."""
    import psycopg2

    connection = psycopg2.connect(plain(url))
    with connection, connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
        cursor.execute(
            f"CREATE TABLE {TABLE} (index int PRIMARY KEY, taken boolean NOT NULL DEFAULT false, "
            "value float8)"
        )
        cursor.execute(f"INSERT INTO {TABLE} SELECT * FROM generate_series(0, %s)", (trials - 1,))
    connection.close()
    if with_optuna:
        import optuna

        names = optuna.get_all_study_names(url)
        if STUDY in names:
            optuna.delete_study(study_name=STUDY, storage=url)
        optuna.create_study(study_name=STUDY, storage=url, direction="maximize")


def plain(url: str) -> str:
    """Return SQLAlchemy's URL as libpq takes it."""
    return url.replace("postgresql+psycopg2://", "postgresql://")


def pull(
    url: str, training: Sequence[str], around: Callable[[Callable[[], float]], object]
) -> None:
    """Take indices until none is left; ``around`` is called with what trains and returns a value.

    Args:
        training: A command; the index is added to it, and it prints ``value=…``.
    """
    import psycopg2

    connection = psycopg2.connect(plain(url))
    connection.autocommit = True
    with connection.cursor() as cursor:
        while True:
            cursor.execute(
                f"UPDATE {TABLE} SET taken = true WHERE index = (SELECT index FROM {TABLE} "
                "WHERE NOT taken ORDER BY index LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING index"
            )
            rows = cursor.fetchall()
            if not rows:
                return
            index = rows[0][0]

            def train(index: int = index) -> float:
                done = subprocess.run(
                    [*training, str(index)], check=True, capture_output=True, text=True
                )
                return float(re.findall("value=([0-9.e-]+)", done.stdout)[-1])

            def train_and_note(train: Callable[[], float] = train, index: int = index) -> float:
                value = train()
                cursor.execute(f"UPDATE {TABLE} SET value = %s WHERE index = %s", (value, index))
                return value

            around(train_and_note)


def main(arguments: Sequence[str]) -> None:
    """Be one slot."""
    kind, url, *training = arguments
    if kind == "bare":
        pull(url, training, lambda train: train())
        return
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = (
        optuna.samplers.TPESampler(constant_liar=True)
        if kind == "optuna-tpe"
        else (optuna.samplers.RandomSampler())
    )
    storage = optuna.storages.RDBStorage(url)
    study = optuna.load_study(study_name=STUDY, storage=storage, sampler=sampler)

    def ask_and_tell(train: Callable[[], float]) -> None:
        trial = study.ask()
        trial.suggest_float("x", 0.0, 1.0)
        study.tell(trial, train())

    pull(url, training, ask_and_tell)


if __name__ == "__main__":
    main(sys.argv[1:])
