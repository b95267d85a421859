"""W&B: a group a study, a run an attempt; online by the environment, else files to be sent later.

Without a key (WANDB_API_KEY, or a login in ~/.netrc) and without WANDB_MODE the runs are files in
``runs/<name>/wandb``, which ``wandb sync`` sends. W&B cannot take a step back, so an attempt that
goes on from a checkpoint is a run of its own that starts with what counts of the earlier attempts;
their runs, and those of a trial that was given back (``--retry``), are tagged as superseded. Where
training has a run of its own, there is none of ours.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import wandb

from sweep.control.check.trackers import is_online
from sweep.control.identity import read_mark
from sweep.core import outcomes
from sweep.core.files import make_private
from sweep.core.paths import StudyFolder
from sweep.core.study import Objective, Study
from sweep.core.trial import Report
from sweep.tasks.tracking.tracker import Described

PROJECT = "WANDB_PROJECT"
SUPERSEDED = "superseded"
# The axis of all metrics: W&B's own step would drop what comes late of earlier attempts.
STEP = "sweep/step"
LONGEST_ID = 60  # W&B takes 64 characters


class WandbTracker:
    """Writes runs by W&B's client."""

    def __init__(self, study: Study, folder: StudyFolder) -> None:
        self._study = study
        self._folder = folder
        self._is_online = is_online(os.environ)
        self._begun: dict[tuple[int, int], Any] = {}  # W&B's run; None where training has its own
        self._series: dict[tuple[int, int], dict[str, dict[int, float]]] = {}  # metric, step

    def begin(self, described: Described) -> None:
        """Nothing yet: whether training has a run of its own shows at its first report."""

    def cut(self, described: Described, first: int) -> None:
        """Each attempt has a run of its own: there is nothing to take away."""

    def restore(self, described: Described, reports: Sequence[Report]) -> None:
        self.log(described, reports)

    def log(self, described: Described, reports: Sequence[Report]) -> None:
        run = self._run(described)
        if run is None:
            return
        series = self._series.setdefault((described.trial, described.attempt), {})
        for report in reports:
            run.log({**report.metrics, STEP: report.step})
            for name, value in report.metrics.items():
                series.setdefault(name, {})[report.step] = value

    def end(self, described: Described, state: str) -> None:
        key = (described.trial, described.attempt)
        run = self._run(described)
        if run is not None:
            for objective in self._study.objectives:
                series = self._series.get(key, {}).get(objective.metric)
                if series:
                    run.summary[objective.metric] = value_of(objective, series)
            run.summary["sweep/state"] = state
            for path in described.files:
                if path.is_file():
                    run.save(str(path), base_path=str(path.parent), policy="now")
            run.finish(exit_code=0 if state in (outcomes.COMPLETE, outcomes.PRUNED) else 1)
        self._begun.pop(key, None)
        self._series.pop(key, None)

    def close(self) -> None:
        """End what nobody has ended."""
        for run in self._begun.values():
            if run is not None:
                run.finish()

    def _run(self, described: Described) -> Any:
        key = (described.trial, described.attempt)
        if key not in self._begun:
            own = self._folder.attempt(*key).root / "wandb"
            if own.is_dir() and any(own.glob("*run-*")):
                print(f"trial {key[0]}, attempt {key[1]}: its training has a run of W&B's itself")
                self._begun[key] = None
            else:
                for earlier, reports in (*described.taken_back(), *described.earlier()):
                    self._supersede(described, earlier, reports)
                self._begun[key] = self._start(described, described.attempt)
        return self._begun[key]

    def _start(self, described: Described, attempt: int, tags: Sequence[str] = ()) -> Any:
        name = f"trial {described.trial}"
        name += f" (attempt {attempt})" if attempt > 1 else ""
        system = described.system if attempt == described.attempt else {"attempt": str(attempt)}
        run = wandb.init(
            project=os.environ.get(PROJECT) or "sweep",
            id=self._id(described.trial, attempt),
            name=name,
            group=self._study.name,
            job_type="trial",
            tags=list(tags),
            config={**described.params, **{f"sweep.{key}": text for key, text in system.items()}},
            dir=str(make_private(self._folder.root)),
            mode=os.environ.get("WANDB_MODE") or ("online" if self._is_online else "offline"),
            resume="allow" if self._is_online else None,
            reinit="create_new",  # a task may train several trials at once
            settings=wandb.Settings(
                console="off", silent=True, x_disable_stats=True, disable_git=True, save_code=False
            ),
        )
        run.define_metric(STEP, hidden=True)
        run.define_metric("*", step_metric=STEP, step_sync=False)
        return run

    def _supersede(self, described: Described, attempt: int, reports: Sequence[Report]) -> None:
        """Tag an earlier attempt's run. A file cannot be changed, so it is written anew."""
        name = self._id(described.trial, attempt)
        if self._is_online:
            self._tag(name)
            return
        old = sorted(self._folder.root.glob(f"wandb/offline-run-*-{name}"))
        if not old:
            return
        for path in old:
            shutil.rmtree(path)
        run = self._start(described, attempt, [SUPERSEDED])
        for report in reports:
            run.log({**report.metrics, STEP: report.step})
        run.finish()

    def _tag(self, name: str) -> None:
        api = wandb.Api()
        place = "/".join([api.default_entity or "", os.environ.get(PROJECT) or "sweep", name])
        try:
            run = api.run(place.lstrip("/"))
        except (wandb.errors.CommError, ValueError):
            return  # that attempt had reported nothing
        if SUPERSEDED not in run.tags:
            run.tags = [*run.tags, SUPERSEDED]
            run.update()

    def _id(self, trial: int, attempt: int) -> str:
        """Return a run's id: a study's name may be used again, so that its mark is part of it."""
        mark = (read_mark(self._folder) or "")[:6]
        name = "-".join(filter(None, (self._study.name, mark, f"{trial:05d}", f"a{attempt}")))
        if len(name) > LONGEST_ID:
            name = f"{name[:20]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        return name


def value_of(objective: Objective, series: Mapping[int, float]) -> float:
    """Return what a trial with these values counts for, by step; at least one."""
    finite = [value for value in series.values() if math.isfinite(value)]
    if objective.at == "last" or not finite:
        return series[max(series)]
    return max(finite) if objective.direction == "maximize" else min(finite)
