"""MLflow: an experiment a study, a run a trial; the server is MLFLOW_TRACKING_URI's.

Without that variable, a database of MLflow's own beside the study's, on the same PostgreSQL server;
files of runs lie below ``runs/<name>/mlruns``. MLflow cannot take a metric back, so an attempt that
goes on from a checkpoint is a run of its own, which gets what counts of the earlier attempts; their
runs are marked as superseded. Of a trial with ``replicates`` each training counts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from sweep.control.identity import read_mark
from sweep.core.outcomes import COMPLETE, FAILED, PRUNED, REPLICATED
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.core.trial import Report
from sweep.storage import access, tracker_database
from sweep.tasks.tracking.tracker import Described
from sweep.training.command.environment import MLFLOW_URI

STATE = "sweep.state"  # the tag with how an attempt has ended
LONGEST = 6000  # characters of a parameter's value, MLflow's limit
BATCH = 500  # metrics in one call; MLflow takes 1,000
# In the database no connection is kept between two calls, and none is waited for.
IN_DATABASE = {"MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool", "PGCONNECT_TIMEOUT": "10"}
# A server that is away is asked again by the feeder; MLflow's own patience is minutes.
OF_SERVER = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
ATTEMPT = "sweep.attempt"  # the tag with its number
MARK = "sweep.mark"  # the experiment's tag that tells apart studies of one name
FILES = "mlruns"  # the study's folder of files that runs keep
STATUS = {COMPLETE: "FINISHED", PRUNED: "FINISHED", REPLICATED: "FINISHED", FAILED: "FAILED"}


class MlflowTracker:
    """Writes runs by MLflow's client."""

    def __init__(self, study: Study, folder: StudyFolder) -> None:
        for name, value in {**OF_SERVER, **IN_DATABASE}.items():
            os.environ.setdefault(name, value)
        self._kinds: tuple[Any, Any, Any] = (Metric, Param, RunTag)
        self._opened: MlflowClient | None = None
        self._study = study
        self._folder = folder
        self._mark = read_mark(folder) or ""
        self._experiment = ""
        self._runs: dict[tuple[int, int], str] = {}
        self._held: dict[tuple[int, int], set[tuple[str, int, str]]] = {}  # of runs that were there

    def begin(self, described: Described) -> None:
        key = (described.trial, described.attempt)
        _, param, tag = self._kinds
        params = [param(name, _value(value)) for name, value in described.params.items()]
        with self._client() as client:
            if not self._experiment:
                self._experiment = self._find_experiment(client)
            if key not in self._runs:
                run = self._find_run(client, described)
                self._held[key] = _points(client, run)
                self._runs[key] = run
            run = self._runs[key]
            for start in range(0, len(params), 100):
                client.log_batch(run, params=params[start : start + 100])
            for other in self._find_runs(client, described.trial):
                is_counted = described.replicate > 1 and other.data.tags.get(STATE) == REPLICATED
                is_later = int(other.data.tags.get(ATTEMPT, 0)) > described.attempt
                if other.info.run_id != run and not is_counted and not is_later:
                    client.log_batch(other.info.run_id, tags=[tag("sweep.superseded", "true")])

    def cut(self, described: Described, first: int) -> None:
        """Each attempt has a run of its own: there is nothing to take away."""

    def log(self, described: Described, reports: Sequence[Report]) -> None:
        key = (described.trial, described.attempt)
        run, held = self._runs[key], self._held[key]
        metric = self._kinds[0]
        metrics = [
            metric(name, value, int(1000 * report.time_s), report.step)
            for report in reports
            for name, value in report.metrics.items()
            if _point(name, report.step, value) not in held
        ]
        with self._client() as client:
            for start in range(0, len(metrics), BATCH):
                client.log_batch(run, metrics=metrics[start : start + BATCH])

    def restore(self, described: Described, reports: Sequence[Report]) -> None:
        self.log(described, reports)

    def end(self, described: Described, state: str) -> None:
        key = (described.trial, described.attempt)
        run = self._runs[key]
        with self._client() as client:
            for path in described.files:
                if path.is_file():
                    client.log_artifact(run, str(path))
            client.set_tag(run, STATE, state)
            client.set_terminated(run, STATUS.get(state, "KILLED"))
        del self._runs[key], self._held[key]

    def close(self) -> None:
        """Nothing is held back."""

    def trouble(self) -> str:
        return ""  # a call that fails raises

    @contextmanager
    def _client(self) -> Iterator[MlflowClient]:
        """Give MLflow's client. After an error it is a new one: the database may have moved."""
        try:
            if self._opened is None:
                self._opened = self._open()
            yield self._opened
        except Exception:
            self._opened = None
            raise

    def _open(self) -> MlflowClient:
        given = os.environ.get(MLFLOW_URI)
        if given:
            return MlflowClient(given)
        with closing(access.connect(self._folder, may_start=False)) as db:
            url = tracker_database.url_beside(db)
        with tracker_database.with_tables(url):  # MLflow makes them at the first call
            client = MlflowClient(url)
            client.search_experiments(max_results=1)
        return client

    def _find_experiment(self, client: MlflowClient) -> str:
        """Return the study's experiment; an earlier study of the same name may have left one."""
        plain = f"sweep/{self._study.name}"
        for name in (plain, f"{plain} ({self._mark[:6]})"):
            found = client.get_experiment_by_name(name)
            if found is None:
                try:
                    return self._make_experiment(client, name)
                except Exception:  # another task's process has just made it
                    found = client.get_experiment_by_name(name)
                    if found is None:
                        raise
            is_own = found.tags.get(MARK, self._mark) == self._mark
            if is_own and found.lifecycle_stage == "active":
                return str(found.experiment_id)
        raise LookupError(f"MLflow's experiment {name} is deleted, or another study's; restore it")

    def _make_experiment(self, client: MlflowClient, name: str) -> str:
        own = None if os.environ.get(MLFLOW_URI) else (self._folder.root / FILES).as_uri()
        tags = {MARK: self._mark} if self._mark else {}
        return str(client.create_experiment(name, artifact_location=own, tags=tags))

    def _find_run(self, client: MlflowClient, described: Described) -> str:
        """Return the run of an attempt, made unless another try has made it, of which we did not
        hear the answer."""
        number = str(described.attempt)
        for run in self._find_runs(client, described.trial):
            if run.data.tags.get(ATTEMPT) == number:
                return str(run.info.run_id)
        name = f"trial {described.trial}"
        if described.attempt > 1:
            name += f" (attempt {number})"
        tags = {f"sweep.{key}": value for key, value in described.system.items()}
        tags |= {"sweep.study": described.study, "sweep.trial": str(described.trial)}
        made = client.create_run(self._experiment, tags=tags, run_name=name)
        return str(made.info.run_id)

    def _find_runs(self, client: MlflowClient, number: int) -> list[Any]:
        return list(client.search_runs([self._experiment], f"tags.`sweep.trial` = '{number}'"))


def _points(client: MlflowClient, run: str) -> set[tuple[str, int, str]]:
    """Return what a run holds already: something when its attempt is sent again."""
    return {
        _point(name, point.step, point.value)
        for name in client.get_run(run).data.metrics
        for point in client.get_metric_history(run, name)
    }


def _point(name: str, step: int, value: float) -> tuple[str, int, str]:
    """Return a point as something that can be compared; MLflow keeps no infinite number."""
    most = sys.float_info.max
    return name, step, repr(max(-most, min(most, float(value))) if value == value else value)


def _value(value: Any) -> str:
    return str(value)[:LONGEST]
