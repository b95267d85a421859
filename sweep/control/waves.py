"""Submit what is left of a study as one array, so that there is never a second one beside it.

The intent is written before the scheduler is asked. A submission whose answer was lost is settled
by looking for its name token: adopted where it is found, forgotten where it is not.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sweep.control import sick_nodes
from sweep.control.job_owners import owner_of
from sweep.core import scheduler
from sweep.core.attributes import FOLDER, NO_SUBMIT, WAVE
from sweep.core.errors import (
    BusyError,
    CouldNotAsk,
    OverLimit,
    SchedulerError,
    SubmitUnclear,
    SweepError,
)
from sweep.core.executors import slots_of
from sweep.core.files import make_private
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import TASK_FORMAT, Scheduler, Task, TaskState, Wave
from sweep.schedulers.arrays import array_job, level_of, name_token, plan_waves, throttle_of
from sweep.storage import locks, promotion, studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.training import build, fetched

# Pauses before a refused submission is tried with fewer elements, and then with just one.
SHRINK_PAUSE_S = 1.0
PAUSES_S = (5.0, 10.0, 20.0, 30.0)
# Beyond their grace, for tasks of a stopped study to be gone; and between two looks.
LEAVE_S = 60.0
LEAVE_LOOK_S = 1.0


def open_waves(ledger: Ledger) -> list[Wave]:
    """Return the waves of which nobody has seen the end, oldest first."""
    db = ledger.db
    return db.retry(lambda _: studies.read_waves(db, ledger.study_id, live_only=True))


def refuse_other_versions(ledger: Ledger, schedule: Scheduler) -> None:
    """Refuse a study that tasks of another version of sweep serve: they read and write otherwise.

    Raises:
        BusyError: So it is; nothing was changed.
        CouldNotAsk: Such an array was submitted, and the scheduler does not say whether it lives.
    """
    for wave in open_waves(ledger):
        if wave.format == TASK_FORMAT:
            continue
        owner = owner_of(ledger, schedule, wave)
        job = wave.job or next(iter(owner.find(wave.token)), None)
        if job and _live_tasks(owner, job):
            name = ledger.study.name
            older = "an older" if wave.format < TASK_FORMAT else "a newer"
            raise BusyError(
                f"Tasks of {older} version of sweep serve the study {name!r} (job {job}); they "
                "would not understand what this version writes.",
                f"Let them end first: sweep stop {name} --drain; once `sweep status {name}` shows "
                "no running trial, launch again.",
            )


class RunsElsewhere(BusyError):
    """An array of the study lives under another executor: a second one would run beside it.

    Attributes:
        wave: The array.
    """

    def __init__(self, wave: Wave, place: str, name: str) -> None:
        super().__init__(
            f"Job {wave.job} of the study {name!r} is at work on {place}, and goes on there.",
            f"To move the study: sweep stop {name}, then launch it where it is to go on.",
        )
        self.wave = wave


def refuse_to_move(
    ledger: Ledger,
    schedule: Scheduler,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Refuse to take a study to another executor while an array of it lives.

    Tasks that leave, because the study was stopped, are waited for.

    Raises:
        RunsElsewhere: It lives; nothing was changed.
        BusyError: The executor that has it cannot be asked from here.
    """
    db, name, told = ledger.db, ledger.study.name, False
    give_up_at = time.monotonic() + ledger.study.grace_s + LEAVE_S
    while any(not schedule.has(wave) for wave in open_waves(ledger)):
        try:
            wave = live_wave(ledger, schedule)
        except SweepError as error:
            raise BusyError(
                f"Whether an array of the study {name!r} still runs under its earlier executor "
                f"cannot be said from here: {error.message}",
                f"Launch it there, or ask again later. {error.hint}".strip(),
            ) from error
        if wave is None or schedule.has(wave):
            return
        owner = owner_of(ledger, schedule, wave)
        state = db.retry(lambda _: studies.read_state(db, ledger.study_id))
        if state.word != studies.STOPPED or time.monotonic() >= give_up_at:
            raise RunsElsewhere(wave, owner.place, name)
        if not told:
            say(f"waiting for the tasks of job {wave.job} on {owner.place} to leave")
            told = True
        sleep(LEAVE_LOOK_S)


def refuse_while_alive(ledger: Ledger, schedule: Scheduler, folder: StudyFolder) -> None:
    """Refuse a study whose folder was moved under its tasks: they look for it where it was.

    Raises:
        BusyError: So it is; nothing was changed.
    """
    wave = live_wave(ledger, schedule)
    if wave is not None:
        home = ledger.db.retry(lambda db: studies.read_attribute(db, ledger.study_id, FOLDER))
        name = ledger.study.name
        raise BusyError(
            f"The folder of the study {name!r} has moved from {home} to {folder.root} while tasks "
            f"of job {wave.job} still serve it, and they do not know.",
            f"Move it back and let them end there (sweep stop {name}); then move it, and launch.",
        )


def live_wave(
    ledger: Ledger, schedule: Scheduler, states: Mapping[Task, TaskState] | None = None
) -> Wave | None:
    """Return the wave that still has tasks, or None; settles what became of the others.

    What a dead array has left running is ended: nothing would follow it.

    Args:
        states: What the scheduler said just now of all open waves' jobs; by default it is asked.

    Raises:
        CouldNotAsk: The scheduler does not answer.
    """
    found = None
    for wave in open_waves(ledger):
        owner = owner_of(ledger, schedule, wave)
        job = wave.job or _settle(owner, wave.token)
        alive: list[TaskState] = []
        if job and wave.job and states is not None and owner is schedule:
            alive = _alive(states, job)
        elif job:
            alive = _live_tasks(owner, job)
        if job and alive and job not in owner.find(wave.token):
            # The controller crashed and lost it; the number is another job's now.
            job = next(iter(owner.find(wave.token)), None)
            alive = _live_tasks(owner, job) if job else []
        if job and alive and all(task.word == scheduler.ORPHANED for task in alive):
            _record_cancel(ledger, job, studies.ALL)
            owner.cancel(job)
            alive = _live_tasks(owner, job)
        settled = replace(wave, job=job, over=not alive)
        if settled != wave:
            _write(ledger, settled)
        if alive:
            found = settled
    return found


def _settle(schedule: Scheduler, token: str) -> str | None:
    """Return the job of a submission whose answer was lost, or None where there is none.

    It may be on its way yet, if launch was killed a moment ago: it is looked for longer than that.
    """
    give_up_at = time.monotonic() + schedule.settle_s
    while not (jobs := schedule.find(token)) and time.monotonic() < give_up_at:
        time.sleep(1.0)
    return jobs[0] if jobs else None


def _live_tasks(schedule: Scheduler, job: str) -> list[TaskState]:
    return _alive(schedule.queued([job]), job)


def _alive(states: Mapping[Task, TaskState], job: str) -> list[TaskState]:
    return [task for (of, _), task in states.items() if of == job and task.state != scheduler.ENDED]


def submit_wave(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler,
    left: int,
    *,
    say: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Wave:
    """Submit an array for what is left.

    Where nodes may not submit, it is followed by further ones, each behind the one before.

    Args:
        left: Trials that are not final.
        say: Told when the scheduler wants less at once.

    Returns:
        The first.

    Raises:
        OverLimit: Not even one element passed the scheduler's limits, for a minute.
        SchedulerError: The scheduler refused it; the intent is taken back.
        SubmitUnclear: Nobody can say; the intent stays, and the next launch settles it.
    """
    db, study = ledger.db, ledger.study
    attempts = db.retry(lambda _: ledger.count_attempts())
    chain = not nodes_may_submit(ledger, schedule)
    make_private(folder.logs)
    sick = db.retry(lambda _: sick_nodes.avoided(ledger, folder))
    submitted: list[Wave] = []
    left = db.retry(lambda _: promotion.worth_tasks(db, ledger.study_id, study, left))
    for size in plan_waves(study, left, schedule.limits(), chain=chain):
        wave = Wave(
            token=name_token(study.name),
            size=size,
            throttle=throttle_of(study, size, slots_of(study), level_of(study, folder)),
            slots=slots_of(study),
            executor=schedule.name,
            submitted=time.time(),
            attempts=attempts,
            format=TASK_FORMAT,
            resources=study.resources.of_memory,
        )
        behind = submitted[-1].job if submitted else None
        try:
            submitted.append(_submit(ledger, folder, schedule, wave, behind, sick, say, sleep))
        except SweepError as error:
            if not submitted:
                raise
            say(f"{len(submitted)} waves are queued; a further one was not: {error.message}")
            break
    return submitted[0]


def _submit(
    ledger: Ledger,
    folder: StudyFolder,
    schedule: Scheduler,
    wave: Wave,
    behind: str | None,
    sick: Sequence[str],
    say: Callable[[str], None],
    sleep: Callable[[float], None],
) -> Wave:
    """Submit one array, the intent first; with fewer elements where so many are refused."""
    study = ledger.study
    pauses = list(PAUSES_S) if behind is None else []
    while True:
        _write(ledger, wave)
        plain = array_job(study, folder, wave)
        fetches, builds = bool(fetched.missing(study)), build.is_missing(study)
        plain = replace(plain, fetches=fetches, builds=builds)
        job = replace(plain, behind=behind, exclude=tuple(sick))
        try:
            wave = replace(wave, job=schedule.submit(job))
        except SubmitUnclear:
            raise
        except SweepError as error:
            over = isinstance(error, OverLimit)
            if over and wave.size > 1:
                size = wave.size // 2
                throttle = throttle_of(study, size, wave.slots, level_of(study, folder))
                wave = replace(wave, size=size, throttle=throttle)
                say(f"{error.message} Trying {size} tasks; each pulls trial after trial.")
                sleep(SHRINK_PAUSE_S)
                continue
            if over and pauses:
                say(f"{error.message} Trying again in {pauses[0]:.0f} s.")
                sleep(pauses.pop(0))
                continue
            _forget(ledger, wave)
            raise
        _write(ledger, wave)
        return wave


def nodes_may_submit(ledger: Ledger, schedule: Scheduler) -> bool:
    """Tell whether the finaliser can submit the next wave, as far as is known."""
    refused = ledger.db.retry(lambda db: studies.read_attribute(db, ledger.study_id, NO_SUBMIT))
    return not refused and schedule.nodes_may_submit()


def set_throttles(ledger: Ledger, folder: StudyFolder, schedule: Scheduler) -> None:
    """Give the live waves the throttle that the study has now."""
    for wave in open_waves(ledger):
        level = level_of(ledger.study, folder)
        throttle = throttle_of(ledger.study, wave.size, wave.slots, level)
        if wave.job and wave.throttle != throttle:
            owner_of(ledger, schedule, wave).set_throttle(wave.job, throttle)
            _write(ledger, replace(wave, throttle=throttle))


def _write(ledger: Ledger, wave: Wave) -> None:
    ledger.db.retry(lambda db: studies.write_wave(db, ledger.study_id, wave))


def _forget(ledger: Ledger, wave: Wave) -> None:
    key = WAVE + wave.token
    ledger.db.retry(lambda db: studies.remove_attribute(db, ledger.study_id, key))


def _record_cancel(ledger: Ledger, job: str, what: str) -> None:
    ledger.db.retry(lambda db: studies.note_cancel(db, ledger.study_id, job, what))


@contextlib.contextmanager
def one_submitter(url: str, name: str, *, wait_s: float) -> Iterator[None]:
    """Keep whoever may submit for a study apart, launches and finalisers, also on other machines.

    Args:
        url: The database's address.
        wait_s: How long to wait for another one.

    Raises:
        BusyError: Another one is at work.
    """
    give_up_at = time.monotonic() + wait_s
    with contextlib.closing(Database(url)) as holder:
        while not locks.try_submit(holder, name):
            if time.monotonic() >= give_up_at:
                raise BusyError(
                    f"Another launch of the study {name!r} is at work.",
                    f"Wait for it to end; `sweep status {name}` shows the study.",
                )
            time.sleep(0.1)
        yield


def mark_over(ledger: Ledger, token: str) -> None:
    """Note that a wave has ended."""
    db = ledger.db
    waves = db.retry(lambda _: studies.read_waves(db, ledger.study_id))
    for wave in waves:
        if wave.token == token and not wave.over:
            _write(ledger, replace(wave, over=True))


def stop_waves(
    ledger: Ledger, schedule: Scheduler, *, running: bool, now: bool = False
) -> Sequence[str]:
    """Cancel the tasks of the study's live waves, recorded first; return the jobs.

    Args:
        running: Also those that run; else only what has not started. They see by the study's state
            that they are to leave, and have their grace for it.
        now: Without that: they get SIGTERM, and the scheduler ends them some seconds later.

    Raises:
        SchedulerError: The scheduler refused.
        CouldNotAsk: It does not answer.
    """
    waves = open_waves(ledger)
    jobs = {wave.job: owner_of(ledger, schedule, wave) for wave in waves if wave.job}
    for job, owner in jobs.items():
        _record_cancel(ledger, job, studies.ALL if running else studies.WAITING_ONES)
        owner.cancel(job, pending_only=not (running and now))
        if running and not now:
            with contextlib.suppress(SchedulerError, CouldNotAsk):  # they look by themselves, later
                owner.hurry(job)
    return list(jobs)


def stop_study(
    ledger: Ledger, schedule: Scheduler, by: str, *, drain: bool = False, now: bool = False
) -> int:
    """Stop a study until the next launch; return how many of its trials have not ended.

    Args:
        by: Who does, for those who look at it: "by `sweep stop`".
        drain: Let the running trials end.
        now: Without ``grace``.

    Raises:
        SchedulerError: The scheduler refused.
        CouldNotAsk: It does not answer.
    """
    db = ledger.db
    if db.retry(lambda _: ledger.unfinished()):  # else it keeps the reason for which it has ended
        state = studies.StudyState(studies.DRAINING if drain else studies.STOPPED, by)
        db.retry(lambda _: studies.write_state(db, ledger.study_id, state))
    stop_waves(ledger, schedule, running=not drain, now=now)
    return db.retry(lambda _: ledger.unfinished())
