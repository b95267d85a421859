"""The finaliser: what is done once a wave has ended, and that somebody is there to do it.

On a cluster it is a small job behind the array. A controller that crashes can lose it, and a node
can fail under it; so everyone who looks after a study also looks whether it has one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, cast

from sweep import scheduler
from sweep.arrays import array_job
from sweep.errors import BusyError, CouldNotAsk, OverLimit, SchedulerError, SubmitUnclear
from sweep.paths import StudyFolder
from sweep.scheduler import ArrayJob, Scheduler
from sweep.storage import studies
from sweep.storage.ledger import Ledger
from sweep.storage.studies import Wave
from sweep.waves import (
    NO_SUBMIT,
    PATIENCE_S,
    live_wave,
    mark_over,
    one_submitter,
    stop_waves,
    submit_wave,
)

RESTORED = "sweep:finaliser:"  # attribute of a study, by the wave's token: how often, and when
MOST = 3  # finalisers that are submitted again for one wave


class Finalising(Protocol):
    """What a scheduler offers whose finaliser is a job of its own."""

    def finalisers(self, token: str) -> list[str]:
        """Return the ids of a wave's finalisers that are queued or run."""
        ...

    def submit_finaliser(self, job: ArrayJob, job_id: str | None, number: int = 0) -> str:
        """Submit a wave's finaliser, the ``number``-th again; behind the array, if it lives."""
        ...

    def service_reason(self) -> str:
        """Return why the database's job waits, in plain words; empty where it does not."""
        ...


def finalise(ledger: Ledger, folder: StudyFolder, schedule: Scheduler, token: str) -> str:
    """Do what is due when a wave has ended: submit the next, or say why there is none.

    Args:
        token: The wave's.

    Returns:
        What was done, in a sentence.
    """
    try:
        with one_submitter(ledger.db.url, ledger.study.name, wait_s=PATIENCE_S):
            return _finalise(ledger, folder, schedule, token)
    except BusyError:
        return "a launch of this study is at work; it submits what is left"


def _finalise(ledger: Ledger, folder: StudyFolder, schedule: Scheduler, token: str) -> str:
    db = ledger.db
    mark_over(ledger, token)
    db.retry(lambda _: ledger.close_failures(), patience_s=PATIENCE_S)
    left = db.retry(lambda _: ledger.unfinished(), patience_s=PATIENCE_S)
    state = db.retry(lambda _: studies.read_state(db, ledger.study_id), patience_s=PATIENCE_S)
    if left == 0:
        if live_wave(ledger, schedule) is not None:
            stop_waves(ledger, schedule, running=False)  # the rest of a chain
        return "all trials are final"
    if state.word != studies.RUNNING:
        return f"the study is {state.word}: {state.reason}"
    if _was_fruitless(ledger, schedule, token):
        reason = f"the tasks of the last wave ended without a trial; see {folder.logs}"
        held = studies.StudyState(studies.HELD, reason)
        db.retry(lambda _: studies.write_state(db, ledger.study_id, held), patience_s=PATIENCE_S)
        return reason
    if live_wave(ledger, schedule) is not None:
        return "another wave runs already"
    try:
        wave = submit_wave(ledger, folder, schedule, left, say=lambda text: print(text, flush=True))
    except SchedulerError as error:
        if not isinstance(error, OverLimit):
            note = {"words": error.message, "time": time.time()}
            db.retry(
                lambda _: studies.write_attribute(db, ledger.study_id, NO_SUBMIT, note),
                patience_s=PATIENCE_S,
            )
        raise
    return f"{left} trials are left: submitted {wave.job}"


def _was_fruitless(ledger: Ledger, schedule: Scheduler, token: str) -> bool:
    """Tell whether a wave's tasks ended without one attempt, so that the next would do the same."""
    db = ledger.db
    waves = _read_waves(ledger)
    attempts = db.retry(lambda _: ledger.count_attempts(), patience_s=PATIENCE_S)
    mine = next((wave for wave in waves if wave.token == token), None)
    if mine is None or attempts > mine.attempts:
        return False
    if sum(wave.attempts == attempts for wave in waves) > 1:
        return True  # the one before did no better
    try:
        tasks = schedule.poll([mine.job]) if mine.job else {}
    except CouldNotAsk:
        return True
    # A controller that crashed has lost the array: no task of it ever ended.
    return any(task.state == scheduler.ENDED and task.started for task in tasks.values())


def restore(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler,
    say: Callable[[str], None] = lambda _: None,
    *,
    alone: bool = False,
) -> str | None:
    """Submit the finaliser of a living study that has none, recorded first; return its job.

    Args:
        alone: The caller keeps other submitters away already.

    Raises:
        CouldNotAsk: The scheduler does not answer.
    """
    if not hasattr(schedule, "finalisers") or not _lacks(ledger, schedule):
        return None
    if alone:
        return _restore(ledger, folder, schedule, say)
    try:
        with one_submitter(ledger.db.url, ledger.study.name, wait_s=0.0):
            return _restore(ledger, folder, schedule, say)
    except BusyError:
        return None  # a launch or a finaliser is at work


def _lacks(ledger: Ledger, schedule: Scheduler) -> bool:
    waves = _read_waves(ledger)
    if not waves or not _is_alive(ledger):
        return False
    return not cast(Finalising, schedule).finalisers(_last(waves).token)


def _is_alive(ledger: Ledger) -> bool:
    """Tell whether trials are to be run, by tasks that the nodes may submit."""
    db = ledger.db
    state = db.retry(lambda _: studies.read_state(db, ledger.study_id), patience_s=PATIENCE_S)
    if state.word != studies.RUNNING:
        return False
    if db.retry(
        lambda _: studies.read_attribute(db, ledger.study_id, NO_SUBMIT), patience_s=PATIENCE_S
    ):
        return False
    return db.retry(lambda _: ledger.unfinished(), patience_s=PATIENCE_S) > 0


def _restore(
    ledger: Ledger, folder: StudyFolder, schedule: Scheduler, say: Callable[[str], None]
) -> str | None:
    db = ledger.db
    live = live_wave(ledger, schedule)
    if not _lacks(ledger, schedule):
        return None
    wave = live or _last(_read_waves(ledger))
    key = RESTORED + wave.token
    note = db.retry(
        lambda _: studies.read_attribute(db, ledger.study_id, key), patience_s=PATIENCE_S
    )
    number = (note["count"] if note else 0) + 1
    if number > MOST:
        return None
    record = {"count": number, "time": time.time()}
    db.retry(
        lambda _: studies.write_attribute(db, ledger.study_id, key, record), patience_s=PATIENCE_S
    )
    job, behind = array_job(ledger.study, folder, wave), wave.job if live else None
    try:
        job_id = cast(Finalising, schedule).submit_finaliser(job, behind, number)
    except SubmitUnclear as error:
        say(f"The finaliser of {wave.job} was lost. {error.message}")
        return None
    except SchedulerError as error:
        say(f"The finaliser of {wave.job} was lost, and not submitted again: {error.message}")
        record = {"count": number - 1, "time": time.time()}
        db.retry(
            lambda _: studies.write_attribute(db, ledger.study_id, key, record),
            patience_s=PATIENCE_S,
        )
        return None
    say(f"the finaliser of {wave.job} was lost; job {job_id} does its work")
    return job_id


def _read_waves(ledger: Ledger) -> list[Wave]:
    db = ledger.db
    return db.retry(lambda _: studies.read_waves(db, ledger.study_id), patience_s=PATIENCE_S)


def _last(waves: list[Wave]) -> Wave:
    """Return the wave whose finaliser carries the study on: the last, of a chain as well."""
    return waves[-1]


def coming(ledger: Ledger, schedule: Scheduler) -> str:
    """Return who goes on with a study that has no task at present; empty where nobody does.

    Raises:
        CouldNotAsk: The scheduler does not answer.
    """
    waves = _read_waves(ledger)
    if not waves or not hasattr(schedule, "finalisers"):
        return ""
    jobs = cast(Finalising, schedule).finalisers(_last(waves).token)
    return f"its finaliser (job {jobs[0]}) is about to go on with it" if jobs else ""


def notes(ledger: Ledger, schedule: Scheduler) -> list[str]:
    """Return what a user should know of the study's waves, in sentences.

    Raises:
        CouldNotAsk: The scheduler does not answer.
    """
    db = ledger.db
    waves = _read_waves(ledger)
    if not hasattr(schedule, "finalisers") or not waves or not db.retry(
        lambda _: ledger.unfinished(), patience_s=PATIENCE_S
    ):
        return []
    finalising = cast(Finalising, schedule)
    found = []
    live = [wave for wave in waves if wave.job and not wave.over]
    for number, wave in enumerate(waves, 1):
        if wave in live:
            found.append(
                f"wave {number} of {len(waves)}: job {wave.job}, {wave.size} tasks, "
                f"{wave.throttle} at once"
            )
    if live and not finalising.finalisers(live[-1].token):
        found.append(
            "no finaliser is queued: what this wave leaves must be launched by hand (sweep launch)"
        )
    refused = db.retry(
        lambda _: studies.read_attribute(db, ledger.study_id, NO_SUBMIT), patience_s=PATIENCE_S
    )
    if refused and not live:
        found.append(
            f"the finaliser could not submit the next wave: {refused['words']} "
            "`sweep launch` does, and queues several waves at once from now on"
        )
    service = finalising.service_reason()
    if service:
        found.append(f"the job that serves the database waits: {service}")
    return found
