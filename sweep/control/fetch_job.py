"""``sweep data fetch --job``: a small job that fetches a study's data, and that we wait for.

A launch on a cluster does not wait: its array has such a job before it (see ``small_jobs``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from sweep.control import short_job
from sweep.core.paths import Runs, StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.study import Resources, Study
from sweep.training.fetching import FetchFailed

HOME = ".fetches"  # within the runs folder
OPTION = "--fetch-alone"  # of ``sweep.task``: it answers whoever waits
TIME_LIMIT_S = PATIENCE_S = 86_400


def fetch(
    study: Study,
    runs: Runs,
    schedule_for: Callable[[Study], Callable[[StudyFolder], Scheduler]],
    environ: Mapping[str, str],
    say: short_job.Say,
) -> None:
    """Fetch a study's data in a job of one CPU where its small jobs run.

    Args:
        study: Whose executor is decided.

    Raises:
        FetchFailed: Something could not be fetched.
    """
    slurm = study.slurm
    small = dataclasses.replace(
        study,
        resources=Resources(time_limit_s=TIME_LIMIT_S, cpus=1),
        slurm=dataclasses.replace(
            slurm,
            partition=slurm.service.partition or slurm.partition,
            qos=slurm.service.qos or slurm.qos,
            extra=slurm.service.extra,
            slots=1,
        ),
    )
    schedule = schedule_for(small)
    short_job.clear_dead(runs, HOME, schedule, say)
    with short_job.folder_in(runs, HOME, small) as folder:
        short_job.fill(small, folder, environ)
        went = short_job.run(
            small,
            folder,
            schedule(folder),
            OPTION,
            say,
            float(PATIENCE_S),
            time_limit_s=TIME_LIMIT_S,
            does="fetches the data",
        )
    if error := went.found.get("error"):
        raise FetchFailed(str(error), str(went.found.get("hint", "")))
    if not went.found.get("done"):
        message, hint = went.problem or ("its task gave no answer", "")
        raise FetchFailed(f"The data were not fetched: {message}.", hint or went.tail)
