"""How long a frame of a large study takes to build: ``python -m benchmarks.frames``.

Makes a PostgreSQL server of its own with one study (100,000 trials, 3 parameters, 20 steps of one
metric unless told otherwise), opens it as a notebook would, and prints the seconds that each frame
takes. The goal is under 20 s for each, the wide one and the long one.
"""

from __future__ import annotations

import argparse
import resource
import time

from sweep import load
from sweep.core.files import make_private, write_atomic
from sweep.core.paths import Runs
from sweep.core.space import Parameter, Space
from sweep.core.study import Objective, Study
from sweep.storage import access, studies, tables
from sweep.storage.connection import Database
from tests.postgres_fixture import running_server

SPACE = Space(
    (
        Parameter("lr", "float", low=1e-5, high=1.0, log=True),
        Parameter("layers", "int", low=1, high=9),
        Parameter("optimizer", "categorical", choices=("sgd", "adamw")),
    )
)

# Trial n: three parameters, one attempt that took a minute, and ``steps`` values of "acc".
FILL = """
INSERT INTO trials (number, study_id, state, datetime_start, datetime_complete)
  SELECT n, {study}, 'COMPLETE', '2026-03-01', '2026-03-01 00:01' FROM generate_series(0, {last}) n;
INSERT INTO trial_values (trial_id, objective, value, value_type)
  SELECT trial_id, 0, random(), 'FINITE' FROM trials;
INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json)
  SELECT trial_id, p.name, CASE p.name WHEN 'lr' THEN random() WHEN 'layers'
    THEN 1 + floor(random() * 9) ELSE floor(random() * 2) END, p.text
  FROM trials, (VALUES {params}) p (name, text);
INSERT INTO sweep_attempt (trial_id, number, token, job, array_index, host, claimed, seen, ended,
    outcome, first_step)
  SELECT trial_id, 1, 'token' || trial_id, 'job', number, 'node1', '2026-03-01Z',
    '2026-03-01 00:01Z', '2026-03-01 00:01Z', 'finished', 0 FROM trials;
INSERT INTO sweep_metric (trial_id, attempt, name, step, value, logged)
  SELECT trial_id, 1, 'acc', s, random(), 1772323200 + s
  FROM trials, generate_series(0, {steps} - 1) s;
ANALYZE;
"""


def fill(url: str, study: Study, trials: int, steps: int) -> None:
    """Write the study and its trials by a few statements."""
    from optuna.distributions import distribution_to_json

    tables.create(url)
    db = Database(url, timeout_s=600.0)
    params = ", ".join(
        f"('{p.name}', '{distribution_to_json(p.distribution())}')" for p in SPACE.parameters
    )
    with db.transaction():
        study_id = studies.insert_study(db, study)
        db.execute(FILL.format(study=study_id, last=trials - 1, steps=steps, params=params))
    db.close()


def main() -> None:
    """Build the study, then the frames, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    study = Study(
        name="large",
        command=("python", "train.py"),
        objectives=(Objective("acc", "maximize"),),
        space=SPACE,
        trials=given.trials,
        max_parallel=1,
        executor="local",
    )
    with running_server() as server:
        url = server.url("large")
        server.sql("CREATE DATABASE large")
        fill(url, study, given.trials, given.steps)
        runs = Runs(server.folder / "runs")
        folder = runs.study(study.name)
        make_private(folder.root)
        write_atomic(folder.study, study.to_json())
        access.remember(folder, url, runs)
        start = time.monotonic()
        results = load(study.name, runs.root)
        wide = results.trials()
        middle = time.monotonic()
        long = results.metrics()
        end = time.monotonic()
        results.close()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"trials()   {len(wide):>9} rows x {wide.shape[1]} columns   {middle - start:6.1f} s")
    print(f"metrics()  {len(long):>9} rows x {long.shape[1]} columns   {end - middle:6.1f} s")
    print(f"both       {end - start:.1f} s, {peak_mb:.0f} MB at most")


if __name__ == "__main__":
    main()
