"""How a study's arrays look: their sizes, throttle, names and commands."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import secrets
import sys

from sweep.core import scheduler
from sweep.core.executors import is_packed, slots_of
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import EXECUTOR_VARIABLE, ArrayJob, Wave
from sweep.core.study import Study
from sweep.core.system.shared_cards import known_level

FIRST_PACKED = 2  # tasks at once, until it is known how many trials a GPU takes
ALWAYS_QUEUED = 2  # beside the array: its finaliser and the database's job


def throttle_of(study: Study, size: int, slots: int, level: int | None = None) -> int:
    """Return how many tasks of so many slots run at once, so that no more than K trials do.

    One runs in any case, also where K has become less than its slots since it was submitted.
    Where a task packs its GPUs, claims hold K: as many tasks run as K trials fill, and two while it
    is not known how many fit on a GPU.

    Args:
        level: Trials at once on a GPU of a task that packs it; None while that is not known.
    """
    if not is_packed(study):
        return max(1, min(study.parallel // slots, size))
    filled = -(-study.parallel // (slots * (level or 1)))
    return max(1, min(filled if level else min(filled, FIRST_PACKED), size))


def level_of(study: Study, folder: StudyFolder) -> int | None:
    """Return how many trials are known to train at once on a GPU; None where trials share none, or
    it is not known yet."""
    share = study.resources.share
    return None if share is None else known_level(folder.cards, share, packed_as(study))


def packed_as(study: Study) -> str:
    """Return a name of what a study's trials run: what is learnt of shared GPUs holds for it."""
    return hashlib.sha256(json.dumps(study.command).encode()).hexdigest()[:12]


def plan_waves(
    study: Study, left: int, limits: scheduler.Limits, *, chain: bool = False
) -> list[int]:
    """Return the sizes of the arrays to submit now: one, or the whole chain within the limits."""
    first = array_size(study, left, limits)
    if not chain:
        return [first]
    # All of them, and a spare wave for trials that are interrupted.
    each = study.trials_per_task
    tasks = array_size(study, left, scheduler.Limits())
    if each:
        tasks = -(-left // (each * slots_of(study)))
    need = tasks + throttle_of(study, first, slots_of(study))
    room = math.inf if limits.submitted is None else limits.submitted - 1  # the database's job
    if room < need + ALWAYS_QUEUED:
        # Share it, or nothing would follow the tasks of the first at their time limit.
        first = max(1, (int(room) - ALWAYS_QUEUED) // 2)
    sizes: list[int] = []
    while (size := int(min(first, need, room - 1))) > 0:  # each has a finaliser
        sizes.append(size)
        need, room = need - size, room - size - 1
    return sizes or [first]


def array_job(study: Study, folder: StudyFolder, wave: Wave) -> ArrayJob:
    """Return the array of a wave, as the scheduler takes it."""
    job = task_job(
        study, folder, wave.token, "{job}_{index}", size=wave.size, throttle=wave.throttle
    )
    after = task_argv(folder, "--finalise", wave.token)
    return dataclasses.replace(
        job,
        after=after,
        slots=wave.slots,
        share=study.resources.share,
        cards=str(folder.cards),
        cpus=study.resources.cpus,
        packed_as=packed_as(study),
    )


def task_job(
    study: Study,
    folder: StudyFolder,
    token: str,
    log: str,
    *options: str,
    size: int = 1,
    throttle: int = 1,
) -> ArrayJob:
    """Return an array whose elements run ``sweep.task`` with what a trial of the study needs.

    Args:
        log: Name of an element's log, without its suffix; may hold {job} and {index}.
        options: Of ``sweep.task``.
    """
    return ArrayJob(
        token=token,
        size=size,
        throttle=throttle,
        argv=task_argv(folder, *options),
        cwd=folder.root,
        log_pattern=f"{escape(str(folder.logs))}/{log}.log",
        time_limit_s=study.resources.time_limit_s,
        grace_s=study.grace_s,
        gpus=study.resources.gpu_count,
        env={EXECUTOR_VARIABLE: study.executor},
    )


def escape(text: str) -> str:
    """Keep braces in a path from being read as placeholders."""
    return text.replace("{", "{{").replace("}", "}}")


def task_argv(folder: StudyFolder, *options: str) -> list[str]:
    """Return the command of a task: this interpreter, by its absolute path."""
    return [sys.executable, "-m", "sweep.task", str(folder.root), *options]


def array_size(study: Study, left: int, limits: scheduler.Limits) -> int:
    """Return how many elements the next array gets: one for each ``slots`` trials that are left,
    within limits."""
    each = 1 if study.tasks else study.trials_per_task or 1
    wanted = -(-left // (each * slots_of(study)))
    if study.tasks:
        wanted = min(wanted, study.tasks)
    if limits.array_size is not None:
        wanted = min(wanted, limits.array_size)
    if limits.submitted is not None:
        wanted = min(wanted, limits.submitted - ALWAYS_QUEUED)
    return max(1, wanted)


def name_token(study_name: str) -> str:
    """Return a job name that is safe anywhere and that no other submission has."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", study_name).strip("-")[:40] or "study"
    return f"sweep-{safe}-{secrets.token_hex(5)}"
