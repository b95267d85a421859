"""The finaliser: what is done once a wave has ended, and that somebody is there to do it.

On a cluster it is a small job behind the array. A controller that crashes can lose it, and a node
can fail under it; so everyone who looks after a study also looks whether it has one. Such a crash
can also leave tasks and small jobs held: these are released.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from sweep.control.waves import live_wave, mark_over, one_submitter, stop_waves, submit_wave
from sweep.core import scheduler
from sweep.core.attributes import NO_SUBMIT, RELEASED, RESTORED
from sweep.core.errors import BusyError, CouldNotAsk, OverLimit, SchedulerError, SubmitUnclear
from sweep.core.executors import kind_of
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import Beside, Scheduler, Wave
from sweep.core.study import Study
from sweep.schedulers.arrays import array_job
from sweep.storage import budgets, studies
from sweep.storage.closing import close_paused, close_untold
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.training import build, fetched

SUBMITTER_WAIT_S = 60.0  # for another who submits for the study
MOST_RELEASES = 10
MOST = 3  # finalisers that are submitted again for one wave


def look_beside(ledger: Ledger, schedule: Scheduler) -> Beside | None:
    """Ask once for the small jobs beside a study's waves; None where there are no such jobs.

    Raises:
        CouldNotAsk: The scheduler does not answer.
    """
    if not schedule.finalises_by_job:
        return None
    return _look(schedule, _read_waves(ledger))


def _look(schedule: Scheduler, waves: Sequence[Wave]) -> Beside | None:
    if not waves:
        return None
    # The last wave's finaliser carries the study on, also that of a chain.
    tokens = [wave.token for wave in waves if not wave.over or wave is waves[-1]]
    return schedule.beside(tokens)


def finalise(ledger: Ledger, folder: StudyFolder, schedule: Scheduler, token: str) -> str:
    """Do what is due when a wave has ended: submit the next, or say why there is none.

    Args:
        token: The wave's.

    Returns:
        What was done, in a sentence.
    """
    try:
        with one_submitter(ledger.db.url, ledger.study.name, wait_s=SUBMITTER_WAIT_S):
            return _finalise(ledger, folder, schedule, token)
    except BusyError:
        return "a launch of this study is at work; it submits what is left"


def _finalise(ledger: Ledger, folder: StudyFolder, schedule: Scheduler, token: str) -> str:
    db = ledger.db
    mark_over(ledger, token)
    present = Study.read(folder.study)
    if not schedule.runs(present):
        return f"the study has moved to {kind_of(present).place}"
    db.retry(lambda _: ledger.close_failures())
    db.retry(lambda _: close_paused(ledger))
    left = db.retry(lambda _: ledger.unfinished())
    state = db.retry(lambda _: studies.read_state(db, ledger.study_id))
    if state.word == studies.ENDED and left:
        # Nobody runs any of them: this wave has ended, and its attempts are settled.
        db.retry(lambda _: budgets.cancel_rest(ledger, state.reason))
        left = db.retry(lambda _: ledger.unfinished())
    if left == 0:
        db.retry(lambda _: close_untold(ledger))
        if live_wave(ledger, schedule) is not None:
            stop_waves(ledger, schedule, running=False)  # the rest of a chain
        why = f": the study has ended, {state.reason}" if state.word == studies.ENDED else ""
        return f"all trials are final{why}"
    if state.word != studies.RUNNING:
        return f"the study is {state.word}: {state.reason}"
    if reason := _why_held(ledger, folder, schedule, token, state.since):
        held = studies.StudyState(studies.HELD, reason, since=state.since)
        db.retry(lambda _: studies.write_state(db, ledger.study_id, held))
        return reason
    if live_wave(ledger, schedule) is not None:
        return "another wave runs already"
    try:
        wave = submit_wave(ledger, folder, schedule, left, say=lambda text: print(text, flush=True))
    except SchedulerError as error:
        if not isinstance(error, OverLimit):
            note = {"words": error.message, "time": time.time()}
            db.retry(lambda _: studies.write_attribute(db, ledger.study_id, NO_SUBMIT, note))
        raise
    return f"{left} trials are left: submitted {wave.job}"


def _why_held(
    ledger: Ledger, folder: StudyFolder, schedule: Scheduler, token: str, since: float
) -> str:
    """Return why the next wave would do no better than the last; "" where it may."""
    study = ledger.study
    if missing := fetched.missing(study):
        # Their job has failed, and Slurm has cancelled what needed it: again by a launch alone.
        path = study.data_paths[missing[0]]
        logs = f"{folder.logs}/fetch_*.log and {fetched.log_of(path)}"
        return f"data.{missing[0]} was not fetched to {path}; see {logs}"
    if build.is_missing(study) and not _has_tried(ledger, token):
        return build.why_missing(study, folder.logs)
    if was_fruitless(ledger, schedule, token, since):
        return f"the tasks of the last wave ended without a trial; see {folder.logs}"
    return ""


def _has_tried(ledger: Ledger, token: str) -> bool:
    """Tell whether a trial was begun since a wave was submitted."""
    attempts = ledger.db.retry(lambda _: ledger.count_attempts())
    return any(wave.token == token and attempts > wave.attempts for wave in _read_waves(ledger))


def was_fruitless(ledger: Ledger, schedule: Scheduler, token: str, since: float) -> bool:
    """Tell whether a wave's tasks ended without one attempt, so that the next would do the same.

    Args:
        since: When the study was launched last. Of a wave from before that nothing follows: it was
            told to leave, or its user has mended something.
    """
    db = ledger.db
    waves = [wave for wave in _read_waves(ledger) if wave.submitted >= since]
    attempts = db.retry(lambda _: ledger.count_attempts())
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


def tend(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler,
    say: Callable[[str], None] = lambda _: None,
    *,
    alone: bool = False,
) -> None:
    """Release what a crash made the scheduler hold of a living study, and submit its finaliser
    where it has none, recorded first.

    Args:
        alone: The caller keeps other submitters away already.

    Raises:
        CouldNotAsk: The scheduler does not answer.
    """
    if not schedule.finalises_by_job or not _is_alive(ledger):
        return
    waves = _read_waves(ledger)
    beside = _look(schedule, waves)
    if beside is None:
        return
    if beside.held:
        _release(ledger, schedule, waves[-1].token, beside.held, say)
    if beside.finalisers or _is_refused(ledger):
        return
    if alone:
        _restore(ledger, folder, schedule, say)
        return
    # Not where a launch or a finaliser is at work.
    with (
        contextlib.suppress(BusyError),
        one_submitter(ledger.db.url, ledger.study.name, wait_s=0.0),
    ):
        _restore(ledger, folder, schedule, say)


def _release(
    ledger: Ledger, schedule: Scheduler, token: str, held: Sequence[str], say: Callable[[str], None]
) -> None:
    """Release tasks, up to a number of times a wave: what never starts is for its user to see."""
    db, key = ledger.db, RELEASED + token

    def count(_: Database) -> int:
        so_far = (studies.read_attribute(db, ledger.study_id, key) or 0) + 1
        studies.write_attribute(db, ledger.study_id, key, so_far)
        return int(so_far)

    if db.retry(count) > MOST_RELEASES:
        return
    try:
        schedule.release(held)
    except SchedulerError as error:
        say(f"{schedule.place} holds {', '.join(held)}, and would not let go: {error.message}")
    else:
        say(f"a node could not start {', '.join(held)}, which was held: released")


def _is_alive(ledger: Ledger) -> bool:
    """Tell whether trials are to be run."""
    db = ledger.db
    state = db.retry(lambda _: studies.read_state(db, ledger.study_id))
    if state.word != studies.RUNNING:
        return False
    return db.retry(lambda _: ledger.unfinished()) > 0


def _is_refused(ledger: Ledger) -> bool:
    """Tell whether nodes may not submit, so that no finaliser can go on with the study."""
    return bool(ledger.db.retry(lambda db: studies.read_attribute(db, ledger.study_id, NO_SUBMIT)))


def _restore(
    ledger: Ledger, folder: StudyFolder, schedule: Scheduler, say: Callable[[str], None]
) -> None:
    db = ledger.db
    live = live_wave(ledger, schedule)
    waves = _read_waves(ledger)
    beside = _look(schedule, waves)
    if not _is_alive(ledger) or beside is None or beside.finalisers:
        return
    wave = live or waves[-1]
    key = RESTORED + wave.token
    note = db.retry(lambda _: studies.read_attribute(db, ledger.study_id, key))
    number = (note["count"] if note else 0) + 1
    if number > MOST:
        return
    record = {"count": number, "time": time.time()}
    db.retry(lambda _: studies.write_attribute(db, ledger.study_id, key, record))
    job, behind = array_job(ledger.study, folder, wave), wave.job if live else None
    try:
        job_id = schedule.submit_finaliser(job, behind, number)
    except SubmitUnclear as error:
        say(f"The finaliser of {wave.job} was lost. {error.message}")
        return
    except SchedulerError as error:
        say(f"The finaliser of {wave.job} was lost, and not submitted again: {error.message}")
        record = {"count": number - 1, "time": time.time()}
        db.retry(lambda _: studies.write_attribute(db, ledger.study_id, key, record))
        return
    say(f"the finaliser of {wave.job} was lost; job {job_id} does its work")


def _read_waves(ledger: Ledger) -> list[Wave]:
    db = ledger.db
    return db.retry(lambda _: studies.read_waves(db, ledger.study_id))


def coming(beside: Beside | None) -> str:
    """Return who goes on with a study that has no task at present; empty where nobody does."""
    if beside is None or not beside.finalisers:
        return ""
    return f"its finaliser (job {beside.finalisers[0]}) is about to go on with it"


def notes(ledger: Ledger, beside: Beside | None) -> list[str]:
    """Return what a user should know of the study's waves, in sentences.

    Args:
        beside: What ``look_beside`` found; None where waves have no small jobs.
    """
    db = ledger.db
    if beside is None or not db.retry(lambda _: ledger.unfinished()):
        return []
    waves = _read_waves(ledger)
    live = [wave for wave in waves if wave.job and not wave.over]
    found = [
        f"wave {number} of {len(waves)}: job {wave.job}, {wave.size} tasks, {wave.throttle} at once"
        for number, wave in enumerate(waves, 1)
        if wave in live
    ]
    if live and not beside.finalisers:
        found.append(
            "no finaliser is queued: what this wave leaves must be launched by hand (sweep launch)"
        )
    refused = db.retry(lambda _: studies.read_attribute(db, ledger.study_id, NO_SUBMIT))
    if refused and not live:
        found.append(
            f"the finaliser could not submit the next wave: {refused['words']} "
            "`sweep launch` does, and queues several waves at once from now on"
        )
    if beside.finaliser_waits:
        found.append(f"the finaliser (job {beside.finalisers[0]}) waits: {beside.finaliser_waits}")
    if beside.fetches:
        found.append(f"the data are being fetched before any task starts: {beside.fetches}")
    if beside.builds:
        found.append(f"the image is being built before any task starts: {beside.builds}")
    if beside.service_waits:
        found.append(f"the job that serves the database waits: {beside.service_waits}")
    return found
