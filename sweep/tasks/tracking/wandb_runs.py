"""W&B: a group a study, a run an attempt; online by the environment, else files to be sent later.

Without a key (WANDB_API_KEY, or a login in ~/.netrc) and without WANDB_MODE the runs are files in
``runs/<name>/wandb``, which ``wandb sync`` sends; so are those that begin while W&B's server does
not answer, or refuses the key. W&B cannot take a step back, so an attempt that goes on from a
checkpoint is a run of its own that starts with what counts of the earlier attempts; their runs, and
those of a trial that was given back (``--retry``), are tagged as superseded. Where training has a
run of its own, there is none of ours.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import wandb

from sweep.control.check.trackers import ask_wandb, is_online
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
ASK_EVERY_S = 30.0  # its client is silent about a server that is away


class WandbTracker:
    """Writes runs by W&B's client."""

    def __init__(self, study: Study, folder: StudyFolder) -> None:
        self._study = study
        self._folder = folder
        self._is_online = is_online(os.environ)
        self._begun: dict[tuple[int, int], Any] = {}  # W&B's run; None where training has its own
        self._series: dict[tuple[int, int], dict[str, dict[int, float]]] = {}  # metric, step
        self._asked: tuple[float, str] | None = None  # when its server was, and what is wrong
        self._untagged: set[str] = set()  # runs on the server that are superseded
        self._no_tag = ""  # why one could not be tagged
        self._finishing: list[threading.Thread] = []
        self._in_part = ""  # a run on the server that lacks something

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
            self._finish(run, 0 if state in (outcomes.COMPLETE, outcomes.PRUNED) else 1)
        self._tag_superseded()
        self._begun.pop(key, None)
        self._series.pop(key, None)

    def close(self) -> None:
        """End what nobody has ended, and wait for what W&B's client has not sent."""
        for run in self._begun.values():
            if run is not None:
                run.finish()
        for thread in self._finishing:
            thread.join()

    def trouble(self) -> str:
        why = self._refusal()
        kept = f"{why}; runs that begin now are kept as files" if why else ""
        return kept or self._in_part or self._no_tag

    def _refusal(self) -> str:
        """Return why the server takes nothing from us at present; "" where it does."""
        if not self._is_online:
            return ""
        now = time.monotonic()
        if self._asked is None or now - self._asked[0] > ASK_EVERY_S:
            self._asked = (now, ask_wandb(os.environ))
        return self._asked[1]

    def _finish(self, run: Any, exit_code: int) -> None:
        """End a run. With its server away that takes until it is back: others must go on."""
        if not self._refusal():
            run.finish(exit_code=exit_code)
            return
        thread = threading.Thread(target=run.finish, kwargs={"exit_code": exit_code}, daemon=True)
        thread.start()
        self._finishing.append(thread)

    def _run(self, described: Described) -> Any:
        key = (described.trial, described.attempt)
        if key not in self._begun:
            own = self._folder.attempt(*key).root / "wandb"
            if own.is_dir() and any(own.glob("*run-*")):
                print(f"trial {key[0]}, attempt {key[1]}: its training has a run of W&B's itself")
                self._begun[key] = None
            elif described.again and self._is_held(self._id(*key)):
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
        mode = os.environ.get("WANDB_MODE") or ("online" if self._is_online else "offline")
        if self._refusal():
            mode = "offline"
        run = wandb.init(
            project=os.environ.get(PROJECT) or "sweep",
            id=self._id(described.trial, attempt),
            name=name,
            group=self._study.name,
            job_type="trial",
            tags=list(tags),
            config={**described.params, **{f"sweep.{key}": text for key, text in system.items()}},
            dir=str(make_private(self._folder.root)),
            mode=mode,
            resume="allow" if self._is_online and mode != "offline" else None,
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
        old = sorted(self._folder.root.glob(f"wandb/offline-run-*-{name}"))
        if not old:
            if self._is_online:
                self._untagged.add(name)
                self._tag_superseded()
            return
        for path in old:
            shutil.rmtree(path)
        run = self._start(described, attempt, [SUPERSEDED])
        for report in reports:
            run.log({**report.metrics, STEP: report.step})
        run.finish()

    def _tag_superseded(self) -> None:
        """Tag what is not tagged yet, which must not hold up the runs themselves."""
        self._no_tag = ""
        for name in sorted(self._untagged):
            if self._refusal():
                return
            try:
                self._tag(name)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                self._no_tag = f"run {name} could not be tagged as {SUPERSEDED}: {why}"
                return
            self._untagged.discard(name)

    def _tag(self, name: str) -> None:
        run = self._ask_run(name)
        if run is not None and SUPERSEDED not in run.tags:  # None: it had reported nothing
            run.tags = [*run.tags, SUPERSEDED]
            run.update()

    def _ask_run(self, name: str) -> Any:
        """Return a run as the server has it; None where it has none."""
        api = wandb.Api()
        place = "/".join([api.default_entity or "", os.environ.get(PROJECT) or "sweep", name])
        try:
            return api.run(place.lstrip("/"))
        except (wandb.errors.CommError, ValueError):
            return None

    def _is_held(self, name: str) -> bool:
        """Tell whether the server has a run that is sent again: it would take each step twice.

        Files that hold it in part are removed: it is written anew.
        """
        for path in self._folder.root.glob(f"wandb/offline-run-*-{name}"):
            shutil.rmtree(path)
        if not self._is_online or self._refusal() or self._ask_run(name) is None:
            return False
        files = f"{self._folder.root}/wandb/run-*-{name}"
        self._in_part = f"run {name} may lack something on the server: wandb sync {files} sends it"
        return True

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
