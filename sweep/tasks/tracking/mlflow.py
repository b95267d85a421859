"""MLflow: an experiment a study, a run a trial; the server is MLFLOW_TRACKING_URI's.

Without that variable, files below ``runs/<name>/mlruns``. MLflow cannot take a metric back, so an
attempt that goes on from a checkpoint is a run of its own, which gets what counts of the earlier
attempts; their runs are marked as superseded. Of a trial with ``replicates`` each training counts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from sweep.core.outcomes import COMPLETE, FAILED, PRUNED, REPLICATED
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.core.trial import Report
from sweep.tasks.tracking.tracker import Described

URI = "MLFLOW_TRACKING_URI"
STATE = "sweep.state"  # the tag with how an attempt has ended
LONGEST = 6000  # characters of a parameter's value, MLflow's limit
BATCH = 500  # metrics in one call; MLflow takes 1,000
STATUS = {COMPLETE: "FINISHED", PRUNED: "FINISHED", REPLICATED: "FINISHED", FAILED: "FAILED"}


class MlflowTracker:
    """Writes runs by MLflow's client."""

    def __init__(self, study: Study, folder: StudyFolder) -> None:
        # A server that is away is asked again by the feeder; MLflow's own patience is minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        if not os.environ.get(URI):
            # MLflow asks for this since it would rather have a database.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._kinds: tuple[Any, Any, Any] = (Metric, Param, RunTag)
        self._client = MlflowClient(os.environ.get(URI) or (folder.root / "mlruns").as_uri())
        self._study = study
        self._folder = folder
        self._experiment = ""
        self._runs: dict[tuple[int, int], str] = {}

    def begin(self, described: Described) -> None:
        if not self._experiment:
            self._experiment = self._find_experiment()
        key = (described.trial, described.attempt)
        _, param, tag = self._kinds
        name = f"trial {described.trial}"
        if described.attempt > 1:
            name += f" (attempt {described.attempt})"
        tags = {f"sweep.{key}": value for key, value in described.system.items()}
        tags |= {"sweep.study": described.study, "sweep.trial": str(described.trial)}
        if key not in self._runs:
            # Another try may have made it, of which we did not hear the answer.
            mine = [
                run
                for run in self._find_runs(described.trial)
                if run.data.tags.get("sweep.attempt") == str(described.attempt)
            ]
            made = (
                mine[0]
                if mine
                else self._client.create_run(self._experiment, tags=tags, run_name=name)
            )
            self._runs[key] = made.info.run_id
        run = self._runs[key]
        params = [param(name, _value(value)) for name, value in described.params.items()]
        for start in range(0, len(params), 100):
            self._client.log_batch(run, params=params[start : start + 100])
        for other in self._find_runs(described.trial):
            is_counted = described.replicate > 1 and other.data.tags.get(STATE) == REPLICATED
            if other.info.run_id != run and not is_counted:
                self._client.log_batch(other.info.run_id, tags=[tag("sweep.superseded", "true")])

    def cut(self, described: Described, first: int) -> None:
        """Each attempt has a run of its own: there is nothing to take away."""

    def log(self, described: Described, reports: Sequence[Report]) -> None:
        run = self._runs[described.trial, described.attempt]
        metric = self._kinds[0]
        metrics = [
            metric(name, value, int(1000 * report.time_s), report.step)
            for report in reports
            for name, value in report.metrics.items()
        ]
        for start in range(0, len(metrics), BATCH):
            self._client.log_batch(run, metrics=metrics[start : start + BATCH])

    def restore(self, described: Described, reports: Sequence[Report]) -> None:
        self.log(described, reports)

    def end(self, described: Described, state: str) -> None:
        run = self._runs[described.trial, described.attempt]
        for path in described.files:
            if path.is_file():
                self._client.log_artifact(run, str(path))
        self._client.set_tag(run, STATE, state)
        self._client.set_terminated(run, STATUS.get(state, "KILLED"))
        del self._runs[described.trial, described.attempt]

    def close(self) -> None:
        """Nothing is held back."""

    def _find_experiment(self) -> str:
        name = f"sweep/{self._study.name}"
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self._client.create_experiment(name))
        except Exception:  # another task's process has just made it
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)

    def _find_runs(self, number: int) -> list[Any]:
        return list(
            self._client.search_runs([self._experiment], f"tags.`sweep.trial` = '{number}'")
        )


def _value(value: Any) -> str:
    return str(value)[:LONGEST]
