"""Studies of any size for the storage's benchmarks, written by a handful of statements.

Each trial has three parameters, ten reported steps and a value, as one has that sweep ran.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Objective, Study
from sweep.storage import bulk, studies
from sweep.storage.connection import Database

STEPS = 10
SPACE = Space(
    (
        Parameter("lr", "float", low=1e-5, high=1e-1, log=True),
        Parameter("layers", "int", low=1, high=8),
        Parameter("optimizer", "categorical", choices=("sgd", "adamw", "lion")),
    )
)

# Finished trials as a study leaves them. Values are drawn by the server; a curve falls with steps.
FINISHED_SQL = """
CREATE TEMP TABLE made ON COMMIT DROP AS
  SELECT trial_id, number, random() AS x, random() AS y, random() AS z FROM trials
  WHERE study_id = %(study)s AND number < %(finished)s;
INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json)
  SELECT trial_id, n.name, CASE n.name WHEN 'lr' THEN exp(ln(1e-5) + x * ln(1e4))
    WHEN 'layers' THEN 1 + floor(y * 8) ELSE floor(z * 3) END, n.json
  FROM made, unnest(%(names)s::text[], %(distributions)s::text[]) AS n(name, json)
  ORDER BY number ON CONFLICT DO NOTHING;
INSERT INTO trial_intermediate_values (trial_id, step, intermediate_value, intermediate_value_type)
  SELECT trial_id, step, x + y / (1 + step), 'FINITE'
  FROM made, generate_series(0, %(steps)s - 1) AS step ORDER BY number, step;
INSERT INTO trial_values (trial_id, objective, value, value_type)
  SELECT trial_id, 0, x + y / %(steps)s, 'FINITE' FROM made ORDER BY number;
INSERT INTO sweep_attempt (trial_id, number, token, host, first_step, outcome, ended)
  SELECT trial_id, 1, %(study)s || '-' || number, 'bench', 0, 'finished', clock_timestamp()
  FROM made ORDER BY number;
INSERT INTO sweep_metric (trial_id, attempt, name, step, value, logged)
  SELECT trial_id, 1, 'loss', step, x + y / (1 + step), 0
  FROM made, generate_series(0, %(steps)s - 1) AS step ORDER BY number, step;
UPDATE trials SET state = 'COMPLETE', datetime_complete = clock_timestamp() AT TIME ZONE 'UTC',
  datetime_start = clock_timestamp() AT TIME ZONE 'UTC'
  WHERE study_id = %(study)s AND number < %(finished)s
"""


def study_of(name: str, trials: int, sampler: str = "random", pruner: str = "median") -> Study:
    """Return the specification of a benchmark's study."""
    return Study(
        name=name,
        command=("true",),
        objectives=(Objective("loss"),),
        space=SPACE,
        trials=trials,
        sampler=Choice(sampler),
        pruner=Choice(pruner),
    )


def make_study(db: Database, study: Study, finished: int, waiting: int) -> int:
    """Write a study with so many finished trials, and waiting ones without parameters."""
    with db.transaction():
        study_id = studies.insert_study(db, study)
        bulk.insert_waiting_trials(db, study_id, [{}] * (finished + waiting))
        finish(db, study_id, finished)
    # As a server in use has done by itself; and no run shall pay for the one before.
    db.execute("VACUUM ANALYZE")
    return study_id


def finish(db: Database, study_id: int, finished: int) -> None:
    """Make the study's first trials complete; inside a transaction."""
    distributions = {parameter.name: parameter.distribution_json() for parameter in SPACE}
    for statement in FINISHED_SQL.split(";\n"):
        db.execute(
            statement,
            {
                "study": study_id,
                "finished": finished,
                "steps": STEPS,
                "names": list(distributions),
                "distributions": list(distributions.values()),
            },
        )


@contextlib.contextmanager
def server(folder: Path, max_connections: int) -> Iterator[Any]:
    """A PostgreSQL server of the benchmark's own, as sweep embeds it: fsync on."""
    from sweep.storage import tables
    from sweep.storage.embedded import start_stop

    data = folder / f"postgres-{secrets.token_hex(3)}"
    start_stop.start(data, idle_stop_s=None)
    start_stop.stop(data)
    for path in data.rglob("postgresql.conf"):
        with path.open("a") as stream:
            stream.write(f"max_connections = {max_connections}\n")
    running = start_stop.start(data, idle_stop_s=None)
    try:
        tables.create(running.url())
        yield running
    finally:
        start_stop.stop(data)
